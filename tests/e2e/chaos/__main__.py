"""Many nodes on one PostgreSQL, killed, frozen and cut off under a load that never stops: then chain and store are audited.

python -m tests.e2e.chaos --transactions 5000 --kills 300 --restarts 20 --backends 50
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests import results
from tests.e2e.chaos.run import Plan, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.chaos", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--accounts", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=300, help="by kill -9 at a numbered crash point")
    parser.add_argument("--restarts", type=int, default=20, help="of PostgreSQL, fast and immediate")
    parser.add_argument("--backends", type=int, default=50, help="connections that the server terminates")
    parser.add_argument(
        "--freezes", type=int, default=20, help="of a node, at a point of its work, for longer than a lease"
    )
    parser.add_argument("--cuts", type=int, default=15, help="of a node from the database, and as many from the chain")
    parser.add_argument("--reorgs", type=int, default=10)
    parser.add_argument("--lease", type=float, default=2.0, help="in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where logs are kept; a temporary one if left out")
    parser.add_argument("--record", action="store_true", help="add the figures to bench/RESULTS.md")
    options = vars(parser.parse_args())
    folder, record = options.pop("folder"), options.pop("record")
    if folder is not None:
        figures = asyncio.run(run(folder, Plan(**options), _say))
    else:
        with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as made:
            figures = asyncio.run(run(Path(made), Plan(**options), _say))
    print("\n".join([*figures.lines(), "", *figures.table()]))
    if record:
        words = " ".join(f"--{name} {value}" for name, value in options.items())
        results.record("Chaos", f"python -m tests.e2e.chaos {words}", figures.lines(), figures.table())


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
