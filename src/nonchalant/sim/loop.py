"""An asyncio loop in virtual time: the same seed gives the same run, in every process.

Callbacks run in the order asyncio promises. What is left to chance is what a real machine leaves to chance: how long
I/O takes (the gates decide that) and who goes first among timers that are due at the same instant.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import sys
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

from nonchalant.sim.chance import Chance

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing can run any more, and no timer is set."""


class StepLimit(Exception):
    """The run took more steps than any sound one does; something spins."""


class SimLoop(asyncio.BaseEventLoop):
    """Time moves only when nothing is left to do now, and then straight to the next timer."""

    # asyncio's own; its stubs leave them out.
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, chance: Chance, *, step_limit: int = 5_000_000) -> None:
        super().__init__()
        self._chance = chance
        self._step_limit = step_limit
        self._virtual = 0.0
        self._born = 0
        self.steps = 0
        self.fingerprint = 0  # of when how much ran: two runs that differ anywhere differ here
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._virtual

    def next_hash(self) -> int:
        self._born += 1
        return self._born

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        woken = self.create_future()
        timer = self.call_later(seconds, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """In place: threads would bring back the real machine's chance."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the future
            done.set_exception(error)
        return done

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of `main` and close; what still waits then waits for ever. Drop it under `forgetting`."""
        try:
            return self.run_until_complete(main)
        finally:
            self.set_exception_handler(lambda _loop, _context: None)
            for task in asyncio.all_tasks(self):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - the dead are no news
            self.close()

    # what BaseEventLoop leaves to its subclass

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            self._to_the_next_timer()
            self.fingerprint = zlib.crc32(b"%d %r" % (self.steps, self._virtual), self.fingerprint)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                self.steps += 1
                handle._run()  # noqa: SLF001 - this is the loop
        if self.steps > self._step_limit:
            raise StepLimit(f"{self.steps} steps by {self._virtual:.3f} s")

    def _to_the_next_timer(self) -> None:
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not timers:
            if self._stopping:
                return
            raise Deadlock(f"nothing can run at {self._virtual:.3f} s")
        self._virtual = max(self._virtual, timers[0].when())
        due: list[asyncio.Handle] = []
        while timers and timers[0].when() <= self._virtual:
            due.append(heapq.heappop(timers))
        if len(due) > 1:
            self._chance.shuffle(due)
        self._ready.extend(due)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when their time comes."""

    def _check_closed(self) -> None:
        """What is left of a world that has ended may still let go of things: nobody runs them, and nobody minds."""

    def _process_events(self, event_list: object) -> None:
        """There are no file descriptors here."""

    def _write_to_self(self) -> None:
        """There are no other threads here."""

    def __del__(self) -> None:
        """A loop that was never closed holds nothing that could leak."""


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number: `asyncio.wait` and `TaskGroup` walk over sets of tasks."""

    def __init__(self, coro: Coroutine[Any, Any, T], *, loop: SimLoop, **rest: Any) -> None:
        self._number = loop.next_hash()
        super().__init__(coro, loop=loop, **rest)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    def __init__(self, *, loop: SimLoop) -> None:
        self._number = loop.next_hash()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


@contextmanager
def forgetting() -> Iterator[None]:
    """Let go of a finished world inside this block.

    Its dead nodes stand in the middle of coroutines; closing those runs their `finally`, which may try to await.
    """
    hook = sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = lambda _: None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gc.collect()
        finally:
            sys.unraisablehook = hook


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    *,
    context: Context | None = None,
    **rest: Any,
) -> asyncio.Task[T]:
    assert isinstance(loop, SimLoop)
    assert not isinstance(coro, Generator)
    return SimTask(coro, loop=loop, context=context, **rest)


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
