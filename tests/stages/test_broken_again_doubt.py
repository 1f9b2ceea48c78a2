"""What an adversary broke in telling the truth about what cannot be read."""

from __future__ import annotations

import pytest

from nonchalant.model import Payload
from nonchalant.wishes import Reset
from nonchalant.words import State
from tests.stages.rig import ALICE, RECIPIENT, Rig, staged


@staged()
@pytest.mark.parametrize("column", ["earlier", "payload", "deep", "receipt"])
async def test_a_row_that_cannot_be_read_stops_nobody_else(rig: Rig, column: str) -> None:
    """Whichever part of it is broken: it was replaced, and is mined, when its owner dies."""
    tx = await rig.submit("pay", confirmations=1)
    other = await rig.submit("other")
    await rig.reaches(other, State.SENT)
    await rig.node.asking.replace(tx.id, Payload(to=RECIPIENT, data=b"pay~2|runs|"))
    await rig.advance(3.0)
    await rig.mine(2)
    assert await rig.state(tx) is State.MINED
    rig.kill(rig.node)
    rig.database.execute(f"UPDATE transactions SET {column} = '[{{' WHERE id = ?", [tx.id])
    await rig.start_node()
    await rig.advance(15.0)
    await rig.mine(2)
    await rig.finalise()
    states = {row["id"]: row["state"] for row in rig.database.execute("SELECT id, state FROM transactions")}
    assert states == {tx.id: "confirmed", other.id: "confirmed"}


@staged()
async def test_a_reset_in_quarantine_does_not_hide_what_a_lost_commit_did(rig: Rig) -> None:
    rig.signer.down = True
    tx = await rig.submit("pay")
    copy = rig.database.serialize()
    rig.signer.down = False
    await rig.advance(10.0)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    await rig.finalise()
    assert rig.executions("pay") == 1
    await rig.restore_store(copy)
    await rig.advance(2.0)
    assert await rig.lane_mark() == "quarantine"
    await rig.node.asking.of_lane(ALICE, Reset())
    for _ in range(8):
        await rig.mine(8)
    assert (await rig.lane()).record.quarantined_below is None
    assert await rig.mark(tx) == "same_payload_executed"


@staged()
async def test_what_may_have_run_in_a_lost_commit_is_not_called_expired(rig: Rig) -> None:
    rig.signer.down = True
    tx = await rig.submit("pay", valid_for=120.0)
    copy = rig.database.serialize()
    rig.signer.down = False
    await rig.advance(10.0)
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    assert rig.executions("pay") == 1
    await rig.restore_store(copy)
    await rig.advance(200.0)
    await rig.mine(3)
    await rig.finalise()
    await rig.advance(60.0)
    await rig.finalise()
    now = await rig.read(tx)
    assert now.state is not State.EXPIRED
    assert now.held
    assert now.attention is not None
    assert now.attention.code == "same_payload_executed"
