"""Prices from elsewhere than the node: fixed ones, or an HTTP oracle's.

Quotes never say what the base fee is: that is a fact of the chain, which the node knows and an oracle may be late with.
They say what a speed pays beyond it, or in all where the chain has none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final, Protocol

import aiohttp
import msgspec
import structlog
from yarl import URL

from nonchalant.chain.evm.rpc import UNDECODABLE
from nonchalant.errors import Unreachable
from nonchalant.model import Market
from nonchalant.ports import Clock
from nonchalant.secret import host_of
from nonchalant.words import Speed, Wei

log = structlog.get_logger()

JsonPath = tuple[str | int, ...]

ANSWER_BYTES: Final = 256 * 1024  # the wordiest known oracle takes 20 kB
BRACKETS: Final = 5_000
REFRESH_SECONDS: Final = 5.0  # free oracles allow about one question a second, for all nodes together
RETRY_SECONDS: Final = 15.0  # so that one that hangs holds a lane up for one time-out in so long
HIGHEST: Final[Wei] = 10**15  # a million gwei; more is a mistaken unit


@dataclass(frozen=True, slots=True)
class Quote:
    """What each speed pays for gas beyond the base fee; all of it where `includes_base_fee`, or where there is none."""

    prices: Mapping[Speed, Wei]
    includes_base_fee: bool = False


class Quotes(Protocol):
    async def quote(self) -> Quote | None:
        """None: ask the node. Never raises because of what an oracle does."""

    async def close(self) -> None: ...


def priced(base_fee: Wei | None, quote: Quote) -> Market | None:
    """The market as quoted; None if that cannot be meant for this base fee."""
    prices = quote.prices
    if base_fee is None:
        least = min(prices.values())
        return Market(base_fee=None, gas_price=least, priority={speed: prices[speed] - least for speed in Speed})
    if quote.includes_base_fee:
        if max(prices.values()) < base_fee:
            return None
        prices = {speed: max(0, price - base_fee) for speed, price in prices.items()}
    return Market(base_fee=base_fee, gas_price=base_fee + prices[Speed.STANDARD], priority=prices)


class Fixed:
    """The same prices for ever: for private chains."""

    def __init__(self, prices: Mapping[Speed, Wei]) -> None:
        self._quote = Quote(prices)

    async def quote(self) -> Quote:
        return self._quote

    async def close(self) -> None:
        pass


class HttpOracle:
    """Asks a URL for JSON and reads one price a speed out of it; `Unreachable` unless each is there and believable.

    `decimals` is 0 where it speaks of wei and 9 of gwei; `most` is the highest price to believe; `timeout` is in
    seconds. Neither URL nor headers are ever part of an error.
    """

    def __init__(
        self,
        url: str,
        *,
        paths: Mapping[Speed, JsonPath],
        decimals: int,
        headers: Mapping[str, str] | None = None,
        includes_base_fee: bool = False,
        most: Wei = HIGHEST,
        timeout: float,
    ) -> None:
        self.name = host_of(url)
        self._url = URL(url)
        self._paths = paths
        self._decimals = decimals
        self._headers = headers or {}
        self._includes_base_fee = includes_base_fee
        self._most = most
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"HttpOracle({self.name})"

    async def quote(self) -> Quote:
        answer = await self._get()
        document = self._document(answer)
        prices = {speed: self._price(document, path) for speed, path in self._paths.items()}
        return Quote(prices, self._includes_base_fee)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _document(self, answer: bytes) -> object:
        # No deeper than it has brackets. The decoder's own check is Python's recursion limit, which eth-account raises
        # so far that the stack ends first, and with it the process.
        if answer.count(b"[") + answer.count(b"{") > BRACKETS:
            raise Unreachable(f"{self.name} answered with more than {BRACKETS} lists and objects")
        try:
            return _JSON.decode(answer)
        except UNDECODABLE:
            raise Unreachable(f"{self.name} did not answer in JSON") from None

    def _price(self, document: object, path: JsonPath) -> Wei:
        try:
            price = _amount(_at(document, path), self._decimals)
        except ValueError as problem:
            raise Unreachable(f"{self.name}: what it has at {written(path)} {problem}") from None
        if price > self._most:
            raise Unreachable(f"{self.name}: the price at {written(path)} is too high to be believed")
        return price

    async def _get(self) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,  # what a few bytes unpack to has no limit
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "nonchalant"},
            )
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._session.get(self._url, headers=self._headers, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise Unreachable(f"{self.name} answered HTTP {response.status}")
                parts, size = [], 0
                async for part in response.content.iter_any():
                    size += len(part)
                    if size > ANSWER_BYTES:
                        response.close()
                        raise Unreachable(f"{self.name} answered with more than {ANSWER_BYTES} bytes")
                    parts.append(part)
                return b"".join(parts)
        except TimeoutError:
            raise Unreachable(f"{self.name} did not answer within {self._timeout:g} s") from None
        except (aiohttp.ClientError, OSError, EOFError, ValueError) as problem:
            # Not its text, which may hold the URL or a header.
            raise Unreachable(f"{self.name} cannot be reached: {type(problem).__name__}") from None


class Cached:
    """What an oracle said last, while that is no older than `max_age` seconds; then nothing, so that the node is asked.

    One for all endpoints of a chain: however many ask, the oracle is asked by one of them, and not more often than is
    due.
    """

    def __init__(self, oracle: HttpOracle, *, max_age: float, clock: Clock) -> None:
        self._oracle = oracle
        self._max_age = max_age
        self._clock = clock
        self._asking = asyncio.Lock()
        self._due_at = clock.monotonic()
        self._last: tuple[Quote, float] | None = None
        self._failing = False

    async def quote(self) -> Quote | None:
        async with self._asking:
            if self._clock.monotonic() >= self._due_at:
                await self._refresh()
        if self._last is None or self._clock.monotonic() - self._last[1] > self._max_age:
            return None
        return self._last[0]

    async def close(self) -> None:
        await self._oracle.close()

    async def _refresh(self) -> None:
        asked_at = self._clock.monotonic()
        try:
            quote = await self._oracle.quote()
        except Unreachable as problem:
            self._due_at = self._clock.monotonic() + RETRY_SECONDS
            if not self._failing:
                log.warning("oracle.failing", oracle=self._oracle.name, reason=str(problem))
            self._failing = True
            return
        if self._failing:
            log.info("oracle.recovered", oracle=self._oracle.name)
        self._failing = False
        self._last = (quote, asked_at)
        self._due_at = asked_at + min(REFRESH_SECONDS, self._max_age)


# reading the answer

_JSON: Final = msgspec.json.Decoder(float_hook=Decimal)
_NUMBER: Final = re.compile(r"-?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,2})?", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9a-f]{1,64}", re.ASCII | re.IGNORECASE)
_EXACT: Final = Context(prec=200)


def written(path: JsonPath) -> str:
    """The path as the settings have it: `result[0].price`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _at(document: object, path: JsonPath) -> object:
    for step in path:
        match document, step:
            case dict(fields), str(key) if key in fields:
                document = fields[key]
            case list(items), int(place) if place < len(items):
                document = items[place]
            case _:
                raise ValueError("is nothing")
    return document


def _amount(value: object, decimals: int) -> Wei:
    """In wei, rounded up; ValueError if it is no price."""
    match value:
        case bool():
            raise ValueError("is no number")
        case int() | Decimal():
            number = Decimal(value)
        case str() if _HEX.fullmatch(value):
            number = Decimal(int(value, 16))
        case str() if _NUMBER.fullmatch(value):
            number = Decimal(value)
        case _:
            raise ValueError("is no number")
    if not number.is_finite() or number <= 0:
        raise ValueError("is not above zero")
    if not -40 < number.adjusted() < 80:  # as an integer it could fill the memory
        raise ValueError("is too large or too small a number")
    return int(number.scaleb(decimals, _EXACT).to_integral_value(ROUND_CEILING, _EXACT))
