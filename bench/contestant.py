"""`python -m bench.contestant`: one contestant, in a process of its own. Its order comes on stdin, its outcome goes to
stdout."""

from __future__ import annotations

import gc
import sys

import msgspec
import uvloop

from bench.order import Order
from nonchalant.cli.running import YOUNG


def run(order: Order) -> msgspec.Struct:
    # Each imports its own: web3.py alone takes a second that is nobody else's.
    match order.contestant:
        case "limit":
            from bench import limit

            return uvloop.run(limit.run(order))
        case "prototype":
            from bench import prototype

            return uvloop.run(prototype.run(order))
        case "library":
            from bench import library

            return uvloop.run(library.run(order))
        case "rest" | "rest-batches" | "json-rpc":
            from bench import loads

            return uvloop.run(loads.run(order))
        case "arrivals":
            from bench import arrivals

            return uvloop.run(arrivals.run(order))
        case "crowd":
            from bench.growth import crowd

            return uvloop.run(crowd.run(order))
        case "web3-local":
            from bench import web3py

            return web3py.local_nonce(order)
        case "web3-count":
            from bench import web3py

            return web3py.asked_count(order)
        case unknown:
            raise SystemExit(f"there is no contestant {unknown}")


if __name__ == "__main__":
    # As `nonchalant serve` has it, and the same for everybody.
    gc.set_threshold(YOUNG, 10, 10)
    outcome = run(msgspec.json.decode(sys.stdin.buffer.read(), type=Order))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
