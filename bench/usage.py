"""What processes use of the machine, as Linux counts it."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu(pid: int) -> float:
    """Seconds of a core, its ended children included; 0 if the process is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / _TICK if fields else 0.0


def cpu_of_family(pid: int) -> float:
    """The process's and all its descendants'."""
    return sum(cpu(one) for one in _family(pid))


def memory(pid: int) -> int:
    """Resident, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def _stat(pid: int) -> list[str]:
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
