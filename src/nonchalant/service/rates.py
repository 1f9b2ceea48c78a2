"""How many calls a second each key may make, on this node: a bucket of tokens for each."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from nonchalant.access import Caller

# Buckets that are remembered. One that is forgotten was long unused, and is full again.
MOST: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Rates:
    """A key may make as many calls at once as it may make in a second, and at least one."""

    def __init__(self, most: int = MOST) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._most = most

    def take(self, caller: Caller, now: float, calls: int = 1) -> float:
        """Count calls of this caller, at a time in seconds: 0.0, or in how many seconds to come back.

        Calls that count as more than the bucket holds are let in when it is full, and paid for afterwards.
        """
        if caller.rate is None or caller.key_id is None:
            return 0.0
        most = max(1.0, caller.rate)
        bucket = self._buckets.get(caller.key_id)
        if bucket is None:
            bucket = self._buckets[caller.key_id] = _Bucket(most, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(caller.key_id)
        bucket.tokens = min(most, bucket.tokens + (now - bucket.at) * caller.rate)
        bucket.at = now
        missing = min(float(calls), most) - bucket.tokens
        if missing > 1e-9:
            return missing / caller.rate
        bucket.tokens -= calls
        return 0.0
