"""What an adversary broke in telling the truth about what cannot be read."""

from __future__ import annotations

import pytest

from nonchalant.model import Payload, State
from tests.stages.rig import RECIPIENT, Rig, staged


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
