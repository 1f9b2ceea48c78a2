"""What went wrong, as JSON-RPC says it: a number clients know, a sentence, and our own stable code in `data.code`.

A client may repeat by itself what is answered with -32603 or -32005 (viem does). So those are never said of something
that may have been accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nonchalant.errors import (
    BadRequest,
    CommitUnknown,
    Forbidden,
    LaneDraining,
    NodeRefused,
    NonchalantError,
    NotFound,
    QueueFull,
    ShuttingDown,
    SignerFailed,
    StoreUnavailable,
    TooManyWishes,
    TransactionRemoved,
    UnknownAccount,
    Unreachable,
    WishPending,
)
from nonchalant.service.problems import Busy, status_of

NOT_JSON: Final = -32700
INVALID: Final = -32600
NO_SUCH_METHOD: Final = -32601
BAD_PARAMS: Final = -32602
INTERNAL: Final = -32603
REFUSED: Final = -32000  # what geth says of nearly everything
NOT_FOUND: Final = -32001
UNAVAILABLE: Final = -32002
LIMIT: Final = -32005

# The first class that fits counts; anything else is refused.
_NUMBERS: Final[Mapping[type[NonchalantError], int]] = {
    Forbidden: REFUSED,
    UnknownAccount: REFUSED,
    BadRequest: BAD_PARAMS,
    NotFound: NOT_FOUND,
    QueueFull: LIMIT,
    TooManyWishes: LIMIT,
    Busy: LIMIT,
    LaneDraining: UNAVAILABLE,
    StoreUnavailable: UNAVAILABLE,
    CommitUnknown: UNAVAILABLE,
    ShuttingDown: UNAVAILABLE,
    Unreachable: UNAVAILABLE,
    SignerFailed: UNAVAILABLE,
    WishPending: UNAVAILABLE,
}


class RpcError(NonchalantError):
    """A call that is answered with an error, in words that clients look for."""

    def __init__(self, number: int, message: str, code: str, tx_id: str | None = None) -> None:
        super().__init__(message)
        self.number = number
        self.code = code
        self.tx_id = tx_id


class NoSuchMethod(RpcError):
    """As geth says it: clients that know another way look for these words."""

    def __init__(self, method: str, why: str) -> None:
        super().__init__(
            NO_SUCH_METHOD, f"the method {method} does not exist/is not available: {why}", "method_not_available"
        )


def described(error: NonchalantError) -> dict[str, object]:
    """The error object. What a node refused is told as it told it."""
    if isinstance(error, NodeRefused):
        shown: dict[str, object] = {"code": error.node_code or REFUSED, "message": error.message}
        return shown if error.data is None else shown | {"data": error.data}
    if isinstance(error, RpcError):
        return _error(error.number, str(error), error.code, error.tx_id)
    number = next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), REFUSED)
    tx_id = error.tx_id if isinstance(error, TransactionRemoved) else None
    return _error(number, str(error), error.code, tx_id)


def is_our_own(error: NonchalantError) -> bool:
    """Whether nobody outside can do anything about it: then the log says what, and the caller is not told."""
    told = isinstance(error, RpcError | NodeRefused | SignerFailed)
    return not told and status_of(error) == 500


def internal(*, may_be_repeated: bool = True) -> dict[str, object]:
    return _error(INTERNAL if may_be_repeated else REFUSED, "Something went wrong here; the log says what.", "internal")


def _error(number: int, message: str, code: str, tx_id: str | None = None) -> dict[str, object]:
    data = {"code": code} if tx_id is None else {"code": code, "tx": tx_id}
    return {"code": number, "message": message, "data": data}
