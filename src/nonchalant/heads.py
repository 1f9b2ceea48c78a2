"""The canonical chain as seen so far: linked block hashes down to finality, and who may say what is final."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from nonchalant.model import Block, BlockRef, View
from nonchalant.words import Hash

# How far below finality hashes are remembered, so that a lane that comes late can still compare.
REMEMBERED = 256


@dataclass(slots=True)
class Head:
    """A chain of blocks linked by parent hash. Nothing enters that does not link."""

    final: BlockRef
    hashes: dict[int, Hash] = field(default_factory=dict)
    top: BlockRef = field(init=False)

    def __post_init__(self) -> None:
        self.hashes[self.final.number] = self.final.hash
        self.top = self.final

    def has(self, ref: BlockRef) -> bool:
        return self.hashes.get(ref.number) == ref.hash

    def is_final(self, ref: BlockRef) -> bool:
        return ref.number <= self.final.number and self.has(ref)

    def above(self, block: BlockRef, count: int) -> tuple[BlockRef, ...]:
        """The first so many blocks linked on top of this one; fewer if there are no more, or they are not known.

        None of them is on top of a block that another one has displaced.
        """
        if self.hashes.get(block.number, block.hash) != block.hash:
            return ()
        numbers = range(block.number + 1, min(block.number + count, self.top.number) + 1)
        known = takewhile(self.hashes.__contains__, numbers)  # past a hole, nothing says that they are linked
        return tuple(BlockRef(number, self.hashes[number]) for number in known)

    def links(self, block: Block) -> bool:
        """Whether the block's parent is on this chain, at or above finality."""
        return block.number > self.final.number and self.hashes.get(block.number - 1) == block.parent

    def extend(self, blocks: Sequence[Block]) -> list[BlockRef]:
        """Put the linked blocks (lowest first) on top of their parent; what they displace is answered."""
        assert self.links(blocks[0])
        removed = [BlockRef(number, self.hashes.pop(number)) for number in range(blocks[0].number, self.top.number + 1)]
        for block in blocks:
            self.hashes[block.number] = block.hash
        self.top = blocks[-1].ref
        return removed

    def finalise(self, ref: BlockRef) -> bool:
        """Move finality up to a block of this chain. False if it is not one, or not higher: finality never moves back."""
        if ref.number <= self.final.number or not self.has(ref):
            return False
        for number in range(self.final.number - REMEMBERED, ref.number - REMEMBERED):
            self.hashes.pop(number, None)
        self.final = ref
        return True


def quorum(endpoints: int) -> int:
    """How many endpoints must answer before anything is called final: at least half of those configured.

    The lowest answer counts, so one that lies high cannot hurt while another that is honest answers.
    """
    return (endpoints + 1) // 2


def final_height(views: Sequence[View], configured: int, depth: int | None) -> int | None:
    """The height all of these endpoints call final, by their tag or by depth. None: too few answered, or one cannot say."""
    if len(views) < quorum(configured):
        return None
    if depth is not None:
        return max(0, min(view.head.number for view in views) - depth)
    if any(view.finalized is None for view in views):
        return None
    return min(view.finalized.number for view in views if view.finalized is not None)


def agreed(height: int, answers: Iterable[Hash | None], *, least: int) -> BlockRef | None:
    """The one block at this height that all who named one agree on; None if they do not, or are fewer than `least`.

    Silence (None) is no disagreement: an endpoint may be slow, or have forgotten an old block.
    """
    named = [answer for answer in answers if answer is not None]
    return BlockRef(height, named[0]) if len(named) >= max(1, least) and len(set(named)) == 1 else None


def believed(values: Sequence[int]) -> int:
    """One figure out of what several endpoints say: more than half of them say at least this much.

    So one that says too much is not believed, and of three or more, one that says too little cannot hold us up.
    """
    return sorted(values, reverse=True)[len(values) // 2]
