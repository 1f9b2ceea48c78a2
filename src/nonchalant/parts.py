"""Settings become parts: who signs for which lane, who is asked on which chain, and by which rules the engine works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nonchalant import config, signers
from nonchalant.advice import Adviser, LoneThread, load_hook
from nonchalant.bodies import fee_fields
from nonchalant.chain.evm import pricing
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.cluster import MARGIN
from nonchalant.config import AccountSettings, ChainSettings, Settings
from nonchalant.desk import LaneRules
from nonchalant.engine import ChainRules, EngineRules
from nonchalant.errors import BadSettings
from nonchalant.installation import Installation
from nonchalant.policy import Patience
from nonchalant.ports import Clock, Entropy, Signer
from nonchalant.secret import read_private, resolve_secret
from nonchalant.store.connections import STALL_SECONDS
from nonchalant.store.contract import SqlStore
from nonchalant.store.postgres import PostgresStore
from nonchalant.store.sqlite import SqliteStore
from nonchalant.wire import parse_bump, parse_replacement, rules_of
from nonchalant.words import LaneKey

if TYPE_CHECKING:
    from nonchalant.observing.traces import Tracing


def signers_of(settings: Settings) -> dict[LaneKey, tuple[Signer, AccountSettings]]:
    """Who signs for which lane. One address may stand only once on a chain, whichever key source names it."""
    found: dict[LaneKey, tuple[Signer, AccountSettings]] = {}
    for account in settings.accounts:
        for signer in _signers(account):
            for chain_id in account.chains:
                lane = LaneKey(chain_id, signer.address)
                if lane in found:
                    raise BadSettings(
                        f"{account.where}.key: {signer.address} stands in {found[lane][1].where} already; keep one of them"
                    )
                found[lane] = (signer, account)
    return found


def adviser_of(settings: Settings, accounts: Mapping[LaneKey, AccountSettings]) -> Adviser | None:
    """The attention hook, held to what callers are held to; `BadSettings` if it cannot be imported."""
    if settings.attention_hook is None:
        return None
    return Adviser(
        load_hook(settings.attention_hook),
        LoneThread(),
        parse=lambda lane, request: parse_replacement(request, rules_of(lane, settings, accounts)),
        check=lambda lane, fees: parse_bump({"fees": fee_fields(fees)}, rules_of(lane, settings, accounts)),
    )


def _signers(account: AccountSettings) -> list[signers.LocalSigner]:
    try:
        return _read_signers(account.key)
    except BadSettings as problem:
        # A secret that cannot be read names its place already; one that is no key does not.
        if str(problem).startswith(account.where):
            raise
        raise BadSettings(f"{account.where}.key: {problem}") from None


def _read_signers(source: config.KeySource) -> list[signers.LocalSigner]:
    match source:
        case config.PrivateKey(secret):
            return [signers.from_private_key(resolve_secret(secret))]
        case config.Keystore(path, password, where):
            document = read_private(path, where)
            return [signers.from_keystore(document, resolve_secret(password), str(path))]
        case config.Mnemonic(phrase, path, count):
            return signers.from_mnemonic(resolve_secret(phrase), path, count)


def quotes_of(settings: ChainSettings, clock: Clock) -> pricing.Quotes | None:
    """Where the chain's prices come from; None: from its nodes."""
    match settings.prices:
        case None:
            return None
        case config.FixedPrices(prices):
            return pricing.Fixed(prices)
        case config.OraclePrices() as asked:
            oracle = pricing.HttpOracle(
                asked.url,
                paths=asked.paths,
                decimals=asked.unit.decimals,
                headers={name: resolve_secret(secret) for name, secret in asked.headers.items()},
                includes_base_fee=asked.includes_base_fee,
                most=pricing.HIGHEST if settings.fees.max_fee is None else settings.fees.max_fee,
                timeout=asked.timeout,
            )
            return pricing.Cached(oracle, max_age=asked.max_age, clock=clock)


def endpoints_of(settings: ChainSettings, quotes: pricing.Quotes | None) -> list[EvmEndpoint]:
    return [
        EvmEndpoint(
            settings.id,
            endpoint.url,
            endpoint.name,
            timeout=settings.request_timeout,
            finality_tag=settings.finality == "tag",
            quotes=quotes,
            charges_for_data=settings.charges_for_data,
        )
        for endpoint in settings.endpoints
    ]


# Without wake-ups, what another node accepted is found by the sweep alone.
SWEEP_SECONDS = 1.0
SWEEP_WITHOUT_WAKE_UPS = 0.25


async def open_store(settings: Settings, clock: Clock, entropy: Entropy) -> SqlStore:
    if not Installation.is_meant_by(settings.store):
        return SqliteStore.open(settings.store.removeprefix("sqlite:"), clock=clock, entropy=entropy)
    # Of those that lock a lease. Well below the part of it in which its owner does not act any more: a frozen one holds
    # nobody up.
    stall = min(STALL_SECONDS, settings.lease_seconds * MARGIN / 2)
    return await PostgresStore.open(
        settings.store, entropy=entropy, listen_url=settings.listen_dsn, stall_seconds=stall
    )


def has_wake_ups(store: SqlStore) -> bool:
    """Whether what other nodes do is heard at once. On SQLite all nodes are on one machine, and sweep."""
    return not isinstance(store, PostgresStore) or store.wakes is not None


def tracing_of(settings: Settings) -> Tracing | None:
    """Who is told of every transaction's way; None: nobody. `BadSettings` if what it takes is not installed."""
    if settings.otlp_endpoint is None:
        return None
    try:
        from nonchalant.observing.traces import Tracing
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("opentelemetry"):
            raise
        raise BadSettings(
            "otlp_endpoint: traces need more than is installed; run pip install 'nonchalant[otel]', or leave it out"
        ) from None
    return Tracing(settings.otlp_endpoint)


def kind_of(store: SqlStore) -> str:
    return "postgresql" if isinstance(store, PostgresStore) else "sqlite"


def wakes_of(store: SqlStore) -> Callable[[], tuple[int, bool]] | None:
    """How often wake-ups from other nodes were lost so far, and whether they are heard now; None: there are none."""
    wakes = store.wakes if isinstance(store, PostgresStore) else None
    return None if wakes is None else lambda: (wakes.lost, wakes.connected)


def engine_rules(
    settings: Settings, accounts: Mapping[LaneKey, AccountSettings], *, has_wake_ups: bool = True
) -> EngineRules:
    widest = {
        chain.id: max((account.window for lane, account in accounts.items() if lane.chain_id == chain.id), default=1)
        for chain in settings.chains
    }
    settings_of = {chain.id: chain for chain in settings.chains}
    return EngineRules(
        sweep_seconds=SWEEP_SECONDS if has_wake_ups else SWEEP_WITHOUT_WAKE_UPS,
        lease_seconds=settings.lease_seconds,
        retention=settings.retention * 24 * 3_600_000,
        chains={chain.id: ChainRules(chain.depth, chain.poll_interval) for chain in settings.chains},
        lanes={
            lane: LaneRules(
                window=account.window,
                pace=account.mode,
                shared=account.shared,
                largest_window=widest[lane.chain_id],
                unsettled=max(LaneRules().unsettled, 4 * account.window),
                fees=account.capped(settings_of[lane.chain_id].fees),
                health=account.health,
                patience=Patience(bump_after=settings_of[lane.chain_id].bump_after),
            )
            for lane, account in accounts.items()
        },
    )
