"""One scenario: an anvil mined by hand, fault proxies before it, and a node of ours that can be restarted or killed.

Transactions go by their idempotency key: each pays one wei to an address of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eth_account import Account
from eth_account.datastructures import SignedTransaction
from eth_utils import to_checksum_address

from nonchalant.app import Handle, Nonchalant, Wrap
from nonchalant.follow import Follower
from nonchalant.model import Attempt, Fees, Transaction
from nonchalant.ports import Signer
from nonchalant.testing import FaultProxy
from nonchalant.wishes import Release, Reserve, Use
from nonchalant.words import TERMINAL_STATES, AttemptKind, LaneKey, State, TxId
from tests import anvil
from tests.anvil import Anvil
from tests.e2e import ledger
from tests.e2e.rig import payment, settings, until
from tests.e2e.scenarios import books
from tests.e2e.scenarios.haste import Ahead, in_haste

GWEI = 10**9
ETHER = 10**18
ALICE, BOB = anvil.ADDRESSES[:2]
BIDDER = anvil.ADDRESSES[4]  # no account of ours
TRANSFER = {"value": "0x1", "gas": "0x5208"}
# In anvil, what pays more goes into a block first: this much wins against what we offer.
DEAR = 500 * GWEI

# Seconds until a deadline that a scenario means to pass: far off for what comes before it, however busy the machine.
SOON = 60.0
# A lease that outlasts a clock moved so far: whoever passes a deadline should not lose its lanes on the way.
LONG_LEASE = 300


class Fickle:
    """A signer that can fail, and can sign for somebody else."""

    in_process = False

    def __init__(self, signer: Signer) -> None:
        self.address = signer.address
        self.signer = signer

    async def sign(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        return await self.signer.sign(digests)


class Scene:
    def __init__(self, chain: Anvil, folder: Path) -> None:
        self.chain = chain
        self.folder = folder
        self.clock = Ahead()
        self.proxies: list[FaultProxy] = []
        self.signers: dict[str, Fickle] = {}
        self._ids: dict[str, TxId] = {}
        self._holders: dict[int, str] = {}
        self._options: dict[str, object] = {}
        self._node: Nonchalant | None = None
        self._work = AsyncExitStack()  # of the running node
        self._exit = AsyncExitStack()  # of the proxies

    # parts

    @property
    def node(self) -> Nonchalant:
        assert self._node is not None
        return self._node

    @property
    def proxy(self) -> FaultProxy:
        return self.proxies[0]

    @property
    def follower(self) -> Follower:
        return self.node.engine.followers[anvil.CHAIN_ID]

    @property
    def store(self) -> Path:
        return self.folder / "nonchalant.db"

    async def start(self, *, endpoints: int = 1, **options: object) -> None:
        """A node on this many endpoints, each a proxy of its own; `options` are settings."""
        while len(self.proxies) < endpoints:
            self.proxies.append(await self._exit.enter_async_context(FaultProxy(self.chain.url)))
        self._options = {"accounts": 1, "timeout": 0.5, **options}
        await self._open()

    async def _open(self) -> None:
        made = settings(self.folder, *(proxy.url for proxy in self.proxies), **self._options)
        self._node = await self._work.enter_async_context(Nonchalant.open(made, wrap=Wrap(signer=self._fickle)))

    def _fickle(self, signer: Signer) -> Signer:
        self.signers[signer.address] = Fickle(signer)
        return self.signers[signer.address]

    async def stop(self) -> None:
        """Politely: it finishes what is under way and lets its lanes go."""
        await self._work.aclose()
        self._node = None

    async def kill(self) -> None:
        """Nothing more is written or handed over; its leases run out at once, as if their time had passed."""
        engine = self.node.engine
        tasks = [*engine._workers.values(), *engine._services]
        for desk in list(engine.desks.values()):
            tasks += [outlet.task for outlet in desk.outlets.values() if outlet.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        engine.cluster.leases.clear()  # so that it cannot let them go
        await self.stop()
        self.alter("UPDATE leases SET expires_at = 0")

    async def restart(self, **options: object) -> None:
        await self.stop()
        self._options |= options
        await self._open()

    async def come_back(self, **options: object) -> None:
        """After `kill` or `stop`."""
        self._options |= options
        await self._open()

    async def close(self) -> None:
        await self._work.aclose()
        await self._exit.aclose()

    def alter(self, statement: str, *values: object) -> None:
        """Change the store's file behind everybody's back."""
        with closing(sqlite3.connect(self.store, timeout=10)) as connection, connection:
            connection.execute(statement, values)

    def ask(self, query: str, *values: object) -> list[Any]:
        """Rows of the store's file, read past our own code."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True, timeout=10)) as connection:
            return connection.execute(query, values).fetchall()

    # asking

    async def pay(self, *keys: str, account: int = 0, **more: object) -> None:
        """Accepted in this order."""
        for key in keys:
            handle = await self.node.send(**payment(key, account, **more))
            self._ids[key] = handle.id

    async def send(self, key: str, **fields: object) -> None:
        """Anything else than a payment."""
        asked = {"chain_id": anvil.CHAIN_ID, "sender": ALICE, "idempotency_key": key, **fields}
        self._ids[key] = (await self.node.send(**asked)).id

    def id(self, key: str) -> TxId:
        return self._ids[key]

    @property
    def lane(self) -> LaneKey:
        """Alice's."""
        return LaneKey(anvil.CHAIN_ID, ALICE)

    async def handle(self, key: str) -> Handle:
        return await self.node.transaction(self._ids[key])

    async def cancel(self, *keys: str) -> None:
        for key in keys:
            await (await self.handle(key)).cancel()

    async def replace(self, key: str, by: str, **payload: Any) -> None:
        """Let it pay somebody else."""
        await (await self.handle(key)).replace(**{"to": ledger.recipient(by), "value": 1, **payload})

    async def bump(self, key: str, fees: Fees | str | None = None) -> None:
        await (await self.handle(key)).bump(fees)

    async def cancelling(self, *keys: str) -> None:
        """Until a node has taken what cancels them."""

        async def taken() -> bool:
            tried = [await self.attempts(key) for key in keys]
            cancels = [{one.hash for one in each if one.kind is AttemptKind.CANCEL} for each in tried]
            held = {each.hash for proxy in self.proxies for each in proxy.sent if each.taken}
            return all(hashes & held for hashes in cancels)

        await self.until(taken, f"what cancels {keys} is taken")

    # nonces for others

    async def reserve(self, seconds: float = 60.0) -> int:
        """A nonce of Alice's for somebody who signs by himself, and who outlives our node."""
        holder = f"holder {len(self._holders)}"
        act = Reserve(holder, round(seconds * 1000))
        nonce = int(str((await self.node.asking.of_lane(self.lane, act)).data["nonce"]))
        self._holders[nonce] = holder
        return nonce

    async def used(self, nonce: int, signed: SignedTransaction, *, with_bytes: bool = True) -> None:
        raw = bytes(signed.raw_transaction) if with_bytes else None
        act = Use(nonce, self._holders[nonce], "0x" + bytes(signed.hash).hex(), raw)
        await self.node.asking.of_lane(self.lane, act)

    async def release(self, nonce: int) -> None:
        await self.node.asking.of_lane(self.lane, Release(nonce, self._holders[nonce]))

    def sign(self, nonce: int, key: str, price: int = 20 * GWEI) -> SignedTransaction:
        """What a wallet with Alice's key makes: one wei for `key`."""
        wanted = {"to": to_checksum_address(ledger.recipient(key)), "value": 1, "gas": 21_000, "nonce": nonce}
        prices = {"maxFeePerGas": price, "maxPriorityFeePerGas": GWEI}
        return Account.from_key(anvil.KEYS[0]).sign_transaction({"chainId": anvil.CHAIN_ID, **wanted, **prices})

    async def all_final(self, below: int) -> None:
        """Mine until every nonce below is final here."""

        def there() -> bool:
            return self.ask("SELECT settled_below FROM lanes WHERE address = ?", ALICE) >= [(below,)]

        await self.until(there, f"{below} nonces final", tick=self.tick)

    # time

    def soon(self) -> datetime:
        """A deadline that nothing comes near, until it is passed."""
        return datetime.fromtimestamp(self.clock.now() / 1000 + SOON, UTC)

    def pass_by(self, deadline: datetime) -> None:
        """The next moment that anybody looks at the clock is after it."""
        self.clock.ahead += max(0, round(deadline.timestamp() * 1000) - self.clock.now()) + 1

    # what the store says

    async def tx(self, key: str) -> Transaction:
        found = await self.node.store.transaction(self._ids[key])
        assert found is not None
        return found

    async def txs(self, keys: Sequence[str]) -> list[Transaction]:
        return [await self.tx(key) for key in keys]

    async def nonces(self, *keys: str) -> list[int | None]:
        return [tx.nonce for tx in await self.txs(keys)]

    async def attempts(self, key: str) -> Sequence[Attempt]:
        return (await self.node.store.attempts([self._ids[key]]))[self._ids[key]]

    async def raw(self, key: str, number: int = -1) -> str:
        return "0x" + (await self.attempts(key))[number].raw.hex()

    async def history(self, key: str) -> list[str]:
        return [event.kind for event in await self.node.store.history(self._ids[key])]

    async def lane_mark(self, account: int = 0) -> str | None:
        summaries = await self.node.store.lanes()
        [mark] = [one.record.attention for one in summaries if one.record.key.address == anvil.ADDRESSES[account]]
        return mark and mark.code

    # waiting

    async def until(
        self,
        condition: Callable[[], Any],
        what: str | Callable[[], str],
        *,
        tick: Callable[[], Awaitable[object]] | None = None,
        seconds: float = 90,
    ) -> None:
        await until(condition, what, tick=tick, seconds=seconds, every=0.02)

    async def become(
        self, *states: State, keys: Sequence[str] = (), tick: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """Until all of these (by default everything asked for) are in one of the states."""
        wanted = list(keys or self._ids)
        seen: list[Transaction] = []

        async def there() -> bool:
            seen[:] = await self.txs(wanted)
            return all(tx.state in states for tx in seen)

        await self.until(there, lambda: f"{states}: {[(tx.state, tx.attention) for tx in seen]}", tick=tick)

    async def sent(self, *keys: str) -> None:
        await self.become(State.SENT, keys=keys)

    async def mined(self, *keys: str) -> None:
        """One block, which the node sees with them in it."""
        await self.chain.mine()
        await self.become(State.MINED, State.CONFIRMED, keys=keys)

    async def seen(self) -> None:
        """Until the node has linked the chain's newest block."""
        block = await self.chain.rpc("eth_getBlockByNumber", "latest", False)

        def linked() -> bool:
            return self.follower.started and self.follower.head.top.hash == block["hash"]

        await self.until(linked, f"block {int(block['number'], 16)} seen")

    async def mine(self, blocks: int = 1) -> None:
        await self.chain.mine(blocks)
        await self.seen()

    async def settle(self, *keys: str) -> None:
        """Mine until these (by default everything) have ended."""
        await self.become(*TERMINAL_STATES, keys=keys, tick=self.tick)

    async def tick(self) -> None:
        """A block, and the node's time to act on it."""
        await self.chain.mine()
        await asyncio.sleep(0.05)

    async def marked(self, key: str, code: str, *, tick: Callable[[], Awaitable[object]] | None = None) -> str:
        """Until it is marked so; the reason."""
        mark = None

        async def there() -> bool:
            nonlocal mark
            mark = (await self.tx(key)).attention
            return mark is not None and mark.code == code

        await self.until(there, lambda: f"{key} marked {code}, not {mark}", tick=tick)
        assert mark is not None
        return mark.reason

    # the chain's side

    async def count(self, address: str = ALICE, tag: str = "latest") -> int:
        return int(await self.chain.rpc("eth_getTransactionCount", address, tag), 16)

    async def paid(self, *keys: str) -> list[int]:
        """How many wei arrived where each of these goes."""
        return [int(await self.chain.rpc("eth_getBalance", ledger.recipient(key), "latest"), 16) for key in keys]

    async def pool(self, address: str = ALICE) -> list[int]:
        """The nonces that the chain's node holds of an account."""
        content = await self.chain.rpc("txpool_content")
        parts = [
            part for kind in ("pending", "queued") for owner, part in content[kind].items() if owner.lower() == address
        ]
        return sorted(int(nonce) for part in parts for nonce in part)

    async def pools(self, count: int) -> bool:
        """Whether the chain's node holds the first so many."""
        return await self.pool() == list(range(count))

    async def intrude(self, name: str = "theirs", *, nonce: int | None = None, price: int = DEAR) -> str:
        """Somebody else with Alice's key pays `name`; the hash."""
        more = {} if nonce is None else {"nonce": hex(nonce)}
        return await self.chain.send_as(
            ALICE,
            to=ledger.recipient(name),
            **TRANSFER,
            **more,
            maxFeePerGas=hex(price),
            maxPriorityFeePerGas=hex(GWEI),
        )

    async def authorise(self, nonce: int, code: str = "0x" + "00" * 20) -> None:
        """Alice's key signed an authorisation (EIP-7702) for the code there, and somebody's transaction carries it in
        the next block. The zero address takes delegated code away."""
        signed = Account.from_key(anvil.KEYS[0]).sign_authorization(
            {"chainId": anvil.CHAIN_ID, "address": code, "nonce": nonce}
        )
        bidder = Account.from_key(anvil.KEYS[4])
        raw = bidder.sign_transaction(
            {
                "chainId": anvil.CHAIN_ID,
                "nonce": await self.count(BIDDER),
                "to": to_checksum_address(BOB),
                "value": 0,
                "gas": 200_000,
                "maxFeePerGas": DEAR,
                "maxPriorityFeePerGas": GWEI,
                "authorizationList": [signed],
            }
        ).raw_transaction
        await self.chain.rpc("eth_sendRawTransaction", "0x" + raw.hex())
        await self.chain.mine()

    async def crowd(self) -> None:
        """A block that has room for one, and somebody pays more than we do: ours stays in the pool."""
        await self.chain.rpc("evm_setBlockGasLimit", TRANSFER["gas"])
        bid = {"maxFeePerGas": hex(DEAR), "maxPriorityFeePerGas": hex(DEAR // 2)}
        await self.chain.send_as(BIDDER, to=BOB, **TRANSFER, **bid)
        await self.chain.set_next_base_fee(GWEI)
        await self.mine()

    async def disperse(self) -> None:
        """Blocks have room again."""
        await self.chain.rpc("evm_setBlockGasLimit", hex(30_000_000))

    async def base_fee(self, wei: int, blocks: int = 1) -> None:
        """So many blocks with this base fee."""
        for _ in range(blocks):
            await self.chain.set_next_base_fee(wei)
            await (self.mine() if self._node else self.chain.mine())

    async def audit(
        self, *, foreign: Sequence[str] = (), left_over: bool = False, **others: Sequence[str]
    ) -> books.Audit:
        """All that was asked for is confirmed, but for `others`: `failed=["a"]`, `held=["b"]`."""
        await self.stop()
        expected = dict.fromkeys(self._ids, "confirmed") | {
            key: state for state, keys in others.items() for key in keys
        }
        return await books.audit(self.chain, self.store, expected, foreign=foreign, left_over=left_over)

    async def audit_as_told(self, *, foreign: Collection[str] = ()) -> Counter[str]:
        """Whatever ends they came to are the chain's; how often each came. `foreign` may have been lost."""
        await self.stop()
        states = books.Books.of(self.store).states
        executed = {deed.hash for deed in await books.read_chain(self.chain)}
        await books.audit(self.chain, self.store, states, foreign=executed.intersection(foreign))
        return Counter(states.values())


@asynccontextmanager
async def opened(folder: Path, slots_in_an_epoch: int = 1) -> AsyncIterator[Scene]:
    """A scene on an anvil of its own, that calls final what is twice `slots_in_an_epoch` below its head."""
    async with anvil.running(slots_in_an_epoch=slots_in_an_epoch) as chain:
        scene = Scene(chain, folder)
        try:
            with in_haste(scene.clock):
                yield scene
        finally:
            await scene.close()
