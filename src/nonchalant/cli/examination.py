"""What `doctor` looks at: settings, keys, store, endpoints, accounts, service."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from nonchalant.advice import load_hook
from nonchalant.amounts import format_wei
from nonchalant.chain.evm.addresses import checksum
from nonchalant.chain.evm.rpc import Call, Rpc
from nonchalant.cli.client import Client, Refusal, ServiceUnreachable
from nonchalant.config import ChainSettings, EndpointSettings, Settings, load_settings
from nonchalant.errors import NodeRefused, NonchalantError, Unreachable
from nonchalant.installation import Installation
from nonchalant.keys import Key
from nonchalant.parts import open_store, signers_of
from nonchalant.store import postgres_schema
from nonchalant.store.migrations import Status
from nonchalant.store.schemas import status
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.values import replace
from nonchalant.words import Address

KEYS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `remedy` is set where it is wrong, or could be better."""

    what: str
    ok: bool
    detail: str
    remedy: str | None = None

    def fields(self) -> dict[str, Any]:
        return asdict(self)


class _Numbered(msgspec.Struct):
    number: str

    @property
    def height(self) -> int:
        return int(self.number, 16)


def examine(file: Path | None) -> Iterator[Finding]:
    try:
        settings = load_settings(file)
    except NonchalantError as error:
        yield Finding("settings", False, str(error))
        return
    yield Finding("settings", True, f"{len(settings.chains)} chain(s), {len(settings.accounts)} account entries")
    accounts: dict[int, list[Address]] = {chain.id: [] for chain in settings.chains}
    yield from _keys(settings, accounts)
    yield from _hook(settings)
    yield from _store(settings)
    yield from _auth(settings)
    for found in asyncio.run(_chains(settings, accounts)):
        yield from found
    yield _service(settings)


def _keys(settings: Settings, accounts: dict[int, list[Address]]) -> Iterator[Finding]:
    """The signers, each for itself; the addresses found are put into `accounts`."""
    for account in settings.accounts:
        what = f"{account.where}.key"
        try:
            lanes = list(signers_of(replace(settings, accounts=(account,))))
        except NonchalantError as error:
            yield Finding(what, False, str(error))
            continue
        twice = [lane for lane in lanes if lane.address in accounts[lane.chain_id]]
        if twice:
            yield Finding(
                what,
                False,
                f"{checksum(twice[0].address)} is configured twice on chain {twice[0].chain_id}",
                "keep one",
            )
            continue
        for lane in lanes:
            accounts[lane.chain_id].append(lane.address)
        yield Finding(what, True, f"signs for {', '.join(dict.fromkeys(checksum(lane.address) for lane in lanes))}")


def _hook(settings: Settings) -> Iterator[Finding]:
    if settings.attention_hook is None:
        return
    try:
        load_hook(settings.attention_hook)
    except NonchalantError as error:
        yield Finding("attention_hook", False, str(error))
        return
    yield Finding("attention_hook", True, f"{settings.attention_hook} can be called")


def _store(settings: Settings) -> Iterator[Finding]:
    try:
        found = status(settings.store)
        if isinstance(found.path, Installation):
            yield from _server(found, settings.listen_dsn)
            return
    except NonchalantError as error:
        yield Finding("store", False, str(error))
        return
    folder = found.path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield Finding("store", False, f"cannot write in {folder}", "make the folder, or give it to this user")
    elif found.version == 0:
        yield Finding("store", True, f"{found.path} is not there yet; the first start makes it")
    elif not os.access(found.path, os.W_OK):
        yield Finding("store", False, f"cannot write {found.path}", "give the file to this user")
    elif found.is_current:
        yield Finding("store", True, f"{found.path}, schema version {found.version}, every commit goes to disk")
    else:
        yield _outdated(found)


def _outdated(found: Status) -> Finding:
    remedy = "run `nonchalant db migrate`" if found.version < found.latest else "upgrade Nonchalant"
    return Finding("store", False, f"schema version {found.version}, this program needs {found.latest}", remedy)


def _server(found: Status, listen_dsn: str | None) -> Iterator[Finding]:
    assert isinstance(found.path, Installation)
    if found.version == 0:
        yield Finding("store", True, f"{found.path} can be reached; the first start makes its schema")
    elif found.is_current:
        yield Finding("store", True, f"{found.path}, schema version {found.version}")
    else:
        yield _outdated(found)
    trouble = asyncio.run(postgres_schema.weaknesses(found.path))
    for what, remedy in trouble.items():
        yield Finding("store", False, what, remedy)
    if listen_dsn is not None:
        direct = Installation.parse(listen_dsn)
        pooled = asyncio.run(postgres_schema.stands_behind_a_pooler(direct))
        said = "a pooler answers there too" if pooled else f"wake-ups through {direct}"
        yield Finding("listen_dsn", not pooled, said, "name the server itself" if pooled else "")
    elif asyncio.run(postgres_schema.stands_behind_a_pooler(found.path)):
        yield Finding(
            "listen_dsn",
            False,
            "a pooler stands before the store, so nodes hear of each other's work only by sweeping",
            "add listen_dsn with the address of the server itself",
        )


def _auth(settings: Settings) -> Iterator[Finding]:
    if settings.auth == "off":
        yield Finding("auth", True, "off: everybody on this machine may do everything")
        return
    try:
        found = status(settings.store)
        if not found.is_current:
            yield Finding("auth", True, "every call needs an API key; the first start on a new store shows one")
            return
        keys = asyncio.run(_all_keys(settings))
    except NonchalantError as error:
        yield Finding("auth", False, f"the keys cannot be read: {error}")
        return
    if not keys:
        yield Finding("auth", True, "every call needs an API key, and there is none yet; the first start shows one")
        return
    live = [key for key in keys if key.is_live(SystemClock().now())]
    admins = sum(key.caller.is_admin for key in live)
    detail = f"every call needs an API key; {len(live)} of {len(keys)} can be used, {admins} of them by an admin"
    remedy = "run `nonchalant key create NAME --scope admin --config FILE`"
    yield Finding("auth", admins > 0, detail, None if admins else remedy)


async def _all_keys(settings: Settings) -> list[Key]:
    store = await open_store(settings, SystemClock(), SystemEntropy())
    try:
        found: list[Key] = []
        while page := await store.keys(before=found[-1].place if found else None, limit=KEYS_AT_ONCE):
            found += page
        return found
    finally:
        await store.close()


async def _chains(settings: Settings, accounts: dict[int, list[Address]]) -> list[list[Finding]]:
    return await asyncio.gather(*(_chain(chain, accounts[chain.id]) for chain in settings.chains))


async def _chain(chain: ChainSettings, accounts: list[Address]) -> list[Finding]:
    looks = await asyncio.gather(*(_endpoint(chain, endpoint, accounts) for endpoint in chain.endpoints))
    findings = [finding for finding, _ in looks]
    # Every usable endpoint was asked; the first one's word is shown.
    findings += next((about for _, about in looks if about), [])
    return findings


async def _endpoint(
    chain: ChainSettings, endpoint: EndpointSettings, accounts: list[Address]
) -> tuple[Finding, list[Finding]]:
    """What one node says of itself, and of the accounts."""
    what = f"chain {chain.id}, {endpoint.name}"
    clock = SystemClock()
    rpc = Rpc(endpoint.url, endpoint.name, timeout=chain.request_timeout)
    began = clock.monotonic()
    try:
        chain_id = int(msgspec.json.decode(await rpc.call("eth_chainId"), type=str), 16)
        took = (clock.monotonic() - began) * 1000
        if chain_id != chain.id:
            remedy = "correct the endpoint's url or the chain's id"
            return Finding(what, False, f"it serves chain {chain_id}", remedy), []
        head = msgspec.json.decode(await rpc.call("eth_getBlockByNumber", "latest", False), type=_Numbered).height
        detail = f"head {head}, answers in {took:.0f} ms"
        if chain.depth is None:
            [reply] = await rpc.calls([Call("eth_getBlockByNumber", ("finalized", False))])
            if isinstance(reply, Unreachable):
                raise reply
            final = None if isinstance(reply, NodeRefused) else msgspec.json.decode(reply, type=_Numbered | None)
            if final is None:
                return Finding(what, False, "it has no `finalized` block", "set finality to a depth, such as 12"), []
            detail += f", final up to {final.height}"
        replies = await rpc.calls(
            [
                Call(method, (address, block))
                for address in accounts
                for method, block in (
                    ("eth_getBalance", "latest"),
                    ("eth_getTransactionCount", "latest"),
                    ("eth_getTransactionCount", "pending"),
                )
            ]
        )
        about = [
            _account(chain.id, address, replies[index * 3 : index * 3 + 3]) for index, address in enumerate(accounts)
        ]
    except NonchalantError as error:
        return Finding(what, False, str(error), "check that the node runs and that its url is right"), []
    except (ValueError, KeyError) as error:
        return Finding(what, False, f"its answer is not understood ({error})", "is this an EVM node?"), []
    finally:
        await rpc.close()
    return Finding(what, True, detail), about


def _account(chain_id: int, address: Address, replies: Sequence[object]) -> Finding:
    what = f"chain {chain_id}, {checksum(address)}"
    numbers = [int(msgspec.json.decode(reply, type=str), 16) for reply in replies if isinstance(reply, bytes)]
    if len(numbers) < 3:
        return Finding(what, False, f"its balance and nonce are not told: {replies[0]}")
    balance, mined, pending = numbers
    detail = f"balance {format_wei(balance)}, nonce {mined}" + (
        f", {pending - mined} pending" if pending > mined else ""
    )
    return Finding(what, balance > 0, detail, None if balance > 0 else "send it some funds to pay for gas")


def _service(settings: Settings) -> Finding:
    url = f"http://{settings.listen}"
    try:
        Client(url).get("/readyz")
    except (ServiceUnreachable, Refusal):
        return Finding("service", True, f"nothing answers at {url} now; `nonchalant serve` starts it")
    return Finding("service", True, f"ready at {url}")
