"""Webhooks as values: what is delivered, how it is signed (Standard Webhooks), and what an answer means."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from nonchalant.access import EVERY_LANE, LanePattern
from nonchalant.interest import Interest
from nonchalant.values import replace
from nonchalant.words import Millis

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - before each of them, no secret itself

# When each try comes after the one before, as the specification recommends: at once, after 5 seconds, 5 minutes, …
SCHEDULE: Final[tuple[Millis, ...]] = tuple(
    seconds * 1000 for seconds in (0, 5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
)
JITTER: Final = 0.2  # at most so much later, or all that failed at once would come back at once

# The longest a receiver may ask us to stay away.
MOST_RETRY_AFTER: Final[Millis] = 3_600_000


@dataclass(frozen=True, slots=True)
class LiveSecret:
    """Signs until it ends. Prints without itself."""

    text: str = field(repr=False)
    ends_at: Millis | None = None  # None: until it is replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where events go, and which. `position`: those up to there have their deliveries. `disabled_why` None: it is enabled."""

    id: str
    url: str = field(repr=False)  # its path may be a secret of the receiver's
    secrets: tuple[LiveSecret, ...] = field(repr=False)  # the newest first
    kinds: tuple[str, ...] = ()
    lanes: tuple[LanePattern, ...] = EVERY_LANE
    tenant: str | None = None  # None: every tenant's transactions
    description: str = ""
    position: int = 0
    version: int = 1
    created_at: Millis = 0
    disabled_at: Millis | None = None
    disabled_why: str | None = None
    pending: int = 0
    waiting_since: Millis | None = None  # the oldest of those that are pending

    @property
    def interest(self) -> Interest:
        return Interest(kinds=self.kinds, lanes=self.lanes, tenant=self.tenant)

    def live_secrets(self, now: Millis) -> list[str]:
        return [secret.text for secret in self.secrets if secret.ends_at is None or secret.ends_at > now]


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """An event, packed for one webhook. What belongs to one `stream` is delivered in order."""

    position: int
    stream: str
    kind: str
    body: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event on its way to one webhook. `status` and `error` are what the last try met."""

    webhook_id: str
    position: int
    stream: str
    kind: str
    body: str = field(repr=False)
    state: DeliveryState = DeliveryState.PENDING
    tries: int = 0
    next_at: Millis = 0
    status: int | None = None
    error: str | None = None
    created_at: Millis = 0
    ended_at: Millis | None = None

    @property
    def id(self) -> str:
        """The same at every try, and at every replay: receivers know by it what they had already."""
        return f"msg_{self.webhook_id.removeprefix('wh_')}_{self.position}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What became of one try. `status` None: there was no answer, and `error` says why."""

    status: int | None
    error: str | None = None
    retry_after: float | None = None  # seconds

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        """The receiver wants nothing more, ever."""
        return self.status == 410


def after(delivery: Delivery, said: Said, now: Millis, chance: float) -> Delivery:
    """The delivery as it stands after a try. `chance`, from 0 to 1, spreads what failed together."""
    tried = replace(delivery, tries=delivery.tries + 1, status=said.status, error=said.error)
    if said.delivered:
        return replace(tried, state=DeliveryState.DELIVERED, ended_at=now)
    if said.gone:
        return replace(tried, next_at=now)  # for the day when somebody enables it again
    if tried.tries >= len(SCHEDULE):
        return replace(tried, state=DeliveryState.FAILED, ended_at=now)
    wait = SCHEDULE[tried.tries] * (1 + JITTER * chance)
    if said.retry_after is not None and said.status in (429, 503):
        wait = max(wait, min(said.retry_after * 1000, MOST_RETRY_AFTER))
    return replace(tried, next_at=now + round(wait))


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def signed_headers(secrets: Iterable[str], message_id: str, now: Millis, body: str) -> dict[str, str]:
    """The headers of one try. All live secrets sign, so that a receiver may change from one to the next in its own time."""
    seconds = str(now // 1000)
    signatures = [_signature(secret, f"{message_id}.{seconds}.{body}") for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(signatures),
        "Content-Type": "application/json",
    }


def _signature(secret: str, content: str) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return "v1," + base64.b64encode(hmac.new(key, content.encode(), hashlib.sha256).digest()).decode()
