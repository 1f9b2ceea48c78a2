"""The gate: says on whose behalf a call is made, before anything else is done about it.

A key is looked up in the store at every call, so that a revocation counts at once on every node; many calls share one
look.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from nonchalant import keys
from nonchalant.access import ANYBODY, Caller
from nonchalant.config import Auth
from nonchalant.errors import NonchalantError
from nonchalant.keys import KeyId, Live, Written
from nonchalant.ports import Store
from nonchalant.service.http import Call
from nonchalant.service.lookup import Lookup
from nonchalant.service.problems import TooManyCalls, Unauthorized
from nonchalant.service.rates import Rates

log = structlog.get_logger()

# Hosts whose refused calls are counted, and how often each of them is worth a line in the log.
MOST_HOSTS: Final = 1_000
LOG_SECONDS: Final = 60.0


class Gate(Protocol):
    async def recognise(self, call: Call) -> Caller:
        """Whoever makes it; `Unauthorized` if his key cannot be used, or not any more: a long call asks again and again."""

    async def admit(self, call: Call) -> Caller:
        """As `recognise`, and the call is counted: `TooManyCalls` if he made too many."""

    def charge(self, caller: Caller, calls: int) -> None:
        """Count more calls than the one that was admitted: what came as a batch. `TooManyCalls` as above."""


class OpenGate:
    """Where no keys are asked for, everybody on this machine may do everything."""

    async def recognise(self, call: Call) -> Caller:  # noqa: ARG002 - whoever it is
        return ANYBODY

    async def admit(self, call: Call) -> Caller:  # noqa: ARG002 - whoever it is
        return ANYBODY

    def charge(self, caller: Caller, calls: int) -> None:
        pass


class KeyGate:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._lookup = Lookup(self._live_keys)
        self._rates = Rates()
        self._refusals = Refusals()

    async def admit(self, call: Call) -> Caller:
        caller = await self.recognise(call)
        self.charge(caller, 1)
        return caller

    async def recognise(self, call: Call) -> Caller:
        written = _bearer(call)
        # What does not look like a key costs the store nothing.
        live = None if written is None else await self._lookup.find(written.id)
        caller = None if written is None else keys.holder_of(written, live)
        if caller is None:
            self._refusals.count(call, None if written is None else written.id)
            raise Unauthorized
        return caller

    async def _live_keys(self, ids: Sequence[KeyId]) -> Mapping[KeyId, Live]:
        try:
            return await self._store.live_keys(ids)
        except NonchalantError:
            raise
        except Exception:  # whatever it is, nobody is let in by it
            log.exception("keys.unreadable")
            raise

    def charge(self, caller: Caller, calls: int) -> None:
        wait = self._rates.take(caller, asyncio.get_running_loop().time(), calls)
        if wait > 0:
            raise TooManyCalls(
                f"the key {caller.name} may make {caller.rate:g} calls a second; try again later", math.ceil(wait)
            )


def gate_of(auth: Auth, store: Store) -> Gate:
    return KeyGate(store) if auth == "keys" else OpenGate()


@dataclass(slots=True)
class _Refused:
    times: int = 0
    told_at: float = -math.inf


class Refusals:
    """Who is not let in: told in the log, a line a minute and host, without what he sent."""

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, _Refused] = OrderedDict()

    def count(self, call: Call, key_id: KeyId | None) -> None:
        host = (call.scope.get("client") or ("?",))[0]
        refused = self._hosts.setdefault(host, _Refused())
        self._hosts.move_to_end(host)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
        refused.times += 1
        now = asyncio.get_running_loop().time()
        if now - refused.told_at >= LOG_SECONDS:
            log.warning(
                "call.unauthorized", host=host, key_id=key_id, times=refused.times, path=call.scope["path"][:100]
            )
            refused.times, refused.told_at = 0, now


def _bearer(call: Call) -> Written | None:
    """The key that comes with it; None: none, or nothing that looks like one. Two headers are none."""
    values = [value for name, value in call.scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, text = values[0].decode("latin-1").partition(" ")
    return keys.read(text.strip()) if scheme.lower() == "bearer" else None
