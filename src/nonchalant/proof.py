"""Proof from final blocks: what an account did, read block by block and linked by parent hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nonchalant.desk import Desk
from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Block, BlockRef, Executed, Receipt
from nonchalant.ports import Endpoint
from nonchalant.values import replace
from nonchalant.words import Hash

# Blocks read in one go; then the lane's other work has its turn.
AT_ONCE = 20


@dataclass(slots=True)
class Search:
    """A walk from a final block down to a height. What it has read it keeps, so it can go on after an interruption."""

    at: BlockRef  # the next block to read
    floor: int  # the first height that cannot matter any more
    hashes: frozenset[Hash] = frozenset()  # attempts of ours to look for
    ours: list[Receipt] = field(default_factory=list)
    executed: list[Executed] = field(default_factory=list)  # whatever else the account executed
    # Attempts of ours that a block holds, and nobody tells how they went.
    unread: set[Hash] = field(default_factory=set)

    async def go_on(self, desk: Desk) -> bool:
        """Read some more. True: every block was read. `Unreachable` if the next one cannot be read now."""
        for _ in range(AT_ONCE):
            if self.at.number <= self.floor:
                return True
            try:
                page = await desk.eyes.ask(self._read)
            except (Unreachable, NodeRefused):
                if not self.hashes:
                    raise
                # One receipt that nobody can tell must not hide what else the block says.
                page = await desk.eyes.ask(self._read_without_receipts)
                for hash in page.mine:
                    self.unread |= await self._read_receipt(desk, hash)
            self.ours += page.receipts
            sent = (one for one in page.executed if one.sender == desk.key.address)
            self.executed += [one for one in sent if one.hash not in self.hashes]
            self.at = BlockRef(self.at.number - 1, page.block.parent)
        return self.at.number <= self.floor

    async def _read(self, endpoint: Endpoint) -> _Page:
        page = await self._read_without_receipts(endpoint)
        receipts = await endpoint.receipts(self.at, page.mine) if page.mine else []
        return replace(page, receipts=receipts)

    async def _read_without_receipts(self, endpoint: Endpoint) -> _Page:
        block = await endpoint.block(self.at.hash)
        if block is None:
            raise Unreachable(f"{endpoint.name} does not have block {self.at.number}")
        mine = [hash for hash in block.transactions if hash in self.hashes]
        return _Page(block, mine, (), await endpoint.executed(self.at))

    async def _read_receipt(self, desk: Desk, hash: Hash) -> set[Hash]:
        """Take one receipt of the block; the hash, if nobody has it."""
        try:
            self.ours += await desk.eyes.ask(lambda endpoint: endpoint.receipts(self.at, [hash]))
        except (Unreachable, NodeRefused):
            return {hash}
        return set()


@dataclass(frozen=True, slots=True)
class _Page:
    """One block, read whole from one endpoint."""

    block: Block
    mine: Sequence[Hash]
    receipts: Sequence[Receipt]
    executed: Sequence[Executed]


async def read_final_blocks(desk: Desk, floor: int, hashes: frozenset[Hash]) -> Search | None:
    """What every block from finality down to `floor` says. None: not all was read yet; ask again, it goes on there."""
    if desk.proof is None or desk.proof.hashes != hashes:
        desk.proof = Search(desk.head.final, floor, hashes)
    if not await desk.proof.go_on(desk):
        return None
    search, desk.proof = desk.proof, None
    return search
