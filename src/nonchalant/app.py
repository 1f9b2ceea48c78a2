"""The application: a running node, put together from the parts that its settings name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain as in_turn
from os import PathLike

from nonchalant import config, logs, windows
from nonchalant.asking import OWNER_SECONDS, Asking
from nonchalant.bodies import fee_fields
from nonchalant.chain.evm.endpoints import EvmChain
from nonchalant.config import AccountSettings, Settings
from nonchalant.courier import Kit
from nonchalant.couriers import Couriers
from nonchalant.engine import Engine
from nonchalant.errors import NonchalantError, NotFound
from nonchalant.fees import FeeRules
from nonchalant.intake import Intake
from nonchalant.keyring import Keyring
from nonchalant.lane_views import LiveLane
from nonchalant.leaving import Leaving
from nonchalant.model import Fees, Request, Transaction
from nonchalant.notify import Doorbells
from nonchalant.observing.observatory import Observatory
from nonchalant.parts import (
    adviser_of,
    endpoints_of,
    engine_rules,
    has_wake_ups,
    kind_of,
    open_store,
    quotes_of,
    signers_of,
    tracing_of,
    wakes_of,
)
from nonchalant.passage import Passage
from nonchalant.ports import Clock, Endpoint, Entropy, LaneSummary, Signer, Standing, Store
from nonchalant.postman import Postman
from nonchalant.steering import LaneHandle
from nonchalant.store.postgres import PostgresStore
from nonchalant.stream import Stream
from nonchalant.system import SystemClock, SystemEntropy
from nonchalant.values import replace
from nonchalant.waiting_for import MOST_COUNTED, Situation, why
from nonchalant.webhook_desk import WebhookDesk
from nonchalant.wire import (
    parse_bump,
    parse_lane,
    parse_reason,
    parse_release,
    parse_replacement,
    parse_request,
    rules_of,
)
from nonchalant.words import HELD_MARK, LaneKey, Millis, OnSuperseded, Speed, TxId

# How long each step of a shut-down may take; with the calls that are answered first, all of them less than the half
# minute after which orchestrators kill. The engine's has room for a lane that hangs, and for handing the others over.
INTAKE_SECONDS = 3.0
ENGINE_SECONDS = 10.0
WEBHOOKS_SECONDS = 1.0
CONNECTIONS_SECONDS = 1.0
STORE_SECONDS = 3.0

# Blocks above a mined transaction that are named; where finality is deeper, the first ones.
MOST_ABOVE = 1_000

# How long a waiting caller goes without looking for itself: another node may have made the change.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wrap:
    """What a test puts around the ports of a real node: crashes, delays, counters."""

    store: Callable[[Store], Store] = field(default=lambda store: store)
    endpoint: Callable[[Endpoint], Endpoint] = field(default=lambda endpoint: endpoint)
    signer: Callable[[Signer], Signer] = field(default=lambda signer: signer)


class Nonchalant:
    """A running node: the library's front, and what the service talks to."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store,
        engine: Engine,
        observatory: Observatory,
        intake: Intake,
        asking: Asking,
        passage: Passage,
        keyring: Keyring,
        bells: Doorbells,
        stream: Stream,
        webhooks: WebhookDesk,
        accounts: Mapping[LaneKey, AccountSettings],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.settings = settings
        self.store = store
        self.engine = engine
        self.observatory = observatory
        self.known_lanes = accounts
        self.asking = asking
        self.stream = stream
        self.passage = passage
        self.keyring = keyring
        self.webhooks = webhooks
        self._intake = intake
        self._bells = bells
        self._clock = clock
        self._entropy = entropy

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: str | PathLike[str] | Settings | None = None, *, wrap: Wrap | None = None
    ) -> AsyncIterator[Nonchalant]:
        """A node that works until the block ends; then it finishes what is under way and hands its lanes over."""
        if not isinstance(settings, Settings):
            settings = config.load_settings(settings)
        logs.hand_over()
        wrap = wrap or Wrap()
        clock, entropy = SystemClock(), SystemEntropy()
        tracing = tracing_of(settings)
        observatory = Observatory(clock, lease_seconds=settings.lease_seconds, tracing=tracing)
        keys = signers_of(settings)
        accounts = {lane: account for lane, (_, account) in keys.items()}
        adviser = adviser_of(settings, accounts)
        quotes = {chain.id: quotes_of(chain, clock) for chain in settings.chains}
        endpoints = {chain.id: endpoints_of(chain, quotes[chain.id]) for chain in settings.chains}
        chains = {
            chain.id: EvmChain(
                chain.id,
                [observatory.endpoint(chain.id, wrap.endpoint(one)) for one in endpoints[chain.id]],
                charges_for_data=chain.charges_for_data,
            )
            for chain in settings.chains
        }
        kept = await open_store(settings, clock, entropy)
        store = observatory.store(wrap.store(kept))
        bells, stream = Doorbells(), Stream(store)
        signers = {lane: observatory.signer(wrap.signer(signer)) for lane, (signer, _) in keys.items()}
        engine = Engine(
            store=store,
            chains=chains,
            signers=signers,
            rules=engine_rules(settings, accounts, has_wake_ups=has_wake_ups(kept)),
            clock=clock,
            entropy=entropy,
            sinks=(bells, stream),
            adviser=adviser,
            meter=observatory,
        )
        if isinstance(kept, PostgresStore) and kept.wakes is not None:
            kept.wakes.hear, kept.wakes.hear_free = engine.hear, engine.hear_free
        # Past what a test puts around the store: webhooks are no part of what becomes of a transaction.
        kit = Kit(
            owner=engine.cluster.owner,
            store=observatory.webhook_store(kept),
            stream=stream,
            make_post=partial(Postman, settings.webhook_targets),
            clock=clock,
            entropy=entropy,
        )
        couriers = Couriers(kit, ttl=settings.lease_seconds)
        limits = {lane: account.queue_limit for lane, account in accounts.items()}
        intake = Intake(store, clock, limits=limits, arrived=engine.feed, offer=engine.offer)
        observatory.look_at(engine, intake, webhooks=couriers.backlogs, store_kind=kind_of(kept), wakes=wakes_of(kept))
        node = cls(
            settings,
            store=store,
            engine=engine,
            observatory=observatory,
            intake=intake,
            asking=Asking(store, clock, entropy, arrived=engine.poke),
            passage=Passage(engine.followers, signers),
            keyring=Keyring(store, entropy),
            bells=bells,
            stream=stream,
            webhooks=WebhookDesk(
                store=kept,
                clock=clock,
                entropy=entropy,
                targets=settings.webhook_targets,
                make_post=kit.make_post,
                changed=couriers.poke,
            ),
            accounts=accounts,
            clock=clock,
            entropy=entropy,
        )
        try:
            await engine.start()
            couriers.start()
            yield node
        finally:
            leaving = Leaving(clock)
            webhooks = asyncio.ensure_future(couriers.stop())  # beside the others: receivers take their time
            await leaving.step("intake", intake.close(), seconds=INTAKE_SECONDS)
            await leaving.step("engine", engine.stop(), seconds=ENGINE_SECONDS)
            await leaving.step("webhooks", webhooks, seconds=WEBHOOKS_SECONDS)
            closing = [one.close() for one in in_turn.from_iterable(endpoints.values())]
            closing += [one.close() for one in quotes.values() if one is not None]
            if tracing is not None:
                closing.append(tracing.close())
            await leaving.step("connections", asyncio.gather(*closing), seconds=CONNECTIONS_SECONDS)
            await leaving.step("store", store.close(), seconds=STORE_SECONDS)
            leaving.over()

    # for those who embed it

    async def send(
        self,
        *,
        chain_id: int,
        sender: str,
        to: str | None = None,
        value: int | str = 0,
        data: bytes | str = b"",
        gas: int | None = None,
        access_list: Iterable[Mapping[str, object]] = (),
        fees: Speed | Fees | str | None = None,
        priority: int = 5,
        valid_until: datetime | int | str | None = None,
        confirmations: int | None = None,
        on_superseded: OnSuperseded | str | None = None,
        simulate: bool = False,
        abi: Iterable[Mapping[str, object]] | None = None,
        metadata: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
    ) -> Handle:
        """Accept a transaction, durably. The same idempotency key and request again give the same transaction."""
        fields: dict[str, object] = {
            "chain_id": chain_id,
            "from": sender,
            "to": to,
            "value": value,
            "data": data,
            "gas": gas,
            "access_list": list(access_list),
            "fees": fee_fields(fees),
            "priority": priority,
            "valid_until": valid_until.isoformat() if isinstance(valid_until, datetime) else valid_until,
            "confirmations": confirmations,
            "on_superseded": on_superseded,
            "simulate": simulate,
            "abi": None if abi is None else list(abi),
            "metadata": metadata,
        }
        request = parse_request(
            fields,
            tx_id=self.new_id(),
            settings=self.settings,
            lanes=self.known_lanes,
            idempotency_key=idempotency_key,
        )
        tx, _ = await self.submit(request)
        return Handle(self, tx)

    async def transaction(self, tx_id: TxId) -> Handle:
        """A transaction accepted earlier, by this process or another; `NotFound` if there is none."""
        tx = await self.store.transaction(tx_id)
        if tx is None:
            raise NotFound(f"there is no transaction {tx_id}")
        return Handle(self, tx)

    def lane(self, chain_id: int, address: str) -> LaneHandle:
        """One of the accounts in the settings, on one chain: to steer it, or to reserve its nonces."""
        key = parse_lane(str(chain_id), address)
        rules_of(key, self.settings, self.known_lanes)
        return LaneHandle(key, asking=self.asking, store=self.store, entropy=self._entropy)

    # for the service

    def new_id(self) -> TxId:
        """Ids are made before the commit, so that a commit of unknown outcome can be repeated; they sort by time."""
        return f"tx_{self._clock.now():012x}{self._entropy.token()[:20]}"

    def now(self) -> Millis:
        return self._clock.now()

    async def submit(self, request: Request) -> tuple[Transaction, bool]:
        began, since = self._clock.monotonic(), self._clock.now()
        tx, is_new = await self._intake.submit(request)
        self.observatory.submitted([tx] if is_new else [], since, self._clock.monotonic() - began)
        return tx, is_new

    async def submit_together(self, requests: Sequence[Request]) -> tuple[Sequence[Transaction], bool]:
        began, since = self._clock.monotonic(), self._clock.now()
        transactions, are_new = await self._intake.submit_together(requests)
        self.observatory.submitted(transactions if are_new else [], since, self._clock.monotonic() - began)
        return transactions, are_new

    async def wait_for_change(self, tx_id: TxId, seconds: float = LOOK_SECONDS) -> None:
        """Return when something happened to the transaction, or after so long."""
        bell = self._bells.hang(tx_id)
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            pass
        finally:
            self._bells.take_down(tx_id, bell)

    async def live_lane(self, lane: LaneSummary) -> LiveLane:
        key, learnt = lane.record.key, lane.record.window
        account = self.known_lanes[key]
        follower = self.engine.followers[key.chain_id]
        limit, mode = account.window, account.mode
        desk = self.engine.desks.get(key)
        view = LiveLane(
            window=windows.effective(limit, mode, delegated=False, learnt=learnt),
            window_limit=limit,
            mode=mode,
            shared=account.shared,
        )
        if desk is not None:
            view = replace(
                view,
                in_flight=len(desk.lane.open_slots()),
                committed=desk.lane.committed(),
                reserve=desk.purse().reserve,
            )
        try:
            top = follower.head.top
            seen = await follower.ask(lambda endpoint: endpoint.account(key.address, top))
        except NonchalantError:
            return view
        return replace(
            view,
            window=windows.effective(limit, mode, delegated=seen.delegated, learnt=learnt),
            delegated=seen.delegated,
            balance=seen.balance,
            head=top.number,
        )

    async def situations(self, transactions: Sequence[Transaction]) -> Mapping[TxId, Situation]:
        """What is around each of those that are live, as far as this node knows."""
        live = [tx for tx in transactions if tx.live]
        standings = await self.store.standings(live, limit=MOST_COUNTED)
        lanes = {key: await self.store.lane(key) for key in {tx.lane for tx in live}}
        return {tx.id: self._situation(tx, standings.get(tx.id), lanes[tx.lane]) for tx in live}

    def _situation(self, tx: Transaction, standing: Standing | None, lane: LaneSummary | None) -> Situation:
        around = Situation(standing=standing)
        if lane is not None:
            around = replace(around, control=lane.control, record=lane.record)
        account, follower = self.known_lanes.get(tx.lane), self.engine.followers.get(tx.lane.chain_id)
        if account is None or follower is None:
            return replace(around, configured=False)
        can_decide = follower.started and not follower.is_behind
        around = replace(around, trouble=follower.trouble, silent=follower.hears_nobody or not can_decide)
        if can_decide:
            around = replace(around, final=follower.head.final)
            if tx.receipt is not None and follower.head.has(tx.receipt.block):
                around = replace(around, above=follower.head.above(tx.receipt.block, MOST_ABOVE))
        desk = self.engine.desks.get(tx.lane)
        if desk is None:
            return around
        sending = desk.sendings.get(tx.hash or "")
        return replace(
            around,
            window=desk.window,
            in_flight=len(desk.lane.open_slots()),
            said={} if sending is None else sending.said,
        )

    async def trouble(self) -> str | None:
        """Why this node can take no requests; None: it can. A silent chain is no reason: what is accepted waits."""
        return await self.observatory.trouble()


class Handle:
    """One transaction, for life: whatever nonces, prices and hashes it goes through."""

    def __init__(self, node: Nonchalant, tx: Transaction) -> None:
        self.id = tx.id
        self.transaction = tx  # as last seen
        self._node = node

    async def refresh(self) -> Transaction:
        tx = await self._node.store.transaction(self.id)
        if tx is None:
            raise NotFound(f"there is no transaction {self.id}")
        self.transaction = tx
        return tx

    async def settled(self, timeout: float | None = None) -> Transaction:  # noqa: ASYNC109 - a plain name for callers
        """The outcome, once it is final; `TimeoutError` if it is not by then. It never raises for what the chain did."""
        async with asyncio.timeout(timeout):
            while (await self.refresh()).live:
                await self._node.wait_for_change(self.id)
        return self.transaction

    async def why(self) -> str | None:
        """Why it is where it is, in one sentence; None once it has ended."""
        tx = await self.refresh()
        attempts = await self._node.store.attempts([tx.id])
        around = await self._node.situations([tx])
        return why(tx, attempts.get(tx.id, ()), around.get(tx.id, Situation()))

    # What is wanted of it now. Where the lane's owner must agree, its refusal raises `WishRefused`; if it does not
    # answer within seconds the wish stands, and what came of it shows later.

    async def cancel(self) -> Transaction:
        """It will not run, if that can still be helped; the outcome tells."""
        return self._seen(await self._node.asking.cancel(self.id, patience=OWNER_SECONDS))

    async def bump(self, fees: Speed | Fees | str | None = None) -> Transaction:
        """Offer more for it: so much, or what the market asks."""
        offer = parse_bump({"fees": fee_fields(fees)}, self._rules())
        return self._seen(await self._node.asking.bump(self.id, offer, patience=OWNER_SECONDS))

    async def replace(
        self,
        *,
        to: str | None = None,
        value: int | str = 0,
        data: bytes | str = b"",
        gas: int | None = None,
        access_list: Iterable[Mapping[str, object]] = (),
        abi: Iterable[Mapping[str, object]] | None = None,
        fees: Speed | Fees | str | None = None,
    ) -> Transaction:
        """Let something else run in its place, under its id; nothing of the old payload is kept."""
        fields = {
            "to": to,
            "value": value,
            "data": data,
            "gas": gas,
            "access_list": list(access_list),
            "abi": None if abi is None else list(abi),
            "fees": fee_fields(fees),
        }
        payload, offer = parse_replacement(fields, self._rules())
        return self._seen(await self._node.asking.replace(self.id, payload, offer, patience=OWNER_SECONDS))

    async def hold(self, reason: str = "") -> Transaction:
        """Keep it queued until it is released; `TooLate` once it has a nonce."""
        return self._seen(await self._node.asking.hold(self.id, parse_reason({"reason": reason})))

    async def release(self, mark: str = HELD_MARK) -> Transaction:
        """Let it go on, at the place it had. What somebody else than a person holds goes only if its `mark` is named:
        it may have run already."""
        return self._seen(await self._node.asking.release(self.id, parse_release({"mark": mark})))

    def _seen(self, tx: Transaction) -> Transaction:
        self.transaction = tx
        return tx

    def _rules(self) -> FeeRules:
        return rules_of(self.transaction.lane, self._node.settings, self._node.known_lanes)

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self.transaction.state}>"
