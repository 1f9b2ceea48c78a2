"""Who is here: the chain, the accounts that the caller may use, and their next free nonces."""

from __future__ import annotations

import msgspec

from nonchalant.errors import BadRequest, NodeRefused, Unreachable
from nonchalant.scalars import LARGEST_NUMBER, parse_address, parse_number
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.envelope import value_of
from nonchalant.service.rpc.passing import pass_on
from nonchalant.words import LaneKey

# Both are answered alike: what is accepted counts, whether or not a block has it.
_NOW = (None, "latest", "pending")


async def chain_id(asked: Asked) -> str:
    return hex(asked.chain.id)


async def net_version(asked: Asked) -> str:
    return str(asked.chain.id)


async def accounts(asked: Asked) -> list[str]:
    lanes = asked.front.node.known_lanes
    return [lane.address for lane in lanes if lane.chain_id == asked.chain.id and asked.lane(lane.address) is not None]


async def transaction_count(asked: Asked) -> str | msgspec.Raw:
    asked.takes(1, 2)
    address, *tag = (value_of(param, "params") for param in asked.question.params)
    lane = asked.lane(parse_address(address, "address")) if isinstance(address, str) else None
    if lane is None or (tag and tag[0] not in _NOW):
        return await pass_on(asked)
    return hex(await next_free(asked, lane))


async def next_free(asked: Asked, lane: LaneKey) -> int:
    """The nonce that the next request may name: all that is accepted before it will have taken its own."""
    queue = await asked.front.node.store.numbering(lane)
    return queue.next_free(await _executed(asked, lane, needed=queue.next_nonce is None))


async def _executed(asked: Asked, lane: LaneKey, *, needed: bool) -> int:
    """What the chain says: it may have executed something of the account that is not ours. 0: it does not say."""
    try:
        raw = await asked.front.node.passage.ask(lane.chain_id, "eth_getTransactionCount", [lane.address, "latest"])
        return parse_number(msgspec.json.decode(raw, type=str), "nonce", LARGEST_NUMBER)
    except (Unreachable, NodeRefused, BadRequest, msgspec.DecodeError):
        if needed:
            raise Unreachable(f"no endpoint says which nonce of {lane.address} is next; ask again") from None
        return 0
