"""Steering a lane from a program: how it should be run, the manual tools, and nonces for those who sign by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog

from nonchalant.asking import Asking
from nonchalant.errors import NotFound, StoreUnavailable, WishPending, WishRefused
from nonchalant.model import Control
from nonchalant.ports import Entropy, LaneSummary, Store
from nonchalant.wire import parse_seconds, parse_signed
from nonchalant.wishes import Fill, Release, Reserve, Reset, Sync, Use
from nonchalant.words import LaneKey, Millis, Mode

log = structlog.get_logger()


class LaneHandle:
    """One account on one chain.

    What its owner must do (`reserve`, `sync`, `fill`, `reset`) raises `WishRefused` if he will not, and `WishPending`
    if nobody answers within ten seconds; then nothing was done, and nothing will be.
    """

    def __init__(self, key: LaneKey, *, asking: Asking, store: Store, entropy: Entropy) -> None:
        self.key = key
        self._asking = asking
        self._store = store
        self._entropy = entropy

    async def show(self) -> LaneSummary:
        found = await self._store.lane(self.key)
        if found is None:
            raise NotFound(f"there is no lane {self.key}")
        return found

    # how it should be run

    async def pause(self, reason: str = "") -> Control:
        """Give out no more nonces; what has one goes on."""
        return await self._asking.control(self.key, Mode.PAUSED, reason)

    async def drain(self, reason: str = "") -> Control:
        """As `pause`, and take no new requests either."""
        return await self._asking.control(self.key, Mode.DRAINING, reason)

    async def resume(self, reason: str = "") -> Control:
        """Open it, and believe its chain as it is now: after a halt, somebody must have looked."""
        return await self._asking.control(self.key, Mode.OPEN, reason)

    async def cancel_all(self) -> int:
        """Cancel everything that is live; how many were asked for. The outcomes tell. `MayHaveRun` if of some nobody can
        say yet whether they ran; the others are cancelled all the same."""
        return await self._asking.cancel_all(self.key)

    # the manual tools

    async def sync(self) -> Mapping[str, object]:
        """Look at the chain anew; what was found (`wishes.Sync`)."""
        return (await self._asking.of_lane(self.key, Sync())).data

    async def fill(self, nonce: int | None = None) -> Mapping[str, object]:
        """Close this hole, or every hole that something waits behind; which (`wishes.Fill`)."""
        return (await self._asking.of_lane(self.key, Fill(nonce))).data

    async def reset(self, *, force: bool = False) -> Mapping[str, object]:
        """Take the chain's word for the next nonce; what is given up for it (`wishes.Reset`)."""
        return (await self._asking.of_lane(self.key, Reset(force))).data

    # nonces for others

    @asynccontextmanager
    async def reserve(self, seconds: float = 60.0) -> AsyncIterator[ReservedNonce]:
        """A nonce to sign for by oneself, within that time (ten minutes at most).

        Say what became of it inside the block: `used`, or `release`. Leaving without either releases it; after an
        exception it is left alone, because something may be signed for it. When the time is over, a filler takes the
        nonce.
        """
        slot = await self.take(seconds)
        yield slot
        await slot.leave()

    async def take(self, seconds: float = 60.0) -> ReservedNonce:
        """As `reserve`, for those who say what became of it elsewhere: keep its `nonce` and its `holder`."""
        holder = self._entropy.token()
        act = Reserve(holder, round(parse_seconds(seconds) * 1000))
        granted = (await self._asking.of_lane(self.key, act)).data
        return ReservedNonce(
            self._asking, self.key, int(str(granted["nonce"])), holder, deadline=int(str(granted["deadline"]))
        )

    def reserved(self, nonce: int, holder: str) -> ReservedNonce:
        """A nonce that was taken before, to say what became of it; whether it is still ours shows then."""
        return ReservedNonce(self._asking, self.key, nonce, holder)


class ReservedNonce:
    """A nonce that is kept for us; nobody else may speak for it."""

    def __init__(
        self, asking: Asking, lane: LaneKey, nonce: int, holder: str, *, deadline: Millis | None = None
    ) -> None:
        self.nonce = nonce
        self.holder = holder  # a secret: whoever has it speaks for the nonce
        self.deadline = deadline  # as it was granted; None: not known here
        self._asking = asking
        self._lane = lane
        self._is_told = False  # what became of it, or that is under way

    async def used(self, hash: str | bytes, raw: str | bytes | None = None) -> None:
        """This was signed for it. Bytes that are given are checked, kept, and sent until the chain has them.

        May be called again with another hash, for a better price at the same nonce.
        """
        self._is_told = True  # whatever comes of it, somebody may have the bytes
        known, signed = parse_signed(_hex(hash), None if raw is None else _hex(raw))
        await self._asking.of_lane(self._lane, Use(self.nonce, self.holder, known, signed))

    async def release(self) -> int:
        """Nothing was signed for it: somebody else may have it. The lane's next nonce."""
        reply = await self._asking.of_lane(self._lane, Release(self.nonce, self.holder))
        self._is_told = True
        return int(str(reply.data["next_nonce"]))

    async def leave(self) -> None:
        """Release it unless something was said. If that fails, the deadline does what is left to do."""
        if self._is_told:
            return
        try:
            await self.release()
        except (WishRefused, WishPending, StoreUnavailable) as error:
            log.info("reservation.left", lane=str(self._lane), nonce=self.nonce, reason=str(error))

    def __repr__(self) -> str:
        return f"<ReservedNonce {self.nonce} of {self._lane}>"


def _hex(value: str | bytes) -> str:
    """Libraries give either."""
    return "0x" + bytes(value).hex() if isinstance(value, bytes) else value
