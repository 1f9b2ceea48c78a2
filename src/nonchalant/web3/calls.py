"""What web3.py asks a node to send, as the service takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nonchalant.client import Ask
from nonchalant.errors import BadRequest
from nonchalant.model import Fees


def ask_of(call: Mapping[str, Any], chain_id: int) -> Ask:
    """`BadRequest` names a field that cannot be."""
    given = {name: value for name, value in call.items() if value is not None}
    for name in ("type", "nonchalantIdempotencyKey"):  # the type follows from the prices
        given.pop(name, None)
    if "nonce" in given:
        raise BadRequest("Nonchalant chooses it; leave it out", field="nonce")
    if "chainId" in given and _number(given.pop("chainId")) != chain_id:
        raise BadRequest(f"the node is of chain {chain_id}", field="chainId")
    ask: Ask = {"chain_id": chain_id, "sender": given.pop("from"), "data": _code(given), "fees": _fees(given)}
    to = given.pop("to", None)
    if to not in (None, "", "0x", b""):  # however it is written that a contract is created
        ask["to"] = to
    if "value" in given:
        ask["value"] = _number(given.pop("value"))
    if "gas" in given:
        ask["gas"] = _number(given.pop("gas"))
    if "accessList" in given:
        ask["access_list"] = [
            {"address": entry["address"], "storage_keys": list(entry["storageKeys"])}
            for entry in given.pop("accessList")
        ]
    for name in given:
        raise BadRequest("Nonchalant does not send this; leave it out", field=name)
    return ask


def _code(given: dict[str, Any]) -> str | bytes:
    data = given.pop("data", None)
    code = given.pop("input", data)
    if data is not None and code != data:
        raise BadRequest("not the same as input; give one of them", field="data")
    return "0x" if code is None else code


def _fees(given: dict[str, Any]) -> Fees | None:
    """None: what the service thinks right. web3.py has seen to it that they fit together."""
    if "gasPrice" in given:
        return Fees(_number(given.pop("gasPrice")))
    if "maxFeePerGas" in given and "maxPriorityFeePerGas" in given:
        return Fees(_number(given.pop("maxFeePerGas")), _number(given.pop("maxPriorityFeePerGas")))
    return None


def _number(value: int | str) -> int:
    return int(value, 16) if isinstance(value, str) else value
