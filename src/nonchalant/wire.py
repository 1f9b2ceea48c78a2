"""Where requests become values: parsed and checked once, trusted afterwards.

The REST body and the keywords of the library's `send` are the same request, so both come through `parse_request`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from nonchalant.access import ANYBODY, Caller, Scope
from nonchalant.bodies import (
    AccessBody,
    BatchBody,
    BumpBody,
    FeesBody,
    FillBody,
    HolderBody,
    KeyBody,
    LooseBatchBody,
    NothingBody,
    ReasonBody,
    ReleaseBody,
    ReplaceBody,
    ReserveBody,
    ResetBody,
    TransactionBody,
    UsedBody,
    decode,
)
from nonchalant.chain.evm.intrinsic import least_gas
from nonchalant.chain.evm.reverts import parse_abi
from nonchalant.config import AccountSettings, ChainSettings, Settings
from nonchalant.errors import BadRequest, BatchTooLong, FeeAboveCap, Forbidden, TooDeep, UnknownAccount, UnknownChain
from nonchalant.fees import FeeRules
from nonchalant.keys import KeyRequest
from nonchalant.model import Fees, Payload, Request
from nonchalant.notation import (
    BATCH_PATTERN,
    LEAST_RATE,
    MAX_NAME,
    MAX_REASON,
    MOST_CONFIRMATIONS,
    MOST_PATTERNS,
    MOST_RATE,
    MOST_SECONDS,
    MOST_TOGETHER,
    TENANT_PATTERN,
    Number,
)
from nonchalant.ports import Filter
from nonchalant.scalars import (
    LARGEST_NUMBER,
    parse_address,
    parse_amount,
    parse_data,
    parse_hash,
    parse_idempotency_key,
    parse_moment,
    parse_number,
    parse_pattern,
)
from nonchalant.values import replace
from nonchalant.words import AccessList, Hash, LaneKey, Millis, Speed, State, TxId

MAX_METADATA: Final = 4 * 1024  # as JSON
MAX_ABI: Final = 64 * 1024  # as JSON, of its errors alone
MAX_DEPTH: Final = 16
MAX_PAGE: Final = 500

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def parse_request(
    body: bytes | Mapping[str, object],
    *,
    tx_id: TxId,
    settings: Settings,
    lanes: Mapping[LaneKey, AccountSettings],
    caller: Caller = ANYBODY,
    idempotency_key: str | None = None,
) -> Request:
    """The request in `body`, JSON or plain values (there `data` may be bytes); `BadRequest` names the wrong field."""
    key = None if idempotency_key is None else parse_idempotency_key(idempotency_key)
    request = _request(decode(body, TransactionBody), tx_id=tx_id, settings=settings, lanes=lanes, caller=caller)
    return request if key is None else replace(request, idempotency_key=key)


def parse_batch(
    body: bytes | Mapping[str, object],
    *,
    new_id: Callable[[], TxId],
    settings: Settings,
    lanes: Mapping[LaneKey, AccountSettings],
    caller: Caller = ANYBODY,
    idempotency_key: str | None = None,
) -> list[Request]:
    """Requests that belong together. The first carries the key, and what makes two such batches the same."""
    given = _bodies_of(body)
    if not given:
        raise BadRequest("expected at least one", field="transactions")
    if len(given) > MOST_TOGETHER:
        raise BatchTooLong(
            f"there are {len(given)}, and at most {MOST_TOGETHER} are accepted together", field="transactions"
        )
    key = None if idempotency_key is None else parse_idempotency_key(idempotency_key)
    ids = [new_id() for _ in given]
    batch = "batch_" + ids[0].removeprefix("tx_")
    requests = []
    for number, one in enumerate(given):
        try:
            request = _request(one, tx_id=ids[number], settings=settings, lanes=lanes, caller=caller, batch=batch)
        except BadRequest as problem:
            raise type(problem)(problem.bare, field=within_batch(number, problem.field)) from None
        requests.append(request)
    together = hashlib.sha256(" ".join(request.body_hash for request in requests).encode()).hexdigest()
    first, *others = requests
    return [replace(first, idempotency_key=key, body_hash=f"batch {together}"), *others]


def _bodies_of(body: bytes | Mapping[str, object]) -> list[TransactionBody]:
    try:
        return decode(body, BatchBody).transactions
    except BadRequest as problem:
        if not (problem.field or "").startswith("transactions["):
            raise
    found = []
    for number, one in enumerate(decode(body, LooseBatchBody).transactions):
        if not isinstance(one, Mapping):
            raise BadRequest("expected an object", field=within_batch(number, None))
        try:
            found.append(decode(one, TransactionBody))
        except BadRequest as problem:
            raise BadRequest(problem.bare, field=within_batch(number, problem.field)) from None
    return found


def within_batch(number: int, field: str | None) -> str:
    """What the caller calls a field of one of several."""
    return f"transactions[{number}]" + (f".{field}" if field else "")


def _request(
    given: TransactionBody,
    *,
    tx_id: TxId,
    settings: Settings,
    lanes: Mapping[LaneKey, AccountSettings],
    caller: Caller,
    batch: str | None = None,
) -> Request:
    chain = _chain(given.chain_id, settings)
    lane = LaneKey(chain.id, parse_address(given.sender, "from"))
    # Before we say whether we have it: whose account it is stays hidden from who may not use it.
    if not caller.may_use(lane):
        raise Forbidden("this key may not use this account; use one that may", field="from")
    if lane not in lanes:
        raise UnknownAccount(
            f"there is no signer for this account on chain {chain.id}; add it to [[accounts]]", field="from"
        )
    rules = lanes[lane].capped(chain.fees)
    payload = _payload(given, rules)
    asked = _fees(given.fees, rules)
    if not 0 <= given.priority <= 9:
        raise BadRequest("expected 0 to 9, higher goes first", field="priority")
    if given.confirmations is not None and not 1 <= given.confirmations <= MOST_CONFIRMATIONS:
        raise BadRequest(f"expected 1 to {MOST_CONFIRMATIONS}", field="confirmations")
    valid_until = None if given.valid_until is None else parse_moment(given.valid_until, "valid_until")
    metadata = _metadata(given.metadata)
    return Request(
        id=tx_id,
        lane=lane,
        payload=payload,
        fees=chain.fees.speed if asked is None else asked,
        priority=given.priority,
        valid_until=valid_until,
        confirmations=given.confirmations,
        on_superseded=given.on_superseded,
        simulate=given.simulate,
        tenant=caller.tenant,
        body_hash=_body_hash(lane, payload, asked, given, valid_until, metadata),
        metadata=metadata,
        batch=batch,
    )


def rules_of(lane: LaneKey, settings: Settings, lanes: Mapping[LaneKey, AccountSettings]) -> FeeRules:
    """What may be offered in a lane; it may have been configured once, and not be any more."""
    chain = settings.chain(lane.chain_id)
    if chain is None:
        raise UnknownChain(f"chain {lane.chain_id} is not configured any more; add it to [[chains]]")
    if lane not in lanes:
        raise UnknownAccount(f"there is no signer for {lane.address} any more; add it to [[accounts]]")
    return lanes[lane].capped(chain.fees)


def parse_replacement(body: bytes | Mapping[str, object], rules: FeeRules) -> tuple[Payload, Speed | Fees | None]:
    """What should run instead, and at which price (None: as before), held to what a request is held to."""
    given = decode(body, ReplaceBody)
    return _payload(given, rules), _fees(given.fees, rules)


def parse_bump(body: bytes | Mapping[str, object], rules: FeeRules) -> Speed | Fees | None:
    """What to offer now; None: what the market asks."""
    return _fees(decode(body, BumpBody).fees, rules)


def parse_release(body: bytes | Mapping[str, object]) -> str:
    """The mark with which it may be held, and be released."""
    return decode(body, ReleaseBody).mark


def parse_reason(body: bytes | Mapping[str, object]) -> str:
    """Why something is done, in the caller's own words; empty if it does not say."""
    reason = decode(body, ReasonBody).reason.strip()
    if len(reason) > MAX_REASON:
        raise BadRequest(f"longer than {MAX_REASON} characters", field="reason")
    if not reason.isprintable():
        raise BadRequest("expected one line of plain text", field="reason")
    return reason


def parse_fill(body: bytes | Mapping[str, object]) -> int | None:
    """The hole to close; None: every one that something waits behind."""
    nonce = decode(body, FillBody).nonce
    return None if nonce is None else parse_number(nonce, "nonce", LARGEST_NUMBER)


def parse_reset(body: bytes | Mapping[str, object]) -> bool:
    """Whether to use force."""
    return decode(body, ResetBody).force


def parse_reserve(body: bytes | Mapping[str, object]) -> float:
    """For how many seconds a nonce is to be kept."""
    return parse_seconds(decode(body, ReserveBody).seconds)


def parse_used(body: bytes | Mapping[str, object]) -> tuple[str, Hash, bytes | None]:
    """Who says so, and what he signed."""
    given = decode(body, UsedBody)
    return (_holder(given.holder), *parse_signed(given.hash, given.raw))


def parse_holder(body: bytes | Mapping[str, object]) -> str:
    return _holder(decode(body, HolderBody).holder)


def parse_key(body: bytes | Mapping[str, object]) -> KeyRequest:
    """What a new key should be. Whether its time has passed already is not for the wire to say."""
    given = decode(body, KeyBody)
    if not (1 <= len(given.name) <= MAX_NAME and given.name.isprintable() and given.name == given.name.strip()):
        raise BadRequest(f"expected 1 to {MAX_NAME} printable characters", field="name")
    if not re.fullmatch(TENANT_PATTERN, given.tenant):
        raise BadRequest("expected 1 to 64 letters, digits, dots, dashes and underscores", field="tenant")
    if not given.scopes:
        raise BadRequest(f"expected at least one of {', '.join(Scope)}", field="scopes")
    if not 1 <= len(given.lanes) <= MOST_PATTERNS:
        raise BadRequest(f"expected 1 to {MOST_PATTERNS} patterns; * is every lane", field="lanes")
    if given.rate is not None and not LEAST_RATE <= given.rate <= MOST_RATE:
        raise BadRequest(f"expected {LEAST_RATE:g} to {MOST_RATE:g} calls a second", field="rate")
    return KeyRequest(
        name=given.name,
        scopes=frozenset(given.scopes),
        tenant=given.tenant,
        lanes=tuple(parse_pattern(lane, f"lanes[{place}]") for place, lane in enumerate(given.lanes)),
        nonces=given.nonces,
        fees=given.fees,
        rate=given.rate,
        expires_at=None if given.expires_at is None else parse_moment(given.expires_at, "expires_at"),
    )


def parse_page(given: Mapping[str, str], cursor: str) -> tuple[int | None, int]:
    """Where a page begins, None: at the beginning; and how much it holds at most."""
    limit = parse_number(given.get("limit", "50"), "limit", LARGEST_NUMBER)
    if not 1 <= limit <= MAX_PAGE:
        raise BadRequest(f"expected 1 to {MAX_PAGE}", field="limit")
    return parse_number(given[cursor], cursor, LARGEST_NUMBER) if cursor in given else None, limit


def parse_nothing(body: bytes | Mapping[str, object]) -> None:
    decode(body, NothingBody)


def parse_filter(given: Mapping[str, str]) -> Filter:
    """A listing's parameters, all of them among `FILTERS`; `BadRequest` names the wrong one."""
    number = {name: parse_number(given[name], name, LARGEST_NUMBER) for name in _NUMBERS if name in given}
    limit = number.get("limit", 50)
    if not 1 <= limit <= MAX_PAGE:
        raise BadRequest(f"expected 1 to {MAX_PAGE}", field="limit")
    key = given.get("idempotency_key")
    return Filter(
        state=_state(given["state"]) if "state" in given else None,
        chain_id=number.get("chain_id"),
        sender=parse_address(given["from"], "from") if "from" in given else None,
        nonce=number.get("nonce"),
        hash=parse_hash(given["hash"], "hash") if "hash" in given else None,
        idempotency_key=None if key is None else parse_idempotency_key(key, "idempotency_key"),
        batch=_batch(given["batch"]) if "batch" in given else None,
        before=number.get("cursor"),
        limit=limit,
    )


PAGE: Final = ("cursor", "limit")
FILTERS: Final = ("state", "chain_id", "from", "nonce", "hash", "idempotency_key", "batch", "cursor", "limit")
_NUMBERS: Final = ("chain_id", "nonce", "cursor", "limit")


def parse_lane(chain_id: str, address: str) -> LaneKey:
    """A lane as a path names it."""
    return LaneKey(parse_number(chain_id, "chain_id", LARGEST_NUMBER), parse_address(address, "address"))


def parse_signed(hash: str, raw: str | None) -> tuple[Hash, bytes | None]:
    """What somebody signed for a nonce that he had reserved: its hash, and its bytes if he gives them."""
    return parse_hash(hash, "hash"), None if raw is None else parse_data(raw, "raw")


def parse_seconds(seconds: float) -> float:
    """For how long a nonce may be reserved."""
    if not 0 < seconds <= MOST_SECONDS:
        raise BadRequest(f"expected more than 0 and at most {MOST_SECONDS}", field="seconds")
    return float(seconds)


# --- parts of a request ---


def _chain(given: Number, settings: Settings) -> ChainSettings:
    chain_id = parse_number(given, "chain_id", LARGEST_NUMBER)
    chain = settings.chain(chain_id)
    if chain is None:
        known = ", ".join(str(chain.id) for chain in settings.chains)
        raise UnknownChain(
            f"chain {chain_id} is not configured (known: {known}); add it to [[chains]]", field="chain_id"
        )
    return chain


def _payload(given: TransactionBody | ReplaceBody, rules: FeeRules) -> Payload:
    data = parse_data(given.data)
    if given.to is None and not data:
        raise BadRequest("missing; only a contract's creation has none, and that needs its code as data", field="to")
    payload = Payload(
        to=None if given.to is None else parse_address(given.to, "to"),
        value=parse_amount(given.value, "value"),
        data=data,
        gas=None if given.gas is None else parse_number(given.gas, "gas", 2**64 - 1),
        access_list=_access_list(given.access_list),
        abi=_abi(given.abi),
    )
    if payload.gas is not None:
        # Some nodes take what can never be executed: it would stop its account for good.
        least = least_gas(payload, calldata_floor=rules.calldata_floor)
        if payload.gas < least:
            raise BadRequest(
                f"the least this transaction needs is {least}; leave it out to have it estimated",
                field="gas",
            )
    return payload


def _abi(entries: list[dict[str, Any]] | None) -> str | None:
    """What of an ABI tells why a call reverted: its errors, as JSON; None if it has none."""
    if not entries:
        return None
    try:
        errors = parse_abi(entries)
    except ValueError as error:
        where, _, what = str(error).partition(": ") if str(error).startswith("[") else ("", "", str(error))
        raise BadRequest(what, field=f"abi{where}") from None
    text = msgspec.json.encode(errors).decode()
    if len(text) > MAX_ABI:
        raise BadRequest(f"its errors take {len(text)} bytes as JSON, the most is {MAX_ABI}", field="abi")
    return text if errors else None


def _access_list(entries: list[AccessBody]) -> AccessList:
    if not entries:
        return ()
    if sum(1 + len(entry.storage_keys) for entry in entries) > 1_000:
        raise BadRequest("more than 1000 addresses and keys", field="access_list")
    return tuple(
        (
            parse_address(entry.address, f"access_list[{index}].address"),
            tuple(
                parse_hash(key, f"access_list[{index}].storage_keys[{place}]")
                for place, key in enumerate(entry.storage_keys)
            ),
        )
        for index, entry in enumerate(entries)
    )


def _fees(given: FeesBody | None, rules: FeeRules) -> Speed | Fees | None:
    """What is offered, within the caps. None: the caller leaves it to us."""
    asked = None if given is None else _offered(given)
    if isinstance(asked, Fees):
        _check_caps(asked, rules)
    return asked


def _offered(given: FeesBody) -> Speed | Fees | None:
    present = {name for name in given.__struct_fields__ if getattr(given, name) is not None}
    if present == {"speed"}:
        return given.speed
    if present == {"gas_price"}:
        assert given.gas_price is not None
        return Fees(parse_amount(given.gas_price, "fees.gas_price"))
    if present == {"max_fee_per_gas", "max_priority_fee_per_gas"}:
        assert given.max_fee_per_gas is not None
        assert given.max_priority_fee_per_gas is not None
        fees = Fees(
            parse_amount(given.max_fee_per_gas, "fees.max_fee_per_gas"),
            tip := parse_amount(given.max_priority_fee_per_gas, "fees.max_priority_fee_per_gas"),
        )
        if tip > fees.max_fee:
            raise BadRequest("must not be above max_fee_per_gas", field="fees.max_priority_fee_per_gas")
        return fees
    raise BadRequest("expected one of: speed; max_fee_per_gas with max_priority_fee_per_gas; gas_price", field="fees")


def _check_caps(asked: Fees, rules: FeeRules) -> None:
    name = "gas_price" if asked.priority is None else "max_fee_per_gas"
    limits = [(name, asked.max_fee, rules.max_fee)]
    if asked.priority is not None:
        limits.append(("max_priority_fee_per_gas", asked.priority, rules.max_priority))
    for name, price, cap in limits:
        if cap is not None and price > cap:
            raise FeeAboveCap(
                f"above the account's or the chain's cap of {cap} wei; ask for less, or raise the cap",
                field=f"fees.{name}",
            )


def _metadata(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    _check_json(given, MAX_DEPTH)
    try:
        size = len(msgspec.json.encode(given))
    except UnicodeEncodeError:
        raise BadRequest("holds text that is not Unicode", field="metadata") from None
    if size > MAX_METADATA:
        raise BadRequest(f"takes {size} bytes as JSON, the most is {MAX_METADATA}", field="metadata")
    return given


def _check_json(value: object, depth: int) -> None:
    """Values of the library may be anything; only what comes back from JSON as it was is taken."""
    if depth == 0:
        raise TooDeep(f"nested deeper than {MAX_DEPTH}", field="metadata")
    match value:
        case None | bool() | str() | int():
            pass
        case float():
            if not math.isfinite(value):
                raise BadRequest("holds a number that JSON cannot write", field="metadata")
        case list():
            for item in value:
                _check_json(item, depth - 1)
        case dict():
            for key, item in value.items():
                _check_json(item, depth - 1)
                if not isinstance(key, str):
                    raise BadRequest("keys must be text", field="metadata")
        case _:
            raise BadRequest(f"{type(value).__name__} is not a JSON value", field="metadata")


def _body_hash(
    lane: LaneKey,
    payload: Payload,
    asked: Speed | Fees | None,
    given: TransactionBody,
    valid_until: Millis | None,
    metadata: Mapping[str, object] | None,
) -> str:
    """Equal for requests that mean the same, however they were written; settings that change leave it alone.

    What a request does not say is not in it: a field that is new leaves the hashes of older requests as they were.
    """
    limits = {"valid_until": valid_until, "confirmations": given.confirmations, "on_superseded": given.on_superseded}
    said = {name: value for name, value in limits.items() if value is not None}
    meaning = (
        lane,
        (payload.to, payload.value, payload.data, payload.gas, payload.access_list, payload.abi),
        (asked.max_fee, asked.priority) if isinstance(asked, Fees) else asked,
        given.priority,
        given.simulate,
        metadata,
        *([said] if said else []),
    )
    return hashlib.sha256(_encode_sorted(meaning)).hexdigest()


def _holder(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise BadRequest("expected what the reservation was answered with", field="holder")
    return text


def _batch(text: str) -> str:
    if not re.fullmatch(BATCH_PATTERN, text):
        raise BadRequest("expected the `batch` of a transaction", field="batch")
    return text


def _state(text: str) -> State:
    if text not in list(State):
        raise BadRequest(f"expected one of {', '.join(State)}", field="state")
    return State(text)
