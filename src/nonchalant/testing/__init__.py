"""Public doubles: what a test of a system built on Nonchalant puts around a real node."""

from nonchalant.chain.evm.decoding import RawTransaction
from nonchalant.testing.proxy import FaultProxy
from nonchalant.testing.traffic import Sent, Told

__all__ = ["FaultProxy", "RawTransaction", "Sent", "Told"]
