"""Ports for servers that are started as programs, which take a number and not a socket.

What the system gives out for port 0 is also what it gives to whoever connects somewhere: before the program listens, or
while it is being started again, somebody's connection may have that number. So ours are below that range (where the
machine leaves room there), and each is given out once to all of a user's tests.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

LOWEST = 12_000  # below live the well-known ones
ENOUGH = 4_000  # where connections get lower numbers as well
GIVEN_TO_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def highest() -> int:
    """Where the numbers begin that connections get."""
    try:
        return max(int(GIVEN_TO_CONNECTIONS.read_text().split()[0]), LOWEST + ENOUGH)
    except FileNotFoundError:  # not Linux
        return 32_768


def free_port() -> int:
    last = Path(tempfile.gettempdir()) / f"nonchalant-ports-{os.getuid()}"
    with last.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        number = int(file.read() or LOWEST)
        for _ in range(LOWEST, highest()):
            number = number + 1 if number + 1 < highest() else LOWEST
            if _is_free(number):
                file.truncate(0)
                file.write(str(number))
                return number
    raise OSError(f"no port is free between {LOWEST} and {highest()}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
