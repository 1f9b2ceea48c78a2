"""Where the time of a process goes, by py-spy, which looks from outside and hardly slows it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

FORMATS = {".svg": "flamegraph", ".json": "speedscope", ".txt": "raw"}


@asynccontextmanager
async def profiled(file: str, pid: int | None = None) -> AsyncIterator[None]:
    """Record the process (this one, unless given) while the block runs; without a file, nothing."""
    if not file:
        yield
        return
    program = Path(sys.executable).with_name("py-spy")
    if not program.exists():
        raise SystemExit("--profile needs py-spy: run `make install`")
    form = FORMATS.get(Path(file).suffix, "flamegraph")
    process = await asyncio.create_subprocess_exec(
        *(str(program), "record", "--pid", str(pid or os.getpid()), "--output", file, "--format", form),
        *("--rate", "100", "--native"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
