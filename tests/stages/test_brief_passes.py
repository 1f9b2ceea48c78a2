"""A lane that was only given something more to send runs what sends it, and leaves the rest for when something happens."""

from __future__ import annotations

from typing import Any

import pytest

from nonchalant.desk import Desk
from nonchalant.engine import BRIEFLY, STAGES, Engine, Stage
from tests.stages.rig import Rig, staged


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all stages that were run."""
    ran: list[str] = []
    run = Engine._run

    async def told(self: Engine, stage: Stage, desk: Desk) -> bool:
        ran.append(stage.__name__)
        return await run(self, stage, desk)

    monkeypatch.setattr(Engine, "_run", told)
    return ran


def names(stages: tuple[Stage, ...]) -> list[str]:
    return [stage.__name__ for stage in stages]


async def fed(rig: Rig, passes: list[str], label: str) -> list[str]:
    """What is run for one more, until it is on its way."""
    passes.clear()
    [tx] = await rig.submit_all([label])
    while (await rig.read(tx)).nonce is None:
        await rig.advance(0.001)
    await rig.advance(0.05)
    return list(passes)


@staged()
async def test_what_is_accepted_right_after_all_was_looked_at_takes_three_stages(rig: Rig, passes: Any) -> None:
    await rig.submit_all(["first"])
    await rig.advance(2.0)
    await rig.mine()
    assert passes[-len(STAGES) :] == names(STAGES)
    ran = await fed(rig, passes, "second")
    assert ran[:4] == [*names(BRIEFLY), "watch"]  # that a node took it is news, for which all are run


@staged(window=100)
async def test_all_stages_have_their_turn_where_there_is_always_something_to_send(rig: Rig, passes: Any) -> None:
    await rig.submit_all(["first"])
    await rig.advance(2.0)
    ran = [stage for number in range(30) for stage in await fed(rig, passes, f"more {number}")]
    assert ran.count("rescue") >= 2
    assert ran.count("assign") > ran.count("rescue")


@staged()
async def test_whatever_else_happened_has_everything_looked_at(rig: Rig, passes: Any) -> None:
    await rig.submit_all(["first"])
    await rig.advance(2.0)
    await fed(rig, passes, "second")
    [desk] = rig.node.engine.desks.values()
    desk.assign_due = True
    assert desk.was_just_fed()
    for due in ("orders_due", "lookup_due", "account_due"):
        setattr(desk, due, True)
        assert not desk.was_just_fed(), due
        setattr(desk, due, False)
    desk.waiting["a wish"] = 1
    assert not desk.was_just_fed()
    desk.waiting.clear()
    assert desk.was_just_fed()
    looked_at, desk.looked_at = desk.looked_at, None  # at another head
    assert not desk.was_just_fed()
    desk.looked_at = looked_at
    desk.look_again_at = desk.ticks()  # a second has passed
    assert not desk.was_just_fed()
