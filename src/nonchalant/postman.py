"""One webhook's way to its receiver: connections, names and threads of its own, so that a dead one slows nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from nonchalant.targets import Targets, address_in, is_public
from nonchalant.webhooks import Said

ANSWER_SECONDS: Final = 15.0
ANSWER_BYTES: Final = 1_024  # that are read of an answer
LINE: Final = 200  # characters of it that are kept
IDLE_SECONDS: Final = 10.0
AT_ONCE: Final = 10

# What a name means now: its addresses.
Lookup = Callable[[str, int], Awaitable[Sequence[str]]]


class NotPublic(OSError):
    """The name leads into a private network; nothing was sent."""


class SystemLookup:
    """The machine's own resolver, in a thread that only this webhook waits for."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="webhook-names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(one[4][0]) for one in found))

        return await asyncio.get_running_loop().run_in_executor(self._thread, ask)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class CheckedResolver(AbstractResolver):
    """Gives the connector the very addresses that were checked: there is no second question that could be answered
    otherwise."""

    def __init__(self, targets: Targets, lookup: Lookup) -> None:
        self._targets = targets
        self._lookup = lookup

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - whichever it has
    ) -> list[ResolveResult]:
        found = await self._lookup(host, port)
        if not found:
            raise OSError(f"{host} has no address")
        if self._targets is Targets.PUBLIC:
            for text in found:
                address = address_in(text)
                if address is None or not is_public(address):
                    raise NotPublic(f"{host} leads to {text}, which is not a public address")
        return [
            ResolveResult(
                hostname=host,
                host=text,
                port=port,
                family=socket.AF_INET6 if ":" in text else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for text in found
        ]

    async def close(self) -> None: ...


class Postman:
    """Delivers for one webhook."""

    def __init__(self, targets: Targets, lookup: Lookup | None = None) -> None:
        self._targets = targets
        self._own_lookup = SystemLookup()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=CheckedResolver(targets, lookup or self._own_lookup),
                use_dns_cache=False,
                limit=AT_ONCE,
                keepalive_timeout=IDLE_SECONDS,
            ),
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # a proxy would resolve the name by itself, and connect to what we never checked
        )

    async def post(self, url: str, headers: Mapping[str, str], body: str) -> Said:
        """Never raises: no answer is an answer too."""
        literal = address_in(URL(url).host or "")
        if literal is not None and self._targets is Targets.PUBLIC and not is_public(literal):
            return Said(status=None, error=f"{literal} is not a public address")
        try:
            async with self._session.post(
                url,
                data=body.encode(),
                headers={**headers, "User-Agent": f"nonchalant/{version('nonchalant')}"},
                allow_redirects=False,
            ) as answer:
                said = Said(status=answer.status, retry_after=_seconds(answer.headers.get("Retry-After")))
                line = await _first_line(answer)
                if said.delivered:
                    return said
                return Said(status=said.status, error=line or answer.reason or None, retry_after=said.retry_after)
        except TimeoutError:
            return Said(status=None, error=f"no answer within {ANSWER_SECONDS:g} seconds")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Said(status=None, error=_why(error))

    async def close(self) -> None:
        await self._session.close()
        self._own_lookup.close()


async def _first_line(answer: aiohttp.ClientResponse) -> str:
    """What it says, as far as one line shows it. The status counts, whatever becomes of the rest."""
    said = b""
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            said = await answer.content.read(ANSWER_BYTES)
    text = said.decode("utf-8", "replace").strip()
    return "".join(char for char in text.partition("\n")[0] if char.isprintable())[:LINE]


def _why(error: BaseException) -> str:
    for cause in (error, error.__cause__, error.__context__):
        if isinstance(cause, NotPublic):
            return str(cause)
    return (str(error) or type(error).__name__)[:LINE]


def _seconds(text: str | None) -> float | None:
    """Of `Retry-After`; a date is not understood, and then our own schedule counts."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
