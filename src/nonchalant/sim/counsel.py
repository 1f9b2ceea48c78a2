"""The attention hook of a history: advice of every kind, good and bad, and the same to the same question.

What it wants is asked for like anything that people want, so the checks of what people want hold for it too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from nonchalant import hooks
from nonchalant.advice import HOOK_SECONDS, Adviser
from nonchalant.attend import AGAIN
from nonchalant.engine import EngineRules
from nonchalant.errors import HookFailed
from nonchalant.hooks import HeadSnapshot, Hook, LaneSnapshot
from nonchalant.model import Fees, Market, Transaction
from nonchalant.sim.chain import Terrain
from nonchalant.sim.chance import Chance
from nonchalant.sim.facts import Facts, short
from nonchalant.sim.gate import Gate
from nonchalant.sim.loop import SimLoop
from nonchalant.sim.moves import Move
from nonchalant.sim.traffic import RECIPIENT, TOO_LITTLE_GAS
from nonchalant.sim.violations import Violations
from nonchalant.sim.wire import AGAIN as REPLACED
from nonchalant.sim.wire import Effect, Order
from nonchalant.values import replace
from nonchalant.wire import parse_bump, parse_replacement
from nonchalant.words import Millis, Speed, TxId

T = TypeVar("T")

# Advice, and in how many of a hundred cases it is given.
LOTS: Mapping[Move, int] = {
    Move.ADVICE_WAIT: 26,
    Move.ADVICE_BUMP: 24,
    Move.ADVICE_CANCEL: 12,
    Move.ADVICE_REPLACE: 14,
    Move.ADVICE_ALERT: 6,
    Move.ADVICE_ERROR: 6,
    Move.ADVICE_NONSENSE: 6,
    Move.ADVICE_SLOW: 6,
}
DRAWN = [move for move, lots in LOTS.items() for _ in range(lots)]

# What is no answer, though some of it looks like one; the types would forbid it.
NONSENSE = (None, "bump", hooks.Wait, hooks.Alert(""), hooks.Bump("fast"), hooks.Bump(Fees(-1)), hooks.Replace("it"))  # type: ignore[arg-type]


class Slip(Exception):
    """What a hook may raise."""


@dataclass(frozen=True, slots=True)
class Slow:
    """An answer that comes so late that nobody listens any more: whatever it says must not be done."""

    seconds: float
    answer: object


class Counsel:
    """`hook` is the function that every node of the history is configured with."""

    def __init__(
        self,
        draw: Callable[[str], Chance],
        terrains: Mapping[int, Terrain],
        rules: EngineRules,
        facts: Facts,
        report: Violations,
        moves: Counter[Move],
    ) -> None:
        self._draw = draw
        self._terrains = terrains
        self._rules = rules
        self._facts = facts
        self._report = report
        self._moves = moves
        self._asked: dict[tuple[TxId, str, int, int], float] = {}  # by transaction, mark, store and epoch: when last

    def adviser(self, gate: Gate, loop: SimLoop, chance: Chance) -> Adviser:
        """As one process asks it."""
        thread = HookThread(gate, loop, chance)
        hook: Hook = self.hook  # type: ignore[assignment] # not all that it says is an answer
        return Adviser(
            lambda tx, lane, head, fees, now: self._heard(loop.time(), tx, hook(tx, lane, head, fees, now)),
            thread,
            parse=lambda lane, request: parse_replacement(request, self._rules.lanes[lane].fees),
            check=lambda lane, fees: parse_bump(_body(fees), self._rules.lanes[lane].fees),
        )

    def hook(self, tx: Transaction, lane: LaneSnapshot, head: HeadSnapshot, _fees: Market, _now: Millis) -> object:
        mark = tx.attention.code if tx.attention else ""
        chance = self._draw(f"advice {tx.id} {tx.version} {mark} {head.top.hash}")
        advice = chance.choice(DRAWN)
        if advice is Move.ADVICE_SLOW:
            return Slow(HOOK_SECONDS * chance.uniform(1.2, 8.0), hooks.Cancel())
        return self._answer(chance, advice, tx, self._terrains[lane.key.chain_id])

    def _answer(self, chance: Chance, advice: Move, tx: Transaction, terrain: Terrain) -> object:
        match advice:
            case Move.ADVICE_BUMP:
                return hooks.Bump(_price(chance, terrain))
            case Move.ADVICE_CANCEL:
                return hooks.Cancel()
            case Move.ADVICE_REPLACE:
                return self._replacement(chance, tx)
            case Move.ADVICE_ALERT:
                return hooks.Alert("somebody should look at it")
            case Move.ADVICE_NONSENSE:
                return chance.choice(NONSENSE)
            case Move.ADVICE_ERROR:
                return Slip("the hook has a bug")
            case _:
                return hooks.Wait()

    def _replacement(self, chance: Chance, tx: Transaction) -> hooks.Replace:
        """Something else, which may be as wrong as what it replaces, or no request at all."""
        if chance.random() < 0.1:
            return hooks.Replace({"to": "nowhere"})
        effect = chance.choice([Effect.RUNS] * 8 + [Effect.REVERTS, Effect.NEVER])
        label = f"{self._facts.errand_of(tx).label}{REPLACED}hook{len(tx.earlier)}"
        request: dict[str, object] = {
            "to": RECIPIENT,
            "value": chance.randint(0, 10**12),
            "data": "0x" + Order(label, effect).data().hex(),
        }
        if chance.random() < 0.05:
            request["gas"] = TOO_LITTLE_GAS
        if chance.random() < 0.7:
            request["fees"] = {"speed": chance.choice(list(Speed)).value}
        return hooks.Replace(request)

    def _heard(self, now: float, tx: Transaction, answer: object) -> hooks.Answer:
        """What was asked and said, as far as it counts for the promises."""
        self._check_question(now, tx)
        label = self._facts.errand_of(tx).label
        match answer:
            case Slow():
                self._moves[Move.ADVICE_SLOW] += 1
            case hooks.Wait():
                self._moves[Move.ADVICE_WAIT] += 1
            case hooks.Cancel():
                self._moves[Move.ADVICE_CANCEL] += 1
                self._facts.unwanted.add(label)
            case hooks.Bump(Speed() | None):
                self._moves[Move.ADVICE_BUMP] += 1
            case hooks.Bump(Fees() as fees) if fees.max_fee > 0:
                self._moves[Move.ADVICE_BUMP] += 1
                if fees.max_fee < self._terrains[tx.lane.chain_id].base_fee * DEAR:
                    self._facts.errands[label] = replace(self._facts.errands[label], thrifty=True)
            case hooks.Replace(dict()):
                self._moves[Move.ADVICE_REPLACE] += 1
            case hooks.Alert(reason) if reason:
                pass  # it counts when it is told
            case Slip() as slip:
                self._moves[Move.ADVICE_ERROR] += 1
                raise slip
            case _:
                self._moves[Move.ADVICE_NONSENSE] += 1
        return answer  # type: ignore[return-value] # whatever it is, the adviser must bear it

    def _check_question(self, now: float, tx: Transaction) -> None:
        """P8: it is asked about what is marked, and while an owner keeps its lane, at a slow rhythm."""
        if tx.attention is None:
            self._report("P8", f"the hook is asked about {self._facts.name(tx)}, which carries no mark")
            return
        # An older store counts its epochs anew.
        key = tx.id, tx.attention.code, self._facts.stores, self._facts.epoch(tx.lane)
        # A node counts whole milliseconds.
        if now - self._asked.get(key, -AGAIN) < (AGAIN - 1) / 1000:
            self._report("P8", f"the hook is asked about {self._facts.name(tx)} on {short(tx.lane)} again and again")
        self._asked[key] = now


# From this many times the usual price on, any market takes it.
DEAR = 6.5


def _price(chance: Chance, terrain: Terrain) -> Speed | Fees | None:
    """What a caller may offer, and what nobody may."""
    base, tip = terrain.base_fee, int(terrain.base_fee * chance.uniform(0.1, 1.0))
    match chance.randint(0, 7):
        case 0:
            return None
        case 1:
            return chance.choice(list(Speed))
        case 2:  # too little for a dear market, and mostly for what nodes hold
            price = int(base * chance.uniform(1.3, 3.0))
        case 3:  # above every cap
            price = int(base * chance.uniform(15.0, 99.0))
        case 4:  # no node takes a tip above the price
            price = int(base * chance.uniform(DEAR, 13.0))
            tip = price + 1
        case 5:  # another type than what was signed
            return Fees(int(base * chance.uniform(DEAR, 13.0)))
        case _:
            price = int(base * chance.uniform(DEAR, 13.0))
    return Fees(price, None if terrain.legacy else tip)


def _body(fees: Fees) -> dict[str, object]:
    """As a caller would write it."""
    if fees.priority is None:
        return {"fees": {"gas_price": fees.max_fee}}
    return {"fees": {"max_fee_per_gas": fees.max_fee, "max_priority_fee_per_gas": fees.priority}}


class HookThread:
    """The one thread of a process that runs its hook: a call that nobody waits for any more keeps it busy."""

    def __init__(self, gate: Gate, loop: SimLoop, chance: Chance) -> None:
        self._gate = gate
        self._loop = loop
        self._chance = chance
        self._busy_until = 0.0

    async def __call__(self, act: Callable[[], T]) -> T:
        if self._loop.time() < self._busy_until:
            raise HookFailed("an earlier call of it has not returned yet")
        answer: object = act()
        seconds = HOOK_SECONDS * self._chance.random() ** 4
        if isinstance(answer, Slow):
            seconds, answer = answer.seconds, answer.answer
        self._busy_until = self._loop.time() + seconds
        await self._gate.sleep(seconds)
        return cast("T", answer)
