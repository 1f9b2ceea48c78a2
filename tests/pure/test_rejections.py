"""What a node meant: the given messages exactly, everything else as well as it can be shown."""

import csv
import itertools
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonchalant.rejections import CODES, RULES, Fate, Rejection, Remedy, classify
from nonchalant.rejections.reading import normalised
from nonchalant.rejections.rules import compiled
from tests.lessons import lesson

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    client: str
    category: str
    code: int | None
    message: str


def read(name: str) -> list[Row]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return [
            Row(
                client=row["client"],
                category=row["category"],
                code=int(row["json_rpc_code"]) if row["json_rpc_code"] else None,
                message=row["message"],
            )
            for row in csv.DictReader(file)
        ]


KNOWN = read("node_errors.csv")
UNSEEN = read("unseen_errors.csv")

# What a node puts where the file has a placeholder; each row is filled three times, each hole with another value.
FILLINGS = {
    "address": (
        "0x8A3f2bD0f5F1d5c3E1bAdC0deFacE00112233445",
        "0x" + "0" * 40,
        "0xdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    ),
    "amount": ("5", "0.000001", "123456789012345678901234567890"),
    "block": ("0", "19000000", "0x121eac0"),
    "block_id": ("finalized", "hash 0x" + "ab" * 32, "number 0x10"),
    "blocks": ("1", "5", "100"),
    "body": ("", "stream timeout", "<html><body>Request Time-out</body></html>"),
    "bytes": ("24577", "131072", "2097431"),
    "cap": ("1.00", "100", "0.5"),
    "chain_id": ("1", "137", "0x2105"),
    "counter": ("keccak", "steps", "poseidon"),
    "counters": ("counter: steps", "not enough steps", "keccak=5"),
    "debug": ("Verification(RuntimeApi)", "Pool(CycleDetected)", "Pool(InvalidBlockId)"),
    "detail": ("connection refused", "nonce too low", "HTTP error 429 with body: insufficient funds"),
    "duration": ("5s", "30.5s", "1m0s"),
    "fee": ("1.10", "250.00", "0.6"),
    "fork": ("Prague", "Cancun", "Osaka"),
    "from": ("0x1", "0x121eac0", "100"),
    "gas": ("21000", "30000000", "5"),
    "hash": ("ab" * 32, "0x" + "cd" * 32, "00" * 32),
    "html": ("", "<html><head><title>nginx</title></head></html>", "<!DOCTYPE html><h1>cloudflare</h1>"),
    "import_result": ("INTERNAL_ERROR", "INVALID", "ALREADY_EXISTS", "FEE_TOO_LOW", "STALE"),
    "method": ("eth_sendRawTransaction", "eth_getLogs", "debug_traceTransaction"),
    "n": ("2", "16", "10000"),
    "nonce": ("0", "7", "1848"),
    "path": ("", "0a0b", "060f"),
    "pct": ("10", "100", "12"),
    "price": ("1", "1000000000", "20000000000"),
    "reason": ("", "ERC20: transfer amount exceeds balance", "unexpected condition 0x08"),
    "root": ("0x" + "ef" * 32, "12ab", "0x00"),
    "short_hash": ("a1b2c3…d4e5f6", "0xabcdef", "b94a8f"),
    "status": ("429", "500", "404"),
    "symbol": ("ether", "BNB", "celo"),
    "to": ("0x2", "0x121ebff", "latest"),
    "tx_hash": ("0x" + "12" * 32, "0x" + "ff" * 32, "0xcc429429429429429429"),
    "tx_id": ("0.0.902@1700000000.000000001", "0.0.5@1.2", "0.0.1337@1690000000.999999999"),
    "type": ("2", "0x03", "Eip4844"),
    "uuid": ("0f8fad5b-d9cb-469f-a165-70867728950e", "00000000-0000-0000-0000-000000000429", "c0ffee"),
    "version": ("0", "1", "255"),
    "wei": ("0", "1000000000", "115792089237316195423570985008687907853269984665640564039457584007913129639935"),
}
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


def filled(message: str) -> Iterator[str]:
    """The message with its placeholders filled, at least three times, always the same."""
    pieces = re.split(r"<([a-z_]+)>", message)  # text, hole, text, hole, …, text
    holes = pieces[1::2]
    for turn in range(max([3, *(len(FILLINGS[hole]) for hole in holes)]) if holes else 1):
        values = [FILLINGS[hole][(turn + place) % len(FILLINGS[hole])] for place, hole in enumerate(holes)]
        yield "".join(itertools.chain(*itertools.zip_longest(pieces[::2], values, fillvalue="")))


def mistakes(cases: Iterable[tuple[Row, str, int | None, object]]) -> list[str]:
    return [
        f"{row.client}: {message!r} is {row.category}, not {got}"
        for row, message, code, data in cases
        if (got := classify(message, code, data).value) != row.category
    ]


# --- the given messages ---


def test_the_rejections_are_the_categories_of_the_file() -> None:
    assert {rejection.value for rejection in Rejection} == {row.category for row in KNOWN}


def test_every_given_message_is_classified_exactly() -> None:
    assert mistakes((row, message, row.code, None) for row in KNOWN for message in filled(row.message)) == []


def test_the_words_suffice_when_a_gateway_swallowed_the_code() -> None:
    assert mistakes((row, message, None, None) for row in KNOWN for message in filled(row.message)) == []


def quoted(message: str) -> str:
    return json.dumps(message)


WRAPPINGS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "geth": lambda m: f"err: {m} (supplied gas 15000000)",
    "web3.js": lambda m: f"Returned error: {m}",
    "web3.py": lambda m: str({"code": -32000, "message": m}),
    "cast": lambda m: f"server returned an error response: error code -32000: {m}",
    "alloy": lambda m: f"(code: -32000, message: {m}, data: None)",
    "grpc": lambda m: f"rpc error: code = Unknown desc = {m}",
    "a prefix and a document": lambda m: 'RPC error: {"code":-32000,"message":' + quoted(m) + "}",
    "a document": lambda m: json.dumps({"jsonrpc": "2.0", "id": 429, "error": {"code": -32000, "message": m}}),
    "a document in a document": lambda m: json.dumps({"body": json.dumps({"error": {"message": m, "data": None}})}),
    "go's escapes": lambda m: quoted(m).replace("<", "\\u003c").replace(">", "\\u003e").replace("'", "\\u0027"),
    "metamask": lambda m: (
        "[ethjs-query] while formatting outputs from RPC '" + json.dumps({"value": {"data": m}}) + "'"
    ),
    "viem": lambda m: (
        "RPC Request failed.\n\nURL: https://rate-limit.example.org/unauthorized\n"
        'Request body: {"method":"eth_sendRawTransaction","params":["0x02f8'
        + "b0" * 300
        + f'"]}}\n\nDetails: {m}\nVersion: viem@2.21.0'
    ),
    "ethers 5": lambda m: (
        'processing response error (body="'
        + json.dumps({"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": m}}).replace('"', '\\"')
        + '", error={"code":-32000}, requestBody="{\\"method\\":\\"eth_sendRawTransaction\\"}", '
        'requestMethod="POST", url="https://node.example.org", code=SERVER_ERROR, version=web/5.7.1)'
    ),
    "ethers 5 with the transaction": lambda m: (
        f'{m} (error={{"reason":"processing response error","code":"SERVER_ERROR"}}, method="sendTransaction", '
        'transaction={"chainId":1,"nonce":7,"gasLimit":"0x5208","maxFeePerGas":"0x3b9aca00","type":2,"value":"0x0",'
        '"maxPriorityFeePerGas":"0x1","accessList":[],"data":"0x","from":"0x8A3f","signature":null}, version=5.7.2)'
    ),
    "ethers 6": lambda m: (
        'could not coalesce error (error={ "code": -32000, "message": '
        + quoted(m)
        + ' }, payload={ "id": 5, "method": "eth_sendRawTransaction", "params": [ "0x02f8b0" ] }, code=UNKNOWN_ERROR)'
    ),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_a_wrapped_message_means_the_same(wrapping: str) -> None:
    wrap = WRAPPINGS[wrapping]
    assert mistakes((row, wrap(message), row.code, None) for row in KNOWN for message in filled(row.message)) == []


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: m,
        lambda m: {"message": m},
        lambda m: {"code": -32000, "message": m, "data": {"revertReason": None}},
        lambda m: {"originalError": {"error": {"message": m}}},
        lambda m: [{"status": 200}, (None, {"errors": [m.encode()]})],
        lambda m: json.dumps({"message": m}),
    ],
)
def test_a_message_hidden_in_the_data_means_the_same(wrap: Callable[[str], object]) -> None:
    assert (
        mistakes(
            (row, "Internal JSON-RPC error.", -32603, wrap(message)) for row in KNOWN for message in filled(row.message)
        )
        == []
    )


# --- how far it carries ---


def test_messages_of_other_clients_are_understood() -> None:
    """Messages that are not in the file: of other clients and gateways (`source` says whence), and paraphrases.

    They came in five lots, each classified before anything was changed for it: right were 71 % of 119 and 70 % of 69
    messages of others, 83 % of 183 and 73 % of 151 paraphrases, and 64 % of 64 far-fetched ones. Nearly all the rest
    were unknown, which is safe. A handful that were too vague to have one meaning are left out. What the others taught
    is in the rules now, so this test only keeps it there.
    """
    assert mistakes((row, row.message, row.code, None) for row in UNSEEN) == []


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_messages_of_other_clients_are_understood_wrapped_too(wrapping: str) -> None:
    assert mistakes((row, WRAPPINGS[wrapping](row.message), row.code, None) for row in UNSEEN) == []


def alternatives(phrase: str) -> list[str]:
    """The parts of a phrase between its outermost bars: the smallest pieces of knowledge that can be taken away."""
    parts, depth, in_class = [""], 0, False
    for token in re.findall(r"\\.|.", phrase, re.DOTALL):
        in_class = (in_class or token == "[") and token != "]"
        depth += 0 if in_class else (token == "(") - (token == ")")
        if token == "|" and not depth and not in_class:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def held_out(group: Callable[[Row], str]) -> dict[str, tuple[int, int]]:
    """For each group of rows: how many of them are right, and how many there are, had it never been seen.

    The rules were written by someone who read the whole file, so they cannot be learnt anew without a client. What
    can be done is to take away whatever only this client taught: an alternative of a phrase is dropped if all the rows
    of its class that it matches, decisive or not, belong to the group. The group's rows are then classified by what is
    left. An alternative that no row supports stays, for it did not come from the file. What this cannot undo is the
    choice of synonyms inside an alternative, so it flatters; the lots of unseen messages do not.
    """
    texts = [normalised(next(filled(row.message))) for row in KNOWN]
    groups = [group(row) for row in KNOWN]
    right: Counter[str] = Counter()
    decided: set[int] = set()
    for rule in RULES:
        for part in (part for phrase in rule.phrases for part in alternatives(phrase)):
            pattern = compiled(part)
            found = [i for i, text in enumerate(texts) if pattern.search(text)]
            teachers = {groups[i] for i in found if KNOWN[i].category == rule.rejection.value}
            for i in found:
                if i not in decided and teachers != {groups[i]}:
                    decided.add(i)
                    right[groups[i]] += KNOWN[i].category == rule.rejection.value
    for i, row in enumerate(KNOWN):
        if i not in decided:
            right[groups[i]] += row.category == Rejection.INTERNAL_UNKNOWN.value
    return {name: (right[name], count) for name, count in Counter(groups).items()}


def accuracy(outcome: dict[str, tuple[int, int]]) -> float:
    return sum(right for right, _ in outcome.values()) / sum(count for _, count in outcome.values())


def test_a_client_that_was_left_out_is_still_mostly_understood() -> None:
    outcome = held_out(lambda row: row.client)
    print({client: f"{right}/{count}" for client, (right, count) in sorted(outcome.items())})
    assert accuracy(outcome) >= 0.82  # measured: 0.839
    assert all(right / count >= 0.6 for right, count in outcome.values() if count >= 10)


def test_a_sentence_that_was_left_out_is_still_mostly_understood() -> None:
    """Clients copy each other's sentences, so here each distinct one is left out with all its copies."""
    assert accuracy(held_out(lambda row: normalised(row.message))) >= 0.82  # measured: 0.841


def test_what_is_not_understood_is_unknown_and_possibly_sent() -> None:
    for message in ("", "oops", "Something went wrong", "\x00", "交易失败", "error code: 7", "transaction failed"):
        assert classify(message, -32000) is Rejection.INTERNAL_UNKNOWN
    assert Rejection.INTERNAL_UNKNOWN.fate is Fate.POSSIBLY_SENT


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
    began = time.perf_counter()
    classify(text * 100_000, None, [text * 5000] * 50)
    assert time.perf_counter() - began < 1  # 50 ms on the slow machine this was measured on; quadratic is minutes
