from __future__ import annotations

from typing import Any

from nonchalant import proof, reconcile
from nonchalant.words import State
from tests.stages.acts import lose_one
from tests.stages.rig import ALICE, BOB, ETHER, Rig, refused, staged

CAROL = type(ALICE)(7, "0x" + "a3" * 20)


@staged(lanes=(ALICE, BOB, CAROL))
async def test_a_node_without_the_key_does_not_keep_a_lane_from_the_node_that_has_it(rig: Rig) -> None:
    """Two nodes on one store, each with its own accounts: both count when lanes are shared out."""
    rig.kill(rig.node)
    await rig.advance(15.0)
    everyone = rig.signers
    rig.signers = {lane: everyone[lane] for lane in (ALICE, BOB)}
    node = await rig.start_node()
    rig.signers = {CAROL: everyone[CAROL]}
    await rig.start_node()
    rig.signers = everyone
    await rig.advance(15.0)
    stuck = await rig.submit("alice", ALICE, via=node)
    await rig.reaches(stuck, State.SENT)
    tx = await rig.submit("bob", BOB, via=node)
    await rig.advance(120.0)  # no block: alice's lane keeps having work
    assert await rig.state(tx) is State.SENT


@staged()
async def test_an_old_slot_is_proved_however_many_blocks_that_takes_and_so_are_the_others(rig: Rig) -> None:
    old = await rig.submit("old")
    await rig.reaches(old, State.SENT)
    await rig.mine(3 * proof.AT_ONCE, empty=True)
    new = await rig.submit("new")
    await rig.reaches(new, State.SENT)
    rig.intrude()
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    await rig.advance(60.0)
    await rig.mine(10)
    assert await rig.states([old, new]) == [State.CONFIRMED, State.CONFIRMED]
    assert rig.executions("old") == rig.executions("new") == 1


@staged(window=3, largest_window=3)
async def test_an_account_that_is_new_in_a_restored_store_does_not_read_the_chain_down_to_genesis(rig: Rig) -> None:
    for _ in range(3000):
        rig.chain.mine()
    await rig.advance(3.0)
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await lose_one(rig)
    few, reconcile.UNSEEN_BLOCKS = reconcile.UNSEEN_BLOCKS, 100
    try:
        bob = await rig.submit("bob", BOB)  # this lane never wrote anything
        for voice in rig.endpoints:
            voice.asked.clear()
        await rig.mine(20)
        read = sum(voice.asked["executed"] for voice in rig.endpoints)
        assert read < 500
        assert await rig.state(bob) in (State.MINED, State.CONFIRMED)
    finally:
        reconcile.UNSEEN_BLOCKS = few


@staged(window=3, largest_window=3)
async def test_a_copy_made_in_quarantine_restored_later_does_not_pay_twice(rig: Rig) -> None:
    """`begin` does nothing for a lane that is in quarantine already, so the old bound stands for the new loss."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await lose_one(rig)
    txs = await rig.submit_all(["pay-0", "pay-1", "pay-2"], value=ETHER)
    await rig.advance(10.0)
    assert await rig.lane_mark() == "quarantine"
    await rig.finalise(empty=True)
    await rig.mine()
    during = rig.database.serialize()
    await rig.finalise()
    await rig.reaches(txs[-1], State.SENT)
    first_slots = await rig.nonces(txs)
    for voice in rig.endpoints:
        voice.endpoint.pool.evict(ALICE.address, first_slots[0])  # the others wait behind a hole
    await rig.restore_store(during)
    await rig.submit("urgent", priority=9)
    await rig.advance(20.0)
    await rig.mine(10)
    await rig.advance(20.0)
    await rig.mine(10)
    assert [rig.executions(f"pay-{n}") for n in range(3)] == [1, 1, 1]


@staged()
async def test_a_refusal_that_repeats_is_kept_twice_and_counted(rig: Rig) -> None:
    """Two endpoints that refuse in different words, or one that took it: each re-send writes events for ever."""
    rig.endpoints[1].refuse("txpool is full")
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.advance(3600.0)
    told = (await rig.history(tx)).count("attempt.refused")
    assert told <= 2 * len(await rig.attempts(tx))


@staged()
async def test_a_nonce_that_cannot_be_given_up_does_not_stop_the_rescue_of_others(rig: Rig) -> None:
    """`_give_up` estimates inside the loop over slots: its refusal throws every other slot's bump away."""
    low = await rig.submit("low")
    await rig.reaches(low, State.SENT)
    rig.endpoints[0].refuse("intrinsic gas too low", only=lambda tx: tx.order.label == "bad")
    for voice in rig.endpoints[1:]:

        async def lossy(raws: Any, voice: Any = voice) -> Any:
            from nonchalant.model import Unknown

            answers = []
            for raw in raws:
                if rig.chain._decode(raw).order.label == "bad":
                    answers.append(Unknown("time-out"))
                else:
                    answers += await voice.endpoint.send([raw])
            return answers

        voice.answer("send", lossy)
    await rig.submit("bad")
    await rig.advance(3.0)
    for voice in rig.endpoints:  # an account whose delegated code takes no plain transfer
        voice.fail("estimate", refused("execution reverted", 3))
    rig.tolerate("stage")
    await rig.mine(120, empty=True)
    assert len(await rig.attempts(low)) > 1
