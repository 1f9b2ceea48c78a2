"""What goes over the wire: one call or a batch of them in, one answer or a list of them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from nonchalant.errors import BadRequest
from nonchalant.service.rpc.failures import BAD_PARAMS, INVALID, NOT_JSON, RpcError

MOST_CALLS: Final = 100  # in one batch: what hosted nodes commonly allow
MOST_PARAMS: Final = 16  # no method has more than five
MAX_DEPTH: Final = 64  # of a call; typed data is the deepest that anybody sends

UNDECODABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
NULL: Final = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class Question:
    """One call. `id` None: a notification, which nobody wants an answer to."""

    id: msgspec.Raw | None
    method: str
    params: Sequence[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Malformed:
    """What stood in the place of a call."""

    id: msgspec.Raw
    problem: RpcError


class Result(msgspec.Struct, frozen=True):
    id: msgspec.Raw
    result: object
    jsonrpc: str = "2.0"


class Failure(msgspec.Struct, frozen=True):
    id: msgspec.Raw
    error: dict[str, object]
    jsonrpc: str = "2.0"


class _Call(msgspec.Struct, frozen=True):
    jsonrpc: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()
    params: msgspec.Raw = msgspec.Raw()


_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_call = msgspec.json.Decoder(_Call).decode
_text = msgspec.json.Decoder(str).decode
_anything = msgspec.json.Decoder().decode

# A text is taken whole, also one that never ends: what is tried again at each quote in it takes hours.
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def read(body: bytes) -> tuple[list[Question | Malformed], bool]:
    """The calls, and whether they came as a batch. `RpcError`: the whole cannot be read, and has one answer."""
    try:
        body.decode()  # everything that is passed on as it came is text, then
        _refuse_depth(body)
        if body.lstrip().startswith(b"["):
            items = _items(body)
        else:
            _anything(body)
            return [_read_one(msgspec.Raw(body))], False
    except UNDECODABLE as problem:
        raise RpcError(NOT_JSON, f"this is not JSON: {problem}"[:200], "not_json") from None
    if not items:
        raise RpcError(INVALID, "an empty batch asks nothing", "bad_request")
    if len(items) > MOST_CALLS:
        raise RpcError(
            INVALID, f"a batch of {len(items)} calls, the most is {MOST_CALLS}; send less at once", "too_large"
        )
    return [_read_one(item) for item in items], True


def _read_one(item: msgspec.Raw) -> Question | Malformed:
    try:
        call = _call(item)
    except UNDECODABLE:
        return Malformed(
            NULL, RpcError(INVALID, "a call is an object with jsonrpc, id, method and params", "bad_request")
        )
    named = bytes(call.id)
    # Numbers, text and null, exactly as they came: a client compares.
    if named and not (named[:1] in b'"-0123456789' or named == b"null"):
        return Malformed(NULL, RpcError(INVALID, "an id is a number, text or null", "bad_request"))
    shown = msgspec.Raw(named or b"null")
    if bytes(call.jsonrpc) != b'"2.0"':
        return Malformed(shown, RpcError(INVALID, 'expected "jsonrpc": "2.0"', "bad_request"))
    try:
        method = _text(call.method)
    except UNDECODABLE:
        return Malformed(shown, RpcError(INVALID, "expected a method's name", "bad_request"))
    given = bytes(call.params)
    try:
        params = [] if given in (b"", b"null") else _items(given)
    except UNDECODABLE:
        return Malformed(
            shown, RpcError(BAD_PARAMS, "params are a list: these methods know them by place", "bad_request")
        )
    if len(params) > MOST_PARAMS:
        return Malformed(shown, RpcError(BAD_PARAMS, f"more than {MOST_PARAMS} params", "bad_request"))
    return Question(shown if named else None, method, params)


def _refuse_depth(body: bytes) -> None:
    """Before anybody walks down there: a node's reader may be less patient than ours."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _BRACKETS.finditer(body):
        if (bracket := token[0]) in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise RpcError(INVALID, f"nested deeper than {MAX_DEPTH}", "too_large")
        elif bracket in b"]}":
            depth -= 1


def value_of(param: msgspec.Raw, field: str) -> object:
    """A param as a value; `BadRequest` names it if it holds what cannot be kept."""
    try:
        found: object = _anything(param)
    except UNDECODABLE as problem:
        raise BadRequest(f"cannot be read: {problem}"[:200], field=field) from None
    return found


def text_of(param: msgspec.Raw, field: str) -> str:
    value = value_of(param, field)
    if not isinstance(value, str):
        raise BadRequest("expected text", field=field)
    return value
