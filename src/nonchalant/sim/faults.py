"""Does the scheduled faults to the world when their time comes.

A fault counts once, when it first does harm; one that met nobody does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from nonchalant.sim.chain import ROOM
from nonchalant.sim.hand import Hand
from nonchalant.sim.harms import HARMS
from nonchalant.sim.schedule import Fault
from nonchalant.words import LaneKey


class Faults(Hand):
    """The faults of one history."""

    def start(self, schedule: Sequence[Fault]) -> None:
        for fault in schedule:
            self.loop.call_at(fault.at, self.inject, fault)

    def inject(self, fault: Fault) -> None:
        if not self.over:
            HARMS[fault.kind](self, fault)

    def stop(self) -> None:
        """From here on nothing new goes wrong, and what is wrong is put right, but for a market that stays dear."""
        self.over = True
        for gate in self.realm.gates():
            gate.clear()
        for signer in self.realm.signers:
            signer.down = signer.wrong = False
        for chain in self.realm.chains:
            chain.finality_stalled = False
            chain.room = ROOM
            chain.resting = False
            chain.gossip = chain.terrain.gossip
            for endpoint in chain.endpoints:
                endpoint.troubles.end()
                endpoint.pool.limit = chain.terrain.account_limit
                chain.rejoin(endpoint)
            chain.expel_squatters()
        while self.debts:
            self.repay(self.debts[0])

    def accepted(self, lane: LaneKey) -> None:
        """Something is about to be sent from this account: who waited for that strikes now."""
        for thief in [thief for thief in self.thieves if thief[0] == lane]:
            self.thieves.remove(thief)
            self.loop.call_soon(thief[1])
