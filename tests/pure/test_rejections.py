"""What a node meant, and what that means for the slot: whatever words, codes and data it came in."""

import json
import re
import time
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.rejections import CODES, RULES, Fate, Rejection, Remedy, classify
from tests.lessons import lesson
from tests.pure.node_errors import KNOWN

HOSTILE = (
    "nonce too low",
    "insufficient funds for gas * price + value",
    "already known",
    "replacement transaction underpriced",
    "invalid sender",
    "intrinsic gas too low",
    "429 Too Many Requests",
    "Fork Error: x",
    "Mirror node upstream failure",
    "not enough balance to cover the fee",
    "Validation revert: Not enough gas for transaction validation",
    "Invalid RLP data",
)


# --- reverts ---


@lesson("revert-text")
@pytest.mark.parametrize("reason", HOSTILE)
@pytest.mark.parametrize(
    "revert",
    [
        "execution reverted: {}",
        "err: execution reverted: {} (supplied gas 30000000)",
        "VM Exception while processing transaction: {}",
        "VM Exception while processing transaction: reverted with reason string '{}'",
        "Transaction reverted: {}",
        "failed paymaster validation. error message: {}",
        "failed to include transaction in the system. reason: {}",
        '{{"code":3,"message":"execution reverted: {}"}}',
    ],
)
def test_a_revert_reason_cannot_imitate_another_class(revert: str, reason: str) -> None:
    message = revert.format(reason)
    assert classify(message, 3) is Rejection.EXECUTION_REVERTED
    assert classify(message.upper(), -32000) is Rejection.EXECUTION_REVERTED
    assert classify("Internal error", -32603, {"message": message}) is Rejection.EXECUTION_REVERTED


@lesson("revert-text")
@pytest.mark.parametrize("reason", HOSTILE[:6])
def test_revert_data_unmasks_a_bare_reason(reason: str) -> None:
    assert classify(reason, 3, "0x08c379a0" + "00" * 64) is Rejection.EXECUTION_REVERTED
    assert classify(reason, -32000, {"data": "0x4E487B71" + "00" * 31 + "11"}) is Rejection.EXECUTION_REVERTED


def test_a_quotation_is_not_the_answer() -> None:
    for quotation in (*HOSTILE, "execution reverted: nonce too low"):
        assert classify(f"Fork Error: {quotation}", -32603) is Rejection.INTERNAL_UNKNOWN
        assert (
            classify(f"Mirror node upstream failure: statusCode=500, message={quotation}")
            is Rejection.SERVICE_UNAVAILABLE
        )
        assert (
            classify(f"not enough balance to cover the fee. error message: {quotation}", 3)
            is Rejection.INSUFFICIENT_FUNDS
        )


# --- codes ---


@lesson("codes-collide")
@pytest.mark.parametrize(
    ("code", "message", "rejection"),
    [
        (-32003, "response too large", Rejection.QUERY_TOO_LARGE),
        (-32003, "gas limit too high", Rejection.GAS_LIMIT_EXCEEDS_BLOCK),
        (-32003, "Insufficient funds for gas * price + value", Rejection.INSUFFICIENT_FUNDS),
        (-32005, "Transaction gas limit exceeds block gas limit", Rejection.GAS_LIMIT_EXCEEDS_BLOCK),
        (-32005, "daily request count exceeded, request rate limited", Rejection.RATE_LIMITED),
        (-32005, "query returned more than 10000 results", Rejection.QUERY_TOO_LARGE),
        (-32000, "replacement transaction underpriced", Rejection.REPLACEMENT_UNDERPRICED),
        (-32000, "transaction underpriced", Rejection.UNDERPRICED),
        (-32000, "nonce too low", Rejection.NONCE_TOO_LOW),
        (-32010, "Request timeout. Please try again.", Rejection.SERVICE_UNAVAILABLE),
        (-32010, "Transaction with the same hash was already imported.", Rejection.ALREADY_KNOWN),
        (3, "execution reverted", Rejection.EXECUTION_REVERTED),
        (3, "nonce too low. allowed nonce range: 5 - 25, actual: 3", Rejection.NONCE_TOO_LOW),
        (3, "Failed to serialize transaction: invalid signature", Rejection.INVALID_SIGNATURE_OR_CHAIN_ID),
        (429, "nonce too low", Rejection.NONCE_TOO_LOW),
        (-32601, "already known", Rejection.ALREADY_KNOWN),
    ],
)
def test_the_words_decide_where_codes_collide(code: int, message: str, rejection: Rejection) -> None:
    assert classify(message, code) is rejection


@pytest.mark.parametrize(("code", "rejection"), CODES.items())
def test_a_code_speaks_where_the_words_say_nothing(code: int, rejection: Rejection) -> None:
    assert classify("oops", code) is rejection
    assert classify("", code) is rejection
    assert classify(json.dumps({"error": {"code": code, "message": "oops"}})) is rejection
    assert classify("oops", -32603, f"error code {code}: oops") is rejection


@lesson("codes-collide")
def test_only_codes_that_never_collide_speak() -> None:
    meanings = defaultdict(set)
    for row in KNOWN:
        meanings[row.code].add(row.category)
    assert all(meanings[code] <= {rejection.value} for code, rejection in CODES.items())


# --- what it means for the slot ---


def test_only_the_bytes_themselves_can_be_refused_for_good() -> None:
    """Signature, chain id, type, size, intrinsic gas; and no more."""
    assert {rejection for rejection in Rejection if rejection.fate is Fate.BYTES_REFUSED} == {
        Rejection.INVALID_SIGNATURE_OR_CHAIN_ID,
        Rejection.UNSUPPORTED_TX_TYPE,
        Rejection.OVERSIZED_DATA,
        Rejection.INTRINSIC_GAS_TOO_LOW,
    }


@lesson("errors-that-accept")
def test_some_errors_mean_accepted() -> None:
    assert {rejection for rejection in Rejection if rejection.fate is Fate.ACCEPTED} == {
        Rejection.ALREADY_KNOWN,
        Rejection.ACCEPTED_WAIT_TIMEOUT,
    }


def test_answers_about_funds_price_nonce_pool_or_permission_prove_nothing() -> None:
    for rejection in (
        Rejection.INSUFFICIENT_FUNDS,
        Rejection.UNDERPRICED,
        Rejection.REPLACEMENT_UNDERPRICED,
        Rejection.FEE_CAP_TOO_LOW,
        Rejection.TIP_ABOVE_FEE_CAP,
        Rejection.NONCE_TOO_HIGH,
        Rejection.TX_POOL_FULL,
        Rejection.SENDER_NOT_PERMITTED,
    ):
        assert rejection.fate is Fate.REFUSED


@lesson("try-later")
def test_429_and_5xx_are_for_retrying_never_a_verdict() -> None:
    for rejection in (classify("429 Too Many Requests"), classify("502 Bad Gateway"), classify("", 503)):
        assert rejection.fate is Fate.POSSIBLY_SENT
        assert rejection.remedy is Remedy.RESEND


def test_nonce_too_low_and_already_known_are_looked_up() -> None:
    assert Rejection.NONCE_TOO_LOW.fate is Fate.POSSIBLY_SENT
    assert Rejection.NONCE_TOO_LOW.remedy is Remedy.LOOK_UP
    assert Rejection.ALREADY_KNOWN.remedy is Remedy.LOOK_UP


def test_every_remedy_is_used_and_is_one_sentence() -> None:
    assert {rejection.remedy for rejection in Rejection} == set(Remedy)
    assert all(re.fullmatch(r"[A-Z][^.]+\.", remedy.value) for remedy in Remedy)


@pytest.mark.parametrize(
    "message",
    [
        "unknown sender account, please fund it first",
        "API request signature mismatch",
        "invalid JWT signature",
        "could not verify webhook signature",
        "unsupported media type",
        "content type not supported",
        "websocket: close 1009 (message too big)",
        "request body exceeds 1048576 bytes",
        "413 Request Entity Too Large",
        "oversized batch",
        "the data is too large to index",
        "gas limit 50000 is lower than the gas the call needs (70000)",
        "not enough gas to execute the call",
        "gas price too low",
        "max fee per gas too low",
        "subscription type is not supported",
        "user is not signed in",
        "unsupported chain id: plan does not include network 137",
        "unknown chain id in request path",
        "your plan does not cover this network (unsupported chain id 137)",
        '{"chainId":1,"error":"unknown block"}',
        '{"transaction":{"chainId":"0x1","type":"0x2","nonce":"0x5"},"error":"service not supported"}',
        '{"signature":"0x1234567890abcdef","error":"failed"}',
        '{"type":"0x2","message":"not supported"}',
        '{"message":"request failed","data":"Too large batch"}',
    ],
)
def test_what_only_sounds_like_refused_bytes_does_not_free_a_slot(message: str) -> None:
    assert classify(message).fate is not Fate.BYTES_REFUSED


def test_neither_a_code_nor_a_guess_refuses_the_bytes() -> None:
    assert all(rejection.fate is not Fate.BYTES_REFUSED for rejection in CODES.values())
    guesses = [rule for rule in RULES if any(" .. " in phrase for phrase in rule.phrases)]
    assert guesses
    assert all(rule.rejection.fate is not Fate.BYTES_REFUSED for rule in guesses)


def test_every_rule_says_why() -> None:
    assert all(re.fullmatch(r"['A-Z].+\.", rule.reason) for rule in RULES)


# --- whatever comes ---

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner)
        | st.frozensets(st.text(), max_size=2)
    ),
)
WORDS = st.sampled_from(
    re.findall(
        r"\S+", "nonce gas limit price fee tip base max tx type too low high exceeds below chain id signature blob"
    )
    + re.findall(
        r"\S+", r'revert : , ( ) { } [ ] " \ \u003c \ud800 0x08c379a0 0x 429 code = -32000 . pool already known'
    )
)


@given(message=st.text() | st.lists(WORDS).map(" ".join), code=st.none() | st.integers(), data=ANYTHING)
def test_no_answer_makes_it_raise(message: str, code: int | None, data: object) -> None:
    assert isinstance(classify(message, code, data), Rejection)
    assert classify(message, code, data) is classify(message, code, data)


@given(message=ANYTHING, code=ANYTHING)
def test_not_even_one_of_the_wrong_type(message: object, code: object) -> None:
    assert isinstance(classify(message, code), Rejection)  # type: ignore[arg-type]


def test_data_that_contains_itself_is_read_once() -> None:
    loop: dict[str, object] = {"message": "nonce too low"}
    loop["data"] = [loop] * 10
    assert classify("", None, loop) is Rejection.NONCE_TOO_LOW
    assert classify("", None, [[1] * 100_000] * 1000) is Rejection.INTERNAL_UNKNOWN


def test_of_a_very_long_answer_the_ends_are_read() -> None:
    raw = "0x" + "f8" * 200_000
    assert classify(f"nonce too low {raw}") is Rejection.NONCE_TOO_LOW
    assert classify(f'{{"params":["{raw}"],"error":"nonce too low"}}') is Rejection.NONCE_TOO_LOW
    assert classify("oops", None, [raw, "nonce too low"]) is Rejection.NONCE_TOO_LOW
    assert classify("word " * 100_000 + "nonce too low" + " word" * 100_000) is Rejection.INTERNAL_UNKNOWN


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a ",
        "nonce ",
        "gas price fee ",
        "exceeds 1 ",
        "is was has ",
        "tx type ",
        "chain id ",
        "signature a ",
        "\\",
        "0x",
    ],
)
def test_no_answer_is_slow_to_read(text: str) -> None:
    began = time.process_time()  # our own work: a busy machine is not counted
    classify(text * 100_000, None, [text * 5000] * 50)
    assert time.process_time() - began < 1  # 50 ms on the slow machine this was measured on; quadratic is minutes
