"""The service over HTTP: one call, and whether it may be made again."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from nonchalant.client.refusals import ServiceUnreachable, problem_in, refusal_of
from nonchalant.errors import NonchalantError
from nonchalant.ports import Clock, Entropy

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

# Between two tries, in seconds; each pause is about twice the one before, up to what a service may ask for.
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0

# A stream says something every 15 seconds, be it that there is nothing to say.
LONGEST_SILENCE: Final = 45.0

# Answers that say that nothing was done, whatever was asked.
NOTHING_DONE: Final = frozenset({"busy", "not_ready", "shutting_down", "body_too_slow"})

# What a load balancer answers for a node that is away.
AWAY: Final = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """`retry_after` None: it does not say."""

    status: int
    body: bytes
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer came; `heard`: the call may have been carried out all the same."""

    why: str
    heard: bool


def pause_before_repeating(outcome: Answer | Silence, tried: int, *, is_safe: bool, spread: float) -> float | None:
    """How many seconds to wait before the call is made again; None: it is not. `is_safe`: to be carried out twice.

    `spread`, about 1, keeps callers that failed together from coming back together.
    """
    pause = float(min(FIRST_PAUSE * 2**tried, LONGEST_PAUSE)) * spread
    match outcome:
        case Silence(heard=heard):
            return pause if is_safe or not heard else None
        case Answer(status=status, body=body, retry_after=asked):
            problem = problem_in(body)
            nothing_done = status == 429 or (problem is not None and problem.code in NOTHING_DONE)
            if not nothing_done and not (is_safe and status in AWAY):
                return None
            asked = asked or 0.0
            return max(pause, asked) if asked <= LONGEST_PAUSE else None


class Service:
    """Calls to one service. Opens its connections with the first call, in the event loop that makes it."""

    def __init__(
        self, url: str, key: str | None, *, timeout: float, retries: int, clock: Clock, entropy: Entropy
    ) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self.clock = clock
        self.entropy = entropy
        self.retries = retries
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def get(
        self, path: str, kind: type[T], query: Mapping[str, object] | None = None, *, waits: float = 0.0
    ) -> T:
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        return await self._call("GET", path, kind, query=given, waits=waits, is_safe=True)

    async def post(
        self,
        path: str,
        kind: type[T],
        body: Mapping[str, object] | None = None,
        *,
        idempotency_key: str | None = None,
        waits: float = 0.0,
    ) -> T:
        """Repeated after a silence only if there is a key to recognise it by."""
        return await self._call("POST", path, kind, body=body or {}, key=idempotency_key, waits=waits)

    async def patch(self, path: str, kind: type[T], body: Mapping[str, object]) -> T:
        return await self._call("PATCH", path, kind, body=body)

    async def delete(self, path: str, kind: type[T]) -> T:
        return await self._call("DELETE", path, kind)

    async def lines(
        self, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str]
    ) -> AsyncGenerator[str | Answer | Silence, None]:
        """An answer that goes on, line by line; at its end what came instead of more, if it is known."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=LONGEST_SILENCE)
        try:
            async with self._open().get(
                self.url + path,
                params=query,
                headers={**self._headers(), **headers},
                timeout=patience,
                allow_redirects=False,
            ) as answer:
                if answer.status != 200:
                    yield Answer(answer.status, await answer.read(), _seconds(answer.headers.get("Retry-After")))
                    return
                rest = b""
                async for piece in answer.content.iter_any():
                    *lines, rest = (rest + piece).split(b"\n")
                    for line in lines:
                        yield line.decode(errors="replace").removesuffix("\r")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            yield Silence(f"cannot reach the service at {self.url} ({_reason(error)})", heard=False)

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    def unreachable(self, why: str, *, heard: bool, key: str | None = None) -> ServiceUnreachable:
        advice = "start it, or set NONCHALANT_URL"
        if heard:
            advice = "it may have been heard: look before you repeat it"
        if heard and key is not None:
            advice = f"it may have been heard; repeat it with idempotency_key={key!r}, and nothing is sent twice"
        return ServiceUnreachable(f"{why}; {advice}", heard=heard, idempotency_key=key)

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        key: str | None = None,
        waits: float = 0.0,
        is_safe: bool = False,
    ) -> T:
        is_safe = is_safe or key is not None
        headers = {} if key is None else {"Idempotency-Key": key}
        sent = None if body is None else msgspec.json.encode(body)
        tried = 0
        heard = False  # by an earlier try
        while True:
            outcome = await self._once(method, path, query, sent, headers, waits)
            heard = heard or (isinstance(outcome, Silence) and outcome.heard)
            if isinstance(outcome, Answer) and outcome.status < 300:
                return self._read(outcome, kind, key=key)
            spread = self.entropy.uniform(0.75, 1.25)
            pause = pause_before_repeating(outcome, tried, is_safe=is_safe, spread=spread)
            if pause is None or tried >= self.retries:
                raise self.failure(outcome, heard=heard and method != "GET", key=key) from None
            await self.clock.sleep(pause)
            tried += 1

    async def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        headers: Mapping[str, str],
        waits: float,
    ) -> Answer | Silence:
        import aiohttp

        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._open().request(
                method,
                self.url + path,
                params=query,
                data=body,
                headers={**self._headers(), **kind, **headers},
                timeout=aiohttp.ClientTimeout(total=self._timeout + waits),
                allow_redirects=False,  # the key is for this host
            ) as answer:
                return Answer(answer.status, await answer.read(), _seconds(answer.headers.get("Retry-After")))
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return Silence(f"cannot reach the service at {self.url} ({_reason(error)})", heard=False)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return Silence(f"the service at {self.url} did not answer ({_reason(error)})", heard=True)

    def failure(self, outcome: Answer | Silence, *, heard: bool = False, key: str | None = None) -> NonchalantError:
        if isinstance(outcome, Silence):
            return self.unreachable(outcome.why, heard=heard, key=key)
        problem = problem_in(outcome.body)
        if problem is None:
            return self._strange(outcome, heard=heard, key=key)
        if heard and (outcome.status == 429 or outcome.status in AWAY):
            # It says nothing of the try before it that was heard: that one may have been carried out.
            return self.unreachable(f"the service at {self.url} did not answer ({problem.detail})", heard=True, key=key)
        return refusal_of(problem)

    def _read(self, answer: Answer, kind: type[T], *, key: str | None) -> T:
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._strange(answer, heard=True, key=key) from None

    def _strange(self, answer: Answer, *, heard: bool, key: str | None) -> ServiceUnreachable:
        what = f"what answers at {self.url} is not a Nonchalant that this client understands"
        return self.unreachable(f"{what} (HTTP status {answer.status})", heard=heard, key=key)

    def _headers(self) -> dict[str, str]:
        return {} if self._key is None else {"Authorization": f"Bearer {self._key}"}

    def _open(self) -> aiohttp.ClientSession:
        """Imported only here: it takes longer than all the rest of the client."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self._session

    def __repr__(self) -> str:
        return f"<Service {self.url}>"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _seconds(header: str | None) -> float | None:
    """Retry-After as a number; a date counts as not said."""
    return float(header) if header is not None and header.isascii() and header.isdigit() and len(header) < 6 else None
