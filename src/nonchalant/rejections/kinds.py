"""The classes of answers, and what each proves about the bytes and asks for."""

import enum
from typing import Self


class Fate(enum.Enum):
    """What an answer proves about the bytes that were sent. Only BYTES_REFUSED can ever help to free a slot."""

    ACCEPTED = "the node has these bytes"
    POSSIBLY_SENT = "nothing is proved: these bytes, or an earlier attempt at the slot, may be in a pool or in a block"
    REFUSED = "this node did not take these bytes now; it, or another one, may take them later"
    BYTES_REFUSED = "the node refused the bytes for what they are, whatever the state of chain, account or pool"


class Remedy(enum.Enum):
    """What is done about it, and what whoever runs this node can do. Re-sending the same bytes is always harmless."""

    WATCH = "It is watched for in blocks; there is nothing to do."
    LOOK_UP = "It may have been executed and is looked for by its hash; there is nothing to do."
    RESEND = "It is sent again and again, to every endpoint; if that lasts, look at the endpoints."
    RESEND_LOWEST = (
        "What is before it is sent again first; if that lasts, look for an endpoint that drops transactions."
    )
    BUMP = "It gets a better price in time; to hurry, bump it, or raise the cap (`max_fee_per_gas`) if it is at that."
    LOWER_FEE = "The endpoint has a cap of its own on what may be paid: raise that, or use another endpoint."
    WAIT_FUNDS = "Fund the account; it is sent again until it is taken."
    WAIT_TURN = "It goes once the account's transactions of the other kind have left the pool; there is nothing to do."
    SHRINK_WINDOW = "Fewer are sent at once from now on; if that lasts, lower the account's `window`."
    FIX_PAYLOAD = "Sending it again cannot help: replace it, or cancel it."
    SPLIT = "It is sent again; if that lasts, the endpoint's limit on one call is too low: use another one."
    OTHER_ENDPOINT = "This endpoint cannot do what is asked of it: use another one."
    OPERATOR = "The node does not let this account send: ask whoever runs the node, or use another endpoint."


class Rejection(enum.Enum):
    """One class of answer; `value` is its name everywhere, `fate` and `remedy` are what it means for the slot."""

    _value_: str
    fate: Fate
    remedy: Remedy

    def __new__(cls, value: str, fate: Fate, remedy: Remedy) -> Self:
        member = object.__new__(cls)
        member._value_ = value
        member.fate = fate
        member.remedy = remedy
        return member

    # The pool has it; whether it stays there is another question, so it is looked up and watched.
    ALREADY_KNOWN = "already_known", Fate.ACCEPTED, Remedy.LOOK_UP
    # The node took it and gave up waiting for the receipt, not for the transaction.
    ACCEPTED_WAIT_TIMEOUT = "accepted_wait_timeout", Fate.ACCEPTED, Remedy.WATCH

    # Not understood. A gateway may have passed the bytes on before it failed.
    INTERNAL_UNKNOWN = "internal_unknown", Fate.POSSIBLY_SENT, Remedy.RESEND
    # For retrying, never a verdict: behind a gateway one of several nodes may have taken it.
    RATE_LIMITED = "rate_limited", Fate.POSSIBLY_SENT, Remedy.RESEND
    SERVICE_UNAVAILABLE = "service_unavailable", Fate.POSSIBLY_SENT, Remedy.RESEND
    # Something consumed the nonce, and it may have been these very bytes or an earlier attempt.
    NONCE_TOO_LOW = "nonce_too_low", Fate.POSSIBLY_SENT, Remedy.LOOK_UP
    # Automining nodes execute first and report the revert as an error: the nonce may be spent.
    EXECUTION_REVERTED = "execution_reverted", Fate.POSSIBLY_SENT, Remedy.LOOK_UP
    # "Response too large" comes after the batch was executed, and its sends with it.
    QUERY_TOO_LARGE = "query_too_large", Fate.POSSIBLY_SENT, Remedy.SPLIT
    # The node lacks a block; what it did with the bytes before it noticed is its secret.
    MISSING_STATE = "missing_state", Fate.POSSIBLY_SENT, Remedy.OTHER_ENDPOINT

    # Price, nonce, funds, pool: true of one node at one moment. The same bytes may be in another pool already.
    REPLACEMENT_UNDERPRICED = "replacement_underpriced", Fate.REFUSED, Remedy.BUMP
    UNDERPRICED = "underpriced", Fate.REFUSED, Remedy.BUMP
    FEE_CAP_TOO_LOW = "fee_cap_too_low", Fate.REFUSED, Remedy.BUMP
    # The endpoint's own guard against overpaying; the chain has no such rule.
    FEE_CAP_EXCEEDED = "fee_cap_exceeded", Fate.REFUSED, Remedy.LOWER_FEE
    NONCE_TOO_HIGH = "nonce_too_high", Fate.REFUSED, Remedy.RESEND_LOWEST
    INSUFFICIENT_FUNDS = "insufficient_funds", Fate.REFUSED, Remedy.WAIT_FUNDS
    TX_POOL_FULL = "tx_pool_full", Fate.REFUSED, Remedy.RESEND
    ACCOUNT_LIMIT_EXCEEDED = "account_limit_exceeded", Fate.REFUSED, Remedy.SHRINK_WINDOW
    IN_FLIGHT_LIMIT_DELEGATED = "in_flight_limit_delegated", Fate.REFUSED, Remedy.SHRINK_WINDOW
    # The pool keeps blob and other transactions of one account apart: the other kind must be consumed first.
    TX_TYPE_CONFLICT = "tx_type_conflict", Fate.REFUSED, Remedy.WAIT_TURN
    # Permission: lists and plugins differ between endpoints and change.
    SENDER_NOT_PERMITTED = "sender_not_permitted", Fate.REFUSED, Remedy.OPERATOR
    # An RPC setting of the node; the same bytes are valid in a block.
    EIP155_REQUIRED = "eip155_required", Fate.REFUSED, Remedy.FIX_PAYLOAD
    # The call was not served, so the bytes were not looked at.
    METHOD_NOT_FOUND = "method_not_found", Fate.REFUSED, Remedy.OTHER_ENDPOINT
    # The block's limit moves.
    GAS_LIMIT_EXCEEDS_BLOCK = "gas_limit_exceeds_block", Fate.REFUSED, Remedy.FIX_PAYLOAD
    # Could never be valid, but it is an answer about price, and those prove nothing.
    TIP_ABOVE_FEE_CAP = "tip_above_fee_cap", Fate.REFUSED, Remedy.BUMP
    # Mixes faulty bytes with the blob price and with a sidecar that this node did not get.
    BLOB_RELATED = "blob_related", Fate.REFUSED, Remedy.FIX_PAYLOAD
    # Mixes faulty bytes with a garbled call and with conditions on the state.
    INVALID_REQUEST = "invalid_request", Fate.REFUSED, Remedy.FIX_PAYLOAD
    # The prover of this chain cannot carry it, as far as this node knows.
    TERMINALLY_STUCK = "terminally_stuck", Fate.REFUSED, Remedy.FIX_PAYLOAD

    # The bytes themselves, judged without any state: signature, chain id, type, size, intrinsic gas.
    INVALID_SIGNATURE_OR_CHAIN_ID = "invalid_signature_or_chain_id", Fate.BYTES_REFUSED, Remedy.FIX_PAYLOAD
    UNSUPPORTED_TX_TYPE = "unsupported_tx_type", Fate.BYTES_REFUSED, Remedy.FIX_PAYLOAD
    OVERSIZED_DATA = "oversized_data", Fate.BYTES_REFUSED, Remedy.FIX_PAYLOAD
    INTRINSIC_GAS_TOO_LOW = "intrinsic_gas_too_low", Fate.BYTES_REFUSED, Remedy.FIX_PAYLOAD
