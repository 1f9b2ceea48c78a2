"""What takes a minute in production is decided within a second in a scenario: the order of events is what counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nonchalant import app, assign, attend, broadcast, desk, engine, follow, panel, policy
from nonchalant.config import Settings
from nonchalant.engine import EngineRules
from nonchalant.policy import Patience
from nonchalant.ports import Clock
from nonchalant.system import SystemClock
from nonchalant.values import replace
from nonchalant.words import Millis, Speed

PATIENCE = Patience(resend_after=200, bump_after=dict.fromkeys(Speed, 400))
QUICK = {
    (engine, "TICK_SECONDS"): 0.05,
    (engine, "REST_SECONDS"): 0.05,
    (panel, "LOOK_SECONDS"): 0.3,
    (panel, "HEDGE_SECONDS"): 0.3,
    (follow, "MARKET_SECONDS"): 0.1,
    (assign, "FIRST_RETRY"): 50,
    (assign, "LONGEST_RETRY"): 200,
    (desk, "SIGNER_PAUSE"): 100,
    (attend, "AGAIN"): 300,
    (attend, "LOOK"): 50,
    (broadcast, "FILLER_PAUSE"): 200,
    (policy, "ROUNDS_BEFORE_GIVING_UP"): 3,
}


class Ahead(SystemClock):
    """The system's clock, which a scenario moves forward instead of waiting: as if the machine had slept."""

    def __init__(self) -> None:
        self.ahead = 0  # milliseconds

    def now(self) -> Millis:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead / 1000


@contextmanager
def in_haste(clock: Clock) -> Iterator[None]:
    """Nodes opened in here lose patience quickly, and go by this clock."""
    real = app.engine_rules

    def rules(settings: Settings, *args: Any, **more: Any) -> EngineRules:
        made = real(settings, *args, **more)
        lanes = {lane: replace(found, patience=PATIENCE) for lane, found in made.lanes.items()}
        return replace(made, lanes=lanes, sweep_seconds=0.1)

    with pytest.MonkeyPatch.context() as patch:
        for (module, name), value in QUICK.items():
            patch.setattr(module, name, value)
        patch.setattr(app, "engine_rules", rules)
        patch.setattr(app, "SystemClock", lambda: clock)
        yield
