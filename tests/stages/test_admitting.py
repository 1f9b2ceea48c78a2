"""What comes to its lane's own node while nothing waits there is signed with its acceptance; all else goes by the queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nonchalant.admit import admit
from nonchalant.arrivals import PATIENCE_SECONDS
from nonchalant.desk import Postponement
from nonchalant.engine import BRIEFLY
from nonchalant.errors import BadRequest, LaneDraining, Poisoned
from nonchalant.health import OUT_OF_FUNDS
from nonchalant.model import Attention, Transaction
from nonchalant.values import replace
from nonchalant.words import Mode, State
from tests.stages.acts import lose_one
from tests.stages.admission import BELOW_BASE_FEE, GAS, all_ran, at_work, commits, counted, restarts
from tests.stages.rig import ALICE, BOB, ETHER, Rig, staged
from tests.stages.test_brief_passes import names, passes

__all__ = ["passes"]

# what is ordinary


@staged()
async def test_it_is_answered_with_its_nonce_and_its_hash_and_is_on_its_way(rig: Rig, passes: Any) -> None:
    await at_work(rig)
    passes.clear()
    asked, before, began = counted(rig, "store.queued"), commits(rig), rig.loop.time()
    tx = await rig.submit("second", gas=GAS)
    assert (tx.state, tx.nonce) == (State.SIGNED, 1)
    assert commits(rig) - before == 1
    assert rig.loop.time() - began < 0.05
    assert await rig.read(tx) == tx
    [attempt] = await rig.attempts(tx)
    assert attempt.hash == tx.hash
    assert await rig.history(tx) == ["tx.accepted", "tx.signed"]
    await rig.advance(0.1)
    assert passes[:3] == names(BRIEFLY) == ["assign", "admit", "broadcast"]
    assert {one.hash for one in rig.sent("second")} == {tx.hash}
    assert asked == []
    await all_ran(rig, "first", "second")


@staged()
async def test_one_after_the_other_and_many_at_once_keep_their_order(rig: Rig) -> None:
    await at_work(rig)
    txs = [await rig.submit(f"one {n}", gas=GAS) for n in range(3)]
    before = commits(rig)
    txs += await rig.submit_all([f"many {n}" for n in range(8)], gas=GAS)
    assert commits(rig) - before <= 3  # they share one, beside what nodes said of those before
    assert [tx.state for tx in txs] == [State.SIGNED] * 11
    assert [tx.nonce for tx in txs] == list(range(1, 12))
    assert [tx.place for tx in txs] == sorted(tx.place for tx in txs)
    await all_ran(rig, "first", *(f"one {n}" for n in range(3)), *(f"many {n}" for n in range(8)))


@staged()
async def test_of_those_that_come_together_the_most_urgent_is_first(rig: Rig) -> None:
    await at_work(rig)
    urgency = {"low": 1, "usual": 5, "usual too": 5, "high": 9}
    txs = await asyncio.gather(*(rig.submit(label, gas=GAS, priority=one) for label, one in urgency.items()))
    assert {label: tx.nonce for label, tx in zip(urgency, txs, strict=True)} == {
        "high": 1,
        "usual": 2,
        "usual too": 3,
        "low": 4,
    }
    places = {tx.nonce: tx.place for tx in txs}
    assert sorted(places, key=lambda nonce: places[nonce]) == [1, 2, 3, 4]


@staged()
async def test_one_that_arrives_with_a_new_block_is_priced_and_paid_as_the_chain_is_then(rig: Rig) -> None:
    await at_work(rig)
    rig.chain.mine()
    tx = await rig.submit("second", gas=GAS)
    await rig.advance(4.0)
    await all_ran(rig, "first", "second")
    assert (await rig.read(tx)).nonce == 1


# what is not ordinary goes by the queue


@pytest.mark.parametrize("wish", [{}, {"gas": GAS, "simulate": True}, {"gas": GAS, "asked_nonce": 1}], ids=str)
@staged()
async def test_what_a_node_must_be_asked_about_or_wants_a_nonce_of_its_own_is_queued(
    rig: Rig, wish: dict[str, Any]
) -> None:
    await at_work(rig)
    tx = await rig.submit("second", **wish)
    assert (tx.state, tx.nonce) == (State.QUEUED, None)
    await all_ran(rig, "first", "second")


@staged()
async def test_those_that_are_accepted_together_or_not_at_all_are_queued(rig: Rig) -> None:
    await at_work(rig)
    txs, _ = await rig.node.intake.submit_together([rig.request(label, gas=GAS) for label in ("a", "b")])
    assert [tx.state for tx in txs] == [State.QUEUED] * 2
    await all_ran(rig, "first", "a", "b")


@staged()
async def test_what_its_lane_is_not_worked_for_is_queued(rig: Rig) -> None:
    await at_work(rig)
    tx = await rig.submit("elsewhere", BOB, gas=GAS)
    assert tx.state is State.QUEUED
    await rig.reaches(tx, State.SENT)


@pytest.mark.parametrize("wish", [{"value": 100 * ETHER}, {"fees": BELOW_BASE_FEE}], ids=["funds", "price"])
@pytest.mark.parametrize("gas", [None, GAS])
@staged()
async def test_while_something_waits_the_next_one_is_queued_and_passes_it_as_ever(
    rig: Rig, wish: dict[str, Any], gas: int | None
) -> None:
    await at_work(rig)
    waits = await rig.submit("waits", gas=gas, **wish)
    await rig.advance(0.5)
    tx = await rig.submit("second", gas=GAS)
    assert tx.state is State.QUEUED
    await rig.reaches(tx, State.SENT)
    assert await rig.state(waits) is State.QUEUED
    assert (await rig.read(tx)).nonce == 1


@staged()
async def test_a_paused_lane_queues_it_and_signs_nothing(rig: Rig) -> None:
    await at_work(rig)
    await rig.store.control(ALICE, Mode.PAUSED, "look at it")  # at another node
    first = await rig.submit("at once", gas=GAS)  # before the owner has heard of it
    await rig.advance(2.0)
    then = await rig.submit("later", gas=GAS)
    assert (first.state, then.state) == (State.QUEUED, State.QUEUED)
    await rig.advance(10.0)
    assert await rig.states([first, then]) == [State.QUEUED] * 2
    assert rig.attempts_ever() == 1
    await rig.asking.control(ALICE, Mode.OPEN)
    await all_ran(rig, "first", "at once", "later")


@pytest.mark.parametrize("seconds", [0.0, 2.0])
@staged()
async def test_a_draining_lane_says_so(rig: Rig, seconds: float) -> None:
    await at_work(rig)
    await rig.asking.control(ALICE, Mode.DRAINING)
    await rig.advance(seconds)
    with pytest.raises(LaneDraining):
        await rig.submit("refused", gas=GAS)
    await rig.advance(5.0)
    assert rig.attempts_ever() == 1
    await rig.asking.control(ALICE, Mode.OPEN)
    await all_ran(rig, "first")


@staged(window=3, largest_window=3)
async def test_a_lane_in_quarantine_queues_it(rig: Rig) -> None:
    await at_work(rig)
    await rig.mine()
    await lose_one(rig)
    await rig.advance(20.0)
    assert await rig.lane_mark() == "quarantine"
    tx = await rig.submit("later", gas=GAS)
    assert tx.state is State.QUEUED
    await rig.mine(14)
    assert await rig.state(tx) is State.CONFIRMED
    assert rig.executions("lost") == 1


@staged()
async def test_a_chain_that_halted_queues_it_after_a_moment(rig: Rig) -> None:
    await at_work(rig)
    await rig.store.halt(ALICE.chain_id, "look at it")
    rig.node.engine.poke(ALICE)
    await rig.advance(2.0)
    began = rig.loop.time()
    tx = await rig.submit("later", gas=GAS)
    assert tx.state is State.QUEUED
    assert rig.loop.time() - began < PATIENCE_SECONDS + 0.1
    assert rig.attempts_ever() == 1


@staged(nodes=2)
async def test_what_was_queued_before_through_another_node_is_never_overtaken(rig: Rig) -> None:
    owner = await at_work(rig)
    [other] = [node for node in rig.nodes if node is not owner]
    rig.lose_wake_ups(other)
    for round_ in range(5):
        earlier = await rig.submit(f"{round_} earlier", via=other)
        later = await rig.submit(f"{round_} later", via=owner, gas=GAS)
        assert (earlier.state, later.state) == (State.QUEUED, State.QUEUED)
        await rig.reaches(later, State.SENT)
        assert (await rig.read(earlier)).nonce == 1 + 2 * round_
        assert (await rig.read(later)).nonce == 2 + 2 * round_
        await rig.mine()


@staged(nodes=2)
async def test_who_comes_to_a_node_that_does_not_work_the_lane_is_queued(rig: Rig) -> None:
    owner = await at_work(rig)
    [other] = [node for node in rig.nodes if node is not owner]
    tx = await rig.submit("second", via=other, gas=GAS)
    assert tx.state is State.QUEUED
    await rig.reaches(tx, State.SENT)


# what cannot be signed now: it has its usual mark, or end


@staged()
async def test_a_price_below_the_base_fee_is_marked_and_goes_when_that_falls(rig: Rig) -> None:
    await at_work(rig)
    tx = await rig.submit("cheap", gas=GAS, fees=BELOW_BASE_FEE)
    assert tx.state is State.QUEUED
    await rig.tells(tx, "tx.attention")
    assert await rig.mark(tx) == "price_below_base_fee"
    assert list(rig.slots()) == [0]


@staged()
async def test_one_that_the_account_cannot_pay_waits_for_funds_and_its_neighbours_go(rig: Rig) -> None:
    await at_work(rig)
    dear, cheap = await asyncio.gather(rig.submit("dear", gas=GAS, value=100 * ETHER), rig.submit("cheap", gas=GAS))
    assert dear.state is State.QUEUED
    await rig.reaches(cheap, State.SENT)
    await rig.tells(dear, "tx.attention")
    assert await rig.mark(dear) == OUT_OF_FUNDS
    rig.fund(200 * ETHER)
    await rig.mine()
    await rig.reaches(dear, State.SENT)
    await all_ran(rig, "first", "cheap", "dear")


@staged()
async def test_together_they_cannot_spend_more_than_there_is(rig: Rig) -> None:
    await at_work(rig)
    txs = await rig.submit_all(["a", "b", "c"], gas=GAS, value=4 * ETHER)
    await rig.tells(txs[2], "tx.attention")
    assert await rig.mark(txs[2]) == OUT_OF_FUNDS
    assert await rig.nonces(txs) == [1, 2, None]


@staged()
async def test_one_that_no_block_has_room_for_fails_as_ever(rig: Rig) -> None:
    await at_work(rig)
    tx = await rig.submit("huge", gas=10**12)
    assert tx.state is State.QUEUED
    ended = await rig.reaches(tx, State.FAILED)
    assert "gas" in (ended.failure or "")
    await all_ran(rig, "first")


@staged(balance=2**300)
async def test_one_that_cannot_be_encoded_fails_alone(rig: Rig) -> None:
    await at_work(rig)
    bad, good = await asyncio.gather(rig.submit("bad", gas=GAS, value=2**256), rig.submit("good", gas=GAS))
    assert (bad.state, good.state) == (State.QUEUED, State.QUEUED)
    assert (await rig.reaches(bad, State.FAILED)).failure == f"value {2**256} does not fit"
    await rig.reaches(good, State.SENT)
    assert restarts(rig) == []
    await all_ran(rig, "first", "good")


@staged()
async def test_a_signer_that_fails_pauses_the_lane_and_nothing_is_lost(rig: Rig) -> None:
    await at_work(rig)
    rig.signer.down = True
    txs = await rig.submit_all(["a", "b"], gas=GAS)
    assert [tx.state for tx in txs] == [State.QUEUED] * 2
    await rig.advance(2.0)
    assert await rig.lane_mark() == "signer_failed"
    assert restarts(rig) == []
    asked = rig.signer.asked
    third = await rig.submit("c", gas=GAS)
    assert third.state is State.QUEUED
    assert rig.signer.asked == asked  # a paused lane does not even ask
    rig.signer.down = False
    await rig.advance(10.0)
    assert await rig.lane_mark() is None
    assert list(rig.slots()) == [0, 1, 2, 3]
    await all_ran(rig, "first", "a", "b", "c")


@pytest.mark.parametrize("odd", [{"priority": 77}, {"confirmations": 2**63}, {"key": "\ud800"}], ids=str)
@staged()
async def test_one_that_can_never_be_stored_fails_alone_and_the_lane_goes_on(rig: Rig, odd: dict[str, Any]) -> None:
    rig.tolerate("request.unstorable")
    await at_work(rig)
    wishes = [rig.submit(f"{n}", gas=GAS, **odd if n == 1 else {}) for n in range(3)]
    good, bad, too = await asyncio.gather(*wishes, return_exceptions=True)
    assert isinstance(bad, Exception)
    assert isinstance(good, Transaction)
    assert isinstance(too, Transaction)
    assert restarts(rig) == []
    await all_ran(rig, "first", "0", "2")


# who came before is answered first


@staged()
async def test_a_key_that_is_known_answers_the_first_transaction(rig: Rig) -> None:
    await at_work(rig)
    first = await rig.submit("second", gas=GAS, key="k")
    tx, is_new = await rig.node.intake.submit(rig.request("second", gas=GAS, key="k"))
    assert first.state is State.SIGNED
    assert (tx.id, is_new) == (first.id, False)
    await all_ran(rig, "first", "second")


@staged()
async def test_two_with_one_key_at_the_same_moment_are_one_transaction_and_their_neighbour_is_safe(rig: Rig) -> None:
    await at_work(rig)
    wishes = [("twice", "k"), ("neighbour", None), ("twice", "k")]
    answers = await asyncio.gather(
        *(rig.node.intake.submit(rig.request(label, gas=GAS, key=key)) for label, key in wishes)
    )
    assert answers[0][0].id == answers[2][0].id
    assert sum(is_new for _, is_new in answers) == 2
    await all_ran(rig, "first", "twice", "neighbour")


@staged(nodes=2)
async def test_nor_do_two_nodes_make_two_of_one_key(rig: Rig) -> None:
    await at_work(rig)
    answers = await asyncio.gather(*(rig.submit("second", via=node, gas=GAS, key="k") for node in rig.nodes))
    assert len({tx.id for tx in answers}) == 1
    await all_ran(rig, "first", "second")


@staged()
async def test_one_that_is_overdue_when_it_comes_is_told_so(rig: Rig) -> None:
    await at_work(rig)
    with pytest.raises(BadRequest, match="has passed already"):
        await rig.submit("late", gas=GAS, valid_for=-1.0)
    await all_ran(rig, "first")


# what closes the door


@staged()
async def test_whatever_is_unusual_about_a_lane_closes_its_door(rig: Rig) -> None:
    """As far as its owner knows; the store is asked too."""
    await at_work(rig)
    desk = rig.node.engine.desks[ALICE]
    unusual: list[tuple[object, str, object]] = [
        (desk, "assign_due", True),
        (desk, "postponed", {"a": Postponement(0, 1, None)}),
        (desk, "unsigned", {"a": Poisoned("a", ValueError())}),
        (desk, "waits_for_funds", True),
        (desk, "kept_until", 1),
        (desk.lane, "strangers", [1]),
        (desk.lane, "record", replace(desk.lane.record, quarantined_below=7)),
        (desk.lane, "record", replace(desk.lane.record, unhealthy=Attention("no_blocks", "look", 1))),
        (desk.strikes, "aside", {("assign", "a"): 1}),
        (desk, "careful_until", desk.ticks() + 1_000),
        (desk, "is_outdated", True),
        (desk, "paused_until", desk.ticks() + 1_000),
        (desk, "admit_after", desk.ticks() + 1_000),
        (desk, "control", replace(desk.control, mode=Mode.PAUSED)),
        (desk, "handed_over", True),
        (desk, "retired", True),
        (desk.lane, "count", desk.lane.record.settled_below - 1),
    ]
    for owner, name, value in unusual:
        usual = getattr(owner, name)
        assert not await admit(desk)
        assert desk.arrivals.is_open
        setattr(owner, name, value)
        await admit(desk)
        assert not desk.arrivals.is_open, name
        setattr(owner, name, usual)
    # One without funds is asked: whatever it can pay proves that it has some.
    desk.lane.record = replace(desk.lane.record, unhealthy=Attention(OUT_OF_FUNDS, "look", 1))
    await admit(desk)
    assert desk.arrivals.is_open


@staged()
async def test_after_one_in_vain_nobody_is_admitted_for_a_moment(rig: Rig) -> None:
    """Who comes with the same key again and again costs his neighbours one commit, not all of theirs."""
    await at_work(rig)
    await rig.submit("second", gas=GAS, key="k")
    asked = rig.signer.asked
    for n in range(5):
        await rig.submit("second", gas=GAS, key="k")
        assert (await rig.submit(f"next {n}", gas=GAS)).state is State.QUEUED
        await rig.advance(0.1)
    assert rig.signer.asked == asked + 6  # one in vain, five from the queue
    await rig.advance(2.0)
    assert (await rig.submit("at last", gas=GAS)).state is State.SIGNED
