"""The error tree. An exception's docstring is its message and tells the caller what to do next."""

from __future__ import annotations

from collections.abc import Mapping


class NonchalantError(Exception):
    """Something went wrong in Nonchalant."""

    code = "internal"

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or self._sentence())
        self.detail = detail

    @classmethod
    def _sentence(cls) -> str:
        return (cls.__doc__ or cls.__name__).strip().splitlines()[0]


# What a caller did wrong, and can put right.


class BadRequest(NonchalantError):
    """The request cannot be understood; correct the field that is named."""

    code = "bad_request"

    def __init__(self, detail: str = "", field: str | None = None) -> None:
        super().__init__(f"{field}: {detail}" if field else detail)
        self.field = field
        self.bare = detail  # without the field


class TooDeep(BadRequest):
    """The body is nested too deeply; send it flatter."""

    code = "too_deep"


class BatchTooLong(BadRequest):
    """A batch has more transactions than are accepted together; send several batches, each with its own key."""

    code = "batch_too_long"


class UnknownChain(BadRequest):
    """No such chain is configured; add it to [[chains]]."""

    code = "unknown_chain"


class UnknownAccount(BadRequest):
    """No signer for this account is configured on this chain; add it to [[accounts]]."""

    code = "unknown_account"


class FeeAboveCap(BadRequest):
    """The asked price is above the chain's cap; ask for less, or raise the cap in the settings."""

    code = "fee_above_cap"


class Forbidden(BadRequest):
    """This key may not do that; use one that has the scope and the account."""

    code = "forbidden"


class KeyReused(NonchalantError):
    """This idempotency key was used for another request; use a new key for a new request."""

    code = "idempotency_key_reused"


class NonceTaken(NonchalantError):
    """This nonce was asked for by another request; ask which one is next."""

    code = "nonce_taken"


class TransactionRemoved(NonchalantError):
    """This request was executed or ended long ago, and is kept no more; it is not executed again. Use a new key for a new request."""

    code = "transaction_removed"

    def __init__(self, detail: str = "", tx_id: str | None = None) -> None:
        super().__init__(detail)
        self.tx_id = tx_id


class QueueFull(NonchalantError):
    """The lane's queue is full; try again when it has drained."""

    code = "queue_full"


class LaneDraining(NonchalantError):
    """The lane takes no new transactions until it is resumed; use another account."""

    code = "lane_draining"


class TooManyWishes(NonchalantError):
    """The lane has as many open wishes as it may have; try again when its owner has granted some."""

    code = "too_many_wishes"


class TooManyWebhooks(NonchalantError):
    """There are as many webhooks as there may be; remove one first."""

    code = "too_many_webhooks"


class TooLate(NonchalantError):
    """The transaction has gone too far for that; its state says how far."""

    code = "too_late"


class MayHaveRun(NonchalantError):
    """It is not yet known whether the transaction ran: the store lost commits, and is being compared with the chain."""

    code = "may_have_run"


class TooManyReplacements(NonchalantError):
    """The transaction was replaced as often as it may be; cancel it, and send a new one."""

    code = "too_many_replacements"


class WishRefused(NonchalantError):
    """The lane's owner refused; the reason says why, and nothing was changed."""

    code = "refused"

    def __init__(self, reason: str, why: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__(reason)
        self.code = self.why = why  # the reason's own code
        self.data = data or {}  # what else the owner told


class WishPending(NonchalantError):
    """No node that owns the lane has answered yet; ask again."""

    code = "no_answer_yet"


class NotFound(NonchalantError):
    """There is nothing under this name."""

    code = "not_found"


class BadSettings(NonchalantError):
    """The settings cannot be used; correct the key that is named."""

    code = "bad_settings"


class ShuttingDown(NonchalantError):
    """This node is stopping; send the request again, to another node or after the restart."""

    code = "shutting_down"


# What the engine answers by itself.


class IllegalMove(NonchalantError):
    """The lifecycle has no such move; nothing was changed."""


class LeaseLost(NonchalantError):
    """Another node holds this lane now; drop your work and lease again."""


class DeliveryLost(NonchalantError):
    """Another node delivers for this webhook now; drop your work."""


class RowMoved(NonchalantError):
    """A row was changed by someone else meanwhile; nothing was committed, read it again."""


class Unstorable(ValueError):
    """The store cannot keep one of these values, and no retry makes it: whoever gave it has to know. Nothing was written."""


class HookFailed(NonchalantError):
    """The attention hook gave no usable answer, which counts as waiting; mend the function."""


class HookRefused(NonchalantError):
    """What the attention hook wants is against the rules; it is not done."""


class Poisoned(NonchalantError):
    """Handling this one raised what nobody expected; start the lane anew, and leave it aside if it does so again."""

    def __init__(self, subject: str, cause: Exception) -> None:
        super().__init__(f"{subject}: {type(cause).__name__}: {cause}")
        self.subject = subject  # a transaction's id, or what stands for something that is nobody's
        self.cause = cause


class StoreUnavailable(NonchalantError):
    """The store did not answer; nothing was read or written, try again."""

    code = "store_unavailable"


class Unreadable(StoreUnavailable):
    """The row cannot be read, now or later; restore it."""


class CommitUnknown(NonchalantError):
    """The store did not say whether it committed; take the lease anew before reading the lane."""

    code = "store_unavailable"


class Unreachable(NonchalantError):
    """The endpoint did not answer in time or not in a way that can be understood; ask again, or another one."""

    code = "chain_unreachable"


class NodeRefused(NonchalantError):
    """The node answered with an error."""

    def __init__(self, message: str, code: int | None = None, data: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.node_code = code
        self.data = data


class SignerFailed(NonchalantError):
    """The signer gave no usable signature; the lane waits until it does."""

    code = "signer_failed"


class Unencodable(NonchalantError):
    """This payload cannot be encoded for the chain; the transaction can never be sent."""

    code = "unencodable"
