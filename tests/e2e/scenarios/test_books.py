"""The audit itself: what went wrong must not pass."""

from __future__ import annotations

import pytest

from tests.e2e.ledger import recipient
from tests.e2e.scenarios.scene import ALICE, TRANSFER, Scene

pytestmark = pytest.mark.telling


async def test_what_ran_twice_what_nobody_asked_for_and_what_is_left_over_are_noticed(scene: Scene) -> None:
    await scene.start()
    await scene.pay("once")
    await scene.settle()
    await scene.audit()
    pooled = await scene.chain.send_as(ALICE, to=recipient("stranger"), **TRANSFER)
    with pytest.raises(AssertionError, match="in the pool"):
        await scene.audit()
    await scene.chain.mine()
    with pytest.raises(AssertionError, match="neither signed here nor known"):
        await scene.audit()
    await scene.audit(foreign=[pooled])
    again = await scene.chain.send_as(ALICE, to=recipient("once"), **TRANSFER)
    await scene.chain.mine()
    with pytest.raises(AssertionError, match="ran 2 times"):
        await scene.audit(foreign=[pooled, again])


async def test_what_never_ran_and_what_is_called_something_else_are_noticed(scene: Scene) -> None:
    await scene.start()
    await scene.mine()
    await scene.pay("ran", "never")
    await scene.settle()
    with pytest.raises(AssertionError):
        await scene.audit(failed=["never"])
    scene.alter("DROP TRIGGER ends_are_final")
    scene.alter("UPDATE transactions SET state = 'cancelled' WHERE idempotency_key = 'ran'")
    with pytest.raises(AssertionError, match="ran, and is called cancelled"):
        await scene.audit(cancelled=["ran"])
    scene.alter("UPDATE transactions SET state = 'confirmed' WHERE idempotency_key = 'ran'")
    await scene.audit()
    await scene.chain.reorg(await scene.chain.height() - 1)
    with pytest.raises(AssertionError, match="ran 0 times"):
        await scene.audit()
