"""Importing eth-account, which is slow, and does not keep its hands to itself.

One of its dependencies raises Python's recursion limit a hundredfold, for the whole process: after that, a deeply
nested JSON body would overflow the C stack instead of being refused. So the limit is put back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def recursion_limit_kept() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
