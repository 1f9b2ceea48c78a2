"""How calls of web3.py are answered. Nothing is done here: each answer is a generator that asks its driver, step by step,
for a call to the user's own node or to the service, so that the blocking and the asynchronous web3.py share it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nonchalant.client import AttemptView, Client, ServiceUnreachable, TransactionView
from nonchalant.errors import BadRequest, NonchalantError, NotFound, ShuttingDown, StoreUnavailable, TooLate
from nonchalant.system import SystemClock
from nonchalant.web3.calls import ask_of
from nonchalant.words import LIVE_STATES, AttemptKind

# A transaction that has no nonce by then is called off, and the caller told that nothing was sent: a caller who gives up
# by itself would not know.
SECONDS_TO_SIGN: Final = 20.0
ONE_LOOK: Final = 5.0

# Hashes that are remembered, ours and others'.
MOST_REMEMBERED: Final = 10_000

# What an attempt is for that carries the user's payload.
CARRIES_PAYLOAD: Final = frozenset({AttemptKind.ORIGINAL, AttemptKind.BUMP, AttemptKind.REPLACEMENT})

NO_BLOOM: Final = "0x" + "00" * 256

Response = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AskNode:
    method: str
    params: Any


AskService = Callable[[Client], Coroutine[Any, Any, Any]]
Step = AskNode | AskService
Answer = Generator[Step, Any, Response]


class NotSent(NonchalantError):
    """Nothing was sent, and nothing will be: send it again, with a new idempotency key if it had one."""

    code = "not_sent"


@dataclass(slots=True)
class Answers:
    """What is known of the chain, of accounts and of hashes."""

    seconds_to_sign: float = SECONDS_TO_SIGN
    chain_id: int | None = None
    managed: set[str] = field(default_factory=set)
    ids: dict[str, str | None] = field(default_factory=dict)  # of the transaction with this hash; None: not ours

    def to(self, method: str, params: Any) -> Answer | None:
        """None: the call is none of ours."""
        match method:
            case "eth_sendTransaction":
                return self._send(method, params)
            case "eth_getTransactionReceipt":
                return self._receipt(method, params)
            case "eth_getTransactionByHash":
                return self._transaction(method, params)
            case _:
                return None

    # sending

    def _send(self, method: str, params: Any) -> Answer:
        call = params[0]
        chain_id = yield from self._chain()
        sender = str(call.get("from", "")).lower()
        if not (yield from self._is_managed(chain_id, sender)):
            response: Response = yield AskNode(method, params)
            return response
        key = call.get("nonchalantIdempotencyKey")
        ask = ask_of(call, chain_id)
        tx: TransactionView = yield lambda client: client.send(**ask, idempotency_key=key)
        tx = yield lambda client: with_a_hash(client, tx, self.seconds_to_sign)
        if tx.attempts:
            first = tx.attempts[0].hash
            self._remember(first, tx.id)
            return _result(first)
        if tx.state == "failed":
            return _error(f"{tx.failure or 'it cannot be sent'} (transaction {tx.id} failed, and was not sent)")
        raise NotSent(f"transaction {tx.id} was {tx.state} before it had a nonce; nothing was sent, nothing will be")

    def _chain(self) -> Generator[Step, Any, int]:
        if self.chain_id is None:
            response: Response = yield AskNode("eth_chainId", [])
            if "result" not in response:
                raise NotSent("the node does not say which chain this is; nothing was sent")
            self.chain_id = int(response["result"], 16)
        return self.chain_id

    def _is_managed(self, chain_id: int, sender: str) -> Generator[Step, Any, bool]:
        """What the service does not have is not remembered: it may get it."""
        if sender in self.managed:
            return True
        if not sender:
            return False
        if (yield lambda client: has_lane(client, chain_id, sender)):
            self.managed.add(sender)
            return True
        return False

    # looking

    def _receipt(self, method: str, params: Any) -> Answer:
        response: Response = yield AskNode(method, params)
        asked = params[0]
        if response.get("result") is not None and (tx_id := self.ids.get(asked)) is not None:
            yield lambda client: seen_mined(client, tx_id)
        tx = yield from self._ours(asked, response)
        if tx is None:
            return response
        for attempt in reversed(tx.attempts):
            if attempt.kind in CARRIES_PAYLOAD and attempt.hash != asked:
                other: Response = yield AskNode(method, [attempt.hash])
                if other.get("result") is not None:
                    yield lambda client: seen_mined(client, tx.id)
                    return _result(renamed(other["result"], asked, "transactionHash"))
        if tx.state in LIVE_STATES:
            return response
        ran = None if tx.outcome is None else tx.outcome.hash
        if ran is None or tx.outcome is None or tx.outcome.ran == "payload":  # the node is behind
            instead: Response = {}
        else:
            instead = yield AskNode(method, [ran])
        if instead.get("result") is not None:
            return _result(as_never_run(renamed(instead["result"], asked, "transactionHash"), tx.state))
        if ran is not None:
            return response
        return _error(
            f"transaction {tx.id} ended as {tx.state}{f': {tx.failure}' if tx.failure else ''}; no block has it"
        )

    def _transaction(self, method: str, params: Any) -> Answer:
        response: Response = yield AskNode(method, params)
        asked = params[0]
        tx = yield from self._ours(asked, response)
        if tx is None:
            return response
        meant = next(attempt for attempt in tx.attempts if attempt.hash == asked)
        for attempt in reversed(tx.attempts):
            if attempt.payload_version == meant.payload_version and attempt.hash != asked:
                other: Response = yield AskNode(method, [attempt.hash])
                if other.get("result") is not None:
                    return _result(renamed(other["result"], asked, "hash"))
        return _result(as_asked(tx, meant))

    def _ours(self, asked: object, response: Response) -> Generator[Step, Any, TransactionView | None]:
        """The transaction that one's own node does not know by this hash. None: there is none, or the node knows it."""
        if response.get("result") is not None or "error" in response or not isinstance(asked, str):
            return None
        if asked not in self.ids:
            found: TransactionView | None = yield lambda client: by_hash(client, asked)
            # A hash is on disk before any node has the bytes: what the service does not know now, it never will.
            self._remember(asked, None if found is None else found.id)
            return found
        tx_id = self.ids[asked]
        if tx_id is None:
            return None
        tx: TransactionView = yield lambda client: client.get(tx_id)
        return tx

    def _remember(self, hash: str, tx_id: str | None) -> None:
        self.ids[hash] = tx_id
        if len(self.ids) > MOST_REMEMBERED:
            del self.ids[next(iter(self.ids))]


# --- what is asked of the service ---


async def has_lane(client: Client, chain_id: int, address: str) -> bool:
    try:
        await client.lane(chain_id, address).show()
    except NotFound:
        return False
    return True


async def by_hash(client: Client, hash: str) -> TransactionView | None:
    try:
        return await anext(client.transactions(hash=hash), None)
    except BadRequest:  # it is no hash; the node said what it thinks of it
        return None


async def seen_mined(client: Client, tx_id: str) -> None:
    """Until the service has seen the block too, or for a few seconds: gas is estimated on the newest block that it knows,
    and what is sent next may rest on this one."""
    clock = SystemClock()
    deadline = clock.monotonic() + ONE_LOOK
    tx = await client.get(tx_id)
    while tx.receipt is None and tx.state in LIVE_STATES and (left := deadline - clock.monotonic()) > 0:
        tx = await client.get(tx_id, wait=left, after=tx.version)


async def with_a_hash(client: Client, tx: TransactionView, seconds: float) -> TransactionView:
    """The transaction once it is signed, or as it ended without. `ServiceUnreachable` if nobody says: it is accepted, so
    whoever sends it again must name its key."""
    try:
        return await _signed(client, tx, seconds)
    except (ServiceUnreachable, StoreUnavailable, ShuttingDown) as away:
        key = tx.idempotency_key
        raise ServiceUnreachable(
            f"transaction {tx.id} was accepted, and may be sent, but the service does not say what became of it ({away}); "
            f"repeat it with nonchalantIdempotencyKey={key!r}, and nothing is sent twice",
            heard=True,
            idempotency_key=key,
        ) from None


async def _signed(client: Client, tx: TransactionView, seconds: float) -> TransactionView:
    """One that stays queued is called off in the end."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    is_off = False
    while not tx.attempts and tx.state in LIVE_STATES:
        left = deadline - clock.monotonic()
        if left > 0 or is_off:
            tx = await client.get(tx, wait=min(ONE_LOOK, max(left, 1.0)), after=tx.version)
            continue
        # Held first: that is refused once it has a nonce, where a cancel would begin a race that nobody asked for.
        is_off = True
        try:
            tx = await client.cancel(await client.hold(tx, "not signed in time; whoever sent it was told so"))
        except TooLate:
            tx = await client.get(tx)
    return tx


# --- what is answered ---


def renamed(found: Mapping[str, Any], asked: str, name: str) -> Response:
    """What a node told of another attempt, under the hash that the caller knows; the real one beside it."""
    told = {**found, name: asked, "nonchalantHash": found[name]}
    if "logs" in told:
        told["logs"] = [{**log, "transactionHash": asked} for log in told["logs"]]
    return told


def as_never_run(receipt: Response, state: str) -> Response:
    """The receipt of what took the nonce, for one that will not run."""
    return {
        **receipt,
        "status": "0x0",
        "logs": [],
        "logsBloom": NO_BLOOM,
        "contractAddress": None,
        "nonchalantState": str(state),
    }


def as_asked(tx: TransactionView, meant: AttemptView) -> Response:
    """The payload that was asked for, as one that waits for its block."""
    payload = tx if meant.payload_version == tx.payload_version else tx.earlier[meant.payload_version - 1]
    fees = meant.fees
    prices = (
        {"type": "0x0", "gasPrice": hex(int(fees.gas_price))}
        if fees.gas_price is not None
        else {
            "type": "0x2",
            "maxFeePerGas": hex(int(fees.max_fee_per_gas or 0)),
            "maxPriorityFeePerGas": hex(int(fees.max_priority_fee_per_gas or 0)),
            "gasPrice": hex(int(fees.max_fee_per_gas or 0)),
        }
    )
    return {
        "hash": meant.hash,
        "nonce": hex(meant.nonce),
        "chainId": hex(tx.chain_id),
        "from": tx.sender.lower(),
        "to": None if payload.to is None else payload.to.lower(),
        "value": hex(int(payload.value)),
        "input": payload.data,
        "gas": hex(meant.gas),
        **prices,
        "blockHash": None,
        "blockNumber": None,
        "transactionIndex": None,
        "nonchalantState": str(tx.state),
    }


def _result(result: object) -> Response:
    return {"jsonrpc": "2.0", "id": 0, "result": result}


def _error(message: str) -> Response:
    return {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": message}}
