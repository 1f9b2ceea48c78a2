"""Settings: one TOML file and the environment become one frozen value, or an error that names the key and the remedy.

Nothing secret is read here, only where to find it (`secret.py`).
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import urlsplit

from nonchalant.amounts import LIMIT, parse_wei
from nonchalant.errors import BadSettings
from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.model import Millis, Speed, Wei
from nonchalant.policy import DEFAULT_BUMP_AFTER, Blocks
from nonchalant.secret import EnvSecret, FileSecret, Secret
from nonchalant.tables import Found, Table, bad, days, each, flag, one_of, seconds, string, whole
from nonchalant.windows import Pace

T = TypeVar("T")

DEFAULT_FILE: Final = "nonchalant.toml"

# Scalars at the top, each with the variable that wins over the file.
VARIABLES: Final = {
    key: f"NONCHALANT_{key.upper()}"
    for key in ("store", "listen", "auth", "log_format", "lease_seconds", "retention", "attention_hook")
}


# --- the values ---


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the service listens. Port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class PrivateKey:
    secret: Secret


@dataclass(frozen=True, slots=True)
class Keystore:
    path: Path
    password: Secret
    where: str = ""


@dataclass(frozen=True, slots=True)
class Mnemonic:
    """Accounts `path`/0 up to `path`/`count - 1`."""

    phrase: Secret
    path: str
    count: int
    where: str = ""


KeySource = PrivateKey | Keystore | Mnemonic


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    name: str  # safe to print
    url: str = field(repr=False)  # may carry a password or an API key


class PriceSource(StrEnum):
    NODE = "node"
    FIXED = "fixed"
    ORACLE = "oracle"


class Unit(StrEnum):
    WEI = "wei"
    GWEI = "gwei"

    @property
    def decimals(self) -> int:
        return 9 if self is Unit.GWEI else 0


@dataclass(frozen=True, slots=True)
class FixedPrices:
    """What each speed pays for gas beyond the base fee; or in all, on a chain without one."""

    prices: Mapping[Speed, Wei]


@dataclass(frozen=True, slots=True, kw_only=True)
class OraclePrices:
    """A URL that answers with JSON, and where in it a speed's price stands: beyond the base fee, or in all on a chain
    without one or if `includes_base_fee`. An answer older than `max_age` is not used; both times are in seconds."""

    url: str = field(repr=False)  # may carry an API key
    headers: Mapping[str, Secret]
    paths: Mapping[Speed, tuple[str | int, ...]]
    unit: Unit
    includes_base_fee: bool = False
    timeout: float = 2.0
    max_age: float = 60.0


class DataFee(StrEnum):
    """How a chain charges for publishing a transaction, beside gas."""

    NONE = "none"
    OP_STACK = "op-stack"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """`finality` is "tag" or how many blocks below the head count as final; the times are in seconds. `prices` None: as
    its nodes see them."""

    id: int
    endpoints: tuple[EndpointSettings, ...]
    finality: Literal["tag"] | int = "tag"
    poll_interval: float = 1.0
    request_timeout: float = 10.0
    fees: FeeRules = field(default_factory=FeeRules)
    bump_after: Mapping[Speed, Millis | Blocks] = field(default_factory=lambda: DEFAULT_BUMP_AFTER)
    prices: FixedPrices | OraclePrices | None = None
    data_fee: DataFee = DataFee.NONE

    @property
    def charges_for_data(self) -> bool:
        return self.data_fee is not DataFee.NONE

    @property
    def depth(self) -> int | None:
        """None: finality is the nodes' `finalized` tag."""
        return None if self.finality == "tag" else self.finality


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings:
    """`max_fee` and `max_priority` cap its prices beside the chain's own caps. None: only those count. `shared`: others
    sign with the same key."""

    chains: tuple[int, ...]
    key: KeySource
    window: int = 16
    mode: Pace = Pace.PIPELINED
    queue_limit: int = 10_000
    max_fee: Wei | None = None
    max_priority: Wei | None = None
    shared: bool = False
    health: HealthRules = field(default_factory=HealthRules)
    where: str = ""

    def capped(self, chain: FeeRules) -> FeeRules:
        """The chain's rules as they are for this account."""
        return chain.capped(max_fee=self.max_fee, max_priority=self.max_priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`log_format` None: human on a terminal, else JSON."""

    store: str
    listen: Listen = Listen("127.0.0.1", 8645)
    auth: Literal["off"] = "off"
    log_format: LogFormat | None = None
    lease_seconds: float = 10.0
    retention: int = 90  # days, from a transaction's end
    attention_hook: str | None = None  # "package.module:function"
    chains: tuple[ChainSettings, ...]
    accounts: tuple[AccountSettings, ...]

    def chain(self, chain_id: int) -> ChainSettings | None:
        return next((chain for chain in self.chains if chain.id == chain_id), None)


# --- reading them ---


def load_settings(file: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of this file (by default `nonchalant.toml` in the current folder) under this environment."""
    path = Path(DEFAULT_FILE if file is None else file)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadSettings(
            f"there is no {path}; write one, or name it by --config (to try without any, run `nonchalant dev`)"
        ) from None
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadSettings(f"{path} is not UTF-8 text") from None
    return parse_settings(text, folder=path.parent, environ=os.environ if environ is None else environ, name=str(path))


def parse_settings(text: str, *, folder: Path, environ: Mapping[str, str], name: str = DEFAULT_FILE) -> Settings:
    """Paths in the text start at `folder`, those from the environment at the current folder."""
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSettings(f"{name} is not valid TOML: {error}") from None
    _refuse_misspelt_variables(environ)
    here = Path.cwd()
    overrides = {
        key: Found(environ[variable], variable, here, from_environment=True)
        for key, variable in VARIABLES.items()
        if variable in environ
    }
    root = Table(Found(values, "", folder.absolute()), (*VARIABLES, "chains", "accounts"), overrides)
    settings = Settings(
        store=root.need("store", _store, 'add store = "sqlite:nonchalant.db"'),
        listen=root.take("listen", _listen, Listen("127.0.0.1", 8645)),
        auth=root.take("auth", _auth, "off"),
        log_format=root.take("log_format", one_of(LogFormat), None),
        lease_seconds=root.take("lease_seconds", seconds(2, 300), 10.0),
        retention=root.take("retention", days(30, 36_500), 90),
        attention_hook=root.take("attention_hook", _hook, None),
        chains=root.need("chains", each(_chain), "add a [[chains]] table"),
        accounts=root.need("accounts", each(_account), "add an [[accounts]] table"),
    )
    _refuse_duplicates("chains", "id", [str(chain.id) for chain in settings.chains])
    _check_accounts(settings)
    return settings


# --- one parser a value ---


def _hook(found: Found) -> str:
    name = string(found)
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", name, re.ASCII):
        raise bad(found.path, 'expected "package.module:function"')
    return name


def _chain(found: Found) -> ChainSettings:
    table = Table(found, ("id", "endpoints", "finality", "poll_interval", "request_timeout", "fees", "data_fee"))
    endpoints = _named(table.need("endpoints", each(_endpoint), 'such as endpoints = ["http://127.0.0.1:8545"]'))
    where = f"{found.path}.endpoints"
    _refuse_duplicates(where, "this url", [endpoint.url for endpoint in endpoints], secret=True)
    _refuse_duplicates(where, "name", [endpoint.name for endpoint in endpoints])
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
    )


def _endpoint(found: Found) -> EndpointSettings:
    """Without a name of its own it is called by its host, once `_chain` has seen whether that is unique."""
    if not isinstance(found.value, dict):
        return EndpointSettings("", _url(found))
    table = Table(found, ("url", "name"))
    return EndpointSettings(
        table.take("name", _name, ""), table.need("url", _url, 'such as url = "http://127.0.0.1:8545"')
    )


def _named(endpoints: tuple[EndpointSettings, ...]) -> tuple[EndpointSettings, ...]:
    """Hosts that are there more than once are numbered."""
    hosts = [_host(endpoint.url) for endpoint in endpoints]
    numbered = [
        f"{host}#{hosts[:i].count(host) + 1}" if hosts.count(host) > 1 else host for i, host in enumerate(hosts)
    ]
    return tuple(
        EndpointSettings(endpoint.name or name, endpoint.url)
        for endpoint, name in zip(endpoints, numbered, strict=True)
    )


_FEES: Final = (
    "speed",
    "min_priority_fee_per_gas",
    "max_priority_fee_per_gas",
    "max_fee_per_gas",
    "replacement_percent",
    "bump_after",
    "source",
    "fixed",
    "oracle",
)


def _fees(found: Found) -> FeeRules:
    table = Table(found, _FEES)
    rules = FeeRules(
        speed=table.take("speed", one_of(Speed), Speed.STANDARD),
        min_priority=table.take("min_priority_fee_per_gas", _wei, 0),
        max_priority=table.take("max_priority_fee_per_gas", _wei, None),
        max_fee=table.take("max_fee_per_gas", _wei, None),
        replacement_percent=table.take("replacement_percent", whole(0, 1000), 10),
    )
    _refuse_low_caps(found.path, rules.max_fee, rules.max_priority, rules.min_priority)
    return rules


def _refuse_low_caps(path: str, max_fee: Wei | None, max_priority: Wei | None, least: Wei) -> None:
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
    return _by_speed(_wei)(found) if isinstance(found.value, dict) else dict.fromkeys(Speed, _wei(found))


def _oracle(found: Found) -> OraclePrices:
    table = Table(found, ("url", "headers", "paths", "unit", "includes_base_fee", "timeout", "max_age"))
    return OraclePrices(
        url=table.need("url", _url, 'such as url = "https://gas.example/v2"'),
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
    return {name: table.need(name, _secret, "") for name in found.value}


def _account(found: Found) -> AccountSettings:
    table = Table(found, ("chains", "key", "window", "mode", "shared", "queue_limit", "fees", "health"))
    caps = table.take("fees", _caps, {})
    return AccountSettings(
        chains=table.need("chains", each(whole(1, 2**63 - 1)), "name the chains it works on, such as chains = [1]"),
        key=table.need("key", _key, 'such as key = { env = "RELAYER_KEY" }'),
        window=table.take("window", whole(1, 10_000), 16),
        mode=table.take("mode", one_of(Pace), Pace.PIPELINED),
        queue_limit=table.take("queue_limit", whole(1, 10_000_000), 10_000),
        max_fee=caps.get("max_fee_per_gas"),
        max_priority=caps.get("max_priority_fee_per_gas"),
        shared=table.take("shared", flag, False),
        health=table.take("health", _health, HealthRules()),
        where=found.path,
    )


def _caps(found: Found) -> Mapping[str, Wei]:
    keys = ("max_fee_per_gas", "max_priority_fee_per_gas")
    table = Table(found, keys)
    return {key: table.need(key, _wei, "") for key in keys if key in table.values}


def _health(found: Found) -> HealthRules:
    table = Table(found, ("min_balance", "movement_within", "confirmation_within", "max_resets"))
    standard = HealthRules()
    return HealthRules(
        min_balance=table.take("min_balance", _wei, standard.min_balance),
        movement_within=table.take("movement_within", _time_limit, standard.movement_within),
        confirmation_within=table.take("confirmation_within", _time_limit, standard.confirmation_within),
        max_resets=table.take("max_resets", whole(0, 1_000_000), standard.max_resets),
    )


def _time_limit(found: Found) -> float | None:
    """0: there is none."""
    if found.value == 0 and not isinstance(found.value, bool):
        return None
    try:
        return seconds(10, 30 * 86_400)(found)
    except BadSettings:
        raise bad(found.path, "expected seconds from 10 to 2592000, or 0 for no limit") from None


def _key(found: Found) -> KeySource:
    if isinstance(found.value, str):
        raise bad(found.path, 'a key never stands in the settings itself; use { env = "…" } or { file = "…" }')
    if isinstance(found.value, dict) and "keystore" in found.value:
        table = Table(found, ("keystore", "password"))
        password = table.need("password", _secret, 'such as password = { env = "…" } or { file = "…" }')
        return Keystore(table.need("keystore", _path, "name the file"), password, where=found.path)
    if isinstance(found.value, dict) and "mnemonic" in found.value:
        table = Table(found, ("mnemonic", "path", "count"))
        return Mnemonic(
            table.need("mnemonic", _secret, 'such as mnemonic = { env = "…" }'),
            table.take("path", _derivation, "m/44'/60'/0'/0"),
            table.take("count", whole(1, 10_000), 1),
            where=found.path,
        )
    return PrivateKey(_secret(found, ("env", "file", "keystore", "mnemonic")))


def _secret(found: Found, known: Sequence[str] = ("env", "file")) -> Secret:
    if isinstance(found.value, str):
        raise bad(found.path, 'a secret never stands in the settings itself; use { env = "…" } or { file = "…" }')
    table = Table(found, known)
    name = table.take("env", _name, None)
    path = table.take("file", _path, None)
    if name is not None and path is None:
        return EnvSecret(name, f"{found.path}.env")
    if path is not None and name is None:
        return FileSecret(path, f"{found.path}.file")
    raise bad(found.path, f"expected exactly one of {', '.join(known)}")


def _store(found: Found) -> str:
    text = string(found)
    scheme, colon, path = text.partition(":")
    if scheme != "sqlite" or not colon or not path:
        raise bad(found.path, 'this version keeps its data in SQLite only; write "sqlite:PATH"')
    if path == ":memory:":
        raise bad(found.path, "what is accepted must survive the process; name a file")
    return f"sqlite:{_path(replace(found, value=path))}"


def _listen(found: Found) -> Listen:
    address = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})", string(found), re.ASCII)
    if address is None or int(address.group(3)) > 65535:
        raise bad(found.path, 'expected "HOST:PORT", such as "127.0.0.1:8645"')
    listen = Listen(address.group(1) or address.group(2), int(address.group(3)))
    if not listen.is_loopback:
        raise bad(
            found.path,
            f"{listen} can be reached from outside, and this version has no API keys; "
            "listen on 127.0.0.1, behind a proxy that authenticates if others must reach it",
        )
    return listen


def _auth(found: Found) -> Literal["off"]:
    if found.value != "off":
        raise bad(found.path, 'this version has no API keys; the only value is "off", on a loopback address')
    return "off"


def _finality(found: Found) -> Literal["tag"] | int:
    if found.value == "tag":
        return "tag"
    if isinstance(found.value, str):
        raise bad(found.path, 'expected "tag" or a depth in blocks, such as 12')
    return whole(1, 1_000_000)(found)


def _url(found: Found) -> str:
    url = string(found)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    # Never the URL itself in an error: it may carry a key.
    if not usable or re.search(r"[\s\x00-\x1f]", url):
        raise bad(found.path, "expected a URL that starts with http:// or https:// and names a host")
    return url


def _host(url: str) -> str:
    """Host and port: what comes before and after them may be a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port is None else f"{host}:{parts.port}"


def _derivation(found: Found) -> str:
    text = string(found)
    steps = text.split("/")
    if steps[0] != "m" or not all(
        re.fullmatch(r"\d{1,10}'?", s, re.ASCII) and int(s.rstrip("'")) < 2**31 for s in steps[1:]
    ):
        raise bad(found.path, "expected a derivation path such as \"m/44'/60'/0'/0\"")
    return text


def _path(found: Found) -> Path:
    try:
        path = Path(string(found)).expanduser()
    except RuntimeError as error:
        raise bad(found.path, str(error)) from None
    if "\0" in str(path):
        raise bad(found.path, "expected the path of a file")
    return found.folder / path


def _name(found: Found) -> str:
    text = string(found)
    if not re.fullmatch(r"[\w.:@/ -]{1,100}", text):
        raise bad(found.path, "expected a name of at most 100 letters, digits and . : @ / - _")
    return text


def _wei(found: Found) -> Wei:
    if isinstance(found.value, int) and not isinstance(found.value, bool):
        if 0 <= found.value < LIMIT:
            return found.value
        raise bad(found.path, "expected an amount of wei from 0 up to 256 bits")
    if not isinstance(found.value, str):
        raise bad(found.path, 'expected an amount of wei, such as 5000000000 or "5 gwei"')
    try:
        return parse_wei(found.value)
    except ValueError as error:
        raise bad(found.path, str(error)) from None


def _check_accounts(settings: Settings) -> None:
    seen: dict[tuple[KeySource, int], str] = {}
    for account in settings.accounts:
        where = f"{account.where}.chains"
        _refuse_duplicates(where, "chain", [str(chain_id) for chain_id in account.chains])
        for chain_id in account.chains:
            chain = settings.chain(chain_id)
            if chain is None:
                raise bad(where, f"there is no chain {chain_id}; add it to [[chains]], or take it out here")
            _refuse_low_caps(f"{account.where}.fees", account.max_fee, account.max_priority, chain.fees.min_priority)
            other = seen.setdefault((_without_places(account.key), chain_id), account.where)
            if other != account.where:
                raise bad(f"{account.where}.key", f"{other} has this key on chain {chain_id} already; keep one of them")


def _without_places(key: KeySource) -> KeySource:
    """The same key named at another place of the settings compares equal."""
    match key:
        case PrivateKey(secret):
            return PrivateKey(replace(secret, where=""))
        case Keystore(path, password):
            return Keystore(path, replace(password, where=""))
        case Mnemonic(phrase, path, _):
            return Mnemonic(replace(phrase, where=""), path, 0)


def _refuse_duplicates(path: str, what: str, values: Sequence[str], *, secret: bool = False) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise bad(f"{path}[{index}]", f"{what} is there twice" if secret else f"{value} is there twice as {what}")


def _refuse_misspelt_variables(environ: Mapping[str, str]) -> None:
    """Variables of the same prefix may be anybody's (NONCHALANT_URL, a key's); only what looks like ours is refused."""
    known = list(VARIABLES.values())
    for variable in environ:
        if variable.startswith("NONCHALANT_") and variable not in known:
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.9)
            if near:
                raise bad(variable, f"unknown variable; did you mean {near[0]}?")
