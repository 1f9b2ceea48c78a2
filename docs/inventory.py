"""What exists, asked of the code itself: the docs' tables are written from this, and tests compare the docs with it."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from typer.main import get_command

import nonchalant
from nonchalant import errors, lifecycle
from nonchalant.cli.commands import app
from nonchalant.config import VARIABLES, AccountSettings, ChainSettings, OraclePrices, Settings, parse_settings
from nonchalant.errors import BadSettings, NonchalantError
from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.model import TX_ACCEPTED, Attention, BlockRef, Fees, Payload, Receipt, Transaction
from nonchalant.rejections import Fate, Rejection
from nonchalant.service import problems
from nonchalant.words import AttemptKind, LaneKey, Speed, State

SOURCE = Path(nonchalant.__file__).parent

# --- settings ---

Route = tuple[str | int, ...]

MINIMAL = """
store = "sqlite:nonchalant.db"
[[chains]]
id = 1
endpoints = [{ url = "http://127.0.0.1:8545" }]
fees = {}
[[accounts]]
chains = [1]
key = { env = "RELAYER_KEY" }
"""
# What has to stand in a table before one of its keys is looked at.
AROUND: Mapping[Route, Mapping[str, object]] = {
    ("chains", "fees", "fixed"): {"source": "fixed", "fixed": {"standard": 1}},
    ("chains", "fees", "oracle"): {
        "source": "oracle",
        "oracle": {"url": "http://127.0.0.1", "unit": "wei", "paths": {"standard": "a"}},
    },
    ("accounts", "key", "file"): {"file": "relayer.key"},
    ("accounts", "key", "keystore"): {"keystore": "relayer.json", "password": {"env": "RELAYER_PASSWORD"}},
    ("accounts", "key", "mnemonic"): {"mnemonic": {"env": "RELAYER_PHRASE"}},
}
# These keys stand only beside that one.
BESIDE: Mapping[Route, Route] = {
    ("accounts", "key", "password"): ("accounts", "key", "keystore"),
    ("accounts", "key", "path"): ("accounts", "key", "mnemonic"),
    ("accounts", "key", "count"): ("accounts", "key", "mnemonic"),
}


@dataclass(frozen=True)
class Setting:
    """One key. `takes` is what the program says it expects; `default` None: it must be given, or there is none."""

    table: str
    key: str
    takes: str
    default: str | None
    variable: str | None = None

    @property
    def name(self) -> str:
        return f"{self.table}.{self.key}".lstrip(".")


@cache
def settings() -> list[Setting]:
    """Every key of the settings file. The program is asked, by giving it a key and then a value it cannot take."""
    found = list(_settings(()))
    return sorted(found, key=lambda one: [other.table for other in found].index(one.table))


def _settings(route: Route) -> Iterator[Setting]:
    for key in _keys(route):
        here = (*route, key)
        table = ".".join(_words_of(route))
        variable = VARIABLES.get(key) if not route else None
        yield Setting(table, key, _takes(here), _default(_words_of(here)), variable)
        if key not in ("password", "mnemonic"):  # they take what `key` takes
            yield from _settings((*here, 0)) if _keys((*here, 0)) else _settings(here)


def _keys(route: Route) -> list[str]:
    """The keys of the table at this place, those beside which others may stand included; none if it is no table."""
    keys = dict.fromkeys(_named(route, {}))
    for key in list(keys):
        keys.update(dict.fromkeys(_named(route, {key: 0})))
    return list(keys)


def _named(route: Route, beside: Mapping[str, object]) -> list[str]:
    _, said = _refusal((*route, "?"), 0) if not route else _refusal(route, {**beside, "?": 0})
    return said.partition("known here: ")[2].split(", ") if "known here: " in said else []


def _takes(route: Route) -> str:
    for wrong in ("?", False):
        place, said = _refusal(route, wrong)
        if said:
            if place != _written(route):
                raise ValueError(f"asked about {_written(route)}, and was told about {place}: {said}")
            return said.removeprefix("expected ")
    raise ValueError(f"{_written(route)} takes everything")


def _refusal(route: Route, value: object) -> tuple[str, str]:
    """What the program says, and of which key, when this stands at this place; nothing if it takes it."""
    document = _put(tomllib.loads(MINIMAL), route, value)
    try:
        parse_settings(_toml(document), folder=Path("/"), environ={})
    except BadSettings as refusal:
        where, _, said = str(refusal).partition(": ")
        return where, said
    return "", ""


def _put(old: object, route: Route, value: object, words: tuple[str, ...] = ()) -> object:
    """`old` with the value at that place, and around it what the value needs."""
    if not route:
        return value
    step, rest = route[0], route[1:]
    if isinstance(step, int):
        return [_put(old[0] if isinstance(old, list) else None, rest, value, words)]
    words = (*words, step)
    around = AROUND.get(BESIDE.get(words, words), old if isinstance(old, dict) else {})
    return {**around, step: _put(around.get(step), rest, value, words)}


def _words_of(route: Route) -> tuple[str, ...]:
    return tuple(step for step in route if isinstance(step, str))


def _written(route: Route) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in route).removeprefix(".")


def _toml(value: object) -> str:
    """As the text of one TOML file, tables inline."""
    assert isinstance(value, dict)
    return "\n".join(f"{_inline(key)} = {_inline(item)}" for key, item in value.items())


def _inline(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_inline(key)} = {_inline(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_inline(item) for item in value) + "]"
        case _:
            return msgspec.json.encode(value).decode()


# Where a key's value is found once it was read, if not under its own name.
FIELDS: Mapping[str, str] = {
    "min_priority_fee_per_gas": "min_priority",
    "max_priority_fee_per_gas": "max_priority",
    "max_fee_per_gas": "max_fee",
}


def _default(words: tuple[str, ...]) -> str | None:
    """What a value is when its key is left out."""
    if words == ("chains", "fees", "source"):
        return '"node"'
    homes: dict[tuple[str, ...], Any] = {(): Settings, ("chains",): ChainSettings, ("accounts",): AccountSettings}
    homes |= {("chains", "fees"): FeeRules, ("chains", "fees", "oracle"): OraclePrices}
    homes[("accounts", "health")] = HealthRules
    if words[:-1] == ("accounts", "key"):
        mnemonic = MINIMAL.replace('{ env = "RELAYER_KEY" }', '{ mnemonic = { env = "P" } }')
        key: Any = parse_settings(mnemonic, folder=Path("/"), environ={}).accounts[0].key
        value = getattr(key, words[-1], None) if words[-1] in ("path", "count") else None
    else:
        fields = getattr(homes.get(words[:-1]), "__dataclass_fields__", {})
        field = fields.get(FIELDS.get(words[-1], words[-1]))
        value = None if field is None or field.default is MISSING else field.default
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case float() | int():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case _:
            return f'"{value}"'


# --- the command line ---


@dataclass(frozen=True)
class Option:
    """`names` as typed; empty `default`: none is shown."""

    names: tuple[str, ...]
    takes: str
    default: str
    help: str
    variable: str | None
    argument: bool = False


@dataclass(frozen=True)
class Command:
    name: str  # without the program's own
    help: str
    options: tuple[Option, ...]


def commands() -> list[Command]:
    return list(_commands(get_command(app), ()))


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    children = getattr(command, "commands", None)
    if children is None:
        yield Command(" ".join(path), command.help, tuple(_option(parameter) for parameter in command.params))
        return
    if not path:
        yield Command("", command.help, tuple(_option(parameter) for parameter in command.params))
    for name, child in children.items():
        yield from _commands(child, (*path, name))


def _option(parameter: Any) -> Option:
    argument = not parameter.opts[0].startswith("-")
    kind = parameter.type_descriptor.annotation
    if parameter.metavar:
        takes = parameter.metavar
    elif kind is bool:
        takes = ""
    elif isinstance(kind, type) and issubclass(kind, Enum):
        takes = ", ".join(member.value for member in kind)
    else:
        takes = {"str": "text", "int": "whole number", "float": "number", "Path": "path"}[kind.__name__]
    if parameter.min is not None or parameter.max is not None:
        bounds = [
            f"{word} {edge:g}" for word, edge in (("from", parameter.min), ("to", parameter.max)) if edge is not None
        ]
        takes += f" {' '.join(bounds)}"
    default = parameter.default
    if kind is bool:
        shown = (parameter.opts if default else parameter.secondary_opts or [""])[0]
    else:
        shown = "" if default is None else str(default)
    names = (parameter.metavar,) if argument else (*parameter.opts, *parameter.secondary_opts)
    return Option(names, takes, shown, getattr(parameter, "help", None) or "", parameter.envvar, argument)


# --- errors ---


@dataclass(frozen=True)
class Error:
    name: str
    code: str
    status: int  # of the REST answer
    sentence: str
    public: bool  # in `nonchalant.__all__`
    http: bool  # known to HTTP alone


def error_tree() -> list[Error]:
    """Every exception of the package that has a code of its own, and the codes that only HTTP knows."""
    found = []
    for kind in _subclasses(NonchalantError):
        if kind.__module__ not in (errors.__name__, problems.__name__) or kind is problems.HttpProblem:
            continue
        sentence = (kind.__doc__ or "").strip().splitlines()[0]
        http = issubclass(kind, problems.HttpProblem)
        status = kind.status if http else next((s for k, s in problems.STATUS.items() if issubclass(kind, k)), 500)
        found.append(Error(kind.__name__, kind.code, status, sentence, kind.__name__ in nonchalant.__all__, http))
    return found


def _subclasses(kind: type[NonchalantError]) -> Iterator[Any]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)


# --- events, marks and log lines: read from the source ---


@dataclass(frozen=True)
class Emitted:
    """An event or a log line. `fields` are the names of its data, in order."""

    name: str
    fields: tuple[str, ...]
    level: str = ""


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the program but the simulator, which only listens, and the doubles for tests."""
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE).with_suffix("").parts
        if parts[0] not in ("sim", "testing"):
            yield ".".join(("nonchalant", *parts)).removesuffix(".__init__"), ast.parse(file.read_text())


def calls() -> Iterator[tuple[str, ast.Call]]:
    for module, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield module, node


@cache
def events() -> list[Emitted]:
    """Every event kind that can be written, with the names of its data."""
    found = {
        TX_ACCEPTED: dict[str, None](),
        **_lifecycle_events(),
    }  # the first has a name, for the SQL that tells of it
    for _, call in calls():
        name = _called(call)
        if name == "event" and call.args and isinstance(call.args[0], ast.Constant):
            fields = {keyword.arg or "": None for keyword in call.keywords if keyword.arg != "tx_id"}
            found.setdefault(str(call.args[0].value), {}).update(fields)
        if name == "Event":
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            kind, data = given.get("kind"), given.get("data")
            keys = data.keys if isinstance(data, ast.Dict) else []
            for one in (kind.body, kind.orelse) if isinstance(kind, ast.IfExp) else (kind,):
                if isinstance(one, ast.Constant):
                    found.setdefault(str(one.value), {}).update({str(key.value): None for key in keys})  # type: ignore[union-attr]
    return [Emitted(kind, tuple(fields)) for kind, fields in sorted(found.items(), key=_family)]


def _family(item: tuple[str, object]) -> tuple[int, str]:
    family, _, name = item[0].partition(".")
    return ("tx", "attempt", "lane").index(family), name


def _lifecycle_events() -> dict[str, dict[str, None]]:
    """By making every move of the table."""
    lane, mark = LaneKey(1, "0x"), Attention("", "", 0)
    receipt = Receipt(hash="0x", block=BlockRef(1, "0x"), succeeded=True, gas_used=1, gas_price=1)
    arguments: Mapping[str, Callable[[], object]] = {
        "nonce": lambda: 0,
        "hash": lambda: "0x",
        "fees": lambda: Fees(1, 1),
        "receipt": lambda: receipt,
        "by": lambda: "0x",
        "reason": lambda: "",
        "attention": lambda: mark,
        "hold": lambda: None,
        "ends": lambda: False,
        "renewed": lambda: False,
        "kind": lambda: AttemptKind.BUMP,
        "payload": lambda: Payload(to="0x"),
        "blocks": lambda: (receipt.block,),
    }
    found: dict[str, dict[str, None]] = {}
    for state, move in lifecycle.TABLE:
        tx = Transaction(
            id="tx", lane=lane, place=1, version=1, state=State(state), payload=Payload(to="0x"), fees=Speed.SLOW,
            priority=5, tenant="", created_at=0, updated_at=0, receipt=receipt,
        )  # fmt: skip
        given = {name: arguments[name]() for name in inspect.signature(move).parameters}
        moves = [move(**given)]
        if "hold" in given:
            moves.append(move(**{**given, "hold": mark}))
        for made in moves:
            for event in lifecycle.step(tx, made, 0)[1]:
                found.setdefault(event.kind, {}).update(dict.fromkeys(event.data))
    return found


@cache
def attention_codes() -> list[str]:
    """Every code a mark can carry, or an event of its kind: those the source names, and each class of refusal."""
    found: dict[str, None] = {}
    for module, call in calls():
        if _called(call) == "event" and isinstance(call.args[0], ast.Constant) and call.args[0].value == "tx.attention":
            [code] = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
            assert isinstance(code, ast.Name)
            found[str(getattr(import_module(module), code.id))] = None
        if _called(call) != "Attention":
            continue
        match call.args:
            case [ast.Constant(value=str(code)), *_]:
                found[code] = None
            case [ast.Name(id=name), *_]:
                found[str(getattr(import_module(module), name))] = None
            case [ast.Starred(value=ast.Name(id="mark")), *_] | [ast.Starred(value=ast.Call()), *_]:
                pass  # `policy` made it: its codes are found below, or come from the store
            case _:
                raise ValueError(f"{module}:{call.lineno} makes a mark in a way that this cannot read")
    for _, tree in trees():
        for node in ast.walk(tree):
            # (code, reason), as `policy.next_move` gives them
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                match node.targets, node.value.elts:
                    case [ast.Name(id="mark")], [ast.Constant(value=str(code)), _]:
                        found[code] = None
    return [*found, *(one.value for one in refusals() if one.value not in found)]


@cache
def refused_wishes() -> list[str]:
    """Every code with which a wish can be refused, by the lane's owner or at once."""
    found: dict[str, None] = {}
    for module, call in calls():
        if not module.startswith("nonchalant.") or ".cli" in module:
            continue
        match _called(call), call.args:
            case "Refusal", [ast.Constant(value=code), *_]:
                found[str(code)] = None
            case "WishRefused", [_, ast.Constant(value=code), *_]:
                found[str(code)] = None
            case "Refusal", _:
                raise ValueError(f"{module}:{call.lineno} refuses without a plain code")
    return sorted(found)


def refusals() -> list[Rejection]:
    """What nodes can be understood to say instead of yes, and that can become a mark."""
    return [one for one in Rejection if one.fate is not Fate.ACCEPTED]


@cache
def log_events() -> list[Emitted]:
    found: dict[str, tuple[str, dict[str, None]]] = {}
    for _, call in calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id="log"), attr=level) if call.args and level != "event":
                name = call.args[0]
                assert isinstance(name, ast.Constant), f"a log event without a plain name: line {call.lineno}"
                _, fields = found.setdefault(str(name.value), (level, {}))
                fields.update({keyword.arg or "": None for keyword in call.keywords})
    shown = {"exception": "error"}
    return [Emitted(name, tuple(fields), shown.get(level, level)) for name, (level, fields) in sorted(found.items())]


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


# --- variables ---


@cache
def variables() -> set[str]:
    """Every environment variable the program reads by a name of its own."""
    named = {
        node.value
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"NONCHALANT_[A-Z_]+[A-Z]", node.value)
    }
    return named | set(VARIABLES.values())
