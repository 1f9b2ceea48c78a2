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
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple

from nonchalant.sim.chance import Chance

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(Exception):
    """Nothing can run any more, and no timer is set."""


class StepLimit(Exception):
    """The run took more steps than any sound one does; something spins."""


class SimLoop(asyncio.BaseEventLoop):
    """Time moves only when nothing is left to do now, and then straight to the next timer.

    Most of a history's cost is here, so what asyncio does in several calls is done in one where that changes nothing.
    """

    # asyncio's own; its stubs leave them out.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, chance: Chance, *, step_limit: int = 5_000_000) -> None:
        super().__init__()
        self._chance = chance
        self._step_limit = step_limit
        self._virtual = 0.0
        self._born = 0
        self._set = 0
        self._timers: list[tuple[float, int, asyncio.Handle | SimFuture[None]]] = []  # by time, then as they were set
        self.steps = 0
        self.fingerprint = 0  # of when how much ran: two runs that differ anywhere differ here

    def time(self) -> float:
        return self._virtual

    def next_hash(self) -> int:
        self._born += 1
        return self._born

    # what runs next

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._set += 1
        heapq.heappush(self._timers, (when, self._set, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        assert not isinstance(coro, Generator)
        return SimTask(coro, loop=self, name=str(name), context=context)

    def sleep(self, seconds: float) -> asyncio.Future[None]:
        """Let `seconds` of virtual time pass. Whoever gives up waiting needs no timer taken down."""
        woken: SimFuture[None] = SimFuture(loop=self)
        self._set += 1
        heapq.heappush(self._timers, (self._virtual + seconds, self._set, woken))
        return woken

    def run_in_executor(self, _executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """In place: threads would bring back the real machine's chance."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the future
            done.set_exception(error)
        return done

    def run(self, main: Awaitable[T]) -> T:
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
        while not self._stopping:
            if not ready:
                self._to_the_next_timer()
                self.fingerprint = zlib.crc32(b"%d %r" % (self.steps, self._virtual), self.fingerprint)
                if self.steps > self._step_limit:
                    raise StepLimit(f"{self.steps} steps by {self._virtual:.3f} s")
                continue
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001 - this is the loop
                self.steps += 1
                try:
                    # What asyncio's own loop does; typeshed does not tell of a handle's insides.
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]  # noqa: SLF001
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - whoever watches the loop is told, as asyncio does
                    self.call_exception_handler({"message": f"exception in {handle!r}", "exception": error})

    def _to_the_next_timer(self) -> None:
        timers = self._timers
        while timers and _is_over(timers[0][2]):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing can run at {self._virtual:.3f} s")
        now = self._virtual = max(self._virtual, timers[0][0])
        due = []
        while timers and timers[0][0] <= now:
            due.append(heapq.heappop(timers)[2])
        if len(due) > 1:
            self._chance.shuffle(due)
        for one in due:
            if isinstance(one, asyncio.Handle):
                self._ready.append(one)
            elif not one.done():
                one.set_result(None)

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


class _Handle(asyncio.Handle):
    """A callback that is due now."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context | None
    ) -> None:
        # All that asyncio sets, but for what it keeps for its debug mode.
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class SimTask(asyncio.Task[T]):
    """A task whose hash is its number: `asyncio.wait` and `TaskGroup` walk over sets of tasks."""

    _number = 0

    def __hash__(self) -> int:
        return self._number or _numbered(self)


class SimFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    _number = 0

    def __hash__(self) -> int:
        return self._number or _numbered(self)


def _numbered(one: SimTask[T] | SimFuture[T]) -> int:
    """Few are ever asked for their hash; the order in which they are is the same each time."""
    loop = one.get_loop()
    assert isinstance(loop, SimLoop)
    one._number = number = loop.next_hash()  # noqa: SLF001 - it is theirs
    return number


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


def _is_over(timer: asyncio.Handle | SimFuture[None]) -> bool:
    return timer.cancelled() if isinstance(timer, asyncio.Handle) else timer.done()
