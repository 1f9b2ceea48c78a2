"""What every scenario starts from, and how the middle of one can be disturbed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.scenarios.scene import Scene, opened

FOLDER = Path(__file__).parent
UNDISTURBED = "undisturbed"
Interlude = Callable[[], Awaitable[None]]


@pytest.fixture
def slots_in_an_epoch() -> int:
    """Anvil calls final what is twice as many blocks below its head; a module that needs more overrides this."""
    return 1


@pytest.fixture
async def scene(tmp_path: Path, slots_in_an_epoch: int) -> AsyncIterator[Scene]:
    async with opened(tmp_path, slots_in_an_epoch) as scene:
        yield scene


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
