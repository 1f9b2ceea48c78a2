"""A row that somebody or something spoilt stops nothing but itself."""

import pytest

from nonchalant.words import Mode, State
from tests.lessons import lesson
from tests.stages.poisons import SPOILT, settles, spoil
from tests.stages.rig import ALICE, Rig, staged


@lesson("poisonous-row")
@pytest.mark.parametrize("when", [State.QUEUED, State.SENT, State.MINED])
@pytest.mark.parametrize(("table", "column", "value"), SPOILT)
@staged()
async def test_a_spoilt_row_stops_nothing_but_itself(
    rig: Rig, when: State, table: str, column: str, value: object
) -> None:
    for event in ("lane.poisoned", "tx.set_aside", "lane.broke"):
        rig.tolerate(event)
    before, bad = await rig.submit_all(["before", "bad"])
    if when is State.QUEUED:
        await rig.asking.control(ALICE, Mode.PAUSED)
        before, bad = await rig.submit_all(["before too", "bad too"])
    else:
        await rig.reaches(bad, State.SENT)
    if when is State.MINED:
        await rig.mine()
        await rig.reaches(bad, State.MINED)
    await rig.stop(rig.node)
    spoil(rig, table, column, value, bad)
    await rig.start_node()
    await rig.asking.control(ALICE, Mode.OPEN)
    after = await rig.submit("after")
    await settles(rig, before, after, blocks=30)


@staged()
async def test_a_control_that_cannot_be_read_pauses_its_lane_until_somebody_says_it_again(rig: Rig) -> None:
    sent = await rig.submit("sent")
    await rig.reaches(sent, State.SENT)
    await rig.asking.control(ALICE, Mode.OPEN)
    rig.database.execute("PRAGMA ignore_check_constraints = ON")
    rig.database.execute("UPDATE controls SET mode = 'nonsense'")
    rig.database.execute("PRAGMA ignore_check_constraints = OFF")
    waiting = await rig.submit("waiting")
    await settles(rig, sent)
    assert await rig.state(waiting) is State.QUEUED
    assert (await rig.lane()).control.mode is Mode.PAUSED
    await rig.asking.control(ALICE, Mode.OPEN)
    await settles(rig, waiting)


@staged()
async def test_a_wish_that_breaks_its_granting_is_refused_and_the_others_are_granted(rig: Rig) -> None:
    low, high = await rig.submit_all(["low", "high"])
    await rig.reaches(high, State.SENT)
    rig.database.execute(
        "INSERT INTO wishes (id, chain_id, address, tx_id, kind, body, made_at) VALUES ('w', ?, ?, ?, 'bump', '{', 0)",
        (*ALICE, low.id),
    )
    await rig.asking.cancel(high.id)
    await rig.advance(5.0)
    await settles(rig, low)
    await rig.finalise()
    assert await rig.state(high) is State.CANCELLED
    reply = await rig.store.reply("w")
    assert reply is not None
    assert reply.refused == "undecodable"
