"""Asking an attention hook: off the loop, for a second at most, and believing nothing it says unchecked."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TypeVar

from nonchalant import hooks
from nonchalant.errors import BadRequest, BadSettings, HookFailed, HookRefused
from nonchalant.hooks import HeadSnapshot, Hook, LaneSnapshot
from nonchalant.model import Fees, Market, Payload, Transaction
from nonchalant.ports import Advice, Offload
from nonchalant.wishes import Bump, Cancel, Replace
from nonchalant.words import LaneKey, Millis, Speed

T = TypeVar("T")

# A function of values has no business taking longer.
HOOK_SECONDS = 1.0

# An alert is a sentence.
LONGEST_ALERT = 500

ParseReplacement = Callable[[LaneKey, Mapping[str, object]], tuple[Payload, Speed | Fees | None]]
CheckFees = Callable[[LaneKey, Fees], object]


class Adviser:
    """`ports.Adviser` over a function of the user's. `parse` and `check` hold what it says to the rules of a request:
    both raise `BadRequest`."""

    def __init__(self, hook: Hook, offload: Offload, *, parse: ParseReplacement, check: CheckFees) -> None:
        self._hook = hook
        self._offload = offload
        self._parse = parse
        self._check = check
        # Several lanes may ask: waiting for one's turn is no failure, and takes no time of it.
        self._turn = asyncio.Lock()

    async def advise(
        self, tx: Transaction, lane: LaneSnapshot, head: HeadSnapshot, fees: Market, now: Millis
    ) -> Advice:
        """None: wait. `HookFailed` if it does not answer, or what is no answer; `HookRefused` if that is against the rules."""
        async with self._turn:
            answer = await self._ask(lambda: self._hook(tx, lane, head, fees, now))
        try:
            return self._checked(tx, answer)
        except BadRequest as problem:
            raise HookRefused(f"its {type(answer).__name__.lower()} is refused: {problem}") from problem

    async def _ask(self, question: Callable[[], object]) -> object:
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                return await self._offload(question)
        except HookFailed:
            raise
        except TimeoutError:
            raise HookFailed(f"it did not answer within {HOOK_SECONDS:g} s") from None
        except Exception as error:  # somebody else's code may raise anything
            # And name anything: that is for the node's own log.
            raise HookFailed(f"it raised {type(error).__name__}; the node's log says more") from error

    def _checked(self, tx: Transaction, answer: object) -> Advice:
        match answer:
            case hooks.Wait():
                return None
            case hooks.Cancel():
                return Cancel(tx.id)
            case hooks.Bump(None | Speed() as fees):
                return Bump(tx.id, fees)
            case hooks.Bump(Fees() as fees) if _are_amounts(fees):
                self._check(tx.lane, fees)
                return Bump(tx.id, fees)
            case hooks.Replace(Mapping() as request):
                payload, price = self._parse(tx.lane, request)
                return Replace(tx.id, payload, price)
            case hooks.Alert(str() as reason) if reason:
                return hooks.Alert(reason[:LONGEST_ALERT])
        raise HookFailed(f"it answered a {type(answer).__name__}, which is none of the answers it may give")


def _are_amounts(fees: Fees) -> bool:
    """Whether what somebody else's code put there are amounts at all."""
    amounts: list[object] = [fees.max_fee] if fees.priority is None else [fees.max_fee, fees.priority]
    return all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in amounts)


class LoneThread:
    """Runs one call at a time on a thread of its own, which nobody waits for in the end.

    While one that was given up on has not returned, the next is refused: a function that never returns costs one thread.
    """

    def __init__(self) -> None:
        self._busy = threading.Lock()

    async def __call__(self, act: Callable[[], T]) -> T:
        if not self._busy.acquire(blocking=False):
            raise HookFailed("an earlier call of it has not returned yet")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(tell: Callable[[], None]) -> None:
            if not done.done():  # else it was given up on
                tell()

        def run() -> None:
            try:
                tell = partial(done.set_result, act())
            except BaseException as error:  # noqa: BLE001 - whatever it is, it ends this thread and not the node
                trouble = error if isinstance(error, Exception) else RuntimeError(repr(error))
                tell = partial(done.set_exception, trouble)
            self._busy.release()
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(settle, tell)

        threading.Thread(target=run, name="attention-hook", daemon=True).start()
        return await done


def load_hook(name: str) -> Hook:
    """The function that `package.module:function` names; `BadSettings` if there is none that can be called."""
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function, None)
    except (Exception, SystemExit) as error:  # importing runs somebody else's code, which may raise anything
        # To the operator it is a setting to mend.
        raise BadSettings(
            f"attention_hook: cannot import {module} ({type(error).__name__}: {error}); "
            "install it beside Nonchalant, or put its folder on PYTHONPATH"
        ) from error
    if found is None:
        raise BadSettings(f"attention_hook: {module} has no {function}")
    if not callable(found) or inspect.iscoroutinefunction(found):
        raise BadSettings(f"attention_hook: {name} is not a plain function")
    try:
        inspect.signature(found).bind(None, None, None, None, None)
    except (TypeError, ValueError) as problem:
        raise BadSettings(
            f"attention_hook: {name} cannot be called with (transaction, lane, head, fees, now): {problem}"
        ) from None
    checked: Hook = found
    return checked
