"""One table of `[[chains]]`: its endpoints, its finality, and what is paid on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

from nonchalant.config.settings import (
    ChainSettings,
    DataFee,
    EndpointSettings,
    FixedPrices,
    OraclePrices,
    PriceSource,
    Unit,
)
from nonchalant.errors import BadSettings
from nonchalant.fees import FeeRules
from nonchalant.policy import DEFAULT_BUMP_AFTER, Blocks
from nonchalant.secret import Secret, host_of, parse_secret
from nonchalant.tables import (
    Found,
    Table,
    bad,
    each,
    flag,
    http_url,
    label,
    one_of,
    refuse_duplicates,
    seconds,
    string,
    wei,
    whole,
)
from nonchalant.words import Millis, Speed, Wei

T = TypeVar("T")


def parse_chain(found: Found) -> ChainSettings:
    table = Table(
        found, ("id", "endpoints", "finality", "poll_interval", "request_timeout", "fees", "data_fee", "rpc_methods")
    )
    endpoints = _named(table.need("endpoints", each(_endpoint), 'such as endpoints = ["http://127.0.0.1:8545"]'))
    where = f"{found.path}.endpoints"
    refuse_duplicates(where, "this url", [endpoint.url for endpoint in endpoints], secret=True)
    refuse_duplicates(where, "name", [endpoint.name for endpoint in endpoints])
    return ChainSettings(
        id=table.need("id", whole(1, 2**63 - 1), "say which chain this is, such as id = 1"),
        endpoints=endpoints,
        finality=table.take("finality", _finality, "tag"),
        poll_interval=table.take("poll_interval", seconds(0.05, 3600), 1.0),
        request_timeout=table.take("request_timeout", seconds(0.1, 600), 10.0),
        fees=table.take("fees", _fees, FeeRules()),
        bump_after=table.take("fees", _bump_after, DEFAULT_BUMP_AFTER),
        prices=table.take("fees", _prices, None),
        data_fee=table.take("data_fee", one_of(DataFee), DataFee.NONE),
        rpc_methods=table.take("rpc_methods", each(_method), ()),
    )


def _method(found: Found) -> str:
    """Never all of them: some give out bytes for our nonces, or the node itself."""
    name = string(found)
    if not re.fullmatch(r"[A-Za-z0-9]{1,40}_([A-Za-z0-9_]{1,80}|\*)", name, re.ASCII):
        raise bad(found.path, 'expected a method, such as "debug_traceTransaction", or a namespace, such as "trace_*"')
    return name


def _endpoint(found: Found) -> EndpointSettings:
    """Without a name of its own it is called by its host, once `parse_chain` has seen whether that is unique."""
    if not isinstance(found.value, dict):
        return EndpointSettings("", http_url(found))
    table = Table(found, ("url", "name"))
    return EndpointSettings(
        table.take("name", label, ""), table.need("url", http_url, 'such as url = "http://127.0.0.1:8545"')
    )


def _named(endpoints: tuple[EndpointSettings, ...]) -> tuple[EndpointSettings, ...]:
    """Hosts that are there more than once are numbered."""
    hosts = [host_of(endpoint.url) for endpoint in endpoints]
    numbered = [
        f"{host}#{hosts[:i].count(host) + 1}" if hosts.count(host) > 1 else host for i, host in enumerate(hosts)
    ]
    return tuple(
        EndpointSettings(endpoint.name or name, endpoint.url)
        for endpoint, name in zip(endpoints, numbered, strict=True)
    )


def _finality(found: Found) -> Literal["tag"] | int:
    if found.value == "tag":
        return "tag"
    if isinstance(found.value, str):
        raise bad(found.path, 'expected "tag" or a depth in blocks, such as 12')
    return whole(1, 1_000_000)(found)


_FEES: Final = (
    "speed",
    "min_priority_fee_per_gas",
    "max_priority_fee_per_gas",
    "max_fee_per_gas",
    "replacement_percent",
    "calldata_floor",
    "bump_after",
    "source",
    "fixed",
    "oracle",
)


def _fees(found: Found) -> FeeRules:
    table = Table(found, _FEES)
    rules = FeeRules(
        speed=table.take("speed", one_of(Speed), Speed.STANDARD),
        min_priority=table.take("min_priority_fee_per_gas", wei, 0),
        max_priority=table.take("max_priority_fee_per_gas", wei, None),
        max_fee=table.take("max_fee_per_gas", wei, None),
        replacement_percent=table.take("replacement_percent", whole(0, 1000), 10),
        calldata_floor=table.take("calldata_floor", flag, True),
    )
    refuse_low_caps(found.path, rules.max_fee, rules.max_priority, rules.min_priority)
    return rules


def refuse_low_caps(path: str, max_fee: Wei | None, max_priority: Wei | None, least: Wei) -> None:
    for key, cap in (("max_priority_fee_per_gas", max_priority), ("max_fee_per_gas", max_fee)):
        if cap is not None and cap < max(least, 1):
            raise bad(f"{path}.{key}", "this cap is below what must be paid at least; raise it")


def _bump_after(found: Found) -> Mapping[Speed, Millis | Blocks]:
    """Of those speeds that are named; the others are as they are without the setting."""

    def parse(found: Found) -> Mapping[Speed, Millis | Blocks]:
        if not isinstance(found.value, dict):
            return dict.fromkeys(Speed, _patience(found))
        named = Table(found, tuple(Speed))
        return {speed: named.take(speed, _patience, DEFAULT_BUMP_AFTER[speed]) for speed in Speed}

    return Table(found, _FEES).take("bump_after", parse, DEFAULT_BUMP_AFTER)


def _patience(found: Found) -> Millis | Blocks:
    expected = bad(found.path, 'expected seconds from 1 to 86400, such as 60, or blocks, such as "5 blocks"')
    if isinstance(found.value, str):
        blocks = re.fullmatch(r"([1-9]\d{0,4}) blocks?", found.value, re.ASCII)
        if blocks is None:
            raise expected
        return Blocks(int(blocks.group(1)))
    try:
        return int(seconds(1, 86_400)(found) * 1000)
    except BadSettings:
        raise expected from None


def _prices(found: Found) -> FixedPrices | OraclePrices | None:
    table = Table(found, _FEES)
    source = table.take("source", one_of(PriceSource), PriceSource.NODE)
    for key in (PriceSource.FIXED, PriceSource.ORACLE):
        if key in table.values and key is not source:
            raise bad(f"{found.path}.{key}", f'it is not used while source is "{source}"; set source = "{key}"')
    match source:
        case PriceSource.NODE:
            return None
        case PriceSource.FIXED:
            return FixedPrices(table.need("fixed", _fixed, 'such as fixed = "1 gwei"'))
        case PriceSource.ORACLE:
            return table.need("oracle", _oracle, "add a table that names its url, unit and paths")


def _fixed(found: Found) -> Mapping[Speed, Wei]:
    return _by_speed(wei)(found) if isinstance(found.value, dict) else dict.fromkeys(Speed, wei(found))


def _oracle(found: Found) -> OraclePrices:
    table = Table(found, ("url", "headers", "paths", "unit", "includes_base_fee", "timeout", "max_age"))
    return OraclePrices(
        url=table.need("url", http_url, 'such as url = "https://gas.example/v2"'),
        headers=table.take("headers", _headers, {}),
        paths=table.need("paths", _by_speed(_json_path), 'such as paths = { standard = "result[0].price" }'),
        unit=table.need("unit", one_of(Unit), 'say what its numbers count: "wei" or "gwei"'),
        includes_base_fee=table.take("includes_base_fee", flag, False),
        timeout=table.take("timeout", seconds(0.1, 60), 2.0),
        max_age=table.take("max_age", seconds(1, 3600), 60.0),
    )


def _by_speed(parse: Callable[[Found], T]) -> Callable[[Found], Mapping[Speed, T]]:
    """One value a speed; those not named are as `standard`."""

    def parse_speeds(found: Found) -> Mapping[Speed, T]:
        table = Table(found, tuple(Speed))
        standard = table.need(Speed.STANDARD, parse, "the other speeds may be left out, this one not")
        return {speed: table.take(speed, parse, standard) for speed in Speed}

    return parse_speeds


def _json_path(found: Found) -> tuple[str | int, ...]:
    text = string(found)
    if len(text) > 200 or not re.fullmatch(r"(?:[^.\[\]]+|\[\d{1,6}\])(?:\.[^.\[\]]+|\[\d{1,6}\])*", text, re.ASCII):
        raise bad(found.path, 'expected the way to a number in the answer, such as "fast.maxFee" or "result[0].price"')
    return tuple(int(place) if place else key for place, key in re.findall(r"\[(\d+)\]|([^.\[\]]+)", text))


def _headers(found: Found) -> Mapping[str, Secret]:
    if not isinstance(found.value, dict):
        raise bad(found.path, 'expected a table such as { X-API-Key = { env = "ORACLE_KEY" } }')
    for name in found.value:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,100}", name, re.ASCII):
            raise bad(found.path, f"{name[:40]!r} is no name of a header")
    table = Table(found, tuple(found.value))
    return {name: table.need(name, parse_secret, "") for name in found.value}
