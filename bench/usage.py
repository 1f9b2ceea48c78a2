"""What processes use of the machine, as Linux counts it."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    """Seconds of a core: of the process and all that it started, those that ended included."""
    return sum(sum(map(int, _stat(one)[11:15])) for one in _family(pid)) / _TICK


def memory(pid: int | None = None) -> int:
    """Resident, in bytes; of this process unless another is named."""
    return int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1]) * _PAGE


def _stat(pid: int) -> list[str]:
    """What follows the name; nothing if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _family(pid: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))):
            children[int(fields[1])].append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children[found[-1]]
    return found
