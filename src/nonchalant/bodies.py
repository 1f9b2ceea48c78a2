"""What callers write: the shape of each body, and what is wrong with one that does not have it, by the field's name.

A shape says which fields there are and of what type; `wire` makes values of them and checks what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec

from nonchalant.access import DEFAULT_TENANT, FeeRule, NonceRule, Scope
from nonchalant.errors import BadRequest, TooDeep
from nonchalant.model import Fees
from nonchalant.notation import (
    MOST_PATTERNS,
    MOST_TOGETHER,
    AddressText,
    DataText,
    Depth,
    HashText,
    HolderText,
    LanesText,
    Moment,
    NameText,
    Number,
    Priority,
    Rate,
    ReasonText,
    Seconds,
    TenantText,
)
from nonchalant.words import HELD_MARK, OnSuperseded, Speed


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class AccessBody(Body, frozen=True, kw_only=True):
    """One entry of an EIP-2930 access list."""

    address: AddressText
    storage_keys: list[HashText] = []


class FeesBody(Body, frozen=True, kw_only=True):
    """A speed, or both EIP-1559 prices, or a gas price. Nothing: the chain's configured speed."""

    speed: Speed | None = None
    max_fee_per_gas: Number | None = None
    max_priority_fee_per_gas: Number | None = None
    gas_price: Number | None = None


class TransactionBody(Body, frozen=True, kw_only=True, rename={"sender": "from"}):
    """What should happen. Numbers may be integers, decimal strings or 0x-hex; amounts are in wei."""

    chain_id: Number
    sender: AddressText
    to: AddressText | None = None
    value: Number = 0
    data: DataText = "0x"
    gas: Number | None = None
    access_list: list[AccessBody] = []
    fees: FeesBody | None = None
    priority: Priority = 5
    valid_until: Moment | None = None
    confirmations: Depth | None = None
    on_superseded: OnSuperseded | None = None
    simulate: bool = False
    abi: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


Transactions = Annotated[
    list[TransactionBody], msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": MOST_TOGETHER})
]


class BatchBody(Body, frozen=True, kw_only=True):
    """Transactions that are accepted together, or none of them."""

    transactions: Transactions


class LooseBatchBody(Body, frozen=True, kw_only=True):
    """The same, for finding out which of them is wrong: a decoder does not tell."""

    transactions: list[Any]


class ReplaceBody(Body, frozen=True, kw_only=True):
    """What should happen instead: the whole payload, nothing of the old one is kept."""

    to: AddressText | None = None
    value: Number = 0
    data: DataText = "0x"
    gas: Number | None = None
    access_list: list[AccessBody] = []
    abi: list[dict[str, Any]] | None = None
    fees: FeesBody | None = None


class BumpBody(Body, frozen=True, kw_only=True):
    """What to offer now; nothing: what the market asks."""

    fees: FeesBody | None = None


class ReasonBody(Body, frozen=True, kw_only=True):
    """Why, for whoever looks at it later."""

    reason: ReasonText = ""


class ReleaseBody(Body, frozen=True, kw_only=True):
    """For which reason it may be held, and go all the same."""

    mark: str = HELD_MARK


class FillBody(Body, frozen=True, kw_only=True):
    """Which hole to close; nothing: every one that something waits behind."""

    nonce: Number | None = None


class ResetBody(Body, frozen=True, kw_only=True):
    """Whether to reset it even while something of it may still be executed."""

    force: bool = False


class ReserveBody(Body, frozen=True, kw_only=True):
    """For how long to keep a nonce."""

    seconds: Seconds = 60.0


class UsedBody(Body, frozen=True, kw_only=True):
    """What was signed for a reserved nonce; bytes that are given are sent by us too."""

    holder: HolderText
    hash: HashText
    raw: DataText | None = None


class HolderBody(Body, frozen=True, kw_only=True):
    """Who speaks for a reserved nonce."""

    holder: HolderText


class KeyBody(Body, frozen=True, kw_only=True):
    """A new key. `lanes` are patterns: `*`, `1:*`, `1:0x…`; `rate` is in calls a second, for each node."""

    name: NameText
    scopes: Annotated[list[Scope], msgspec.Meta(extra_json_schema={"minItems": 1})]
    tenant: TenantText = DEFAULT_TENANT
    lanes: Annotated[list[LanesText], msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": MOST_PATTERNS})] = (
        msgspec.field(default_factory=lambda: ["*"])
    )
    nonces: NonceRule = NonceRule.EXACT
    fees: FeeRule = FeeRule.WISH
    rate: Rate | None = None
    expires_at: Moment | None = None


class WebhookBody(Body, frozen=True, kw_only=True):
    """Where events go, and which. Nothing named: all of them, from now on."""

    url: str
    kinds: list[str] | None = None
    lanes: list[str] | None = None
    tenant: str | None = None
    description: str | None = None
    after: Number | None = None


class WebhookChanges(Body, frozen=True, kw_only=True):
    """What is to be another; what is left out stays."""

    url: str | None = None
    kinds: list[str] | None = None
    lanes: list[str] | None = None
    description: str | None = None


class RotateBody(Body, frozen=True, kw_only=True):
    """For how long the old secret goes on signing beside the new one."""

    seconds: float = 86_400.0


class ReplayBody(Body, frozen=True, kw_only=True):
    """From where on to deliver again: after a position, or since a time."""

    after: Number | None = None
    since: Moment | None = None


class NothingBody(Body, frozen=True, kw_only=True):
    """An empty object, or nothing at all."""


def fee_fields(fees: Speed | Fees | str | None) -> dict[str, object] | None:
    """What the library takes as `fees`, as a body writes it."""
    if fees is None:
        return None
    if not isinstance(fees, Fees):
        return {"speed": str(fees)}
    if fees.priority is None:
        return {"gas_price": fees.max_fee}
    return {"max_fee_per_gas": fees.max_fee, "max_priority_fee_per_gas": fees.priority}


B = TypeVar("B", bound=Body)


@cache
def _decoder(kind: type[B]) -> msgspec.json.Decoder[B]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes | Mapping[str, object], kind: type[B]) -> B:
    """The body in its shape, from JSON or from plain values (there `data` may be bytes)."""
    try:
        if isinstance(body, bytes):
            decoded: B = _decoder(kind).decode(body)
            return decoded
        values = dict(body)
        data = values.get("data")
        if isinstance(data, bytes | bytearray | memoryview):
            values["data"] = "0x" + bytes(data).hex()
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise TooDeep("the body is nested too deeply") from None


_EXPECTED = {
    "int": "a whole number",
    "int | str": "a whole number, decimal or 0x-hex",
    "str": "text",
    "object": "an object",
    "bool": "true or false",
    "float": "a number",
    "array": "a list",
}
_CHOICES = {"fees.speed": Speed, "on_superseded": OnSuperseded}


def _misfit(message: str, kind: type[Body]) -> BadRequest:
    """msgspec's "what - at `$.path`" in our words, with the field's whole name."""
    what, _, place = message.partition(" - at ")
    path = place.rpartition("$")[2].strip("`.")
    named = re.fullmatch(r"Object (missing required|contains unknown) field `(.*)`", what, re.DOTALL)
    if named is not None:
        field = f"{path}.{named.group(2)}" if path else named.group(2)
        if named.group(1) == "missing required":
            return BadRequest("missing", field=field)
        names = ", ".join((FeesBody if path == "fees" else AccessBody if path else kind).__struct_encode_fields__)
        return BadRequest(f"unknown field; known here: {names}" if names else "unknown field", field=field)
    if path in _CHOICES:
        what = f"expected one of {', '.join(_CHOICES[path])}"
    if path == "valid_until":
        what = "expected a time, such as 2030-01-31T12:00:00Z, or seconds since 1970"
    wrong = re.fullmatch(r"Expected `(.*?)(?: \| null)?`(?:, got `(.*)`)?", what)
    if wrong is not None:
        got = f", got {wrong.group(2)}" if wrong.group(2) else ""
        what = f"expected {_EXPECTED.get(wrong.group(1), wrong.group(1))}{got}"
    return BadRequest(what if path else f"the body: {what}", field=path or None)
