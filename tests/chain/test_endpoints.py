"""Endpoints against nodes that answer oddly, falsely, or at random."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonchalant.chain.evm import wire
from nonchalant.chain.evm.endpoints import MANY_RECEIPTS
from nonchalant.chain.evm.keccak import keccak
from nonchalant.chain.evm.rpc import UNDECODABLE
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Accepted, BlockRef, Payload, Refused, Unknown
from nonchalant.rejections import Rejection, classify
from nonchalant.words import Speed
from tests.chain.misbehaving import serving
from tests.chain.scripted import (
    ALICE,
    BLOCK,
    DRAFT,
    GOOD,
    HASH,
    OTHER,
    QUESTIONS,
    RAW,
    Script,
    asking,
    methods,
    scripted,
)


async def test_every_question_is_one_request_once_the_chain_is_known():
    for name, question in QUESTIONS.items():
        async with scripted() as (endpoint, node):
            await endpoint.view()
            node.bodies.clear()
            await question(endpoint)
            assert len(node.bodies) == 1, name


async def test_the_first_question_brings_the_chain_id_along():
    async with scripted() as (endpoint, node):
        await endpoint.block(16)
        await endpoint.block(16)
        assert methods(node) == [["eth_chainId", "eth_getBlockByNumber"], ["eth_getBlockByNumber"]]


async def test_many_accounts_at_one_block_ask_for_its_header_once():
    async with scripted() as (endpoint, node):
        await asyncio.gather(*(endpoint.account(ALICE, BLOCK) for _ in range(30)))
        [asked] = methods(node)
        assert asked.count("eth_getBlockByNumber") == 1
        assert asked.count("eth_chainId") == 1
        assert asked[-1] == "eth_getBlockByNumber"


@pytest.mark.parametrize("answer", [None, (-39001, "unknown block"), (-32602, "invalid block tag")])
async def test_a_missing_finalised_tag_is_an_error_that_names_endpoint_and_remedy(answer):
    def no_tag(body):
        return [
            script.one(call) if call["params"][:1] != ["finalized"] else script.one(call | {"method": "finalized"})
            for call in body
        ]

    script = Script(finalized=answer)
    async with serving(no_tag) as node, asking(node) as endpoint:
        with pytest.raises(Unreachable, match=r"node has no `finalized` block.*finality = 12"):
            await endpoint.view()


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        *(("eth_getBlockByNumber", GOOD["eth_getBlockByNumber"] | change) for change in (
            {"hash": None}, {"hash": "0x12"}, {"hash": 7}, {"number": "16"}, {"number": "0x"}, {"number": None},
            {"number": "0x" + "f" * 17}, {"number": "-0x10"}, {"number": " 0x10"}, {"number": "0x1_0"}, {"number": "0x٣"},
            {"parentHash": "0x" + "zz" * 32}, {"transactions": None}, {"transactions": [7]}, {"transactions": ["0x"]},
            {"number": "0x11"},
        )),
        *(("eth_getBlockByNumber", answer) for answer in ("0x10", [], 7, True, {})),
    ],
)  # fmt: skip
async def test_a_malformed_or_wrong_block_is_unreachable(method, answer):
    async with scripted(**{method: answer}) as (endpoint, _):
        with pytest.raises(Unreachable):
            await endpoint.block(16)


@pytest.mark.parametrize(
    "change",
    [
        {"transactionHash": HASH},
        {"blockHash": "0x"},
        {"gasUsed": None},
        {"gasUsed": "21000"},
        {"status": "0x2"},
        {"status": None},
        {"effectiveGasPrice": "0xzz"},
        {"contractAddress": "0x12"},
        {"l1Fee": 9},
    ],
)
async def test_a_malformed_or_wrong_receipt_is_unreachable(change):
    async with scripted(eth_getTransactionReceipt=GOOD["eth_getTransactionReceipt"] | change) as (endpoint, _):
        with pytest.raises(Unreachable):
            await endpoint.find([OTHER])


async def test_a_receipt_is_read_in_full():
    async with scripted() as (endpoint, _):
        [receipt] = await endpoint.find([OTHER])
        assert (receipt.gas_used, receipt.gas_price, receipt.l1_fee) == (21_000, 7, 9)
        assert receipt.cost == 21_000 * 7 + 9


@pytest.mark.parametrize(("change", "price"), [({"gasPrice": "0x5"}, 5), ({}, 0)])
async def test_a_receipt_without_effective_price_falls_back(change, price):
    odd = GOOD["eth_getTransactionReceipt"] | {"effectiveGasPrice": None, "root": HASH} | change
    async with scripted(eth_getTransactionReceipt=odd) as (endpoint, _):
        [receipt] = await endpoint.find([OTHER])
        assert receipt.gas_price == price


async def test_a_receipt_of_a_pending_transaction_is_none():
    pending = GOOD["eth_getTransactionReceipt"] | {"blockHash": None, "blockNumber": None}
    async with scripted(eth_getTransactionReceipt=pending) as (endpoint, _):
        assert await endpoint.find([OTHER]) == [None]


async def test_a_node_without_block_receipts_is_asked_for_single_ones_and_this_is_remembered():
    async with scripted(eth_getBlockReceipts=(-32601, "the method does not exist")) as (endpoint, node):
        for _ in range(2):
            assert len(await endpoint.receipts(BLOCK, [OTHER] * MANY_RECEIPTS)) == MANY_RECEIPTS
        assert [asked.count("eth_getBlockReceipts") for asked in methods(node)] == [1, 0, 0]


async def test_a_passing_refusal_of_block_receipts_is_not_remembered():
    async with scripted(eth_getBlockReceipts=(-32000, "busy")) as (endpoint, node):
        for _ in range(2):
            await endpoint.receipts(BLOCK, [OTHER] * MANY_RECEIPTS)
        assert [asked.count("eth_getBlockReceipts") for asked in methods(node)] == [1, 0, 1, 0]


async def test_foreign_receipts_of_an_odd_form_do_not_hide_ours():
    odd = GOOD["eth_getTransactionReceipt"] | {"transactionHash": HASH, "status": "0x7"}
    async with scripted(eth_getBlockReceipts=[odd, GOOD["eth_getTransactionReceipt"]]) as (endpoint, _):
        assert len(await endpoint.receipts(BLOCK, [OTHER] * MANY_RECEIPTS)) == MANY_RECEIPTS


async def test_the_transactions_a_layer_2_makes_by_itself_are_read():
    system = {"hash": OTHER, "from": ALICE, "to": None, "type": "0x7e", "input": "0x"}
    async with scripted(eth_getBlockByHash=GOOD["eth_getBlockByHash"] | {"transactions": [system]}) as (endpoint, _):
        [executed] = await endpoint.executed(BLOCK)
        assert (executed.nonce, executed.value, executed.to) == (0, 0, None)


@pytest.mark.parametrize("header", [None, (-32000, "header not found"), GOOD["eth_getBlockByNumber"] | {"hash": OTHER}])
async def test_counts_and_estimates_are_believed_only_from_who_has_the_block(header):
    async with scripted(eth_getBlockByNumber=header, eth_estimateGas=(3, "execution reverted")) as (endpoint, _):
        with pytest.raises(Unreachable, match="does not have block 16"):
            await endpoint.account(ALICE, BLOCK)
        with pytest.raises(Unreachable, match="does not have block 16"):
            await endpoint.estimate(ALICE, Payload(to=ALICE), BLOCK)


@pytest.mark.parametrize(
    ("code", "delegated"),
    [
        ("0x", False),
        ("0x6001", False),
        ("0xEF0100" + "AB" * 20, True),
        ("0xef0100", False),
        ("0xef0100" + "ab" * 21, False),
        ("0xef0200" + "ab" * 20, False),
    ],
)
async def test_only_a_whole_delegation_makes_an_account_delegated(code, delegated):
    async with scripted(eth_getCode=code) as (endpoint, _):
        assert (await endpoint.account(ALICE, BLOCK)).delegated is delegated


@pytest.mark.parametrize("code", [None, "", "ef0100", "0xef010", "0x" + "zz" * 23, 7, ["0x"]])
async def test_a_malformed_code_is_unreachable(code):
    async with scripted(eth_getCode=code) as (endpoint, _):
        with pytest.raises(Unreachable, match="eth_getCode"):
            await endpoint.account(ALICE, BLOCK)


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (-32000, "missing trie node 1f2e (path )", None),
        (-32000, "required historical state unavailable (reexec=128)", None),
        (-32005, "rate limited", None),
        (-32000, "insufficient funds for transfer", None),
        (-32000, "out of gas", "out of gas"),
        (3, "execution reverted: too late", "execution reverted: too late"),
        (
            -32015,
            "VM execution error: reverted 0x4e487b71" + "00" * 31 + "11",
            "execution reverted: arithmetic overflow",
        ),
        (3, "execution reverted: " + "long " * 1_000, "execution reverted: long "),
    ],
)
async def test_a_replay_tells_what_the_payload_did_and_nothing_of_the_node(code, message, told):
    async with scripted(eth_call=(code, message)) as (endpoint, _):
        reason = await endpoint.replay(ALICE, Payload(to=ALICE), 21_000, BLOCK)
    if told is None:
        assert reason is None
    else:
        assert reason is not None
        assert reason.startswith(told)
        assert len(reason) <= 1_000


@pytest.mark.parametrize(
    ("message", "gas", "told"),
    [
        ("gas required exceeds allowance (50000)", 50_000, "execution reverted: out of gas, 50000 are not enough"),
        ("Out of gas: gas required exceeds allowance: 50000", 50_000, "execution reverted: out of gas, 50000 are"),
        ("gas required exceeds allowance (30000000)", None, "execution reverted: out of gas, 30000000 are not enough"),
        # What the account's funds buy:
        ("gas required exceeds allowance (49999)", 50_000, "gas required exceeds allowance (49999)"),
        ("gas required exceeds allowance (0)", None, "gas required exceeds allowance (0)"),
    ],
)
async def test_an_estimate_that_runs_out_of_gas_is_not_taken_for_one_that_lacks_funds(message, gas, told):
    async with scripted(eth_estimateGas=(-32000, message)) as (endpoint, _):
        with pytest.raises(NodeRefused) as refused:
            await endpoint.estimate(ALICE, Payload(to=ALICE, gas=gas), BLOCK)
    assert refused.value.message.startswith(told)
    reverts = classify(refused.value.message, refused.value.node_code) is Rejection.EXECUTION_REVERTED
    assert reverts == ("out of gas" in told)


async def test_a_replay_of_the_first_block_asks_for_no_block_below_it():
    async with scripted(eth_getBlockByNumber=GOOD["eth_getBlockByNumber"] | {"number": "0x0"}) as (endpoint, node):
        await endpoint.replay(ALICE, Payload(to=ALICE), 21_000, BlockRef(0, HASH))
        assert '"-0x1"' not in json.dumps(node.bodies)


@pytest.mark.parametrize(
    "answer", [None, "0x", "0x09", "0x" + "00" * 33, 9, (-32601, "method not found"), (3, "reverted")]
)
async def test_a_fee_for_data_that_is_no_number_is_unreachable(answer):
    async with scripted(eth_call=answer) as (endpoint, _):
        with pytest.raises(Unreachable, match="does not tell the fee for data"):
            await endpoint.data_fees([DRAFT])


async def test_a_refused_estimate_counts_only_when_the_node_had_the_block_before():
    def arrives_late(body):
        script.answers["eth_estimateGas"] = (-32000, "header not found") if len(node.bodies) == 1 else "0x5208"
        return script(body)

    script = Script()
    async with serving(arrives_late) as node, asking(node) as endpoint:
        assert await endpoint.estimate(ALICE, Payload(to=ALICE), BLOCK) == 21_000
        assert len(node.bodies) == 2


# prices


async def prices(**changed: object):
    async with scripted(**changed) as (endpoint, _):
        return await endpoint.market()


async def test_the_market_reads_the_next_base_fee_and_the_median_of_tips():
    market = await prices()
    assert (market.base_fee, market.gas_price) == (0x66, 0x70)
    assert market.priority == {Speed.SLOW: 1, Speed.STANDARD: 2, Speed.FAST: 3}
    assert market.gas_limit == 30_000_000


@pytest.mark.parametrize("limit", [{"gasLimit": None}, {"gasLimit": "0x0"}])
async def test_a_gas_limit_that_the_node_does_not_tell_is_not_known(limit):
    assert (await prices(eth_getBlockByNumber=GOOD["eth_getBlockByNumber"] | limit)).gas_limit is None


@pytest.mark.parametrize(
    "history",
    [
        None,
        {},
        {"baseFeePerGas": [], "gasUsedRatio": [], "reward": []},
        {"baseFeePerGas": None, "gasUsedRatio": None, "reward": None},
        {"baseFeePerGas": ["0x64"], "reward": [None, [], ["0x1"]]},
        {"baseFeePerGas": ["0x64", "0x64"], "gasUsedRatio": [0], "reward": [["0x0", "0x0", "0x0"]]},
        (-32601, "method not found"),
    ],
)
async def test_without_a_usable_history_tips_come_from_the_gas_price(history):
    market = await prices(eth_feeHistory=history)
    assert (market.base_fee, market.gas_price) == (0x64, 0x70)
    assert market.priority == dict.fromkeys(Speed, 0x70 - 0x64)


async def test_a_gas_price_below_the_base_fee_gives_no_negative_tip():
    assert (await prices(eth_feeHistory=None, eth_gasPrice="0x1")).priority == dict.fromkeys(Speed, 0)


async def test_without_a_gas_price_the_history_serves():
    assert (await prices(eth_gasPrice=(-32601, "method not found"))).gas_price == 0x66 + 2


async def test_a_chain_without_base_fee_needs_its_gas_price():
    legacy = {key: value for key, value in GOOD["eth_getBlockByNumber"].items() if key != "baseFeePerGas"}
    market = await prices(eth_getBlockByNumber=legacy, eth_feeHistory=(-32601, "method not found"))
    assert (market.base_fee, market.gas_price) == (None, 0x70)
    with pytest.raises(NodeRefused):
        await prices(eth_getBlockByNumber=legacy, eth_gasPrice=(-32601, "method not found"))


async def test_a_base_fee_of_zero_is_a_base_fee():
    free = GOOD["eth_getBlockByNumber"] | {"baseFeePerGas": "0x0"}
    assert (await prices(eth_getBlockByNumber=free, eth_feeHistory=None)).base_fee == 0


# sending


@pytest.mark.parametrize("answer", [None, "", "0x", "0x1234", 7, True, [], {}, OTHER, HASH + "00", "ok"])
async def test_anything_but_our_own_hash_leaves_a_send_unknown(answer):
    async with scripted(eth_sendRawTransaction=answer) as (endpoint, _):
        [given_answer] = await endpoint.send([RAW])
        assert isinstance(given_answer, Unknown)


async def test_our_own_hash_in_any_case_is_accepted():
    async with scripted(eth_sendRawTransaction="0x" + keccak(RAW).hex().upper()) as (endpoint, _):
        assert await endpoint.send([RAW]) == [Accepted()]


async def test_a_refusal_keeps_the_nodes_words_and_code():
    async with scripted(eth_sendRawTransaction=(-32000, "nonce too low")) as (endpoint, _):
        assert await endpoint.send([RAW]) == [Refused("nonce too low", -32000)]


async def test_sending_nothing_is_no_error():
    async with scripted() as (endpoint, _):
        assert await endpoint.send([]) == []


@pytest.mark.parametrize("chain_id", ["0x2", None, (-32601, "method not found"), "1", 1])
async def test_a_node_that_does_not_say_our_chain_id_is_handed_nothing(chain_id):
    async with scripted(eth_chainId=chain_id) as (endpoint, node):
        [answer] = await endpoint.send([RAW])
        assert isinstance(answer, Unknown)
        assert "eth_sendRawTransaction" not in str(node.bodies)


# answers at random

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["0x", "0x0", "0x1", "0x10", HASH, OTHER, ALICE, "0x" + "f" * 64, "0x" + "f" * 65, "latest"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(sorted({k for v in GOOD.values() if isinstance(v, dict) for k in v})), inner),
    ),
    max_leaves=10,
)


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, object]:
    """The good answers with a few things in them replaced, or left out."""
    answers: dict[str, Any] = json.loads(json.dumps(GOOD))
    for _ in range(draw(st.integers(1, 3))):
        method = draw(st.sampled_from(sorted(answers)))
        answer = answers[method]
        if isinstance(answer, list) and answer:
            answer = answer[0]
        if isinstance(answer, dict) and answer and draw(st.booleans()):
            key = draw(st.sampled_from(sorted(answer)))
            if draw(st.booleans()):
                answer[key] = draw(anything)
            else:
                del answer[key]
        else:
            answers[method] = draw(anything)
    return answers


def test_whatever_a_node_answers_only_documented_errors_come_out():
    with asyncio.Runner() as runner:

        async def ask_all(answers: dict[str, object], misplace: int) -> None:
            def behave(body: Any) -> Any:
                told = Script(**answers)(body)
                return told[misplace:] if isinstance(told, list) else told

            async with serving(behave) as node, asking(node) as endpoint:
                for question in QUESTIONS.values():
                    with suppress(Unreachable, NodeRefused):
                        await question(endpoint)
                for answer in await endpoint.send([RAW, RAW]):
                    assert isinstance(answer, Accepted | Refused | Unknown)

        @settings(max_examples=150)
        @given(nearly_right(), st.sampled_from([0, 0, 0, 1]))
        def check(answers: dict[str, object], misplace: int) -> None:
            runner.run(ask_all(answers, misplace))

        check()


@settings(max_examples=1_000)
@given(anything, st.data())
def test_no_json_breaks_the_reading_of_an_answer(value, data):
    raw = json.dumps(value).encode()
    raw = data.draw(st.sampled_from([raw, raw[:-1], raw + b"}", b"\xff" + raw]))
    parsers: list[Callable[[bytes], object]] = [
        *(wire.number, wire.sent_hash, wire.header, wire.block, wire.executed, wire.receipt, wire.fee_history),
        *(wire.count, wire.gas, wire.is_delegated, wire.word, lambda raw: wire.receipts(raw, {OTHER})),
    ]
    for parse in parsers:
        with suppress(UNDECODABLE):
            parse(raw)
