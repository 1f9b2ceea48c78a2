"""`make bench`: how fast transactions go through a node with everything on, against blasting pre-signed bytes at anvil.

Both contestants send the same number of plain transfers from the same number of accounts, and both are done when the
chain has executed them all. Machines are noisy, so read the ratio; each contestant runs three times, interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nonchalant import Nonchalant
from nonchalant.chain.evm.endpoints import EvmChain, EvmEndpoint
from nonchalant.model import Draft, Fees, LaneKey, Payload, State
from nonchalant.signers import from_private_key
from tests import anvil

SINK = "0x" + "11" * 20
RUNS = 3
BLOCK_SECONDS = 0.25
BLAST_BATCH = 100

Contestant = Callable[[anvil.Anvil, int], Awaitable[float]]


async def limit(node: anvil.Anvil, count: int) -> float:
    """Bytes signed beforehand, handed over as fast as the node takes them; nothing is stored."""
    endpoint = EvmEndpoint(anvil.CHAIN_ID, node.url, "anvil", timeout=60.0, finality_tag=False)
    chain = EvmChain(anvil.CHAIN_ID, [endpoint])
    raws = [await _presign(chain, key, count // len(anvil.KEYS)) for key in anvil.KEYS]
    began = time.monotonic()
    await asyncio.gather(*(_blast(endpoint, lane) for lane in raws))
    await _executed(node, count)
    elapsed = time.monotonic() - began
    await endpoint.close()
    return count / elapsed


async def _presign(chain: EvmChain, key: str, count: int) -> list[bytes]:
    signer = from_private_key(key)
    lane = LaneKey(anvil.CHAIN_ID, signer.address)
    fees = Fees(20 * 10**9, 10**9)
    drafts = [
        Draft(lane=lane, nonce=nonce, payload=Payload(to=SINK, value=1), gas=21_000, fees=fees)
        for nonce in range(count)
    ]
    signatures = await signer.sign([chain.digest(draft) for draft in drafts])
    return [chain.seal(draft, signature).raw for draft, signature in zip(drafts, signatures, strict=True)]


async def _blast(endpoint: EvmEndpoint, raws: Sequence[bytes]) -> None:
    for start in range(0, len(raws), BLAST_BATCH):
        await endpoint.send(raws[start : start + BLAST_BATCH])


async def ours(node: anvil.Anvil, count: int) -> float:
    """Through the library on SQLite: accepted, signed, committed, sent, watched; timed until all are seen executed."""
    for number, key in enumerate(anvil.KEYS):
        os.environ[f"BENCH_KEY_{number}"] = key
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "nonchalant.toml"
        file.write_text(_settings(node.url, folder))
        async with Nonchalant.open(file) as nc:
            began = time.monotonic()
            handles = await asyncio.gather(
                *(
                    nc.send(
                        chain_id=anvil.CHAIN_ID, sender=anvil.ADDRESSES[number % len(anvil.ADDRESSES)], to=SINK, value=1
                    )
                    for number in range(count)
                )
            )
            await _executed(node, count)
            elapsed = time.monotonic() - began
            outcomes = await asyncio.gather(*(handle.settled(120) for handle in handles))
    if any(outcome.state is not State.CONFIRMED for outcome in outcomes):
        raise SystemExit("not every transaction was confirmed: the figure would be worthless")
    return count / elapsed


def _settings(url: str, folder: str) -> str:
    accounts = "".join(
        f'[[accounts]]\nchains = [{anvil.CHAIN_ID}]\nkey = {{ env = "BENCH_KEY_{number}" }}\nwindow = 1000\n'
        for number in range(len(anvil.KEYS))
    )
    chain = f'[[chains]]\nid = {anvil.CHAIN_ID}\nendpoints = ["{url}"]\nfinality = 2\npoll_interval = 0.1\n'
    return f'store = "sqlite:{folder}/bench.db"\n{chain}{accounts}'


async def _executed(node: anvil.Anvil, count: int) -> None:
    """Each transfer brings the sink one wei: its balance is the count of what was executed, on the chain itself."""
    while int(await node.rpc("eth_getBalance", SINK, "latest"), 16) < count:  # noqa: ASYNC110 - the chain has no event for it
        await asyncio.sleep(0.02)


async def _measure(contestant: Contestant, count: int) -> float:
    options = ("--gas-limit", "300000000000", "--order", "fifo")
    async with anvil.running(*options, block_time=BLOCK_SECONDS) as node:
        return await contestant(node, count)


async def main(count: int) -> str:
    contestants: dict[str, Contestant] = {"limit: pre-signed, blasted": limit, "ours: library, SQLite": ours}
    figures: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(RUNS):
        for name, contestant in contestants.items():
            figure = await _measure(contestant, count)
            figures[name].append(figure)
            print(f"  run {turn + 1}: {name:28} {figure:8.0f} executed/s", flush=True)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    top = medians["limit: pre-signed, blasted"]
    rows = [f"| {name} | {median:.0f} | {median / top:.0%} |" for name, median in medians.items()]
    return "\n".join(["| contestant | executed/s (median of 3) | of the limit |", "|---|---|---|", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--transactions", type=int, default=2_000)
    parser.add_argument("--record", action="store_true", help="append the table to bench/RESULTS.md")
    options = parser.parse_args()
    table = asyncio.run(main(options.transactions))
    heading = f"## {datetime.now(UTC):%Y-%m-%d} throughput on anvil\n"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    command = (
        f"`python -m bench --transactions {options.transactions}`; {machine}; {len(anvil.KEYS)} lanes, window 1,000."
    )
    report = f"{heading}\n{command}\n\n{table}\n"
    print(report)
    if options.record:
        with Path("bench/RESULTS.md").open("a") as results:
            results.write(f"\n{report}")
