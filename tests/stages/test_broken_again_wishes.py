"""What an adversary broke in asking."""

from __future__ import annotations

from nonchalant.errors import WishPending
from nonchalant.sim.gate import StoreAilment
from nonchalant.sim.node import Life
from nonchalant.wishes import Sync
from tests.stages.rig import ALICE, Rig, staged


@staged()
async def test_a_wish_taken_back_in_a_commit_of_unknown_outcome_is_not_waited_for_for_ever(rig: Rig) -> None:
    node = rig.node
    asker = await rig.start_node()
    rig.kill(node)
    await rig.stop(asker)
    asker = await _bystander(rig)
    asked = rig.spawn(asker.asking.of_lane(ALICE, Sync(), seconds=2.0))
    await rig.advance(1.0)
    rig.spoil_store(asker, StoreAilment.DONE_UNSAID)
    await rig.advance(2.5)
    asker.gate.store_troubles.end()
    await rig.advance(20.0)
    assert asked.done()
    assert isinstance(asked.exception(), WishPending)


async def _bystander(rig: Rig) -> Life:
    """A node that takes wishes and works no lane."""
    node = await rig.start_node()
    await node.engine.stop()
    return node
