"""Found by a third adversary: rows that are gone, and rows of which nobody can tell what they asked for."""

import pytest

from nonchalant.model import Transaction
from nonchalant.ports import Filter
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.poisons import SPOILT, past_every_check, settles, spoil
from tests.stages.rig import ALICE, Rig, staged


def remove(rig: Rig, table: str, tx: Transaction) -> None:
    name = "id" if table == "transactions" else "tx_id"
    with past_every_check(rig):
        rig.database.execute(f"DELETE FROM {table} WHERE {name} = ?", (tx.id,))


@lesson("poisonous-row")
@pytest.mark.parametrize("when", [State.SENT, State.MINED])
@pytest.mark.parametrize("table", ["transactions", "attempts", "slots"])
@staged()
async def test_a_row_that_is_gone_stops_nothing_but_itself(rig: Rig, table: str, when: State) -> None:
    for event in ("lane.poisoned", "tx.set_aside"):
        rig.tolerate(event)  # it cannot be written any more, and is left aside
    before, bad = await rig.submit_all(["before", "bad"])
    await rig.reaches(bad, State.SENT)
    if when is State.MINED:
        await rig.mine()
        await rig.reaches(bad, State.MINED)
    await rig.stop(rig.node)
    remove(rig, table, bad)
    await rig.start_node()
    after = await rig.submit("after")
    await settles(rig, before, after, blocks=30)


@staged()
async def test_what_may_have_done_what_nobody_can_read_is_left_to_a_person(rig: Rig) -> None:
    """To call it queued, or to have it sent anew, would pay twice: its twin has used its nonce."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.stop(rig.node)
    spoil(rig, "transactions", "payload", "{", tx)
    rig.intrude_as(rig.sent("pay")[0])
    await rig.start_node()
    await rig.mine(12)
    row = rig.database.execute("SELECT state, held, attention FROM transactions WHERE id = ?", (tx.id,)).fetchone()
    assert (row["state"], row["held"]) == ("queued", 1)
    assert "store_lost_commits" in row["attention"]


@pytest.mark.parametrize(("table", "column", "value"), SPOILT)
@staged()
async def test_who_only_looks_sees_the_others_beside_a_spoilt_row(
    rig: Rig, table: str, column: str, value: object
) -> None:
    bad, good = await rig.submit_all(["bad", "good"])
    await rig.reaches(good, State.SENT)
    await rig.stop(rig.node)
    spoil(rig, table, column, value, bad)
    store = rig.store
    page = await store.transactions(Filter())
    assert good.id in {tx.id for tx in page}
    assert (await store.standings(page, limit=10))[good.id].first is not None
    assert len((await store.attempts([good.id]))[good.id]) == 1
    assert await store.history(good.id)
    assert await store.events_after(0, limit=1000)
    assert (await rig.lane()).states[State.SENT] >= 1
    assert [found.lane for found in await store.lanes_with_work(marked=True)] == [ALICE]
