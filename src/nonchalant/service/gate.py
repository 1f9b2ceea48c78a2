"""The gate: says on whose behalf a call is made, before anything else is done about it."""

from __future__ import annotations

from nonchalant.access import ANYBODY, Caller
from nonchalant.service.http import Call


class Gate:
    """Where no keys are asked for, everybody on this machine may do everything."""

    async def admit(self, call: Call) -> Caller:  # noqa: ARG002 - whoever it is
        return ANYBODY
