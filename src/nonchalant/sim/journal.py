"""What the code under test logs: into the trace for reading, and errors nobody expected to whoever wants to know."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from nonchalant.sim.node import whose
from nonchalant.sim.trace import Trace
from nonchalant.sim.trouble import Poison

# How it is told that something is poisonous. Anywhere else that would be the node's own fault.
BORNE = ("lane.poisoned", "lane.broke", "endpoint.broke", "wish.broke")


class Journal:
    """Hears what is logged, while it has a trace to write it to."""

    def __init__(self) -> None:
        self._trace: Trace | None = None
        self._broke: Callable[[str], None] = lambda _what: None

    def open(self, trace: Trace, broke: Callable[[str], None]) -> None:
        """From here on `broke` is told of each error that nobody expected; details are heard if all is kept."""
        self._trace, self._broke = trace, broke
        _configure(self._hear, logging.DEBUG if trace.whole else logging.ERROR)

    def close(self) -> None:
        """Hear nothing more, and hold nothing of the world that has ended."""
        self._trace, self._broke = None, lambda _what: None

    def _hear(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        if self._trace is not None:
            error = event.pop("exc_info", None)
            what = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            self._trace.aside(whose.get(), f"{method}: {event['event']} {what}")
            if error and not (event["event"] in BORNE and _is_poison(sys.exc_info()[1])):
                self._broke(f"{event['event']} {what}\n{traceback.format_exc()}")
        raise structlog.DropEvent


def _is_poison(error: BaseException | None) -> bool:
    """Whether a poisonous transaction is behind it."""
    while error is not None and not isinstance(error, Poison):
        error = error.__cause__
    return error is not None


@contextmanager
def listening() -> Iterator[Journal]:
    """Take over all logging inside this block; afterwards it is as nobody had touched it."""
    before = structlog.get_config() if structlog.is_configured() else None
    try:
        yield Journal()
    finally:
        if before is None:
            structlog.reset_defaults()
        else:
            structlog.configure(**before)


def _configure(hear: Processor, level: int) -> None:
    structlog.configure(
        processors=[hear],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
