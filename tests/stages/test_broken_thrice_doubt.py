"""Found by a third adversary: a restored store, and what it says of what may have run."""

import pytest

from nonchalant.errors import MayHaveRun
from nonchalant.model import Transaction
from nonchalant.words import Mode, State
from tests.stages.rig import ALICE, BOB, Rig, staged


async def executed(rig: Rig, label: str) -> None:
    tx = await rig.submit(label, BOB)
    await rig.reaches(tx, State.SENT)
    await rig.ends(tx)


async def kept_back(rig: Rig, mode: Mode, **wish: float) -> Transaction:
    """Queued, where nothing would give it a nonce."""
    await rig.asking.control(ALICE, Mode.PAUSED)
    tx = await rig.submit("pay", **wish)
    if mode is Mode.OPEN:
        await rig.asking.hold(tx.id)
    await rig.asking.control(ALICE, mode)
    await rig.advance(20.0)
    return tx


@pytest.mark.parametrize("mode", [Mode.OPEN, Mode.PAUSED, Mode.DRAINING])
@staged()
async def test_what_waits_in_a_lane_that_assigns_nothing_can_be_called_off_after_a_restore(
    rig: Rig, mode: Mode
) -> None:
    tx = await kept_back(rig, mode)
    copy = rig.database.serialize()
    await executed(rig, "since then")
    await rig.restore_store(copy)
    with pytest.raises(MayHaveRun):
        await rig.asking.cancel(tx.id)
    for _ in range(40):
        await rig.mine()
    await rig.asking.cancel(tx.id)
    assert await rig.state(tx) is State.CANCELLED


@staged()
async def test_it_expires_after_a_restore(rig: Rig) -> None:
    tx = await kept_back(rig, Mode.OPEN, valid_for=100.0)
    copy = rig.database.serialize()
    await executed(rig, "since then")
    await rig.restore_store(copy)
    for _ in range(60):
        await rig.mine()
    assert await rig.state(tx) is State.EXPIRED


@pytest.mark.parametrize("mode", [Mode.OPEN, Mode.PAUSED])
@staged()
async def test_what_did_the_same_is_shown_to_who_would_call_it_off_and_then_it_can_be(rig: Rig, mode: Mode) -> None:
    """It was executed in what the store lost; nobody assigns anything here, so no owner finds that out."""
    tx = await kept_back(rig, mode)
    copy = rig.database.serialize()
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.asking.release(tx.id)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.restore_store(copy)
    for _ in range(40):
        await rig.mine()
    with pytest.raises(MayHaveRun, match="see its mark"):
        await rig.asking.cancel(tx.id)
    assert await rig.mark(tx) == "same_payload_executed"
    assert await rig.state(tx) is State.QUEUED
    ended = await rig.asking.cancel(tx.id)
    assert ended.state is State.CANCELLED
    assert ended.is_in_doubt
    again = await rig.submit("again")  # the stranger holds nobody else
    await rig.asking.control(ALICE, Mode.OPEN)
    await rig.reaches(again, State.SENT)


@staged()
async def test_what_others_did_unknown_to_us_keeps_nobody_from_expiring(rig: Rig) -> None:
    """A stranger waits for its twin for months; what is overdue and held is not it."""
    tx = await kept_back(rig, Mode.OPEN, valid_for=200.0)
    copy = rig.database.serialize()
    lost = await rig.submit("lost")
    await rig.reaches(lost, State.SENT)
    await rig.mine()
    await rig.restore_store(copy)
    for _ in range(80):
        await rig.mine()
    assert rig.database.execute("SELECT count(*) FROM strangers WHERE tx_id IS NULL").fetchone()[0] == 1
    assert await rig.state(tx) is State.EXPIRED
