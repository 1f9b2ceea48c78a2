"""The given messages are understood exactly, everything else as well as it can be shown."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from nonchalant.rejections import RULES, Fate, Rejection, classify
from nonchalant.rejections.reading import normalised
from nonchalant.rejections.rules import compiled
from tests.pure.node_errors import KNOWN, UNSEEN, Row, filled


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
