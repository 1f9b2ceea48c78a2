"""Proof from final blocks: what an account did, read block by block and linked by parent hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nonchalant.desk import Desk
from nonchalant.errors import Unreachable
from nonchalant.model import Block, BlockRef, Executed, Hash, Receipt
from nonchalant.ports import Endpoint

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

    async def go_on(self, desk: Desk) -> bool:
        """Read some more. True: every block was read. `Unreachable` if the next one cannot be read now."""
        for _ in range(AT_ONCE):
            if self.at.number <= self.floor:
                return True
            page = await desk.eyes.ask(self._read)
            self.ours += page.receipts
            sent = (one for one in page.executed if one.sender == desk.key.address)
            self.executed += [one for one in sent if one.hash not in self.hashes]
            self.at = BlockRef(self.at.number - 1, page.block.parent)
        return self.at.number <= self.floor

    async def _read(self, endpoint: Endpoint) -> _Page:
        block = await endpoint.block(self.at.hash)
        if block is None:
            raise Unreachable(f"{endpoint.name} does not have block {self.at.number}")
        mine = [hash for hash in block.transactions if hash in self.hashes]
        receipts = await endpoint.receipts(self.at, mine) if mine else []
        return _Page(block, receipts, await endpoint.executed(self.at))


@dataclass(frozen=True, slots=True)
class _Page:
    """One block, read whole from one endpoint."""

    block: Block
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
