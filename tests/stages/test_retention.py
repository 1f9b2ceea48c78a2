"""Any node forgets what ended long ago, and the lane goes on as if it were still there."""

import pytest

from nonchalant.errors import KeyReused, TransactionRemoved
from nonchalant.housekeeping import REMOVE_SECONDS
from nonchalant.words import State
from tests.stages.rig import Rig, staged

HOUR = 3_600_000


@staged(retention=HOUR)
async def test_what_ended_long_ago_is_removed_and_the_lane_goes_on_at_its_nonce(rig: Rig) -> None:
    old = await rig.submit("old", key="invoice")
    await rig.reaches(old, State.SENT)
    waiting = await rig.submit("waiting", gas=21_000, value=10**30)  # nobody can pay for it
    await rig.mine()
    await rig.finalise()
    await rig.reaches(old, State.CONFIRMED)
    await rig.advance(3600.0 + REMOVE_SECONDS + 10.0)
    assert await rig.store.transaction(old.id) is None
    assert await rig.state(waiting) is State.QUEUED
    assert (await rig.lane()).record.next_nonce == 1
    new = await rig.submit("new")
    assert (await rig.reaches(new, State.SENT)).nonce == 1
    with pytest.raises(TransactionRemoved, match=old.id) as problem:
        await rig.submit("old", key="invoice")
    assert problem.value.tx_id == old.id
    with pytest.raises(KeyReused):
        await rig.submit("another", key="invoice")
    await rig.mine()
    await rig.finalise()
    assert [rig.executions("old"), rig.executions("new")] == [1, 1]
