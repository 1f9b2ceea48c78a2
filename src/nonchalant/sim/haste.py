"""An operator who resets an account by force just when several of its transactions are signed and only one may be sent.

By chance alone this is so rare that hundreds of histories may have none: the code of the account becomes a delegation, so
that pools take one of it at a time, moments before several are accepted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nonchalant.sim.chance import Chance
from nonchalant.sim.moves import Act, Ask
from nonchalant.sim.schedule import Fault, Kind
from nonchalant.sim.traffic import Errand
from nonchalant.words import LaneKey


def draw(
    chance: Chance, errands: Sequence[Errand], lanes: Sequence[LaneKey], chains: Sequence[int]
) -> tuple[list[Fault], list[Ask]]:
    """`chains` in the order in which faults count them."""
    faults, asks = [], []
    for errand in errands:
        lane, together = Counter(one.lane for one in (errand, *errand.others)).most_common(1)[0]
        who = _who(lane, lanes, chains)
        if together < 2 or who is None:
            continue
        begins = max(0.5, errand.at - chance.uniform(1.0, 8.0))
        seconds = chance.uniform(20.0, 60.0)
        faults.append(Fault(begins, Kind.DELEGATED, seconds, who, chance.random()))
        asks += [
            Ask(at=errand.at + chance.uniform(0.3, 8.0), act=Act.RESET, lane=lane, node=errand.node, force=True)
            for _ in range(2)
        ]
    return faults, asks


def _who(lane: LaneKey, lanes: Sequence[LaneKey], chains: Sequence[int]) -> int | None:
    """The number by which a fault picks this account; None: there is none."""
    of_its_chain = [one for one in lanes if one.chain_id == lane.chain_id]
    numbers = range(len(chains) * len(of_its_chain))
    picks = ((number, chains[number % len(chains)], of_its_chain[number % len(of_its_chain)]) for number in numbers)
    return next((number for number, chain_id, found in picks if (chain_id, found) == (lane.chain_id, lane)), None)
