"""`eth_sendRawTransaction`: what somebody signed by himself. From an account of ours only at a nonce that is his."""

from __future__ import annotations

import msgspec

from nonchalant.access import Scope
from nonchalant.errors import Unencodable, WishRefused
from nonchalant.scalars import parse_data
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.envelope import text_of
from nonchalant.service.rpc.failures import REFUSED, RpcError
from nonchalant.wishes import Use
from nonchalant.words import LaneKey


async def send_raw(asked: Asked) -> object:
    asked.takes(1, 1)
    asked.must(Scope.TX_WRITE)
    node, chain_id = asked.front.node, asked.chain.id
    raw = parse_data(text_of(asked.question.params[0], "raw"), "raw")
    try:
        read = node.passage.recognise(chain_id, raw)
    except Unencodable as problem:
        # Not handed on unread: it may be from an account of ours.
        raise RpcError(REFUSED, f"transaction type not supported: {problem}", "unencodable") from None
    lane = LaneKey(chain_id, read.sender)
    if lane not in node.known_lanes:
        return msgspec.Raw(await node.passage.ask(chain_id, asked.question.method, asked.question.params))
    if read.chain_id != chain_id:
        raise RpcError(REFUSED, f"invalid chain id for signer: have {read.chain_id} want {chain_id}", "wrong_bytes")
    if asked.lane(read.sender) is None:
        raise _not_here(read.nonce, "is not for this key")
    try:
        await node.asking.of_lane(lane, Use(read.nonce, None, read.hash, raw))
    except WishRefused as refusal:
        raise _not_here(read.nonce, str(refusal), refusal.why) from None
    return read.hash


def _not_here(nonce: int, why: str, code: str = "not_reserved") -> RpcError:
    return RpcError(
        REFUSED,
        f"nonce {nonce} of a managed account: {why}; send unsigned by eth_sendTransaction, or reserve the nonce first",
        code,
    )
