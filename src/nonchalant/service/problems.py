"""Errors as RFC 9457 problem documents, each with a stable code."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from nonchalant.errors import (
    BadRequest,
    CommitUnknown,
    Forbidden,
    KeyReused,
    LaneDraining,
    MayHaveRun,
    NonceTaken,
    NonchalantError,
    NotFound,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    TooLate,
    TooManyReplacements,
    TooManyWebhooks,
    TooManyWishes,
    TransactionRemoved,
    Unreachable,
    WishPending,
    WishRefused,
)
from nonchalant.ports import EventRange
from nonchalant.views import Problem

# The first class that fits counts. Anything else is ours to repair: 500.
STATUS: Final[Mapping[type[NonchalantError], int]] = {
    Forbidden: 403,
    BadRequest: 400,
    NotFound: 404,
    # Not for repeating: a lane drains until somebody resumes it, and what came too late stays too late.
    LaneDraining: 409,
    TooLate: 409,
    MayHaveRun: 409,
    NonceTaken: 409,
    TooManyReplacements: 409,
    TooManyWebhooks: 409,
    WishRefused: 409,
    TransactionRemoved: 410,
    KeyReused: 422,
    QueueFull: 429,
    TooManyWishes: 429,
    WishPending: 503,
    StoreUnavailable: 503,
    CommitUnknown: 503,
    ShuttingDown: 503,
    Unreachable: 503,
}

# Seconds a caller should stay away: a queue drains with blocks, a store or a restart is back sooner.
RETRY_AFTER: Final = {429: 5, 503: 1}


class HttpProblem(NonchalantError):
    """What HTTP itself has a word for."""

    status = 500


class Unauthorized(HttpProblem):
    """No key that can be used came with this call; send one as `Authorization: Bearer nck_…`, or ask for a new one."""

    # The same for none, a wrong one, one that expired and one that was revoked: nothing can be learnt by trying.
    code = "unauthorized"
    status = 401


class NoSuchPath(HttpProblem):
    """There is nothing at this path; GET /openapi.json lists what there is."""

    code = "not_found"
    status = 404


class WrongMethod(HttpProblem):
    """This path does not take this method; the Allow header names those it takes."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, allowed: list[str]) -> None:
        super().__init__()
        self.allowed = allowed


class BodyTooSlow(HttpProblem):
    """The body did not arrive within 10 seconds and the connection is closed; nothing was accepted, send it again."""

    code = "body_too_slow"
    status = 408


class PositionGone(HttpProblem):
    """Events after this position are kept no more, or it is of another store; begin at a position that `data` names."""

    code = "position_gone"
    status = 410

    def __init__(self, detail: str, kept: EventRange) -> None:
        super().__init__(detail)
        self.kept = kept


class TooLarge(HttpProblem):
    """The body is larger than 1 MiB; send less at once."""

    code = "too_large"
    status = 413


class NotJson(HttpProblem):
    """Send the body as JSON, with the header Content-Type: application/json."""

    # A page in a browser cannot send this type to another host without asking first, and nobody answers.
    code = "unsupported_media_type"
    status = 415


class WrongHost(HttpProblem):
    """The Host header names another host than this one; without keys only loopback names are served."""

    code = "wrong_host"
    status = 421


class TooManyCalls(HttpProblem):
    """This key makes more calls than it may; try again when the Retry-After header says."""

    code = "rate_limited"
    status = 429

    def __init__(self, detail: str = "", seconds: int = 1) -> None:
        super().__init__(detail)
        self.seconds = seconds


class HeadTooLarge(HttpProblem):
    """The URL and the headers are larger than 64 KiB and the connection is closed; send less in them."""

    code = "head_too_large"
    status = 431


class Busy(HttpProblem):
    """Too many calls are under way, or too many wait for a change; try again shortly."""

    code = "busy"
    status = 503


class NotReady(HttpProblem):
    """This node is not ready to take work."""

    code = "not_ready"
    status = 503


def status_of(error: NonchalantError) -> int:
    return status_of_kind(type(error))


def status_of_kind(kind: type[NonchalantError]) -> int:
    if issubclass(kind, HttpProblem):
        return kind.status
    return next((status for known, status in STATUS.items() if issubclass(kind, known)), 500)


def describe(error: NonchalantError) -> tuple[Problem, dict[str, str]]:
    """The document, and the headers that go with it. What is our own fault is not spelt out to callers."""
    status = status_of(error)
    headers = {}
    if status in RETRY_AFTER:
        headers["Retry-After"] = str(RETRY_AFTER[status])
    if isinstance(error, TooManyCalls):
        headers["Retry-After"] = str(error.seconds)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="nonchalant"'
    if isinstance(error, WrongMethod):
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, (BodyTooSlow, HeadTooLarge)):
        headers["Connection"] = "close"
    code = error.code if status != 500 else "internal"
    problem = Problem(
        type=f"urn:nonchalant:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=str(error) if status != 500 else "Something went wrong here; the log says what.",
        code=code,
        field=error.field if isinstance(error, BadRequest) else None,
        tx=error.tx_id if isinstance(error, TransactionRemoved) else None,
        data=_told(error),
    )
    return problem, headers


def _told(error: NonchalantError) -> dict[str, object] | None:
    """What there is to know beside the reason; None: nothing."""
    match error:
        case WishRefused():
            return {name: value for name, value in error.data.items() if name != "reason"} or None
        case PositionGone():
            return {"oldest": error.kept.forgotten, "last": error.kept.last}
        case _:
            return None
