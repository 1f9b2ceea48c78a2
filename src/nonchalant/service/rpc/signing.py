"""Signing what is no transaction, for keys that are allowed to: texts (EIP-191) and typed data (EIP-712)."""

from __future__ import annotations

from typing import Never

import msgspec

from nonchalant.access import Scope
from nonchalant.errors import BadRequest, UnknownAccount
from nonchalant.scalars import parse_address, parse_data
from nonchalant.service.rpc.asked import Asked
from nonchalant.service.rpc.envelope import UNDECODABLE, text_of, value_of
from nonchalant.service.rpc.failures import NoSuchMethod
from nonchalant.words import LaneKey


async def sign(asked: Asked) -> str:
    """`eth_sign`: the account, then the text."""
    asked.takes(2, 2)
    return await _sign_text(asked, account=0, text=1)


async def personal_sign(asked: Asked) -> str:
    """The text, then the account; a password, which unlocks nothing here, may follow."""
    asked.takes(2, 3)
    return await _sign_text(asked, account=1, text=0)


async def _sign_text(asked: Asked, *, account: int, text: int) -> str:
    asked.must(Scope.SIGN)
    lane = _lane(asked, account)
    message = parse_data(text_of(asked.question.params[text], "message"), "message")
    return "0x" + (await asked.front.node.passage.sign_text(lane, message)).hex()


async def sign_typed(asked: Asked) -> str:
    asked.takes(2, 2)
    asked.must(Scope.SIGN)
    lane = _lane(asked, 0)
    document = value_of(asked.question.params[1], "document")
    if isinstance(document, str):  # as browsers' wallets want it
        try:
            document = msgspec.json.decode(document)
        except UNDECODABLE:
            raise BadRequest("expected typed data, or its JSON as text", field="document") from None
    if not isinstance(document, dict):
        raise BadRequest("expected typed data: types, primaryType, domain and message", field="document")
    _refuse_other_chain(document, lane)
    return "0x" + (await asked.front.node.passage.sign_typed(lane, document)).hex()


async def sign_transaction(asked: Asked) -> Never:
    raise NoSuchMethod(
        asked.question.method,
        "bytes signed for a managed account are sent from here, or nobody knows what uses the nonce; use "
        "eth_sendTransaction, or reserve a nonce and sign by yourself",
    )


def _refuse_other_chain(document: dict[object, object], lane: LaneKey) -> None:
    """A signature for another chain is worth something there."""
    domain = document.get("domain")
    named = domain.get("chainId") if isinstance(domain, dict) else None
    if named is None:
        return
    try:
        chain_id = int(named, 0) if isinstance(named, str) else named
    except ValueError:
        chain_id = None
    if chain_id != lane.chain_id:
        raise BadRequest(f"names chain {str(named)[:40]}, and this is chain {lane.chain_id}", field="domain.chainId")


def _lane(asked: Asked, place: int) -> LaneKey:
    address = parse_address(text_of(asked.question.params[place], "address"), "address")
    lane = asked.lane(address)
    if lane is None:
        raise UnknownAccount(f"unknown account: {address} is not among those of eth_accounts")
    return lane
