"""Poisonous transactions: one step of their way raises what nobody expects, each time. They must stop nothing but themselves.

Drawn from the seed before a history begins. Some are poisonous for ever, and are left aside in the end; some until
their cause is mended, when the faults are over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from nonchalant.model import BlockRef, Change, Draft, Payload
from nonchalant.ports import Endpoint
from nonchalant.sim.chance import Chance
from nonchalant.sim.moves import Move
from nonchalant.sim.traffic import Errand, is_sound
from nonchalant.sim.trouble import Poison
from nonchalant.sim.wire import Effect, read_order, root_of
from nonchalant.words import AttemptKind, State

# How many histories have any.
POISONED = 0.4

# Such a transaction never has a nonce: nothing needs to be mended for the others to settle.
FOR_EVER = (Move.POISON_ENCODER, Move.POISON_SEAL, Move.POISON_ASSIGNED)
UNTIL_MENDED = (Move.POISON_ESTIMATE, Move.POISON_BUMPED, Move.POISON_MINED, Move.POISON_FINAL)


def draw(chance: Chance, errands: Sequence[Errand]) -> dict[str, Move]:
    """Which of them are poisonous, by label, and where."""
    if chance.random() >= POISONED:
        return {}
    can_run = [errand for errand in errands if errand.order.effect is not Effect.NEVER and is_sound(errand.payload)]
    chosen = chance.sample(can_run, min(len(can_run), chance.randint(1, 3)))
    return {errand.label: chance.choice(FOR_EVER + UNTIL_MENDED) for errand in chosen}


class Poisons:
    def __init__(self, where: Mapping[str, Move], moves: Counter[Move]) -> None:
        self._where = where
        self._moves = moves
        self._touched: set[str] = set()
        self._mended = False

    def __bool__(self) -> bool:
        return bool(self._where)

    def mend(self) -> bool:
        """What can be mended is; True if nodes have to be started anew to see it."""
        self._mended = True
        return any(self._where[label] in UNTIL_MENDED for label in self._touched)

    def is_poisonous(self, label: str) -> bool:
        """Whether it, or what it was at first, ever was."""
        return root_of(label) in self._where

    # where they do harm

    def encode(self, draft: Draft) -> None:
        self._touch(read_order(draft.payload.data).label, Move.POISON_ENCODER)

    def seal(self, draft: Draft) -> None:
        self._touch(read_order(draft.payload.data).label, Move.POISON_SEAL)

    def estimate(self, payload: Payload) -> None:
        self._touch(read_order(payload.data).label, Move.POISON_ESTIMATE)

    def commit(self, change: Change) -> None:
        """The row itself: the store refuses to write it, and does not say which."""
        kinds = {attempt.tx_id: attempt.kind for attempt in change.attempts}
        for tx in change.transactions if self else ():
            label = root_of(read_order(tx.payload.data).label)
            if kinds.get(tx.id) is AttemptKind.ORIGINAL:
                self._touch(label, Move.POISON_ASSIGNED)
            if kinds.get(tx.id) is AttemptKind.BUMP:
                self._touch(label, Move.POISON_BUMPED)
            if tx.state is State.MINED:
                self._touch(label, Move.POISON_MINED)
            if tx.state in (State.CONFIRMED, State.REVERTED):
                self._touch(label, Move.POISON_FINAL)

    def _touch(self, label: str, step: Move) -> None:
        if self._where.get(label) is not step or (self._mended and step in UNTIL_MENDED):
            return
        if label not in self._touched:
            self._touched.add(label)
            self._moves[step] += 1
        raise Poison(f"{label} is too much for it")


class Choking:
    """An endpoint whose answer about a poisonous transaction breaks who reads it."""

    def __init__(self, endpoint: Endpoint, poisons: Poisons) -> None:
        self._endpoint = endpoint
        self._poisons = poisons

    def __getattr__(self, name: str) -> object:
        return getattr(self._endpoint, name)

    async def estimate(self, sender: str, payload: Payload, at: BlockRef) -> int:
        self._poisons.estimate(payload)
        return await self._endpoint.estimate(sender, payload, at)


def choking(endpoint: Endpoint, poisons: Poisons) -> Endpoint:
    return cast("Endpoint", Choking(endpoint, poisons)) if poisons else endpoint
