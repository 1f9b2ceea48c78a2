"""Where requests about events and webhooks become values: parsed and checked once, trusted afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nonchalant.access import LanePattern
from nonchalant.bodies import ReplayBody, RotateBody, WebhookBody, WebhookChanges, decode
from nonchalant.errors import BadRequest
from nonchalant.interest import FAMILIES, KINDS
from nonchalant.notation import MAX_REASON, MOST_PATTERNS
from nonchalant.scalars import LARGEST_NUMBER, parse_moment, parse_number, parse_pattern
from nonchalant.targets import Targets, parse_url
from nonchalant.webhooks import DeliveryState
from nonchalant.wire import MAX_PAGE
from nonchalant.words import Millis

LONGEST_OVERLAP: Final = 30 * 24 * 3600.0  # seconds that two secrets sign side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What somebody wants delivered, and where. In a change, None leaves a field as it is."""

    url: str | None = None
    kinds: tuple[str, ...] | None = None
    lanes: tuple[LanePattern, ...] | None = None
    description: str | None = None


def parse_webhook(body: bytes | Mapping[str, object], targets: Targets) -> tuple[Subscription, str | None, int | None]:
    """A new one, whose transactions it is told of (None: everybody's), and after which position it begins (None: now)."""
    given = decode(body, WebhookBody)
    wanted = _subscription(given, targets)
    after = None if given.after is None else parse_number(given.after, "after", LARGEST_NUMBER)
    return wanted, _tenant(given.tenant), after


def parse_webhook_changes(body: bytes | Mapping[str, object], targets: Targets) -> Subscription:
    return _subscription(decode(body, WebhookChanges), targets)


def parse_rotation(body: bytes | Mapping[str, object]) -> float:
    """For how many seconds the old secret goes on signing."""
    seconds = decode(body, RotateBody).seconds
    if not 0 <= seconds <= LONGEST_OVERLAP:
        raise BadRequest(f"expected 0 to {LONGEST_OVERLAP:.0f}", field="seconds")
    return seconds


def parse_replay(body: bytes | Mapping[str, object]) -> tuple[int | None, Millis | None]:
    """After which position, or since when; one of them."""
    given = decode(body, ReplayBody)
    if (given.after is None) == (given.since is None):
        raise BadRequest("expected one of: after, a position; since, a time", field="after")
    if given.after is not None:
        return parse_number(given.after, "after", LARGEST_NUMBER), None
    assert given.since is not None
    return None, parse_moment(given.since, "since")


@dataclass(frozen=True, slots=True)
class LogFilter:
    state: DeliveryState | None
    before: int | None
    limit: int


LOG_FILTERS: Final = ("state", "cursor", "limit")


def parse_log_filter(given: Mapping[str, str]) -> LogFilter:
    state = given.get("state")
    if state is not None and state not in list(DeliveryState):
        raise BadRequest(f"expected one of {', '.join(DeliveryState)}", field="state")
    limit = parse_number(given.get("limit", "50"), "limit", LARGEST_NUMBER)
    if not 1 <= limit <= MAX_PAGE:
        raise BadRequest(f"expected 1 to {MAX_PAGE}", field="limit")
    before = parse_number(given["cursor"], "cursor", LARGEST_NUMBER) if "cursor" in given else None
    return LogFilter(None if state is None else DeliveryState(state), before, limit)


def parse_kinds(names: Iterable[str], field: str) -> tuple[str, ...]:
    """Kinds of events or families of them; a name that means nothing is refused, or one would wait for ever."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in KINDS and name.removesuffix(".*") not in FAMILIES:
            raise BadRequest(
                f"expected a kind of event, such as tx.confirmed, or a family, such as tx.*: {name[:50]!r}", field
            )
    return found


def parse_lanes(texts: Iterable[str], field: str) -> tuple[LanePattern, ...]:
    found = tuple(dict.fromkeys(parse_pattern(text, field) for text in texts))
    if len(found) > MOST_PATTERNS:
        raise BadRequest(f"expected at most {MOST_PATTERNS}", field)
    return found


def _subscription(given: WebhookBody | WebhookChanges, targets: Targets) -> Subscription:
    lanes = None if given.lanes is None else parse_lanes(given.lanes, "lanes")
    if lanes is not None and not lanes:
        raise BadRequest("expected at least one; leave it out for every lane", field="lanes")
    return Subscription(
        url=None if given.url is None else parse_url(given.url, targets),
        kinds=None if given.kinds is None else parse_kinds(given.kinds, "kinds"),
        lanes=lanes,
        description=None if given.description is None else _description(given.description),
    )


def _description(text: str) -> str:
    if len(text) > MAX_REASON or not text.isprintable():
        raise BadRequest(f"expected one line of plain text, at most {MAX_REASON} characters", field="description")
    return text.strip()


def _tenant(named: str | None) -> str | None:
    if named is not None and not (1 <= len(named) <= 100 and named.isprintable()):
        raise BadRequest("expected a tenant's name", field="tenant")
    return named
