"""A signed transaction as nodes write it in JSON, read back from its bytes."""

from __future__ import annotations

from nonchalant.chain.evm.decoding import Item, decode, unrlp


def as_json(raw: bytes) -> dict[str, object]:
    """The fields of `eth_getTransactionByHash`, without those of its block; ValueError if the bytes are none."""
    read = decode(raw)
    fields = unrlp(raw[1:] if read.kind else raw)
    assert isinstance(fields, list)  # it was decoded
    v, r, s = fields[-3:]
    shown: dict[str, object] = {
        "hash": read.hash,
        "type": hex(read.kind),
        "nonce": hex(read.nonce),
        "from": read.sender,
        "to": read.to,
        "value": hex(read.value),
        "gas": hex(read.gas),
        "gasPrice": hex(read.max_fee),
        "input": "0x" + read.data.hex(),
        "v": _number(v),
        "r": _number(r),
        "s": _number(s),
    }
    if read.chain_id is not None:
        shown["chainId"] = hex(read.chain_id)
    if read.kind:
        shown["accessList"] = _access_list(fields[-4])
        shown["yParity"] = _number(v)
    if read.kind == 2:
        shown["maxFeePerGas"] = hex(read.max_fee)
        shown["maxPriorityFeePerGas"] = hex(read.priority)
    return shown


def _access_list(item: Item) -> list[dict[str, object]]:
    shown: list[dict[str, object]] = []
    for entry in item:
        assert isinstance(entry, list)
        address, keys = entry
        shown.append(
            {"address": _bytes(address), "storageKeys": [_bytes(key) for key in keys if isinstance(key, bytes)]}
        )
    return shown


def _bytes(item: Item) -> str:
    assert isinstance(item, bytes)
    return "0x" + item.hex()


def _number(item: Item) -> str:
    assert isinstance(item, bytes)
    return hex(int.from_bytes(item, "big"))
