"""What a run is worth: each transfer once on the chain, its signature good, nonces without gaps, the store agreeing.

The chain is read from the node's full blocks. A stub believes who paid by a list; here every sender is recovered from
the signature, out of the very fields that the hash is of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from bench.books import Row
from bench.rpc import Rpc
from bench.work import Transfer
from nonchalant.chain.evm.decoding import decode
from nonchalant.chain.evm.encoding import Rlp, rlp


class Failed(Exception):
    """The figure would be worthless: a promise was broken while it was measured."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One transaction on the chain; the sender is who signed it."""

    hash: str
    sender: str
    nonce: int
    to: str | None
    value: int
    received_at: int = 0  # when the node got it, in milliseconds; only the stub tells


class _Shown(msgspec.Struct, rename="camel"):
    """A transaction of type 2 in a full block."""

    type: str
    hash: str
    from_: str = msgspec.field(name="from")
    to: str | None
    nonce: str
    value: str
    gas: str
    input: str
    max_fee_per_gas: str
    max_priority_fee_per_gas: str
    chain_id: str
    r: str
    s: str
    y_parity: str
    stub_received_at: str = "0x0"


class _Block(msgspec.Struct):
    transactions: list[_Shown]


async def deeds(rpc: Rpc) -> list[Deed]:
    """All that the chain executed, from its first block to its head."""
    head = int(await rpc.call("eth_blockNumber", result=str), 16)
    found: list[Deed] = []
    for number in range(1, head + 1):
        block: _Block = await rpc.call("eth_getBlockByNumber", hex(number), True, result=_Block)
        found += map(recovered, block.transactions)
    return found


def recovered(shown: _Shown) -> Deed:
    """Who really signed it; `Failed` unless the node told the truth about the hash and the sender."""
    to = b"" if shown.to is None else bytes.fromhex(shown.to[2:])
    numbers = (shown.chain_id, shown.nonce, shown.max_priority_fee_per_gas, shown.max_fee_per_gas, shown.gas)
    fields: tuple[Rlp, ...] = (
        *(int(number, 16) for number in numbers),
        *(to, int(shown.value, 16), bytes.fromhex(shown.input[2:]), ()),
        *(int(part, 16) for part in (shown.y_parity, shown.r, shown.s)),
    )
    signed = decode(b"\x02" + rlp(fields))
    if signed.hash != shown.hash:
        raise Failed(f"{shown.hash} is not the hash of what the node shows under it")
    if signed.sender != shown.from_.lower():
        raise Failed(f"{shown.hash} counts as {shown.from_}'s and was signed by {signed.sender}")
    return Deed(signed.hash, signed.sender, signed.nonce, signed.to, signed.value, int(shown.stub_received_at, 16))


def check(deeds: Sequence[Deed], rows: Sequence[Row], asked: Iterable[Transfer], *, first_nonce: int = 0) -> None:
    """`Failed` unless the chain holds exactly the transfers that were asked for and acknowledged, as the store says."""
    _each_once(deeds, {transfer.value: transfer for transfer in asked})
    _gapless(deeds, first_nonce)
    _agreeing(deeds, rows)


def _each_once(deeds: Sequence[Deed], asked: Mapping[int, Transfer]) -> None:
    times = Counter(deed.value for deed in deeds)
    twice = [value for value, count in times.items() if count > 1]
    missing, unasked = asked.keys() - times.keys(), times.keys() - asked.keys()
    for what, found in (("executed twice", twice), ("never executed", missing), ("executed, not asked for", unasked)):
        if found:
            raise Failed(f"{len(found)} transfers were {what}, such as the one of {min(found)} wei")
    for deed in deeds:
        wanted = asked[deed.value]
        if (deed.sender, deed.to) != (wanted.sender, wanted.to):
            raise Failed(f"the transfer of {deed.value} wei went from {deed.sender} to {deed.to}, which nobody asked")


def _gapless(deeds: Sequence[Deed], first: int) -> None:
    nonces: dict[str, list[int]] = defaultdict(list)
    for deed in deeds:
        nonces[deed.sender].append(deed.nonce)
    for sender, used in nonces.items():
        if sorted(used) != list(range(first, first + len(used))):
            raise Failed(f"the nonces of {sender} are not {first} to {first + len(used) - 1}, each once")


def _agreeing(deeds: Sequence[Deed], rows: Sequence[Row]) -> None:
    states = Counter(row.state for row in rows)
    if set(states) - {"confirmed"}:
        raise Failed(f"the store does not call all of them confirmed: {dict(states)}")
    told = {(row.address, row.nonce, row.hash) for row in rows}
    seen = {(deed.sender, deed.nonce, deed.hash) for deed in deeds}
    if told != seen or len(rows) != len(deeds):
        raise Failed(f"the store confirms {len(rows)} transactions, of which {len(told & seen)} are on the chain so")
