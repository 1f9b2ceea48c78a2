"""Wake-ups between nodes by LISTEN and NOTIFY. Any of them may be lost: the sweep finds the work all the same.

They are sent after the commit they speak of, on a connection of their own, and never inside a transaction: NOTIFY holds
a lock over the commit that all notifying commits would wait for. While one is under way, and for a moment after it, the
next collects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import asyncpg
import structlog

from nonchalant.installation import Installation
from nonchalant.store.connections import LOST
from nonchalant.words import LaneKey

log = structlog.get_logger()

# How long a message may be is the server's limit (8000 bytes); a lane takes some sixty.
LANES_A_MESSAGE = 100

# How long a channel's name may be is too. Two schemas may come to share a channel: a wake-up too many does no harm.
LONGEST_NAME = 63

ANSWER_SECONDS = 5.0
REST_SECONDS = 1.0

# How long what a busy node has to say collects. Saying it costs node and server what a commit does, and there are
# hundreds of those a second; a quiet node says the first at once.
COLLECT_SECONDS = 0.01

FREE = "free"  # before a lane that was let go

Heard = Callable[[Sequence[LaneKey]], None]


def _nobody_hears(_: Sequence[LaneKey]) -> None: ...


class Wakes:
    """This node's ear and voice.

    `hear` is called with the lanes others spoke of; none of them: there are events. `hear_free` with those they let go.
    """

    def __init__(self, installation: Installation, schema: str) -> None:
        self.hear: Heard = _nobody_hears
        self.hear_free: Heard = _nobody_hears
        self.lost = 0  # how often the connection was, or could not be made
        self.connected = False
        self._dsn = installation.dsn
        self._channel = f"nonchalant_{schema}"[:LONGEST_NAME]
        self._lanes: set[LaneKey] = set()
        self._free: set[LaneKey] = set()
        self._has_news = False  # there is something to say, of lanes or not
        self._collecting = False
        self._own_pid = 0
        self._due = asyncio.Event()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def tell(self, lanes: Iterable[LaneKey]) -> None:
        """Something changed in these lanes; without any, there are new events."""
        self._lanes.update(lanes)
        self._has_news = True
        if not self._collecting:
            self._due.set()

    def tell_free(self, lanes: Iterable[LaneKey]) -> None:
        """Nobody works these any more. Said at once: whoever lets go may be about to stop."""
        self._free.update(lanes)
        self._due.set()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _live(self) -> None:
        """Listen and speak on one connection; when it is lost, on another."""
        while True:
            try:
                await self._listen()
            except (asyncpg.PostgresError, *LOST) as error:
                self.lost += 1
                log.warning("wakes.lost", reason=str(error) or type(error).__name__)
                await asyncio.sleep(REST_SECONDS)  # noqa: TID251 - a connection is no part of any simulated time

    async def _listen(self) -> None:
        connection: asyncpg.Connection = await asyncpg.connect(
            self._dsn, timeout=ANSWER_SECONDS, command_timeout=ANSWER_SECONDS, statement_cache_size=0
        )
        try:
            self._over.clear()
            self._own_pid = connection.get_server_pid()
            connection.add_termination_listener(lambda _: self._end())
            await connection.add_listener(self._channel, self._heard)
            # What was said while nobody listened is not said again.
            self.connected = True
            self.hear([])
            while not connection.is_closed():
                await self._due.wait()
                self._due.clear()
                if self._over.is_set():
                    raise ConnectionError("the connection was closed")
                lines = [*map(_line, sorted(self._lanes)), *(f"{FREE} {_line(lane)}" for lane in sorted(self._free))]
                self._lanes, self._free = set(), set()
                self._collect()
                await self._say(connection, lines)
        finally:
            self.connected = False
            connection.terminate()

    def _end(self) -> None:
        self._over.set()
        self._due.set()

    def _collect(self) -> None:
        self._has_news, self._collecting = False, True
        asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._collected)

    def _collected(self) -> None:
        self._collecting = False
        if self._has_news:
            self._due.set()

    async def _say(self, connection: asyncpg.Connection, lines: Sequence[str]) -> None:
        for start in range(0, max(1, len(lines)), LANES_A_MESSAGE):
            text = "\n".join(lines[start : start + LANES_A_MESSAGE])
            # Written out (numbers and addresses need no quotes): for one with arguments, the driver asks the server twice.
            await connection.execute(f"NOTIFY {self._channel}, '{text}'")

    def _heard(self, _connection: object, pid: int, _channel: str, text: object) -> None:
        if pid == self._own_pid:
            return
        lanes: list[LaneKey] = []
        free: list[LaneKey] = []
        for line in str(text).splitlines():
            match line.split(" "):
                case [chain_id, address] if chain_id.isdecimal():
                    lanes.append(LaneKey(int(chain_id), address))
                case [word, chain_id, address] if word == FREE and chain_id.isdecimal():
                    free.append(LaneKey(int(chain_id), address))
        self.hear(lanes)
        self.hear_free(free)


def _line(lane: LaneKey) -> str:
    return f"{lane.chain_id} {lane.address}"
