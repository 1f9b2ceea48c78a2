"""One lane, as the client sees it: looked at, steered, and its nonces reserved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

from nonchalant.client.refusals import ServiceRefused, ServiceUnreachable
from nonchalant.client.service import Service
from nonchalant.errors import StoreUnavailable, WishPending, WishRefused
from nonchalant.lane_views import (
    CancellingView,
    FilledView,
    LaneView,
    ReleasedView,
    ReservedView,
    ResetView,
    SyncView,
    UsedView,
)

# A lane with ten thousand transactions takes a while to cancel.
LONGEST_CANCEL: Final = 600.0


class ClientLane:
    """One account on one chain.

    What its owner must do (`sync`, `fill`, `reset`, `reserve`) raises `WishRefused` if he will not, and `WishPending` if
    nobody answers within ten seconds; then nothing was done, and nothing will be.
    """

    def __init__(self, service: Service, chain_id: int, address: str) -> None:
        self.chain_id = chain_id
        self.address = address
        self._service = service
        self._path = f"/v1/lanes/{chain_id}/{quote(address, safe='')}"

    async def show(self) -> LaneView:
        return await self._service.get(self._path, LaneView)

    async def pause(self, reason: str = "") -> LaneView:
        """Give out no more nonces; what has one goes on."""
        return await self._service.post(f"{self._path}/pause", LaneView, {"reason": reason})

    async def drain(self, reason: str = "") -> LaneView:
        """As `pause`, and take no new requests either."""
        return await self._service.post(f"{self._path}/drain", LaneView, {"reason": reason})

    async def resume(self, reason: str = "") -> LaneView:
        """Open it, and believe its chain as it is now: after a halt, somebody must have looked."""
        return await self._service.post(f"{self._path}/resume", LaneView, {"reason": reason})

    async def cancel_all(self) -> int:
        """Cancel everything that is live; how many were asked for. The outcomes tell."""
        asked = await self._service.post(f"{self._path}/cancel", CancellingView, waits=LONGEST_CANCEL)
        return asked.asked

    async def sync(self) -> SyncView:
        """Look at the chain anew; what was found."""
        return await self._service.post(f"{self._path}/sync", SyncView)

    async def fill(self, nonce: int | None = None) -> FilledView:
        """Close this hole, or every hole that something waits behind; which."""
        body = {} if nonce is None else {"nonce": nonce}
        return await self._service.post(f"{self._path}/fill", FilledView, body)

    async def reset(self, *, force: bool = False) -> ResetView:
        """Take the chain's word for the next nonce; what is given up for it."""
        return await self._service.post(f"{self._path}/reset", ResetView, {"force": force})

    @asynccontextmanager
    async def reserve(self, seconds: float = 60.0) -> AsyncIterator[Reservation]:
        """A nonce to sign for by oneself, within that time (ten minutes at most).

        Say what became of it inside the block: `used`, or `release`. Leaving without either releases it; after an
        exception it is left alone, because something may be signed for it. When the time is over, a filler takes the
        nonce.
        """
        slot = await self.take(seconds)
        yield slot
        await slot.leave()

    async def take(self, seconds: float = 60.0) -> Reservation:
        """As `reserve`, for those who say what became of it elsewhere: keep its `nonce` and its `holder`."""
        granted = await self._service.post(f"{self._path}/reservations", ReservedView, {"seconds": seconds})
        return Reservation(self._service, self._path, granted.nonce, granted.holder, expires_at=granted.expires_at)

    def reserved(self, nonce: int, holder: str) -> Reservation:
        """A nonce that was taken before, to say what became of it; whether it is still ours shows then."""
        return Reservation(self._service, self._path, nonce, holder)

    def __repr__(self) -> str:
        return f"<ClientLane {self.chain_id}:{self.address}>"


class Reservation:
    """A nonce that is kept for us; nobody else may speak for it."""

    def __init__(self, service: Service, lane: str, nonce: int, holder: str, *, expires_at: str | None = None) -> None:
        self.nonce = nonce
        self.holder = holder  # a secret: whoever has it speaks for the nonce
        self.expires_at = expires_at  # as it was granted; None: not known here
        self._service = service
        self._path = f"{lane}/reservations/{nonce}"
        self._is_told = False  # what became of it, or that is under way

    async def used(self, hash: str | bytes, raw: str | bytes | None = None) -> None:
        """This was signed for it. Bytes that are given are checked, kept, and sent until the chain has them.

        May be called again with another hash, for a better price at the same nonce.
        """
        self._is_told = True  # whatever comes of it, somebody may have the bytes
        body = {"holder": self.holder, "hash": _hex(hash)} | ({} if raw is None else {"raw": _hex(raw)})
        await self._service.post(f"{self._path}/used", UsedView, body)

    async def release(self) -> int:
        """Nothing was signed for it: somebody else may have it. The lane's next nonce."""
        released = await self._service.post(f"{self._path}/release", ReleasedView, {"holder": self.holder})
        self._is_told = True
        return released.next_nonce

    async def leave(self) -> None:
        """Release it unless something was said. If that fails, the deadline does what is left to do."""
        if self._is_told:
            return
        try:
            await self.release()
        except (WishRefused, WishPending, StoreUnavailable, ServiceUnreachable, ServiceRefused):
            return

    def __repr__(self) -> str:
        return f"<Reservation {self.nonce}>"


def _hex(value: str | bytes) -> str:
    """Libraries give either."""
    return "0x" + bytes(value).hex() if isinstance(value, bytes) else value
