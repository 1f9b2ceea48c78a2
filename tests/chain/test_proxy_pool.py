"""The pool that the fault proxy shows: stricter than that of the node behind it."""

from __future__ import annotations

import pytest

from nonchalant.chain.evm.decoding import decode
from nonchalant.model import Accepted, Fees, Refused, Unknown
from nonchalant.testing.rules import (
    ARBITRUM,
    GETH,
    RETH,
    AccountLimit,
    DelegatedLimit,
    Held,
    NoGaps,
    Pooled,
    PoolLimit,
    PriceFloor,
    ReplacementStep,
    Swallowed,
)
from nonchalant.values import replace
from tests.chain.proxied import ALICE, DELEGATED, GWEI, pool, raws, transfer, transfers


async def test_the_step_is_wanted_on_every_fee_field_and_rounded_up(node, proxy, endpoint):
    proxy.enforce(ReplacementStep())
    odd = Fees(20 * GWEI + 1, GWEI + 1)
    step = Fees(22 * GWEI + 2, 1_100_000_002)
    refused = Refused("replacement transaction underpriced", -32000, None)
    assert await endpoint.send([transfer(fees=odd).raw]) == [Accepted()]
    for fees in (replace(step, max_fee=step.max_fee - 1), replace(step, priority=step.priority - 1), odd):
        answer = Refused("transaction already imported", -32003, None) if fees == odd else refused
        assert await endpoint.send([transfer(fees=fees).raw]) == [answer]
    assert await pool(node) == {transfer(fees=odd).hash}
    assert await endpoint.send([transfer(fees=step).raw]) == [Accepted()]
    assert await pool(node) == {transfer(fees=step).hash}


async def test_a_gas_price_has_one_fee_that_counts_as_both(proxy, endpoint):
    proxy.enforce(ReplacementStep())
    prices = [Fees(20 * GWEI), Fees(22 * GWEI - 1), Fees(22 * GWEI)]
    answers = [(await endpoint.send([transfer(fees=fees).raw]))[0] for fees in prices]
    assert [type(answer) for answer in answers] == [Accepted, Refused, Accepted]


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [(GETH, "account limit exceeded: pooled 2 txs", -32000), (RETH, "txpool is full", -32003)],
)
async def test_an_account_has_only_so_many_in_the_pool(node, proxy, endpoint, words, message, code):
    proxy.enforce(AccountLimit(2, words))
    answers = await endpoint.send([*raws(transfers(3)), transfer(key=1).raw])
    assert answers == [Accepted(), Accepted(), Refused(message, code, None), Accepted()]
    assert await endpoint.send([transfer(1, fees=Fees(40 * GWEI, 2 * GWEI)).raw]) == [Accepted()]
    await node.mine()
    assert await endpoint.send([transfer(2).raw]) == [Accepted()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (GETH, "nonce too high: tx nonce 2, gapped nonce 1"),
        (RETH, "nonce too high"),
        (ARBITRUM, f"nonce too high: address {ALICE}, tx: 2 state: 0"),
    ],
)
async def test_a_gapped_nonce_is_refused(proxy, endpoint, words, message):
    proxy.enforce(NoGaps(words=words))
    answers = await endpoint.send(raws([transfer(0), transfer(2), transfer(1), transfer(2)]))
    assert answers == [Accepted(), Refused(message, -32000, None), Accepted(), Accepted()]


async def test_a_gapped_nonce_can_be_dropped_in_silence(node, proxy, endpoint):
    async with proxy.enforce(NoGaps(silently=True)) as rule:
        assert await endpoint.send(raws([transfer(0), transfer(2)])) == [Accepted()] * 2
    assert rule.hits == 1
    assert await pool(node) == {transfer(0).hash}
    assert [each.taken for each in proxy.sent] == [True, False]


async def test_a_price_below_the_floor_is_refused(proxy, endpoint):
    proxy.enforce(PriceFloor(2 * GWEI))
    answers = await endpoint.send([transfer().raw, transfer(fees=Fees(20 * GWEI, 2 * GWEI)).raw])
    message = f"transaction underpriced: gas tip cap {GWEI}, minimum needed {2 * GWEI}"
    assert answers == [Refused(message, -32000, None), Accepted()]


async def test_a_full_pool_takes_replacements_only(proxy, endpoint):
    proxy.enforce(PoolLimit(1))
    batch = [transfer(0), transfer(1), transfer(0, key=1), transfer(0, fees=Fees(40 * GWEI, 2 * GWEI))]
    full = Refused("txpool is full", -32000, None)
    assert await endpoint.send(raws(batch)) == [Accepted(), full, full, Accepted()]


async def test_a_delegated_account_has_one_in_flight(node, proxy, endpoint):
    proxy.enforce(DelegatedLimit())
    await node.set_code(ALICE, DELEGATED)
    gap, first, second = await endpoint.send(raws([transfer(1), transfer(0), transfer(1)]))
    assert gap == Refused("gapped-nonce tx from delegated accounts", -32000, None)
    assert first == Accepted()
    assert second == Refused("in-flight transaction limit reached for delegated accounts", -32000, None)
    assert await endpoint.send(raws([transfer(0, key=1), transfer(1, key=1)])) == [Accepted()] * 2


async def test_late_and_unanswered_bytes_meet_the_rules_of_the_pool_too(node, proxy, hasty):
    proxy.enforce(NoGaps())
    proxy.late_delivery(times=1)
    proxy.timeout_after_acceptance(times=1)
    assert await hasty.send([transfer(5).raw]) == [Accepted()]
    [answer] = await hasty.send([transfer(6).raw])
    assert isinstance(answer, Unknown)
    await proxy.release()
    assert await pool(node) == set()
    assert [each.taken for each in proxy.sent] == [False, False]


async def test_what_nodes_check_first_is_not_overruled(node, proxy, endpoint):
    await endpoint.send([transfer().raw])
    await node.mine()
    proxy.enforce(PoolLimit(0))
    [answer] = await endpoint.send([transfer().raw])
    assert answer.message == "nonce too low"


def test_rules_judge_values():
    read = decode(transfer(3).raw)
    same = Held(hash="0x", max_fee=read.max_fee, priority=read.priority)
    assert ReplacementStep(0).judge(read, Pooled(count=3, next_nonce=4, held={3: same})) == GETH.replacement
    assert ReplacementStep().judge(read, Pooled(count=3, next_nonce=3)) is None
    assert AccountLimit(0).judge(read, Pooled(count=3, next_nonce=3)) is None
    assert NoGaps(silently=True).judge(read, Pooled(count=1, next_nonce=2)) == Swallowed()
