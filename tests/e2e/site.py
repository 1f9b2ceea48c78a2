"""A node in this process on an anvil that is mined by hand: nothing happens that the test did not ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nonchalant.app import Handle, Nonchalant
from nonchalant.model import Attention
from nonchalant.words import TERMINAL_STATES, State
from tests import anvil
from tests.anvil import Anvil
from tests.e2e import ledger
from tests.e2e.rig import payment, settings, until

GWEI = 10**9
ETHER = 10**18
ALICE = anvil.ADDRESSES[0]
REVERT = bytes.fromhex("60006000fd")  # PUSH1 0 PUSH1 0 REVERT


@dataclass(slots=True)
class Site:
    chain: Anvil
    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "nonchalant.db"

    @asynccontextmanager
    async def node(self, *urls: str, **options: object) -> AsyncIterator[Nonchalant]:
        """A node on this anvil, or on the given urls."""
        async with Nonchalant.open(settings(self.folder, *(urls or (self.chain.url,)), **options)) as node:
            yield node

    async def become(self, handles: Iterable[Handle], *states: State, mine: bool = True, seconds: float = 60) -> None:
        """Until each is in one of these states, mining a block now and then if `mine`."""
        waiting = list(handles)

        async def there() -> bool:
            return all([(await handle.refresh()).state in states for handle in waiting])

        def told() -> str:
            return f"{states} of {[(h.id, h.transaction.state, h.transaction.attention) for h in waiting]}"

        await until(there, told, seconds=seconds, tick=self.chain.mine if mine else None, every=0.1)

    async def settle(self, *handles: Handle, seconds: float = 60) -> None:
        await self.become(handles, *TERMINAL_STATES, seconds=seconds)

    async def seen(self, node: Nonchalant) -> None:
        """Until the node has seen the chain as it is now."""
        height = await self.chain.height()
        follower = node.engine.followers[anvil.CHAIN_ID]
        await until(lambda: follower.started and follower.head.top.number >= height, f"block {height} seen")

    async def marked(
        self, handle: Handle, code: str, *, tick: Callable[[], Awaitable[object]] | None = None
    ) -> Attention:
        async def there() -> Attention | None:
            mark = (await handle.refresh()).attention
            return mark if mark is not None and mark.code == code else None

        found = await until(there, f"{handle} marked {code}", tick=tick, every=0.1)
        assert found is not None
        return found

    async def audit(self, keys: Sequence[str], **options: object) -> ledger.Audit:
        return await ledger.audit(self.chain, self.store, keys, **options)

    async def count(self, address: str = ALICE, tag: str = "latest") -> int:
        return int(await self.chain.rpc("eth_getTransactionCount", address, tag), 16)

    async def paid(self, key: str) -> int:
        """How many wei arrived where this payment goes."""
        return int(await self.chain.rpc("eth_getBalance", ledger.recipient(key), "latest"), 16)

    async def pooled(self, handle: Handle) -> bool:
        """Whether the node holds its newest bytes, not yet mined."""
        found = await self.chain.rpc("eth_getTransactionByHash", (await handle.refresh()).hash)
        return found is not None and found["blockNumber"] is None


async def kinds(node: Nonchalant, handle: Handle) -> list[str]:
    return [event.kind for event in await node.store.history(handle.id)]


async def pay(node: Nonchalant, key: str, account: int = 0, **more: object) -> Handle:
    return await node.send(**payment(key, account, **more))
