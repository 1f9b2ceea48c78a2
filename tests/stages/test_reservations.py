"""Nonces for those who sign by themselves: kept, used, given back."""

from __future__ import annotations

import pytest

from nonchalant.asking import Asking
from nonchalant.errors import WishPending
from nonchalant.model import Fees
from nonchalant.sim import wire
from nonchalant.sim.gate import Boundary
from nonchalant.windows import Pace
from nonchalant.wishes import Fill, Release, Reserve, Use
from nonchalant.words import LaneKey, Mode, State
from tests.lessons import lesson
from tests.stages.acts import DEAR, HOLDER, ask, refusal, reserve, send_outside, signed
from tests.stages.rig import ALICE, BOB, Rig, staged

# the nonce


@staged()
async def test_whoever_brings_the_signed_bytes_has_the_key_and_speaks_for_the_nonce(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    assert (await refusal(rig, Use(nonce, None, sealed.hash))).why == "not_the_holder"
    foreign = signed(nonce, lane=BOB)
    assert (await refusal(rig, Use(nonce, None, foreign.hash, foreign.raw))).why == "wrong_bytes"
    assert await ask(rig, Use(nonce, None, sealed.hash, sealed.raw)) == {"nonce": nonce, "hash": sealed.hash}
    await rig.mine()
    await rig.finalise()
    assert rig.account().count == nonce + 1


@staged()
@pytest.mark.parametrize("skew", [-3_600_000, 3_600_000])
async def test_the_time_for_a_nonce_is_the_store_s_whatever_the_owner_s_clock_says(rig: Rig, skew: int) -> None:
    rig.node.clock.skew_millis = skew
    nonce = await reserve(rig, seconds=60.0)
    await rig.advance(50.0)
    assert rig.slots()[nonce] == "reservation"
    await rig.advance(20.0)
    assert (await refusal(rig, Release(nonce, HOLDER))).why == "reservation_expired"
    assert rig.slots()[nonce] == "filler"


@staged()
async def test_a_reserved_nonce_is_the_next_free_one_and_nobody_else_gets_it(rig: Rig) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    assert await reserve(rig) == 1
    later = await rig.submit("later")
    await rig.reaches(later, State.SENT)
    assert (await rig.read(later)).nonce == 2
    assert rig.slots() == {0: first.id, 1: "reservation", 2: later.id}


@staged()
async def test_an_open_reservation_is_no_gap_and_makes_nothing_behind_it_dearer(rig: Rig) -> None:
    await reserve(rig, 300.0)
    tx = await rig.submit("behind")
    await rig.reaches(tx, State.SENT)
    for _ in range(60):
        await rig.mine()
    assert rig.slots() == {0: "reservation", 1: tx.id}
    assert len(await rig.attempts(tx)) == 1


@staged(window=4)
async def test_reservations_count_for_the_window(rig: Rig) -> None:
    for _ in range(3):
        await reserve(rig)
    txs = await rig.submit_all(["a", "b"])
    await rig.reaches(txs[0], State.SENT)
    assert await rig.states(txs) == [State.SENT, State.QUEUED]


@staged(window=2)
async def test_who_reserves_in_a_full_lane_waits_and_goes_before_what_is_queued(rig: Rig) -> None:
    txs = await rig.submit_all(f"tx-{n}" for n in range(5))
    await rig.reaches(txs[1], State.SENT)
    asked = rig.spawn(reserve(rig))
    await rig.advance(2.0)
    assert not asked.done()
    await rig.mine()
    assert await asked == 2
    assert await rig.nonces(txs) == [0, 1, 3, None, None]


@staged(window=1)
async def test_a_lane_that_stays_full_says_so(rig: Rig) -> None:
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    assert (await refusal(rig, Reserve(HOLDER, 60_000))).why == "window_full"


@staged(pace=Pace.STRICT)
async def test_in_strict_mode_a_reservation_is_the_one_in_flight(rig: Rig) -> None:
    await reserve(rig)
    tx = await rig.submit("tx")
    await rig.advance(10.0)
    assert await rig.state(tx) is State.QUEUED
    await ask(rig, Release(0, HOLDER))
    assert (await rig.reaches(tx, State.SENT)).nonce == 0


@staged(window=64)
async def test_a_lane_keeps_only_so_many_nonces_for_others(rig: Rig) -> None:
    for _ in range(16):
        await reserve(rig)
    assert (await refusal(rig, Reserve(HOLDER, 60_000))).why == "too_many_reservations"
    await ask(rig, Release(3, HOLDER))
    assert await reserve(rig) == 3


@staged()
async def test_nobody_keeps_a_nonce_longer_than_ten_minutes(rig: Rig) -> None:
    now = rig.clock.now()
    deadline = (await ask(rig, Reserve(HOLDER, 3_600_000)))["deadline"]
    assert isinstance(deadline, int)
    assert 600_000 <= deadline - now < 610_000


@pytest.mark.parametrize("mode", [Mode.PAUSED, Mode.DRAINING])
@staged()
async def test_a_lane_that_gives_out_no_nonces_gives_none_to_others(rig: Rig, mode: Mode) -> None:
    await rig.asking.control(ALICE, mode)
    assert (await refusal(rig, Reserve(HOLDER, 60_000))).why == "lane_paused"
    await rig.asking.control(ALICE, Mode.OPEN)
    assert await reserve(rig) == 0


@staged(largest_window=2)
async def test_a_lane_in_quarantine_gives_none_either(rig: Rig) -> None:
    copy = rig.database.serialize()
    await rig.submit("lost")
    await rig.advance(5.0)
    await rig.restore_store(copy)
    await rig.submit("later")
    await rig.advance(3.0)
    assert await rig.lane_mark() == "quarantine"
    assert (await refusal(rig, Reserve(HOLDER, 60_000))).why == "quarantined"


# used


@staged()
async def test_bytes_that_are_given_are_sent_by_us_until_they_are_mined(rig: Rig) -> None:
    nonce = await reserve(rig)
    behind = await rig.submit("behind")
    await rig.reaches(behind, State.SENT)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    await rig.advance(2.0)
    for voice in rig.endpoints:
        assert nonce in voice.pooled(ALICE)
        voice.forget_pool()
    await rig.advance(20.0)
    assert all(nonce in voice.pooled(ALICE) for voice in rig.endpoints)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["outside", "behind"]
    assert await rig.state(behind) is State.CONFIRMED
    lane = await rig.lane()
    assert (lane.record.settled_below, lane.slots) == (2, {})
    assert await rig.events("lane.foreign") == []
    assert await rig.events("lane.filled") == []


@staged()
async def test_a_hash_alone_is_enough_if_its_holder_sends_it(rig: Rig) -> None:
    nonce = await reserve(rig, 30.0)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash))
    await rig.advance(60.0)  # past the deadline, which counts no more
    assert rig.slots() == {0: "reservation"}
    send_outside(rig, sealed)
    await rig.mine()
    await rig.finalise()
    tx = await rig.submit("next")
    assert (await rig.reaches(tx, State.SENT)).nonce == 1
    assert await rig.events("lane.foreign") == []
    assert (await rig.lane()).record.settled_below == 1


@staged()
async def test_a_holder_who_says_nothing_but_uses_it_is_no_stranger(rig: Rig) -> None:
    nonce = await reserve(rig, 300.0)
    send_outside(rig, signed(nonce))
    await rig.mine()
    await rig.finalise()
    await rig.mine()
    lane = await rig.lane()
    assert (lane.record.settled_below, lane.slots, lane.record.attention) == (1, {}, None)
    assert await rig.events("lane.foreign") == []


@staged()
async def test_what_was_mined_before_it_was_told_is_found(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    send_outside(rig, sealed)
    await rig.mine()
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    await rig.finalise()
    assert (await rig.lane()).record.settled_below == 1


@staged()
async def test_a_hash_that_belongs_elsewhere_proves_nothing(rig: Rig) -> None:
    """Whoever tells it may be wrong: only the count says that a nonce is used."""
    theirs = send_outside(rig, signed(0, "bob's", lane=BOB))
    nonce = await reserve(rig, 20.0)
    await ask(rig, Use(nonce, HOLDER, theirs.hash))
    await rig.mine()
    await rig.finalise()
    lane = await rig.lane()
    assert (lane.record.settled_below, dict(lane.slots)) == (0, {"reservation": 1})


@staged()
async def test_saying_so_again_changes_nothing_and_a_dearer_one_takes_its_place(rig: Rig) -> None:
    nonce = await reserve(rig)
    cheap, dear = signed(nonce), signed(nonce, fees=Fees(2 * DEAR.max_fee, 2 * (DEAR.priority or 0)))
    for sealed in (cheap, cheap, dear):
        await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    assert rig.attempts_ever() == 2
    assert (await refusal(rig, Use(nonce, HOLDER, cheap.hash, dear.raw))).why == "already_used"
    await rig.advance(2.0)
    await rig.mine()
    assert [tx.hash for block in rig.chain.head.down() for tx in block.transactions] == [dear.hash]
    await rig.finalise()
    assert (await rig.lane()).record.settled_below == 1


@staged()
async def test_bytes_for_something_else_are_refused(rig: Rig) -> None:
    nonce = await reserve(rig)
    good, bobs, late = signed(nonce), signed(nonce, lane=BOB), signed(nonce + 1)
    abroad = signed(nonce, lane=LaneKey(99, ALICE.address))
    forged = good.raw[:-1] + b"\x07"
    assert (await refusal(rig, Use(nonce, HOLDER, bobs.hash, bobs.raw))).why == "wrong_bytes"
    assert (await refusal(rig, Use(nonce, HOLDER, late.hash, late.raw))).why == "wrong_bytes"
    assert (await refusal(rig, Use(nonce, HOLDER, abroad.hash, abroad.raw))).why == "wrong_bytes"
    assert (await refusal(rig, Use(nonce, HOLDER, late.hash, good.raw))).why == "wrong_bytes"
    assert (await refusal(rig, Use(nonce, HOLDER, wire.hash_of(forged), forged))).why == "cannot_be_sent"
    assert (await refusal(rig, Use(nonce, HOLDER, good.hash, b"no transaction"))).why == "cannot_be_sent"
    assert rig.attempts_ever() == 0
    await ask(rig, Use(nonce, HOLDER, good.hash, good.raw))


@staged()
async def test_a_hash_of_ours_is_not_the_holder_s(rig: Rig) -> None:
    tx = await rig.submit("ours")
    ours = (await rig.reaches(tx, State.SENT)).hash
    assert ours is not None
    nonce = await reserve(rig)
    assert (await refusal(rig, Use(nonce, HOLDER, ours))).why == "known_hash"


@staged()
async def test_only_its_holder_speaks_for_a_nonce(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    assert (await refusal(rig, Use(nonce, "another", sealed.hash, sealed.raw))).why == "not_the_holder"
    assert (await refusal(rig, Release(nonce, "another"))).why == "not_the_holder"
    assert (await refusal(rig, Release(nonce + 1, HOLDER))).why == "not_reserved"
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    assert (await refusal(rig, Use(1, HOLDER, sealed.hash))).why == "not_reserved"


@staged()
async def test_a_reorg_takes_a_used_nonce_back_and_it_is_sent_again(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    await rig.advance(2.0)
    await rig.mine()
    await rig.reorg(1)
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["outside"]
    assert (await rig.lane()).record.settled_below == 1


@staged()
async def test_bytes_that_every_node_refuses_keep_their_nonce_until_somebody_fills_it(rig: Rig) -> None:
    """Their holder has them too, and may send them elsewhere: the nonce is not ours to give away."""
    nonce = await reserve(rig)
    tx = await rig.submit("behind")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.refuse("intrinsic gas too low", only=lambda sent: sent.nonce == nonce and bool(sent.order.label))
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    await rig.advance(120.0)
    assert rig.slots()[nonce] == "reservation"
    assert await rig.lane_mark() == "reservation_stuck"
    await ask(rig, Fill(nonce))
    await rig.advance(5.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["", "behind"]
    assert await rig.lane_mark() is None


@staged()
async def test_a_used_nonce_that_the_chain_never_hears_of_is_marked_and_filled_by_hand(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash))
    tx = await rig.submit("behind")
    await rig.reaches(tx, State.SENT)
    await rig.advance(500.0)
    assert await rig.lane_mark() is None
    await rig.advance(110.0)
    assert await rig.lane_mark() == "reservation_stuck"
    assert await ask(rig, Fill(nonce)) == {"filled": [nonce], "left": 0}
    await rig.advance(5.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.lane_mark() is None
    assert await rig.state(tx) is State.CONFIRMED
    assert (await refusal(rig, Use(nonce, HOLDER, sealed.hash))).why == "not_reserved"


# given back


@staged()
async def test_a_nonce_that_is_given_back_is_the_next_transaction_s(rig: Rig) -> None:
    nonce = await reserve(rig)
    await ask(rig, Release(nonce, HOLDER))
    assert (await rig.lane()).record.next_nonce == 0
    tx = await rig.submit("tx")
    assert (await rig.reaches(tx, State.SENT)).nonce == 0
    assert (await refusal(rig, Release(nonce, HOLDER))).why == "not_reserved"
    assert (await refusal(rig, Use(nonce, HOLDER, signed(0).hash))).why == "not_reserved"


@lesson("gap-without-traffic")
@staged()
async def test_a_nonce_given_back_below_what_is_sent_is_filled_without_traffic(rig: Rig) -> None:
    nonce = await reserve(rig)
    tx = await rig.submit("behind")
    await rig.reaches(tx, State.SENT)
    await ask(rig, Release(nonce, HOLDER))
    await rig.advance(5.0)
    assert rig.slots() == {0: "filler", 1: tx.id}
    await rig.mine()
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    [filled] = await rig.events("lane.filled")
    assert filled.data["nonce"] == 0


@staged()
async def test_a_nonce_given_back_below_reserved_ones_costs_nothing_before_one_of_them_is_used(rig: Rig) -> None:
    first, second = await reserve(rig), await reserve(rig)
    await ask(rig, Release(first, HOLDER))
    await rig.advance(20.0)
    assert rig.slots() == {second: "reservation"}
    sealed = signed(second)
    await ask(rig, Use(second, HOLDER, sealed.hash, sealed.raw))
    await rig.advance(5.0)
    assert rig.slots() == {first: "filler", second: "reservation"}
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["", "outside"]


@staged()
async def test_what_was_used_is_not_given_back(rig: Rig) -> None:
    nonce = await reserve(rig)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    assert (await refusal(rig, Release(nonce, HOLDER))).why == "already_used"
    other = await reserve(rig)
    await rig.advance(2.0)
    send_outside(rig, signed(other, "untold"))
    await rig.mine()
    assert (await refusal(rig, Release(other, HOLDER))).why == "already_consumed"


# whoever dies


@staged(lease_seconds=4.0)
async def test_a_reservation_outlives_the_node_that_granted_it(rig: Rig) -> None:
    nonce = await reserve(rig)
    rig.kill(rig.node)
    await rig.start_node()
    await rig.advance(8.0)
    sealed = signed(nonce)
    await ask(rig, Use(nonce, HOLDER, sealed.hash, sealed.raw))
    await rig.advance(2.0)
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["outside"]


@staged(lease_seconds=4.0)
async def test_a_node_that_dies_while_closing_a_reservation_leaves_it_to_the_next(rig: Rig) -> None:
    nonce = await reserve(rig, 10.0)
    await rig.advance(9.5)
    rig.kill_at(rig.node, "signer.sign", Boundary.BEFORE)
    await rig.advance(5.0)
    await rig.start_node()
    tx = await rig.submit("tx")
    await rig.advance(10.0)
    assert rig.slots() == {nonce: "filler", nonce + 1: tx.id}
    await rig.mine()
    await rig.finalise()
    assert rig.order_of_execution() == ["", "tx"]


@staged(lease_seconds=4.0)
async def test_a_node_that_dies_before_it_answers_has_reserved_nothing_or_what_it_then_says(rig: Rig) -> None:
    rig.kill_at(rig.node, "store.commit", Boundary.BEFORE)
    asked = rig.spawn(rig.asking.of_lane(ALICE, Reserve(HOLDER, 60_000), 30.0))
    await rig.advance(3.0)
    await rig.start_node()
    reply = await asked
    assert reply.data["nonce"] == 0
    assert rig.slots() == {0: "reservation"}


@staged(nodes=0)
async def test_without_a_node_nothing_is_reserved_and_nothing_will_be(rig: Rig) -> None:
    await rig.store.declare([ALICE])
    asking = Asking(rig.store, rig.clock, rig._ids, arrived=lambda _: None)
    with pytest.raises(WishPending):
        await asking.of_lane(ALICE, Reserve(HOLDER, 60_000))
    await rig.start_node()
    await rig.advance(10.0)
    assert rig.slots() == {}
