"""Many histories, one after the other or several at once, and what they add up to."""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nonchalant.sim.moves import Move
from nonchalant.sim.mutants import in_force
from nonchalant.sim.properties import EDGES, Edge
from nonchalant.sim.schedule import Kind
from nonchalant.sim.violations import Violation
from nonchalant.sim.world import History, live
from nonchalant.values import replace

# What a history must have to count.
LEAST_NODES = 3
LEAST_LANES = 2
LEAST_TRANSACTIONS = 20
LEAST_FAULTS = 10
LEAST_KINDS = 4
LEAST_MINUTES = 10.0

# From so many histories on, every fault, every edge and every move must have occurred.
ENOUGH = 400


@dataclass(frozen=True, slots=True)
class Order:
    """One history to live through."""

    seed: int
    mutant: str | None = None
    whole_trace: bool = False


def carry_out(order: Order) -> History:
    with in_force(order.mutant):
        history = live(order.seed, keep=None if order.whole_trace else 400)
    return history if history.violations or order.whole_trace else replace(history, lines=())


def histories(orders: Iterable[Order], jobs: int) -> Iterator[History]:
    """In the order of the orders, however many are at work."""
    if jobs == 1:
        yield from map(carry_out, orders)
        return
    # A forked child would share the parent's loop and logging.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(carry_out, orders)


def shortfall(history: History) -> str | None:
    """What a history lacks to count; None: nothing."""
    reached = (
        ("nodes", history.nodes, LEAST_NODES),
        ("lanes", history.lanes, LEAST_LANES),
        ("transactions", history.transactions, LEAST_TRANSACTIONS),
        ("faults", sum(history.faults.values()), LEAST_FAULTS),
        ("kinds of faults", len(history.faults), LEAST_KINDS),
        ("virtual minutes", history.seconds / 60, LEAST_MINUTES),
    )
    lacking = [f"{size:g} {what}, not {least:g}" for what, size, least in reached if size < least]
    return ", ".join(lacking) or None


@dataclass(slots=True)
class Tally:
    """What many histories add up to. Depends on nothing but their seeds."""

    histories: int = 0
    nodes: int = 0
    lanes: int = 0
    transactions: int = 0
    kinds: int = 0
    seconds: float = 0.0
    faults: Counter[Kind] = field(default_factory=Counter)
    edges: Counter[Edge] = field(default_factory=Counter)
    moves: Counter[Move] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    too_small: list[tuple[int, str]] = field(default_factory=list)
    _digests: list[str] = field(default_factory=list)

    def add(self, history: History) -> None:
        self._digests.append(history.digest)
        self.violations += history.violations
        lacking = None if history.violations else shortfall(history)
        if lacking is not None:
            self.too_small.append((history.seed, lacking))
            return
        self.histories += 1
        self.nodes += history.nodes
        self.lanes += history.lanes
        self.transactions += history.transactions
        self.kinds += len(history.faults)
        self.seconds += history.seconds
        self.faults.update(history.faults)
        self.edges.update(history.edges)
        self.moves.update(history.moves)

    @property
    def digest(self) -> str:
        """Over the digests of all traces, in order."""
        return hashlib.sha256(" ".join(self._digests).encode()).hexdigest()

    def averages(self) -> dict[str, float]:
        """Per history."""
        sums = {
            "nodes": self.nodes,
            "lanes": self.lanes,
            "transactions": self.transactions,
            "faults": self.faults.total(),
            "kinds of faults": self.kinds,
            "virtual minutes": self.seconds / 60,
        }
        return {what: round(total / max(1, self.histories), 2) for what, total in sums.items()}

    def never(self) -> list[str]:
        """Faults, edges and moves that did not occur, though there were histories enough."""
        if self.histories < ENOUGH:
            return []
        missing = [str(kind) for kind in Kind if not self.faults[kind]]
        missing += [str(edge) for edge in EDGES if not self.edges[edge]]
        return missing + [str(move) for move in Move if not self.moves[move]]

    @property
    def clean(self) -> bool:
        return not (self.violations or self.too_small or self.never())
