"""A storm: everything that scenarios do one at a time, chosen at random from a seed, and the same exact audit.

    python -m tests.e2e.scenarios.storm --seed 7

Not byte for byte the same again, since real time passes; but the same actions in the same order.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from eth_account.datastructures import SignedTransaction

from nonchalant.errors import NonchalantError
from nonchalant.model import Transaction
from nonchalant.testing import FaultProxy
from nonchalant.testing.faults import SEND, Switch
from nonchalant.testing.rules import AccountLimit, NoGaps, ReplacementStep
from nonchalant.wishes import Fill, Sync
from nonchalant.words import TERMINAL_STATES, Mode
from tests.anvil import NodeError
from tests.e2e.scenarios.scene import GWEI, Scene, opened

ACCOUNTS = 4
FINALITY = 6  # blocks; what is deeper never leaves the chain
LONGEST_FAULT = 12  # actions after which a fault is over

Act = Callable[[], Awaitable[object]]

FAULTS: dict[str, Callable[[FaultProxy], Switch]] = {
    "time-out before acceptance": lambda proxy: proxy.timeout_before_acceptance(),
    "time-out after acceptance": lambda proxy: proxy.timeout_after_acceptance(),
    "late delivery": lambda proxy: proxy.late_delivery(answered=False),
    "swallowed": lambda proxy: proxy.swallow(),
    "429": lambda proxy: proxy.status(429),
    "502 after delivery": lambda proxy: proxy.status(502, delivered=True, method=SEND),
    "garbage": lambda proxy: proxy.garbage(),
    "reset": lambda proxy: proxy.reset(),
    "silence": lambda proxy: proxy.hang(),
    "lag": lambda proxy: proxy.lag(2),
    "no finality": lambda proxy: proxy.finality_missing(),
    "full pool": lambda proxy: proxy.refuse(SEND, "txpool is full"),
    "account limit": lambda proxy: proxy.enforce(AccountLimit(2)),
    "no gaps": lambda proxy: proxy.enforce(NoGaps()),
}


@dataclass(frozen=True, slots=True)
class Figures:
    transactions: int
    acts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        done = ", ".join(f"{name} {times}" for name, times in sorted(self.acts.items()))
        ends = ", ".join(f"{state} {times}" for state, times in sorted(self.ends.items()))
        return f"{self.transactions} transactions: {ends}; {done}"


class Storm:
    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.keys: list[str] = []
        self.acts: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._faults: list[tuple[int, Switch]] = []  # and the act before which each is over
        self._foreign: list[str] = []  # signed with Alice's key, and not told to us
        self._named: list[int] = []  # nonces whose holders named a hash, and kept the bytes to themselves
        self._unsigned: set[str] = set()  # sent by anvil itself in her name
        self._odds: dict[Act, float] = {
            self.pay: 30,
            self.mine: 14,
            self.reorg: 5,
            self.fault: 6,
            self.cancel: 5,
            self.replace: 3,
            self.bump: 2,
            self.hold: 1,
            self.hurry: 3,
            self.reserve: 2,
            self.pause: 1,
            self.sync: 1,
            self.forget: 2,
            self.spike: 1,
            self.restart: 0.6,
            self.kill: 0.6,
            self.intrude: 0.2,
        }

    async def rage(self, transactions: int) -> Figures:
        scene = self.scene
        await scene.start(endpoints=2, accounts=ACCOUNTS, window=6, timeout=0.3)
        for proxy in scene.proxies:
            proxy.enforce(ReplacementStep())
        await scene.mine(FINALITY)
        while len(self.keys) < transactions:
            self._end_faults()
            [act] = self._chance.choices(list(self._odds), list(self._odds.values()))
            # What comes too late, or is refused, is part of the storm.
            with suppress(NonchalantError):
                await act()
                self.acts[act.__name__] += 1
        await self._calm()
        ends = await scene.audit_as_told(foreign=[*self._foreign, *self._unsigned])
        return Figures(transactions, self.acts, ends)

    async def _calm(self) -> None:
        """Everything heals, what is late arrives, what is held goes; then all of it must end."""
        scene = self.scene
        for proxy in scene.proxies:
            proxy.heal()
            await proxy.release()
        await scene.chain.set_next_base_fee(GWEI)
        await scene.node.asking.control(scene.lane, Mode.OPEN)
        await scene.tick()
        for nonce in self._named:
            # A pool or a reorg may have forgotten them, and only a person can know that they never come.
            with suppress(NonchalantError):
                await scene.node.asking.of_lane(scene.lane, Fill(nonce))

        live: list[Transaction] = []

        async def ended() -> bool:
            live[:] = [tx for tx in await scene.txs(self.keys) if tx.state not in TERMINAL_STATES]
            for tx in live:
                if tx.held and tx.attention is not None:
                    await scene.node.asking.release(tx.id, tx.attention.code)
            return not live

        await scene.until(ended, lambda: f"everything ends: {live}", tick=scene.tick, seconds=120)
        open_slots = (
            "SELECT (SELECT count(*) FROM slots WHERE settled = 0) + (SELECT count(quarantined_below) FROM lanes)"
        )
        await scene.until(lambda: scene.ask(open_slots) == [(0,)], "every nonce is final", tick=scene.tick, seconds=120)

    # what happens

    async def pay(self) -> None:
        key = f"s{len(self.keys)}"
        await self.scene.pay(key, account=len(self.keys) % ACCOUNTS)
        self.keys.append(key)

    async def mine(self) -> None:
        await self.scene.tick()

    async def reorg(self) -> None:
        """Any depth above finality, with some of what the blocks had executed."""
        depth = self._chance.randint(1, FINALITY - 1)
        kept: list[tuple[object, int]] = []
        height = await self.scene.chain.height()
        for number in range(height - depth + 1, height + 1):
            block = await self.scene.chain.rpc("eth_getBlockByNumber", hex(number), False)
            for hash in block["transactions"]:
                # What was signed for by nobody, anvil cannot put in again.
                if self._chance.random() < 0.5 and hash not in self._unsigned:
                    raw = await self.scene.chain.rpc("eth_getRawTransactionByHash", hash)
                    kept.append((raw, number - (height - depth + 1)))
                else:
                    break  # what follows it may be the same account's, and could not run
            else:
                continue
            break
        await self.scene.chain.reorg(depth, kept)

    async def fault(self) -> None:
        name = self._chance.choice(list(FAULTS))
        proxy = self._chance.choice(self.scene.proxies)
        self._faults.append((self.acts.total() + self._chance.randint(1, LONGEST_FAULT), FAULTS[name](proxy)))
        self.acts[f"fault: {name}"] += 1

    def _end_faults(self) -> None:
        for until, fault in self._faults:
            if until <= self.acts.total():
                fault.off()
        self._faults = [(until, fault) for until, fault in self._faults if until > self.acts.total()]

    async def cancel(self) -> None:
        await self.scene.node.asking.cancel(self._one())

    async def replace(self) -> None:
        key = self._chance.choice(self.keys or [""])
        if key:
            await self.scene.replace(key, by=f"{key} instead {self.acts.total()}")

    async def bump(self) -> None:
        await self.scene.node.asking.bump(self._one())

    async def hold(self) -> None:
        await self.scene.node.asking.hold(self._one())

    def _one(self) -> str:
        return self.scene.id(self._chance.choice(self.keys)) if self.keys else "nobody"

    async def hurry(self) -> None:
        """A payment that must be made soon, or not at all."""
        key = f"s{len(self.keys)}"
        until = datetime.now(UTC) + timedelta(seconds=self._chance.uniform(0.05, 2))
        await self.scene.pay(key, account=len(self.keys) % ACCOUNTS, valid_until=until)
        self.keys.append(key)

    async def reserve(self) -> None:
        """Somebody wants a nonce of Alice's, and uses it, gives it back, sends without a word, or forgets it."""
        nonce = await self.scene.reserve(self._chance.uniform(0.3, 1.5))
        signed = self.scene.sign(nonce, f"outside {self.acts.total()}")
        match self._chance.choice(["uses", "names", "releases", "sends", "forgets"]):
            case "uses":
                await self.scene.used(nonce, signed)
            case "names":
                await self.scene.used(nonce, signed, with_bytes=False)
                self._named.append(nonce)
                await self._send(signed)
            case "releases":
                await self.scene.release(nonce)
            case "sends":
                await self._send(signed)

    async def _send(self, signed: SignedTransaction) -> None:
        self._foreign.append("0x" + bytes(signed.hash).hex())
        with suppress(NodeError):  # a filler may have been quicker
            await self.scene.chain.rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex())

    async def pause(self) -> None:
        """Until the next time, or until the storm is over."""
        mode = self._chance.choice([Mode.OPEN, Mode.PAUSED, Mode.DRAINING])
        await self.scene.node.asking.control(self.scene.lane, mode)

    async def sync(self) -> None:
        await self.scene.node.asking.of_lane(self.scene.lane, Sync())

    async def forget(self) -> None:
        await self.scene.chain.drop_all()

    async def spike(self) -> None:
        await self.scene.chain.set_next_base_fee(self._chance.randint(2, 40) * GWEI)
        await self.scene.tick()

    async def restart(self) -> None:
        await self.scene.restart()

    async def kill(self) -> None:
        await self.scene.kill()
        await self.scene.come_back()

    async def intrude(self) -> None:
        """Somebody else with Alice's key uses her next nonce."""
        nonce = await self.scene.count()
        self._unsigned.add(await self.scene.intrude(f"theirs{self.acts.total()}", nonce=nonce))
        await self.scene.tick()


async def rage(folder: Path, seed: int, transactions: int) -> Figures:
    folder.mkdir(parents=True, exist_ok=True)
    async with opened(folder, FINALITY // 2) as scene:
        return await Storm(scene, seed).rage(transactions)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.scenarios.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--transactions", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="storm-", ignore_cleanup_errors=True) as folder:
        print(asyncio.run(rage(Path(folder), options.seed, options.transactions)))


if __name__ == "__main__":
    main()
