"""Write the generated parts of the docs: `make docs`. A test fails while the committed text is not what this writes.

A page marks such a part by `<!-- generated: NAME -->` and `<!-- end -->`; NAME is a function below.
"""

from __future__ import annotations

import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

import nonchalant
from docs import inventory
from nonchalant import lifecycle
from nonchalant.bodies import (
    AccessBody,
    BatchBody,
    BumpBody,
    FeesBody,
    FillBody,
    HolderBody,
    ReasonBody,
    ReleaseBody,
    ReplaceBody,
    ReplayBody,
    ReserveBody,
    ResetBody,
    RotateBody,
    TransactionBody,
    UsedBody,
    WebhookBody,
    WebhookChanges,
)
from nonchalant.lane_views import (
    CancellingView,
    ControlView,
    FilledView,
    KeptView,
    LaneHealthView,
    LanesView,
    LaneView,
    LeaseView,
    ReleasedView,
    ReservationView,
    ReservedView,
    ResetView,
    SyncView,
    UsedView,
    WishView,
)
from nonchalant.observing.catalogue import CATALOGUE, PREFIX
from nonchalant.service import openapi
from nonchalant.service.routes import ROUTES, Health
from nonchalant.service.rpc.methods import METHODS
from nonchalant.service.rpc.passing import FILTERS
from nonchalant.sim import moves as sim_moves
from nonchalant.sim.mutants import MUTANTS
from nonchalant.sim.schedule import Kind
from nonchalant.views import (
    AttemptView,
    AttentionView,
    BatchView,
    BlockView,
    EventsView,
    EventView,
    LaneEventsView,
    OutcomeView,
    PayloadView,
    Problem,
    ReceiptView,
    TransactionsView,
    TransactionView,
)
from nonchalant.webhook_views import (
    DeliveriesView,
    DeliveryView,
    RotatedView,
    TestedView,
    WebhooksView,
    WebhookView,
)
from nonchalant.words import State

FOLDER = Path(__file__).parent
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

WORDS = tomllib.loads((FOLDER / "words.toml").read_text()) | {"fields": openapi.field_words()}


# --- the parts ---


def settings() -> str:
    found = inventory.settings()
    words = _words("settings", [one.name for one in found])
    takes = {one.name: one.takes for one in found}
    parts = []
    for table in dict.fromkeys(one.table for one in found):
        mine = [one for one in found if one.table == table]
        rows = [
            [f"`{one.key}`", one.takes, "" if one.default is None else f"`{one.default}`", words[one.name]]
            for one in mine
        ]
        columns = ["key", "takes", "default", "meaning"]
        if not table:
            columns.insert(1, "variable")
            for one, row in zip(mine, rows, strict=True):
                row.insert(1, f"`{one.variable}`" if one.variable else "")
        listed = takes.get(table, "").startswith("a list")
        heading = f"`[[{table}]]`" if listed else f"`[{table}]`" if table else "At the top"
        parts.append(f"### {heading}\n\n{_table(columns, rows)}")
    return "\n".join(parts)


def commands() -> str:
    return "\n".join(_command(command) for command in inventory.commands())


def _command(command: inventory.Command) -> str:
    arguments = "".join(f" {option.names[0]}" for option in command.options if option.argument)
    text = f"### `nonchalant{f' {command.name}' if command.name else ''}{arguments}`\n\n{command.help}\n"
    rows = [
        [
            ", ".join(f"`{name}`" for name in option.names),
            option.takes,
            f"`{option.default}`" if option.default else "",
            option.help + (f" Also by `{option.variable}`." if option.variable else ""),
        ]
        for option in command.options
        if not option.argument
    ]
    return f"{text}\n{_table(['option', 'takes', 'default', ''], rows)}" if rows else text


def commands_at_a_glance() -> str:
    rows = [[f"`nonchalant {command.name}`", command.help] for command in inventory.commands() if command.name]
    return _table(["command", "does"], rows)


def metrics() -> str:
    rows = [
        [
            f"`{one.name}`",
            one.kind.value,
            ", ".join(f"`{label}`" for label in one.labels),
            one.over.value if one.name.startswith(PREFIX) else "",
            one.help,
        ]
        for one in CATALOGUE
    ]
    return _table(["metric", "kind", "labels", "nodes", "tells"], rows)


def routes() -> str:
    rows = [
        [
            f"`{route.method} {route.path}`",
            route.does,
            str(route.status) + ("" if route.answers is None else f" {_shape(route.answers)}"),
        ]
        for route in ROUTES
    ]
    return _table(["call", "does", "answers"], rows)


def rpc_methods() -> str:
    return _table(["method", ""], [[f"`{method.name}`", method.does] for method in METHODS.values()])


def rpc_filters() -> str:
    return ", ".join(f"`{name}`" for name in sorted(FILTERS)) + "\n"


def parameters() -> str:
    rows = [
        [f"`{route.method} {route.path}`", f"`{one.name}`", place, one.about]
        for route in ROUTES
        for place, many in (("query", route.query), ("header", route.headers))
        for one in many
    ]
    return _table(["call", "parameter", "in", "meaning"], rows)


def bodies() -> str:
    taken = [
        TransactionBody,
        FeesBody,
        AccessBody,
        BatchBody,
        ReplaceBody,
        BumpBody,
        ReasonBody,
        ReleaseBody,
        FillBody,
        ResetBody,
    ]
    taken += [ReserveBody, UsedBody, HolderBody, WebhookBody, WebhookChanges, RotateBody, ReplayBody]
    return _structs(taken)


def answers() -> str:
    shown = [TransactionView, PayloadView, AttemptView, ReceiptView, BlockView, OutcomeView, AttentionView]
    shown += [
        TransactionsView,
        BatchView,
        EventsView,
        LaneEventsView,
        EventView,
        LanesView,
        LaneView,
        ControlView,
        LaneHealthView,
    ]
    shown += [ReservationView, WishView, LeaseView, SyncView, FilledView, ResetView, KeptView, CancellingView]
    shown += [ReservedView, UsedView, ReleasedView, WebhooksView, WebhookView, RotatedView, TestedView]
    return _structs([*shown, DeliveriesView, DeliveryView, Health, Problem])


def problems() -> str:
    found: dict[tuple[str, int], str] = {}
    for one in inventory.error_tree():
        if one.http or one.status != 500 or one.code == "internal":
            found.setdefault((one.code, one.status), one.sentence)
    rows = [[f"`{code}`", str(status), sentence] for (code, status), sentence in sorted(found.items(), key=_by_status)]
    return _table(["code", "status", ""], rows)


def _by_status(item: tuple[tuple[str, int], str]) -> tuple[int, str]:
    return item[0][1], item[0][0]


def refused_wishes() -> str:
    words = _words("refused", found := inventory.refused_wishes())
    return _table(["code", ""], [[f"`{code}`", words[code]] for code in found])


def exceptions() -> str:
    rows = [
        [f"`{one.name}`", f"`{one.code}`", one.sentence]
        for one in inventory.error_tree()
        if one.public and not one.http
    ]
    return _table(["exception", "`code`", ""], rows)


def inner_exceptions() -> str:
    rows = [
        [f"`{one.name}`", f"`{one.code}`", one.sentence]
        for one in inventory.error_tree()
        if not one.public and not one.http
    ]
    return _table(["exception", "`code`", ""], rows)


def events() -> str:
    found = inventory.events()
    words = _words("events", [one.name for one in found])
    rows = [[f"`{one.name}`", ", ".join(f"`{name}`" for name in one.fields), words[one.name]] for one in found]
    return _table(["kind", "data", "says"], rows)


def attention() -> str:
    answers = {one.value for one in inventory.refusals()}
    found = [code for code in inventory.attention_codes() if code not in answers or code in WORDS["attention"]]
    words = _words("attention", found)
    rows = [[f"`{code}`", *(part.strip() for part in words[code].split("|"))] for code in found]
    return _table(["code", "on a", "means", "what to do"], rows)


def node_answers() -> str:
    fates = dict.fromkeys(one.fate for one in inventory.refusals())
    rows = [
        [", ".join(f"`{one.value}`" for one in inventory.refusals() if one.fate is fate), fate.value] for fate in fates
    ]
    return _table(["classes", "what such an answer proves"], rows)


def logs() -> str:
    found = inventory.log_events()
    words = _words("logs", [one.name for one in found])
    rows = [
        [f"`{one.name}`", one.level, ", ".join(f"`{name}`" for name in one.fields), words[one.name]] for one in found
    ]
    return _table(["event", "level", "fields", "means"], rows)


def names() -> str:
    errors = {one.name for one in inventory.error_tree()}
    found = [name for name in nonchalant.__all__ if name not in errors]
    words = _words("names", found)
    rows = [[f"`{name}`", words[name]] for name in WORDS["names"]]
    return _table(["name", ""], rows)


def send() -> str:
    taken = inspect.signature(nonchalant.Nonchalant.send).parameters
    words = _words("send", [name for name in taken if name != "self"])
    rows = [
        [f"`{name}`", f"`{one.annotation}`", "" if one.default is one.empty else f"`{one.default!r}`", words[name]]
        for name, one in taken.items()
        if name != "self"
    ]
    return _table(["keyword", "type", "default", ""], rows)


def transaction_fields() -> str:
    return ", ".join(f"`{name}`" for name in nonchalant.Transaction.__struct_fields__) + ", `live`\n"


def receipt_fields() -> str:
    return ", ".join(f"`{name}`" for name in nonchalant.Receipt.__struct_fields__) + ", `cost`\n"


def diagram() -> str:
    return f"```mermaid\n{lifecycle.diagram()}```\n"


def states() -> str:
    words = _words("states", list(State))
    return _table(["state", ""], [[f"`{state}`", words[state]] for state in State])


def moves() -> str:
    found = [(state, move, target) for (state, move), target in lifecycle.TABLE.items()]
    kinds = dict.fromkeys(move for _, move, _ in found)
    words = _words("moves", [move.__name__ for move in kinds])
    rows = [
        [
            move.__name__.lower(),
            ", ".join(f"`{state}` → `{target}`" for state, made, target in found if made is move),
            words[move.__name__],
        ]
        for move in kinds
    ]
    return _table(["move", "from → to", ""], rows)


def faults() -> str:
    return ", ".join(kind.value.replace("_", " ") for kind in Kind) + ".\n"


def people() -> str:
    return ", ".join(move.value.replace("_", " ") for move in sim_moves.Move) + ".\n"


def mutants() -> str:
    return ", ".join(f"`{name}`" for name in MUTANTS) + ".\n"


PARTS: Mapping[str, Callable[[], str]] = {
    part.__name__: part
    for part in (
        *(settings, commands, commands_at_a_glance, routes, parameters, bodies, answers, problems, refused_wishes),
        *(
            exceptions,
            inner_exceptions,
            events,
            attention,
            node_answers,
            logs,
            metrics,
            names,
            send,
            transaction_fields,
            receipt_fields,
        ),
        *(diagram, states, moves, faults, people, mutants, rpc_methods, rpc_filters),
    )
}


# --- how they are written ---


def _words(section: str, wanted: Iterable[str]) -> Mapping[str, str]:
    """The words for exactly these."""
    words: Mapping[str, str] = WORDS[section] if "." not in section else WORDS["fields"][section.partition(".")[2]]
    wanted = [str(one) for one in wanted]
    missing, left = [one for one in wanted if one not in words], [one for one in words if one not in wanted]
    if missing or left:
        file = "docs/words.toml" if "." not in section else "src/nonchalant/service/fields.toml"
        raise ValueError(f"{file}, [{section.removeprefix('fields.')}]: no word for {missing}, and no thing for {left}")
    return words


def _structs(kinds: Sequence[type[msgspec.Struct]]) -> str:
    return "\n".join(_struct(kind) for kind in kinds)


def _struct(kind: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    words = _words(f"fields.{kind.__name__}", [field.encode_name for field in fields])
    takes = any(not field.required for field in fields)
    rows = [
        [
            f"`{field.encode_name}`",
            _type(str(inspect.get_annotations(kind)[field.name])),
            *([] if not takes else ["yes" if field.required else ""]),
            words[field.encode_name],
        ]
        for field in fields
    ]
    columns = ["field", "type", *(["required"] if takes else []), "meaning"]
    return f"### {_shape(kind)}\n\n{_table(columns, rows)}"


def _shape(kind: type) -> str:
    """`TransactionView` is a transaction to its reader."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", kind.__name__.removesuffix("View").removesuffix("Body")).lower()


def _type(annotation: str) -> str:
    listed = re.fullmatch(r"list\[(.+)\]", annotation)
    if listed:
        return f"list of {_type(listed[1])}"
    nullable = annotation.endswith(" | None")
    plain = annotation.removesuffix(" | None")
    shown = {
        "str": "text",
        "bool": "true or false",
        "Number": "number or text",
        "Moment": "number or text",
        "Transactions": "list of transaction",
        **dict.fromkeys(("int", "float", "Whole", "Priority", "Depth", "Seconds"), "number"),
        **dict.fromkeys(
            ("State", "Speed", "OnSuperseded", "AttemptKind", "SlotKind", "Wanted", "Mode", "Pace"), "text"
        ),
    }
    name = shown.get(
        plain,
        "text"
        if plain.endswith("Text")
        else "object"
        if plain.startswith("dict")
        else re.sub(r"(View|Body)$", "", plain).lower(),
    )
    return f"{name} or null" if nullable else name


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def pages() -> dict[Path, str]:
    """Every page with generated parts, as it should be."""
    found = {}
    for page in [FOLDER.parent / "README.md", *sorted(FOLDER.rglob("*.md"))]:
        text = page.read_text()
        if PART.search(text):
            found[page] = PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", text)
    return found


def main() -> None:
    try:
        written = pages()
    except ValueError as error:
        sys.exit(str(error))
    for page, text in written.items():
        if page.read_text() != text:
            page.write_text(text)
            sys.stdout.write(f"  written: {page.relative_to(FOLDER.parent)}\n")


if __name__ == "__main__":
    main()
