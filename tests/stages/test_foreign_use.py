"""Somebody else has the key: found, proved at finality, told; and nothing of ours is lost or done twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nonchalant.engine import UNSURE_SECONDS
from nonchalant.model import Account, BlockRef
from nonchalant.sim.wire import Effect, SimTx
from nonchalant.values import replace
from nonchalant.words import Address, State
from tests.lessons import lesson
from tests.stages.rig import ALICE, ETHER, GWEI, Rig, staged, unreachable
from tests.stages.voices import Voice


@staged()
async def test_a_foreign_transaction_at_the_head_sends_ours_back_to_the_queue_at_finality_only(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine()
    for _ in range(rig.setting.finality_lag - 1):
        await rig.mine()
        assert await rig.state(tx) is State.SENT
        assert list(rig.slots()) == [0]
    await rig.mine()
    await rig.tells(tx, "tx.requeued")
    again = await rig.reaches(tx, State.SENT)
    assert again.nonce == 1
    [event] = await rig.events("lane.foreign")
    [intruder] = [tx for block in rig.chain.head.down() for tx in block.transactions]
    assert event.data["hash"] == intruder.hash
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.executions("pay") == 1


@staged()
async def test_a_foreign_transaction_that_a_reorg_takes_back_costs_nothing(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine()
    await rig.reorg(1)
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert "tx.superseded" not in await rig.history(tx)
    assert rig.order_of_execution() == ["pay"]


@staged()
async def test_a_foreign_transaction_in_the_middle_moves_only_the_one_it_displaced(rig: Rig) -> None:
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    await rig.reaches(txs[-1], State.SENT)
    assert rig.chain.intrude_pools(ALICE.address, 1, 400 * GWEI)
    await rig.mine()
    assert await rig.states(txs) == [State.MINED, State.SENT, State.MINED]
    await rig.finalise()
    await rig.mine()
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 3
    assert [label for label in rig.order_of_execution() if "foreign" not in label] == ["pay-0", "pay-2", "pay-1"]
    assert rig.account().count == 4


@staged()
async def test_a_foreign_transaction_at_the_tail_is_reported_and_stepped_over(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    rig.intrude()
    await rig.mine()
    second = await rig.submit("second")
    sent = await rig.reaches(second, State.SENT)
    assert sent.nonce == 2
    await rig.mine()
    await rig.finalise()
    assert await rig.states([first, second]) == [State.CONFIRMED] * 2
    [event] = await rig.events("lane.foreign")
    intruder = intruder_of(rig)
    assert event.data == {"nonce": 1, "hash": intruder.hash, "to": intruder.to, "value": str(intruder.value)}


@staged()
async def test_foreign_use_at_the_tail_is_told_at_finality_and_not_if_a_reorg_takes_it_back(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    rig.intrude()
    await rig.mine()
    second = await rig.submit("second")
    assert (await rig.reaches(second, State.SENT)).nonce == 2
    await rig.reorg(1)
    third = await rig.submit("third")
    await rig.reaches(third, State.SENT)
    for _ in range(3 * rig.setting.finality_lag):
        await rig.mine()
    assert await rig.states([first, second, third]) == [State.CONFIRMED] * 3
    assert [event.data for event in await rig.events("lane.foreign")] == []


@staged()
async def test_foreign_use_of_a_lane_with_nothing_to_do_is_told_too_once_it_is_final(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    rig.intrude()
    await rig.mine()
    await rig.reaches(await rig.submit("hopeless", effect=Effect.NEVER), State.FAILED)  # the account is looked at
    await rig.advance(60.0)
    assert await rig.events("lane.foreign") == []
    await rig.finalise()
    [event] = await rig.events("lane.foreign")
    assert (event.data["nonce"], event.data["hash"]) == (1, intruder_of(rig).hash)


@staged()
async def test_foreign_use_that_the_next_owner_finds_final_is_told_once(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    rig.intrude()
    await rig.mine()
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)  # the head's view is recorded: its nonce is behind the intruder's
    rig.kill(rig.node)
    await rig.start_node()
    await rig.advance(15.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([first, second]) == [State.CONFIRMED] * 2
    [event] = await rig.events("lane.foreign")
    assert (event.data["nonce"], event.data["hash"]) == (1, intruder_of(rig).hash)


@pytest.mark.parametrize("question", ["block", "executed"])
@staged()
async def test_foreign_use_is_told_without_a_hash_if_blocks_cannot_be_read(rig: Rig, question: str) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.tolerate("foreign.unreadable")
    await rig.mine()
    rig.intrude()
    await rig.mine()
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    for voice in rig.endpoints:
        voice.answer(question, _by_number_only(getattr(voice.endpoint, question)))
    await rig.mine()
    await rig.finalise()
    assert await rig.states([first, second]) == [State.CONFIRMED] * 2  # nobody waits for that
    await rig.advance(60.0)
    [event] = await rig.events("lane.foreign")
    assert event.data == {"nonce": 1, "hash": None, "to": None, "value": None}


@staged()
async def test_what_the_account_did_before_this_lane_began_is_nobodys_foreign_use(rig: Rig) -> None:
    rig.intrude()
    await rig.mine()
    first = await rig.submit("first")
    assert (await rig.reaches(first, State.SENT)).nonce == 1
    await rig.mine()
    await rig.finalise()
    assert await rig.state(first) is State.CONFIRMED
    assert await rig.events("lane.foreign") == []


def intruder_of(rig: Rig) -> SimTx:
    """What somebody else with the key executed."""
    [intruder] = [tx for block in rig.chain.head.down() for tx in block.transactions if tx.hash not in rig._ours]
    return intruder


@staged()
async def test_the_same_deed_done_by_somebody_else_is_held_and_not_repeated(rig: Rig) -> None:
    tx = await rig.submit("pay", value=ETHER)
    await rig.reaches(tx, State.SENT)
    rig.intrude_as(rig.sent("pay")[0])
    await rig.mine()
    await rig.finalise()
    held = await rig.tells(tx, "tx.held")
    assert (held.state, held.held) == (State.QUEUED, True)
    assert await rig.mark(tx) == "same_payload_executed"
    assert (await rig.history(tx))[-2:] == ["tx.superseded", "tx.held"]
    await rig.mine(5)
    assert rig.account().count == 1


@staged()
async def test_a_nonce_consumed_by_an_authorisation_is_proved_without_a_transaction(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.authorise()
    await rig.mine()
    assert await rig.state(tx) is State.SENT
    await rig.finalise()
    await rig.tells(tx, "tx.requeued")
    again = await rig.reaches(tx, State.SENT)
    assert again.nonce == 1
    [event] = await rig.events("lane.foreign")
    assert event.data["hash"] is None
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED


@lesson("consumed-by-ourselves")
@pytest.mark.parametrize("question", ["block", "executed"])
@staged()
async def test_what_cannot_be_proved_keeps_its_slot_with_a_mark_until_it_can(rig: Rig, question: str) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine()
    await rig.mine(rig.setting.finality_lag - 1)
    for voice in rig.endpoints:
        voice.answer(question, _by_number_only(getattr(voice.endpoint, question)))
    await rig.mine()
    await rig.advance(60.0)
    kept = await rig.read(tx)
    assert (kept.state, kept.nonce) == (State.SENT, 0)
    assert await rig.mark(tx) == "unproved_supersede"
    for voice in rig.endpoints:
        voice.heal()
    await rig.mine()
    await rig.tells(tx, "tx.requeued")
    again = await rig.reaches(tx, State.SENT)
    assert again.nonce == 1
    await rig.mine()
    assert rig.executions("pay") == 1


@lesson("consumed-by-ourselves")
@staged()
async def test_one_endpoint_with_a_wrong_count_is_not_proof_that_a_nonce_is_gone(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    wrong, *_ = rig.endpoints

    async def one_more(address: Address, block: BlockRef) -> Account:
        account = await wrong.endpoint.account(address, block)
        return Account(account.count + 1, account.balance)

    wrong.answer("account", one_more)
    await rig.mine(6, empty=True)
    await rig.advance(20.0)
    assert "tx.superseded" not in await rig.history(tx)
    wrong.heal()
    await rig.mine()
    await rig.finalise()
    assert rig.executions("pay") == 1


def _by_number_only(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The follower gets on, but nobody can read an old block whole."""

    async def answer(ref: object) -> Any:
        if isinstance(ref, int):
            return await ask(ref)
        raise unreachable()

    return answer


@staged()
async def test_a_foreign_use_in_the_pools_that_loses_the_race_changes_nothing(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    assert not rig.chain.intrude_pools(ALICE.address, 0, 21 * GWEI)  # ours pays more
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert await rig.events("lane.foreign") == []


@staged(window=3, largest_window=3)
async def test_a_key_used_elsewhere_while_nobody_held_the_lane_is_reconciled_before_anything_is_assigned(
    rig: Rig,
) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    await rig.advance(10.0)
    assert (await rig.lane()).owner is None
    rig.intrude()
    await rig.mine()
    second = await rig.submit("second")
    await rig.advance(3.0)
    assert await rig.lane_mark() == "quarantine"
    assert await rig.state(second) is State.QUEUED
    for _ in range(12):
        await rig.mine()
    assert await rig.lane_mark() is None
    await rig.finalise()
    assert await rig.state(second) is State.CONFIRMED


@staged(window=3, largest_window=3)
async def test_so_is_one_that_too_few_endpoints_tell_of_at_first(rig: Rig) -> None:
    """One of three alone is not believed that nonces are used; a moment later the others say so too."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    await rig.advance(10.0)
    rig.intrude()
    await rig.mine()
    _, *others = rig.endpoints
    for voice in others:
        voice.fail("account", unreachable())
    second = await rig.submit("second")
    await rig.advance(5.0)
    assert await rig.state(second) is State.QUEUED
    for voice in others:
        voice.heal()
    await rig.advance(5.0)
    assert await rig.lane_mark() == "quarantine"
    assert await rig.state(second) is State.QUEUED


@staged()
async def test_nothing_is_consumed_for_good_before_finality_has_moved_since_it_was_signed(rig: Rig) -> None:
    """A node that is just making a block may tell of the next one for its last, which is final on a new chain."""
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:

        async def ahead(address: str, block: BlockRef, voice: Voice = voice) -> Account:
            return replace(await voice.endpoint.account(address, block), count=1)

        voice.answer("account", ahead)
    await rig.mine(empty=True)
    other = await rig.submit("other")  # before it gets a nonce, the account is looked at
    await rig.advance(5.0)
    assert "tx.superseded" not in await rig.history(tx)
    for voice in rig.endpoints:
        voice.heal()
    await rig.mine(2)
    await rig.finalise()
    assert await rig.states([tx, other]) == [State.CONFIRMED] * 2
    assert (rig.executions("tx"), rig.executions("other")) == (1, 1)


@staged(window=3, largest_window=3)
async def test_so_is_one_that_enough_endpoints_tell_of_only_after_nobody_waits_for_them_any_more(rig: Rig) -> None:
    """A new owner goes on with one endpoint after a while; what the others say later is still the first comparison."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    await rig.advance(10.0)
    for _ in range(3):
        rig.intrude()
        await rig.mine()
    _, *others = rig.endpoints
    for voice in others:
        voice.fail("account", unreachable())
    await rig.submit("second")
    await rig.advance(UNSURE_SECONDS + 5.0)
    await rig.finalise()
    for voice in others:
        voice.heal()
    before = rig.node.engine.desks[ALICE].lane.record.next_nonce
    rig.chain.mine(empty=True)
    while await rig.lane_mark() != "quarantine":
        # Until that is on record, nothing else is that would hide it from whoever comes next.
        assert rig.node.engine.desks[ALICE].lane.record.next_nonce == before
        await rig.advance(0.001)
    third = await rig.submit("third")
    await rig.advance(5.0)
    assert await rig.state(third) is State.QUEUED
