"""What the end-to-end suites share: an anvil mined by hand, and a node in this process on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nonchalant import app
from nonchalant.config import Settings
from nonchalant.engine import EngineRules
from nonchalant.policy import Patience
from nonchalant.values import replace
from tests import anvil
from tests.anvil import Anvil
from tests.e2e.site import Site


@pytest.fixture
async def chain() -> AsyncIterator[Anvil]:
    async with anvil.running() as node:
        yield node


@pytest.fixture
def site(chain: Anvil, tmp_path: Path) -> Site:
    return Site(chain, tmp_path)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that loses patience within a second or two: what a minute decides in production is decided at once."""
    real = app.engine_rules
    quick = Patience(resend_after=1_000, bump_after=dict.fromkeys(Patience().bump_after, 2_000))

    def rules(settings: Settings, *args: object, **options: object) -> EngineRules:
        made = real(settings, *args, **options)
        return replace(made, lanes={lane: replace(found, patience=quick) for lane, found in made.lanes.items()})

    monkeypatch.setattr(app, "engine_rules", rules)
