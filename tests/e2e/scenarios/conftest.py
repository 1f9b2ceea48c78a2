"""What every scenario starts from, and how the middle of one can be disturbed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nonchalant import app, assign, broadcast, desk, engine, policy, watch
from nonchalant.config import Settings
from nonchalant.engine import EngineRules
from nonchalant.model import Speed
from nonchalant.policy import Patience
from tests import anvil
from tests.e2e.scenarios.scene import Scene

FOLDER = Path(__file__).parent
UNDISTURBED = "undisturbed"
Interlude = Callable[[], Awaitable[None]]

# What takes a minute in production is decided within a second here: the order of events is what counts.
PATIENCE = Patience(resend_after=200, bump_after=dict.fromkeys(Speed, 400))
QUICK = {
    (engine, "TICK_SECONDS"): 0.05,
    (engine, "REST_SECONDS"): 0.05,
    (watch, "LOOK_SECONDS"): 0.3,
    (watch, "HEDGE_SECONDS"): 0.3,
    (watch, "MARKET_SECONDS"): 0.1,
    (assign, "FIRST_RETRY"): 50,
    (assign, "LONGEST_RETRY"): 200,
    (desk, "SIGNER_PAUSE"): 100,
    (broadcast, "FILLER_PAUSE"): 200,
    (policy, "ROUNDS_BEFORE_GIVING_UP"): 3,
}


@pytest.fixture
def slots_in_an_epoch() -> int:
    """Anvil calls final what is twice as many blocks below its head; a module that needs more overrides this."""
    return 1


@pytest.fixture
async def scene(tmp_path: Path, slots_in_an_epoch: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    for (module, name), value in QUICK.items():
        monkeypatch.setattr(module, name, value)
    real = app.engine_rules

    def rules(settings: Settings, *args: object) -> EngineRules:
        made = real(settings, *args)
        lanes = {lane: replace(found, patience=PATIENCE) for lane, found in made.lanes.items()}
        return replace(made, lanes=lanes, sweep_seconds=0.1)

    monkeypatch.setattr(app, "engine_rules", rules)
    async with anvil.running(slots_in_an_epoch=slots_in_an_epoch) as chain:
        scene = Scene(chain, tmp_path)
        try:
            yield scene
        finally:
            await scene.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The telling ones run always, undisturbed; everything else here is for `make test-long`."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == FOLDER:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            disturbed = parameters.get("interlude", UNDISTURBED) != UNDISTURBED
            if "scene" in item.fixturenames and (disturbed or item.get_closest_marker("telling") is None):
                item.add_marker("long")


@pytest.fixture(params=[UNDISTURBED, "restarted", "killed"])
def interlude(request: pytest.FixtureRequest, scene: Scene) -> Interlude:
    """What happens to our node in the middle of a scenario: nothing, or it is stopped or killed and comes back."""

    async def nothing() -> None:
        pass

    async def killed() -> None:
        await scene.kill()
        await scene.come_back()

    chosen: dict[str, Interlude] = {UNDISTURBED: nothing, "restarted": scene.restart, "killed": killed}
    return chosen[request.param]
