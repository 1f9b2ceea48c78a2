"""What a node meant when it did not say yes.

Error codes collide between clients and every client has its own words, so a rejection is recognised by what its words
say: rules in order, the most specific first, each with its reason. Nothing here decides what to do with a
transaction; it says what the answer proves about the bytes (`Fate`) and what helps (`Remedy`).
"""

import enum
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
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


@dataclass(frozen=True, slots=True)
class Rule:
    """Any of its phrases, found anywhere in a normalised answer, means this rejection.

    A phrase is a regular expression in which a space stands for up to three characters that are not letters or digits
    (so "nonce too low" is also NonceTooLow and NONCE_TOO_LOW), "<3>" for up to three words, " .. " for the rest of a
    clause, and " ... " for that of a sentence. All of them are bounded, so that no answer is slow to read.
    """

    rejection: Rejection
    reason: str
    phrases: tuple[str, ...]
    pattern: re.Pattern[str]


_WORDS = re.compile(r"<(\d)>")


def _rule(rejection: Rejection, reason: str, *phrases: str) -> Rule:
    return Rule(rejection, reason, phrases, _compiled("|".join(phrases)))


def _compiled(phrase: str) -> re.Pattern[str]:
    spaced = phrase.replace(" ... ", r"[^{}\n]{0,90}?").replace(" .. ", r"[^{}\n:=]{0,90}?").replace(" ", r"\W{0,3}")
    return re.compile(_WORDS.sub(r"(?:\\w{1,30}\\W{1,3}){0,\1}?", spaced), re.MULTILINE)


# Words for one thought. Phrases are built of them, so that a client nobody has met yet is understood by its meaning.
_OVER = r"(?:\b(?:exceed\w*|greater|higher|above|over\b|more than|larger|beyond|bigger)|>)"
_UNDER = r"(?:\b(?:less|lower|below|under|smaller|too low|too small|insufficient|not enough)|<)"
_NOT = r"(?:not|isnt|arent|doesnt|does not|cannot|cant|could not|unable to|failed to|un)"
_BAD = r"(?:invalid|wrong|bad|incorrect|mismatch\w*|malformed|unknown|unexpected|unsupported)"
_IS = r"(?:is |was |are |has |have |had |been |already |be ){0,3}"
_POOL = r"(?:(?:tx|mem|sub|message|pending)?\W?pool|mpool|queue)"
_PRICE = r"(?:gas ?price|fee cap|gas fee|max fee per gas|priority fee|fee per gas|tip|fees?|price)"
_NONCE = r"(?:nonce|sequence(?: number)?|\bseq\b)"
_WHOSE = r"(?:account|sender|address|signer|actor|wallet|user)"
_LARGE = r"(?:too (?:large|big|long|wide|high|many)|exceed\w*|over\w*|greater than|larger than|limit\w*)"
# A node's word counts as its own only where nobody else has begun to speak.
_QUOTING = r"revert|vm exception|paymaster|failed to include|fork error|upstream|balance to cover|invalid rlp"
_OWN_WORD = rf"\A(?:(?!{_QUOTING})[\s\S])*?"

# In order; the first rule that finds itself in the answer decides. What would refuse the bytes themselves is said
# narrowly: a false hit there could free a slot, while a miss is only unknown.
RULES: tuple[Rule, ...] = (
    # 1. Answers that quote somebody else after them: the first to quote decides, not what is quoted.
    _rule(
        Rejection.INTERNAL_UNKNOWN,
        "A forking node quotes the node it forks from; what that one said is no verdict on our bytes.",
        _OWN_WORD + r"fork error\b",
    ),
    _rule(
        Rejection.SERVICE_UNAVAILABLE,
        "A relay quotes the service behind it, which could have failed for any reason.",
        _OWN_WORD + r"upstream (failure|error|request)",
    ),
    _rule(
        Rejection.INSUFFICIENT_FUNDS,
        "Account abstraction: the fee could not be taken, and the account's own words follow.",
        _OWN_WORD + r"balance to cover",
    ),
    _rule(
        Rejection.INTRINSIC_GAS_TOO_LOW,
        "Account abstraction: a 'validation revert' is the chain's check of gas, not the called contract's.",
        _OWN_WORD + r"validation revert ... not enough gas",
        _OWN_WORD + r"validation revert ... failed to pay",
    ),
    _rule(
        Rejection.UNDERPRICED,
        "As above, for the price of gas and of publishing data.",
        _OWN_WORD + r"validation revert.*(price too high|unacceptable gas price)",
    ),
    _rule(
        Rejection.INVALID_REQUEST,
        "What cannot be decoded is quoted, or the decoder's complaint about it.",
        _OWN_WORD + r"invalid rlp",
    ),
    # 2. Reverts before all else, so that the reason a contract chose cannot imitate any class below.
    _rule(
        Rejection.EXECUTION_REVERTED,
        "The code ran and failed; whatever follows are the contract's words.",
        r"\brevert|(vm|evm) (exception|execution error|error)|paymaster validation",
        r"failed to include tx in the system",
    ),
    # 3. Gateways: their limits speak of "exceeded", "size" and "limit" like the rules about transactions.
    _rule(
        Rejection.RATE_LIMITED,
        "Too many calls, whoever made them.",
        r"rate limit|rate exceeded|too many <1>(requests|calls|connections)",
        r"(http|status|code|error|^) (code )?429\b|(requests?|calls?) (per|/) (second|sec|minute|day)",
        r"/ ?(second|sec) request|compute units?|traffic limit",
        r"request (limit|count) (reached|exceeded)|\b(quota|throttl\w+|rps|slow down)\b",
        r"(usage|credits?|capacity) (limit|exceeded|exhausted)|(daily|monthly|plan) <1>(limit|capacity|quota)",
    ),
    _rule(
        Rejection.SERVICE_UNAVAILABLE,
        "The endpoint did not let us in, so nobody looked at the transaction.",
        r"(http|status|code|error|^) (code )?40[13]\b",
        r"\b(jwt|bearer|api key|(access|auth|invalid) token|project id)\b",
        r"authenticat|(api|request|webhook) signature",
    ),
    _rule(
        Rejection.QUERY_TOO_LARGE,
        "The call asks for too much at once; nothing is said about a transaction.",
        rf"batch <5>{_LARGE}|query exceeds",
        r"max\w* batch|returned more than|max\w* results",
        rf"response size <3>{_LARGE}|response\s(is\s)?(too|exceed)",
        r"too many (blocks|results|logs|topics)",
        rf"range ... {_LARGE}|{_LARGE} ... block\w* range|max\w* (block )?range",
        r"(limited|up) to ... range",
        r"(request|entity|content length|body|payload)\s(entity\s|size\s)?(is\s)?too large",
    ),
    _rule(
        Rejection.METHOD_NOT_FOUND,
        "The endpoint does not serve this call.",
        rf"\bmethod\b[\w\s/]{{0,60}}?\b{_NOT} (be )?(found|exist|available|supported|enabled|implemented|allowed|whitelisted)",
        r"(unsupported|unknown|unavailable|invalid|no such|disabled) (json rpc |rpc )?method|method is disabled",
        r"\beth (send|get|call|estimate|sign)[\w\s]{0,40}\bnot (supported|available|allowed|enabled)",
    ),
    # 4. Accepted, however much it sounds like a failure.
    _rule(
        Rejection.ACCEPTED_WAIT_TIMEOUT,
        "It is in the pool; only the wait for its receipt ended.",
        r"(confirmation|receipt) time(d)? ?out",
        r"(sent|accepted|added|submitted) <4>but <4>(mined|confirm\w*|included|waiting)",
        r"time(d)? ?out (while |when )?waiting for ... (receipt|confirm\w+|mined|included|inclusion)",
        r"not (mined|confirmed|included|in the chain) (within|after|in time)",
    ),
    # 5. One place in the pool for several transactions, before the words for nonce and price that such answers hold.
    _rule(
        Rejection.IN_FLIGHT_LIMIT_DELEGATED,
        "Accounts with delegated code (EIP-7702) may have one transaction in the pool.",
        rf"delegated ({_WHOSE}|code|eoa)",
        r"authority already|delegat\w+ ... (limit|pending|in flight)",
        r"(limit|pending|in flight) <2>delegat|nonce for delegat",
    ),
    _rule(
        Rejection.TX_TYPE_CONFLICT,
        "The pool keeps one kind of transaction for an account at a time.",
        r"address already reserved|\btype ... conflict|conflict\w* <3>type",
        r"replace ... non blob|(not|cannot|cant) mix|(another|a different) type",
        r"(non blob|normal|regular|legacy|other) tx ... replac\w+ ... blob",
    ),
    _rule(
        Rejection.TX_POOL_FULL,
        "No room now: a pool at its size, or a sequencer that sheds load.",
        rf"{_POOL} {_IS}(full|overflow\w*|at capacity|exhausted|at its limit)",
        rf"{_POOL} (size|capacity|limit) (constraint|limit|exceed|reached)",
        rf"limit\w* in {_POOL}|no (space|room|slots?) <3>{_POOL}|too many tx in (the )?{_POOL}",
        r"congest|global cap ... tx|future tx (tries to replace|due to low slots)",
    ),
    _rule(
        Rejection.REPLACEMENT_UNDERPRICED,
        "The pool prefers what it already holds at this nonce.",
        r"(replac|overrid)\w+ ... (underpriced|fee|price|bump|penalty|not allowed|too (low|small))",
        rf"({_PRICE}|underpriced|bump\w*|enough|{_UNDER}) ... (to|for) replac",
        r"replaced by",
        rf"{_NOT} {_IS}(replace|override)",
        r"(another|existing|pending|other) tx ... same nonce|already <2>tx with nonce",
        r"same nonce ... (already|exists|pending|present|in progress)",
        rf"nonce (\d+ )?{_IS}(already )?(pending|occupied|in use|in (the )?{_POOL})",
        r"too low priority|priority is too low|(price|fee) bump",
    ),
    _rule(
        Rejection.ALREADY_KNOWN,
        "These bytes, by their hash.",
        r"already known|\bknown tx|already (has|have) (this|the|that) tx",
        r"(already|previously) (been )?(imported|seen|submitted|pending|broadcast\w*|queued|added|received)",
        rf"already (exists? )?in (the )?({_POOL}|cache|system)",
        r"same hash|\bdup(licate)?d? tx|tx already exist",
    ),
    # 6. Nonces: stated directions first, then "wrong nonce" without one.
    _rule(
        Rejection.NONCE_TOO_LOW,
        "The nonce is consumed, perhaps by an attempt of ours.",
        rf"{_NONCE} <1>{_IS}(too )?(low|old|small|stale|expired)\b",
        rf"\b(old|past|stale|used|expired|minimum expected) {_NONCE}|expected {_NONCE} (\d+ )?or (higher|greater|more)",
        rf"{_NONCE} (\d+ )?(must|should|needs? to|has to) be (at least|larger|greater|higher)",
        rf"{_NONCE} (\d+ |value )?{_IS}(less|lower|below|smaller|behind)\b",
        rf"{_NONCE} (\d+ )?{_IS}(used|consumed|spent|taken|mined|confirmed)",
        rf"(account|state|current|chain) {_NONCE} {_IS}(higher|greater|above|ahead)",
        r"(^|[:=]) mined\b(?! (in|by|yet))",
        r"already (been )?(mined|included|executed|confirmed|processed|finali[sz]ed)",
        r"\bstale\b|tx is (outdated|expired|obsolete)",
    ),
    _rule(
        Rejection.NONCE_TOO_HIGH,
        "The node misses something below, or no nonce is left at all.",
        rf"{_NONCE} <1>{_IS}(too )?(high|large|big|far|distant)\b",
        rf"{_NONCE} (\d+ |value )?{_IS}(higher|greater|above|larger|more|bigger|ahead)\b",
        rf"{_NONCE} (gap|{_IS}max|overflow|has reached max|exceeds|{_NOT} (contiguous|sequential))",
        rf"\b(gapped|future|missing|gap in|too (far|high)) (the )?{_NONCE}",
        rf"with (a )?lower nonce|gap <4>{_NONCE}|nonce must be less than 2",
        r"nonce too far|\bfuture tx|(valid|distant|far) (in the )?future",
    ),
    _rule(
        Rejection.NONCE_TOO_LOW,
        "A wrong nonce without a direction: look it up before anything is assumed.",
        rf"{_BAD} (tx |account )?{_NONCE}",
        rf"{_NONCE} (\d+ )?(is |was )?({_NOT} (match\w*|consistent|valid|correct)|{_BAD})",
    ),
    _rule(
        Rejection.ACCOUNT_LIMIT_EXCEEDED,
        "This account has too much in the pool.",
        r"account limit|\bspammer\b",
        rf"{_WHOSE} ... tx limit|{_WHOSE} <4>limit of \d+ <2>tx",
        r"too many (pending|queued|in flight|enqueued|unconfirmed)",
        rf"too many tx (for|from|by|of|per) ... {_WHOSE}",
        rf"(max\w*|limit|cap|exceed\w*) ... (pending|queued|enqueued|in flight|tx|slots) (tx )?(per|for|from|by|of) <1>{_WHOSE}",
        rf"max\w* (number of )?(pending|queued|enqueued|in flight) tx|tx per {_WHOSE}",
        rf"(per )?{_WHOSE} ... (pending|queued|in flight|slots?) ... (limit|exceed|max)",
    ),
    # 7. Funds before prices and gas: "insufficient funds for gas * price + value" names all three.
    _rule(
        Rejection.TERMINALLY_STUCK,
        "A zero-knowledge prover has room for so much computation, and no block will have more.",
        r"terminally stuck|\bcounters\b|line count ... above the limit",
    ),
    _rule(
        Rejection.INSUFFICIENT_FUNDS,
        "The account cannot pay value and maximum fee.",
        r"(insufficient|not enough|inadequate|lacks?( of)?|have (enough|sufficient)|out of|no) <1>(funds?|balance|ether|eth|money|native tokens?)\b",
        rf"(cost|upfront|required|value) <4>{_OVER} <4>balance",
        r"balance <5>(too low|insufficient|not sufficient|not enough|lower than|less than|below)",
        r"overdraft|gas required exceeds allowance",
        r"(inability|unable|cannot|cant) (to )?(pay|afford|cover)",
    ),
    # 8. Fees, from the narrowest comparison to the widest.
    _rule(
        Rejection.INVALID_REQUEST,
        "A number that does not fit its field is no price at all.",
        r"(higher|greater|more) than 2 ?\^",
        r"(uint|int|uint64|256|payment|gas) ?overflow|overflow payment",
    ),
    _rule(
        Rejection.FEE_CAP_EXCEEDED,
        "The endpoint protects its users from a fat finger.",
        rf"fee ... {_OVER} ... configured cap|(total|tx) fee ... {_OVER} ... cap",
        r"tx fee (cap|limit) exceed",
        rf"{_OVER} ... (rpc|tx|node\w*) (tx )?fee (cap|limit)",
        rf"tx fee ... {_OVER} ... (cap|limit|maximum)",
    ),
    _rule(
        Rejection.UNSUPPORTED_TX_TYPE,
        "The chain does not have this type of transaction.",
        r"tx type[\w\s().]{0,40}?\b(not |un)(supported|enabled|allowed|activated)|tx type <1>is (invalid|unknown)",
        r"(invalid|unsupported|unknown|unrecogni[sz]ed|wrong|not supported) tx type",
        r"(blob|access list|dynamic fee|set code|typed|type \w{1,8}) tx (are |is )?(not (yet )?(supported|allowed|enabled)|disabled)",
        r"(eip ?\d+|access list) (tx )?(is |are )?not (yet )?(supported|enabled|active)|not support (eip ?\d+|typed|blob) tx",
    ),
    _rule(
        Rejection.BLOB_RELATED,
        "Everything about blobs but their place in the pool: their number, proofs, sidecar and price.",
        r"blob|side ?car|\bkzg\b",
    ),
    _rule(
        Rejection.FEE_CAP_TOO_LOW,
        "The most we would pay is below the block's base fee.",
        rf"(gas price|fee cap|max fee) ... {_UNDER} ... base fee",
        r"fee (is )?(less|lower|below|under) ... base fee",
        rf"base fee ... {_OVER} ... {_PRICE}",
        r"miner premium ... negative|invalid base fee|insufficient max fee",
    ),
    _rule(
        Rejection.TIP_ABOVE_FEE_CAP,
        "The tip is part of the fee, so it cannot be more.",
        rf"(priority|tip|premium)( per gas| cap)? ... {_OVER} ... (max fee|fee cap|gas fee)",
        rf"(max fee|fee cap)( per gas)? ... {_UNDER} ... (priority|tip|premium)",
        rf"max fee per gas {_OVER} than ... priority",
    ),
    # 9. Gas, which has a limit, before the price of gas.
    _rule(
        Rejection.INTRINSIC_GAS_TOO_LOW,
        "Less gas than the bytes alone cost.",
        r"intrinsic (gas(?! too high)|cost)|floor (data )?gas|gas floor",
        r"gas cost <1>exceeds (the )?gas limit|(gas limit|tx gas|(^|[:=]) gas) (is )?too (low|small)",
        r"gas limit <3>(below|lower|less|under|insufficient|at least) <4>(min\w*|intrinsic|base|21000)",
        r"enough gas to cover minimal cost",
    ),
    _rule(
        Rejection.GAS_LIMIT_EXCEEDS_BLOCK,
        "More gas than a block, or a transaction, may have.",
        rf"{_OVER} <2>(block|current|max\w*|tx) <3>limit",
        rf"gas (limit )?(\d+ )?{_IS}{_OVER} <4>(block|max\w*|cap|limit)",
        r"gas limit (is )?(too (high|large|big)|reached|(cap )?exceeded)|(hit|over|above) (the )?gas limit",
        r"intrinsic gas too high|gas is beyond limit",
    ),
    _rule(
        Rejection.UNDERPRICED,
        "Less than this node, or this chain, wants to see.",
        r"under ?priced",
        rf"\b{_PRICE} ... (too low|too small|below|{_UNDER} ... min)",
        rf"\b{_PRICE} ... (must be|needs to be|should be) (at least|higher|above|greater)|\b{_PRICE} of at least",
        r"insufficient <1>(fees?|gas price|tip)\b|(invalid|same value as gas) unit price",
    ),
    _rule(
        Rejection.EIP155_REQUIRED,
        "The node wants the chain id in the signature.",
        r"replay protected|unprotected tx|(pre|non) eip ?155|eip ?155 <1>required",
        r"chain id (is )?(required|missing)|missing chain id",
    ),
    _rule(
        Rejection.OVERSIZED_DATA,
        "More bytes than a transaction may have.",
        r"over ?sized (data|tx|calldata)|init ?code ... (size|too|exceed|limit)",
        r"\b(tx|calldata|code)\s?(data\s|size\s)?(is\s)?too\s?(large|big|long)|rlp too long",
        r"mpool message too",
        rf"(tx|call ?data|code) (size|length) ... ({_OVER}|exceed|limit)",
        rf"tx {_OVER} <3>(size|\d+ (kb|kib|bytes))",
        r"too many factory dep",
    ),
    _rule(
        Rejection.SENDER_NOT_PERMITTED,
        "A list, a role or a plugin; or the sender is not an account that can send.",
        r"not (an? )?(eoa|externally)|non account|sender is (a )?contract|senders? <3>(deployed )?code",
        r"(white|black|allow|deny|block) ?list|sanction",
        rf"({_WHOSE}|recipient|code|tx) <1>{_IS}(banned|forbidden|sanctioned|blocked|frozen|restricted)",
        rf"(banned|forbidden|sanctioned|blocked|frozen|restricted|unauthori[sz]ed) <1>({_WHOSE}|recipient)",
        r"(not|un) ?(authori[sz]ed|permitted|allowed|acceptable) (to|by|from)|not permitted|permission denied",
        r"not express lane controller",
    ),
    _rule(
        Rejection.INVALID_SIGNATURE_OR_CHAIN_ID,
        "Signed wrongly, or for another chain.",
        r"(invalid|wrong|bad|incorrect|malformed) (tx )?(signature|sender|signer|fee payer)",
        rf"{_BAD} (tx )?chain id",
        rf"chain ?id[\w\s()]{{0,30}}?\b({_NOT} (match|supported|valid)|is not|{_BAD})",
        r"\bsignature[\w\s]{0,30}?\b(not (match|valid)|invalid|mismatch|wrong|incorrect|error|fail\w*)",
        rf"{_NOT} (extract|recover|resolve|verify) (the |tx )?(signature|sender|signer)",
        r"(sender|signer) ((could not|cannot|cant) be (extracted|recovered|resolved|determined)|recovery)",
        r"\bv r s values|signature s value",
        r"(signed|meant|intended) for (another|a different|the wrong|chain)|tx (is )?not signed",
    ),
    # 10. Words so common that they only count when nothing above was said.
    _rule(
        Rejection.EXECUTION_REVERTED,
        "The machine stopped. It quotes nobody, so it can wait for its turn.",
        r"execution (failed|failure|error)|\bout of gas\b",
        r"(invalid|bad|undefined) <1>(opcode|instruction|jump)|opcode not found|stack (under|over)flow",
        r"always failing tx",
    ),
    _rule(
        Rejection.MISSING_STATE,
        "The node has not, or no longer, the block or state it was asked about.",
        rf"(header|block|state|trie node) <5>(not found|unavailable|{_NOT} <1>(available|exist))",
        r"missing trie node|(could not|cannot|cant) find (the )?(block|header|state)|\bprun(ed|ing)\b",
        r"unknown block|invalid block (range|number|hash|tag)|unfinalized data",
        r"block (is )?out of range",
    ),
    _rule(
        Rejection.SERVICE_UNAVAILABLE,
        "The node, or what is in front of it, cannot serve now; all words for that.",
        r"time(d)? ?out|deadline exceeded|(http|status|code|error|^) (code )?5\d\d\b",
        r"bad gateway|gateway time|unavailable|temporarily",
        r"unreachable|upstream|disconnect|econn|socket hang ?up|connection <1>(refused|reset|closed|error)|no such host|broken pipe|\beof\b",
        r"not (yet )?(in )?(sync|synced|ready|available|accepting tx|connected)\b",
        r"sync\w* ... in progress|\bsyncing\b|(service|pool) not enabled|no onchain controller",
        r"(no|any of the) <1>(nodes?|backends?|servers?|targets?|peers?)\b",
        r"immature records|null value for tx|execution aborted",
        r"overloaded|\bbusy\b|maintenance|shutting down|unhealthy|unauthorized|forbidden",
    ),
    _rule(
        Rejection.INVALID_REQUEST,
        "The call or the transaction could not be read, or says what cannot be.",
        r"\brlp\b|end of json|json input|\b(decod|pars|unmarshal|deseriali[sz])(e|ed|ing|er)?\b",
        r"(invalid|missing|malformed|corrupt|bad) <1>(tx|hex|params?|parameters?|arguments?|input|request|json|message format|field)",
        r"negative value|auth(orization)? (list|tuple)|create contract|too short|both ... specified",
        r"conditions? check failed|non zero and less than",
    ),
    # 11. Nothing was said in words we know: a topic and a direction, wherever they stand. Never about the bytes.
    _rule(
        Rejection.NONCE_TOO_LOW,
        "Before 'too high', because looking it up is safe.",
        rf"{_NONCE}s? .. (\b(low|lower|less|below|small\w*|old|used|consumed|behind|outdated|expired)\b|<)",
    ),
    _rule(
        Rejection.NONCE_TOO_HIGH,
        "As above.",
        rf"{_NONCE}s? .. (\b(high\w*|greater|large\w*|gap|ahead|exceed\w*|beyond|future|max\w*|big\w*|consecutive)\b|>)",
    ),
    _rule(
        Rejection.REPLACEMENT_UNDERPRICED,
        "Two of one nonce, and we are not the one that stays.",
        r"same nonce",
    ),
    _rule(
        Rejection.ALREADY_KNOWN,
        "The same again.",
        rf"\bduplicate\b|is known\b|already (sent|have|got)|{_POOL} already",
    ),
    _rule(
        Rejection.INSUFFICIENT_FUNDS,
        "Not the other way round: 'transfer amount exceeds balance' are a token's words.",
        r"(funds?|balance)\b .. \b(low\w*|insufficient|enough|less|exceed\w*|short|required)\b",
    ),
    _rule(
        Rejection.FEE_CAP_EXCEEDED,
        "A fee, and a cap below it.",
        rf"\bfee\b .. {_OVER} .. \bcap\b",
    ),
    _rule(
        Rejection.UNDERPRICED,
        "A price, and less or least.",
        r"(gas price|fee|tip)\b .. \b(low\w*|below|less|min\w*|small\w*|at least|required)\b|\bcheap",
        r"\b(low\w*|min\w*|insufficient|inadequate) <3>(gas price|fee|tip)\b",
    ),
    _rule(
        Rejection.GAS_LIMIT_EXCEEDS_BLOCK,
        "Gas, and more or most.",
        r"\bgas\b .. \b(too (high|large|big|much)|exceed\w*|above|over|more|max\w*)\b",
        r"(too much|more|max\w*) gas\b",
    ),
    _rule(
        Rejection.ACCOUNT_LIMIT_EXCEEDED,
        "An account, and a limit.",
        rf"{_WHOSE}\b .. \b(limit\w*|max\w*|too many|exceed\w*)\b",
    ),
    _rule(
        Rejection.SENDER_NOT_PERMITTED,
        "An account, and a refusal.",
        rf"{_WHOSE}\b .. \b(den(y|ied)|refused|not (allowed|permitted)|disallowed)\b",
    ),
    _rule(
        Rejection.SERVICE_UNAVAILABLE,
        "Nobody at home.",
        r"\b(is|are) down\b|no response|not respond|(failed|could not|cannot|unable) to (connect|reach)|network (failure|error)",
    ),
    _rule(
        Rejection.RATE_LIMITED,
        "A limit, and not said of what: of calls, in the end.",
        r"\blimit (was |is |has been )?(exceeded|reached)",
    ),
)

# Codes that mean one thing with every client that uses them. They speak only where the words say nothing, and never
# about the bytes.
CODES: dict[int, Rejection] = {
    -38010: Rejection.NONCE_TOO_LOW,
    -38011: Rejection.NONCE_TOO_HIGH,
    -38014: Rejection.INSUFFICIENT_FUNDS,
    -38015: Rejection.GAS_LIMIT_EXCEEDS_BLOCK,
    -38024: Rejection.SENDER_NOT_PERMITTED,
    -32700: Rejection.INVALID_REQUEST,
    -32601: Rejection.METHOD_NOT_FOUND,
    408: Rejection.SERVICE_UNAVAILABLE,
    413: Rejection.QUERY_TOO_LARGE,
    429: Rejection.RATE_LIMITED,
    500: Rejection.SERVICE_UNAVAILABLE,
    502: Rejection.SERVICE_UNAVAILABLE,
    503: Rejection.SERVICE_UNAVAILABLE,
    504: Rejection.SERVICE_UNAVAILABLE,
    4444: Rejection.MISSING_STATE,
}

# An answer is one or two sentences. Of more, the ends are read: a raw transaction quoted in between says nothing.
_END = 3000
_LONGEST = 12_000
_PARTS = 200
# Longer than what a space in a phrase may span, so that no phrase joins two voices.
_PAUSE = "\n\n\n\n"
# Solidity's Error(string) and Panic(uint256): proof that a contract spoke, whatever it said.
_REVERT_DATA = re.compile(r"0x(?:08c379a0|4e487b71)", re.IGNORECASE)
_ESCAPE = re.compile(r"\\{1,8}u([0-9a-fA-F]{4})")
# Long numbers and the addresses of endpoints say nothing, and would push words apart.
_NOT_WORDS = re.compile(r"\b(?:0x[0-9a-f]{8,}|\d{20,}|https?://[^\s\"')]+)", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Erigon says a coarse status and then the reason; the status of one reason is the reason of another.
_STATUS = re.compile(
    r"(?<![a-z] )\b(?:success|already_exists|fee_too_low|stale|invalid|internal_error): ?(?=\w)", re.IGNORECASE
)
_APOSTROPHE = re.compile(r"(?<=[a-z])['’](?=[a-z])")
_NOISE = re.compile(r"(?:\\[nrt]|[\\\"'`_\s])+")
_TX = re.compile(r"\b(?:transactions?|txns?|txs)\b")
_CODE = re.compile(r"\bcode\W{1,4}?(-?\d{1,6})\b")


def classify(message: str, code: int | None = None, data: object = None) -> Rejection:
    """Say what a node's error means; INTERNAL_UNKNOWN, which counts as possibly sent, if it is not understood.

    The words decide, in `message` and in whatever `data` holds; a code only speaks where they say nothing. Never
    raises, whatever it is given.
    """
    text = _PAUSE.join(map(_normalised, _voices(message, data)))
    for rule in RULES:
        if rule.pattern.search(text):
            return rule.rejection
    codes = (code, *map(int, _CODE.findall(text)))
    return next((CODES[c] for c in codes if isinstance(c, int) and c in CODES), Rejection.INTERNAL_UNKNOWN)


def _voices(*said: object) -> Iterator[str]:
    """The texts inside, outermost first, until enough was heard. Keys are not words: `revertReason: null` is silence."""
    waiting = deque(said)
    room = _LONGEST
    for _ in range(_PARTS):
        if not waiting or room <= 0:
            return
        match waiting.popleft():
            case str(text) if len(text) > 2 * _END:
                waiting.extendleft((text[-_END:], text[:_END]))
            case str(text):
                room -= len(text)
                yield text
            case bytes(raw):
                waiting.appendleft(raw[: 2 * _END].decode("utf-8", "replace"))
            case dict(fields):
                waiting.extend(islice(fields.values(), _PARTS))
            case list(parts) | tuple(parts):
                waiting.extend(parts[:_PARTS])
            case _:
                pass  # a number, or nothing


def _normalised(voice: str) -> str:
    """Lower case, words apart, no quotes, no long hexadecimal, and one word for transaction."""
    voice = _REVERT_DATA.sub(" revert data 0x", _ESCAPE.sub(lambda unit: chr(int(unit[1], 16)), voice))
    voice = _CAMEL.sub(" ", _STATUS.sub("", _NOT_WORDS.sub(" ", voice))).lower()
    return _TX.sub("tx", _NOISE.sub(" ", _APOSTROPHE.sub("", voice)))
