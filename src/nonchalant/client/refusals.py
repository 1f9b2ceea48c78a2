"""What a service that says no, or nothing, becomes: the exceptions of the library wherever they say the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nonchalant.errors import (
    BadRequest,
    FeeAboveCap,
    Forbidden,
    KeyReused,
    LaneDraining,
    MayHaveRun,
    NonchalantError,
    NotFound,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    TooLate,
    TooManyReplacements,
    TooManyWishes,
    TransactionRemoved,
    UnknownAccount,
    UnknownChain,
    Unreachable,
    WishPending,
    WishRefused,
)
from nonchalant.views import Problem


class ServiceUnreachable(NonchalantError):
    """The service did not answer, or something else answers in its place.

    `heard` False: the call never reached it. True: it may have been carried out; look, or repeat it. A transaction is
    repeated safely with the same `idempotency_key`.
    """

    code = "service_unreachable"

    def __init__(self, detail: str, *, heard: bool, idempotency_key: str | None = None) -> None:
        super().__init__(detail)
        self.heard = heard
        self.idempotency_key = idempotency_key


class ServiceRefused(NonchalantError):
    """The service answered with a problem that has no exception of its own; its `code` says which."""

    def __init__(self, detail: str, *, status: int, code: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.data = data or {}


class Unauthorized(ServiceRefused):
    """The service wants an API key, and this is none that it knows."""


_BY_CODE: Final[Mapping[str, type[NonchalantError]]] = {
    kind.code: kind
    for kind in (
        BadRequest,
        FeeAboveCap,
        Forbidden,
        KeyReused,
        LaneDraining,
        MayHaveRun,
        NotFound,
        QueueFull,
        ShuttingDown,
        StoreUnavailable,
        TooLate,
        TooManyReplacements,
        TooManyWishes,
        TransactionRemoved,
        UnknownAccount,
        UnknownChain,
        Unreachable,
        WishPending,
    )
}

_decoder = msgspec.json.Decoder(Problem)


def problem_in(body: bytes) -> Problem | None:
    """None: whoever answered does not speak as our service does."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def refusal_of(problem: Problem) -> NonchalantError:
    kind = _BY_CODE.get(problem.code)
    if kind is not None:
        error = kind(problem.detail)
        # The detail names the field already.
        if isinstance(error, BadRequest):
            error.field = problem.field
        if isinstance(error, TransactionRemoved):
            error.tx_id = problem.tx
        return error
    if problem.status == 409:  # the lane's owner has many reasons, each with its code
        return WishRefused(problem.detail, problem.code, problem.data)
    refused = Unauthorized if problem.status == 401 else ServiceRefused
    return refused(problem.detail, status=problem.status, code=problem.code, data=problem.data)
