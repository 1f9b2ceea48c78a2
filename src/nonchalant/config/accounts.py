"""One table of `[[accounts]]`: where its key is, and how its lanes are worked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nonchalant.config.chains import refuse_low_caps
from nonchalant.config.settings import AccountSettings, KeySource, Keystore, Mnemonic, PrivateKey, Settings
from nonchalant.errors import BadSettings
from nonchalant.health import HealthRules
from nonchalant.secret import parse_secret
from nonchalant.tables import (
    Found,
    Table,
    bad,
    each,
    file_path,
    flag,
    one_of,
    refuse_duplicates,
    seconds,
    string,
    wei,
    whole,
)
from nonchalant.values import replace
from nonchalant.windows import Pace
from nonchalant.words import Wei


def parse_account(found: Found) -> AccountSettings:
    table = Table(found, ("chains", "key", "window", "mode", "shared", "queue_limit", "fees", "health"))
    caps = table.take("fees", _caps, {})
    return AccountSettings(
        chains=table.need("chains", each(whole(1, 2**63 - 1)), "name the chains it works on, such as chains = [1]"),
        key=table.need("key", _key, 'such as key = { env = "RELAYER_KEY" }'),
        window=table.take("window", whole(1, 10_000), 16),
        mode=table.take("mode", one_of(Pace), Pace.PIPELINED),
        queue_limit=table.take("queue_limit", whole(1, 10_000_000), 10_000),
        max_fee=caps.get("max_fee_per_gas"),
        max_priority=caps.get("max_priority_fee_per_gas"),
        shared=table.take("shared", flag, False),
        health=table.take("health", _health, HealthRules()),
        where=found.path,
    )


def _caps(found: Found) -> Mapping[str, Wei]:
    keys = ("max_fee_per_gas", "max_priority_fee_per_gas")
    table = Table(found, keys)
    return {key: table.need(key, wei, "") for key in keys if key in table.values}


def _health(found: Found) -> HealthRules:
    table = Table(found, ("min_balance", "movement_within", "confirmation_within", "max_resets"))
    standard = HealthRules()
    return HealthRules(
        min_balance=table.take("min_balance", wei, standard.min_balance),
        movement_within=table.take("movement_within", _time_limit, standard.movement_within),
        confirmation_within=table.take("confirmation_within", _time_limit, standard.confirmation_within),
        max_resets=table.take("max_resets", whole(0, 1_000_000), standard.max_resets),
    )


def _time_limit(found: Found) -> float | None:
    """0: there is none."""
    if found.value == 0 and not isinstance(found.value, bool):
        return None
    try:
        return seconds(10, 30 * 86_400)(found)
    except BadSettings:
        raise bad(found.path, "expected seconds from 10 to 2592000, or 0 for no limit") from None


def _key(found: Found) -> KeySource:
    if isinstance(found.value, str):
        raise bad(found.path, 'a key never stands in the settings itself; use { env = "…" } or { file = "…" }')
    if isinstance(found.value, dict) and "keystore" in found.value:
        table = Table(found, ("keystore", "password"))
        password = table.need("password", parse_secret, 'such as password = { env = "…" } or { file = "…" }')
        return Keystore(table.need("keystore", file_path, "name the file"), password, where=found.path)
    if isinstance(found.value, dict) and "mnemonic" in found.value:
        table = Table(found, ("mnemonic", "path", "count"))
        return Mnemonic(
            table.need("mnemonic", parse_secret, 'such as mnemonic = { env = "…" }'),
            table.take("path", _derivation, "m/44'/60'/0'/0"),
            table.take("count", whole(1, 10_000), 1),
            where=found.path,
        )
    return PrivateKey(parse_secret(found, ("env", "file", "keystore", "mnemonic")))


def _derivation(found: Found) -> str:
    text = string(found)
    steps = text.split("/")
    if steps[0] != "m" or not all(
        re.fullmatch(r"\d{1,10}'?", s, re.ASCII) and int(s.rstrip("'")) < 2**31 for s in steps[1:]
    ):
        raise bad(found.path, "expected a derivation path such as \"m/44'/60'/0'/0\"")
    return text


def check_accounts(settings: Settings) -> None:
    seen: dict[tuple[KeySource, int], str] = {}
    for account in settings.accounts:
        where = f"{account.where}.chains"
        refuse_duplicates(where, "chain", [str(chain_id) for chain_id in account.chains])
        for chain_id in account.chains:
            chain = settings.chain(chain_id)
            if chain is None:
                raise bad(where, f"there is no chain {chain_id}; add it to [[chains]], or take it out here")
            refuse_low_caps(f"{account.where}.fees", account.max_fee, account.max_priority, chain.fees.min_priority)
            other = seen.setdefault((_without_places(account.key), chain_id), account.where)
            if other != account.where:
                raise bad(f"{account.where}.key", f"{other} has this key on chain {chain_id} already; keep one of them")


def _without_places(key: KeySource) -> KeySource:
    """The same key named at another place of the settings compares equal."""
    match key:
        case PrivateKey(secret):
            return PrivateKey(replace(secret, where=""))
        case Keystore(path, password):
            return Keystore(path, replace(password, where=""))
        case Mnemonic(phrase, path, _):
            return Mnemonic(replace(phrase, where=""), path, 0)
