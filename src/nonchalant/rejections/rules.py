"""The words of nodes: which phrases mean which rejection, and which of them is heard first."""

import re
from dataclasses import dataclass

from nonchalant.rejections.kinds import Rejection


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
    return Rule(rejection, reason, phrases, compiled("|".join(phrases)))


def compiled(phrase: str) -> re.Pattern[str]:
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
        # A gateway that serves several chains speaks of where the call went, and not of what was signed.
        r"(chain|network)( id)? ... \b(plan|subscription|tier|api key|project|request path|request url|route)\b",
        r"\b(plan|subscription|tier|api key|project|request path|request url|route)\b ... (chain|network)",
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
