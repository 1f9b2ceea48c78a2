"""What is found out before a nonce is spent, and what is said of it after one was."""

from __future__ import annotations

from typing import Any

import pytest

from nonchalant.model import BlockRef, Market, Payload, Transaction
from nonchalant.sim.endpoint import GAS_LIMIT
from nonchalant.sim.wire import Effect, Order
from nonchalant.values import replace
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import RECIPIENT, Rig, refused, staged, unreachable
from tests.stages.voices import FOR_EVER

GAS = 60_000
REASON = "execution reverted: the order does not run"


async def reverted(rig: Rig, label: str = "fails") -> Transaction:
    """Sent without an estimate, because its gas was given; mined, and not final yet."""
    tx = await rig.submit(label, effect=Effect.NEVER, gas=GAS)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    return await rig.reaches(tx, State.MINED)


async def told(rig: Rig, tx: Transaction) -> list[object]:
    return [event.data["reason"] for event in await rig.store.history(tx.id) if event.kind == "tx.reverted"]


# simulation


@lesson("head-of-line")
@staged(window=1)
async def test_what_must_be_simulated_and_would_revert_spends_no_nonce_although_its_gas_is_given(rig: Rig) -> None:
    simulated = await rig.submit("simulated", effect=Effect.NEVER, gas=GAS, simulate=True)
    after = await rig.submit("after")
    failed = await rig.reaches(simulated, State.FAILED)
    assert (failed.nonce, failed.failure) == (None, f"it would revert: {REASON}")
    await rig.reaches(after, State.SENT)
    assert (await rig.read(after)).nonce == 0
    assert rig.sent("simulated") == []


@staged()
async def test_what_is_simulated_is_signed_with_the_gas_that_was_given(rig: Rig) -> None:
    given = await rig.submit("given", gas=123_456, simulate=True)
    estimated = await rig.submit("estimated", simulate=True)
    await rig.reaches(given, State.SENT)
    await rig.reaches(estimated, State.SENT)
    assert [attempt.gas for attempt in await rig.attempts(given)] == [123_456]
    assert [attempt.gas for attempt in await rig.attempts(estimated)] != [123_456]
    assert sum(voice.asked["estimate"] for voice in rig.endpoints) == 2


@staged()
async def test_gas_that_is_given_is_taken_as_it_is_unless_simulation_is_asked_for(rig: Rig) -> None:
    tx = await rig.submit("given", gas=GAS)
    await rig.reaches(tx, State.SENT)
    assert sum(voice.asked["estimate"] for voice in rig.endpoints) == 0


@lesson("dependent-estimates")
@staged()
async def test_a_simulation_that_reverts_behind_what_is_in_flight_waits_for_it(rig: Rig) -> None:
    approve = await rig.submit("approve")
    transfer = await rig.submit("transfer", effect=Effect.AFTER, after="approve", gas=GAS, simulate=True)
    await rig.reaches(approve, State.SENT)
    assert (await rig.state(transfer), await rig.mark(transfer)) == (State.QUEUED, "waits_for_earlier")
    await rig.mine()
    await rig.reaches(transfer, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([approve, transfer]) == [State.CONFIRMED, State.CONFIRMED]


# the block's limit


@lesson("head-of-line")
@staged(window=1)
async def test_more_gas_than_a_block_has_fails_before_a_nonce_is_spent(rig: Rig) -> None:
    huge = await rig.submit("huge", gas=GAS_LIMIT + 1)
    large = await rig.submit("large", gas=GAS_LIMIT)
    failed = await rig.reaches(huge, State.FAILED)
    assert failed.failure == f"it takes {GAS_LIMIT + 1} gas, and a block of this chain has room for {GAS_LIMIT}"
    await rig.reaches(large, State.SENT)
    assert (await rig.read(large)).nonce == 0


@staged()
async def test_where_no_limit_is_known_none_applies(rig: Rig) -> None:
    for voice in rig.endpoints:

        async def market(endpoint: Any = voice.endpoint) -> Market:
            return replace(await endpoint.market(), gas_limit=None)

        voice.answer("market", market)
    tx = await rig.submit("huge", gas=GAS_LIMIT + 1)
    await rig.reaches(tx, State.SENT)


# what replaces it


def payload(label: str, effect: Effect = Effect.RUNS, gas: int = GAS) -> Payload:
    return Payload(to=RECIPIENT, data=Order(label, effect).data(), gas=gas)


@pytest.mark.parametrize(
    "other", [payload("other", Effect.NEVER), payload("other", gas=GAS_LIMIT + 1)], ids=["reverts", "too much gas"]
)
@staged()
async def test_what_replaces_it_is_simulated_and_must_fit_a_block_too(rig: Rig, other: Payload) -> None:
    tx = await rig.submit("first", gas=GAS, simulate=True)
    await rig.reaches(tx, State.SENT)
    wishes = rig.asking
    await wishes.replace(tx.id, other)
    await rig.advance(5.0)
    assert rig.sent("other") == []
    await wishes.replace(tx.id, payload("better"))
    await rig.advance(5.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.order_of_execution() == ["better"]


@staged()
async def test_what_replaces_it_is_taken_as_it_is_where_no_simulation_was_asked_for(rig: Rig) -> None:
    tx = await rig.submit("first", gas=GAS)
    await rig.reaches(tx, State.SENT)
    await rig.asking.replace(tx.id, payload("other", Effect.NEVER))
    await rig.advance(5.0)
    await rig.mine()
    await rig.finalise()
    ended = await rig.reaches(tx, State.REVERTED)
    assert (ended.failure, rig.order_of_execution()) == (REASON, ["other"])


# why it reverted


@lesson("reverted-is-reverted")
@staged()
async def test_a_reverted_transaction_says_why_once_it_is_final(rig: Rig) -> None:
    tx = await reverted(rig)
    assert tx.failure is None
    await rig.finalise()
    ended = await rig.reaches(tx, State.REVERTED)
    assert ended.failure == REASON
    assert await told(rig, tx) == [REASON]


@staged()
async def test_the_reason_is_asked_for_while_the_block_is_young_and_once(rig: Rig) -> None:
    asked: list[tuple[Payload, int, BlockRef]] = []

    async def remember(sender: str, payload: Payload, gas: int, block: BlockRef) -> str:
        asked.append((payload, gas, block))
        return "because"

    for voice in rig.endpoints:
        voice.answer("replay", remember)
    tx = await reverted(rig)
    assert tx.receipt is not None
    assert asked == [(tx.payload, GAS, tx.receipt.block)]
    for voice in rig.endpoints:
        voice.fail("replay", refused("missing trie node"))  # it has forgotten that state by now
    await rig.finalise()
    assert (await rig.reaches(tx, State.REVERTED)).failure == "because"
    assert len(asked) == 1


@staged()
async def test_after_a_reorg_the_reason_is_the_one_of_the_new_block(rig: Rig) -> None:
    async def by_height(sender: str, payload: Payload, gas: int, block: BlockRef) -> str:
        return f"because of block {block.number}"

    for voice in rig.endpoints:
        voice.answer("replay", by_height)
    tx = await reverted(rig)
    assert tx.receipt is not None
    await rig.reorg(1, forget=False)
    await rig.mine(3)
    again = await rig.reaches(tx, State.MINED)
    assert again.receipt is not None
    assert again.receipt.block.number > tx.receipt.block.number
    await rig.finalise()
    ended = await rig.reaches(tx, State.REVERTED)
    assert ended.failure == f"because of block {again.receipt.block.number}"


@staged()
async def test_a_node_that_cannot_say_why_holds_nothing_up(rig: Rig) -> None:
    rig.endpoints[0].fail("replay", unreachable())
    rig.endpoints[1].fail("replay", refused("missing trie node 1f2e"))
    rig.endpoints[2].fail("replay", refused("the method eth_call does not exist", -32601))
    tx = await reverted(rig)
    await rig.finalise()
    ended = await rig.reaches(tx, State.REVERTED)
    assert (ended.failure, await told(rig, tx)) == (None, [None])


@lesson("slow-neighbour")
@staged()
async def test_nodes_that_never_say_why_hold_nothing_up(rig: Rig) -> None:
    async def never(*_: Any) -> None:
        await rig.loop.sleep(FOR_EVER)

    for voice in rig.endpoints:
        voice.answer("replay", never)
    fails = await reverted(rig)
    runs = await rig.submit("runs")
    await rig.reaches(runs, State.SENT, 5.0)
    await rig.mine()
    await rig.finalise()
    await rig.reaches(runs, State.CONFIRMED, 5.0)
    assert (await rig.reaches(fails, State.REVERTED, 5.0)).failure is None


@staged()
async def test_one_node_that_can_say_why_is_enough(rig: Rig) -> None:
    async def no_idea(*_: Any) -> None:
        return None

    rig.endpoints[0].answer("replay", no_idea)
    rig.endpoints[1].fail("replay", refused("header not found"))
    tx = await reverted(rig)
    await rig.finalise()
    assert (await rig.reaches(tx, State.REVERTED)).failure == REASON


@staged()
async def test_the_next_owner_finds_the_reason_too(rig: Rig) -> None:
    tx = await reverted(rig)
    rig.kill(rig.node)
    await rig.finalise()
    await rig.start_node()
    assert (await rig.reaches(tx, State.REVERTED, 60.0)).failure == REASON


@staged()
async def test_the_reason_is_found_where_only_blocks_tell_what_used_the_nonce(rig: Rig) -> None:
    tx = await rig.submit("fails", effect=Effect.NEVER, gas=GAS)
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)
    await rig.mine()
    await rig.finalise()
    await rig.mine(3)
    for voice in rig.endpoints:

        async def nothing(hashes: list[str]) -> list[None]:
            return [None] * len(hashes)

        voice.answer("find", nothing)
    await rig.start_node()
    assert (await rig.reaches(tx, State.REVERTED, 60.0)).failure == REASON


@staged()
async def test_what_succeeds_is_not_run_again(rig: Rig) -> None:
    tx = await rig.submit("runs")
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert (await rig.reaches(tx, State.CONFIRMED)).failure is None
    assert sum(voice.asked["replay"] for voice in rig.endpoints) == 0


@staged()
async def test_many_that_reverted_at_once_all_settle(rig: Rig) -> None:
    txs = await rig.submit_all((f"fails-{n}" for n in range(12)), effect=Effect.NEVER, gas=GAS)
    await rig.reaches(txs[-1], State.SENT)
    await rig.mine()
    await rig.finalise()
    for tx in txs:
        assert (await rig.reaches(tx, State.REVERTED)).failure == REASON
