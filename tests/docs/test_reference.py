"""The docs say what exists, and only that: both directions, against the code itself."""

import re
import shlex
from pathlib import Path

import pytest

import nonchalant
import nonchalant.client
import nonchalant.web3
from docs import generate, inventory
from nonchalant import lifecycle
from nonchalant.config import parse_settings
from nonchalant.model import Market
from nonchalant.observing.catalogue import CATALOGUE, series_of
from nonchalant.panel import STALLED_SECONDS
from nonchalant.policy import Patience
from nonchalant.service.routes import ROUTES
from nonchalant.service.rpc.methods import METHODS
from nonchalant.sim import run
from nonchalant.words import Speed
from tests.docs.pages import PAGES, ROOT, Block, blocks, everything, name, prose, quoted

COMMANDS = {command.name: command for command in inventory.commands()}
GROUPS = {command.split()[0] for command in COMMANDS if " " in command}

# In one process: what exists is read from the whole source, once.
pytestmark = pytest.mark.xdist_group("reference")


def events() -> set[str]:
    return {event.name for event in inventory.events()}


def log_events() -> set[str]:
    return {event.name for event in inventory.log_events()}


def page(folder: str, file: str) -> str:
    return (ROOT / "docs" / folder / f"{file}.md").read_text()


# what is generated


def test_the_committed_pages_are_what_the_generator_writes() -> None:
    for path, text in generate.pages().items():
        assert path.read_text() == text, f"{name(path)} is not what the code says any more: run `make docs`"


def test_the_diagram_is_the_lifecycles_own() -> None:
    assert f"```mermaid\n{lifecycle.diagram()}```" in page("explanation", "lifecycle")


def test_every_part_that_can_be_generated_is_on_a_page() -> None:
    assert set(re.findall(r"<!-- generated: (\w+) -->", everything())) == set(generate.PARTS)


# what exists is documented


def test_every_command_and_option_is_documented() -> None:
    text = page("reference", "command-line")
    for command in COMMANDS.values():
        section = text.partition(f"### `nonchalant {command.name}".rstrip())[2].partition("\n### ")[0]
        assert command.help in section
        for option in command.options:
            assert option.argument or all(f"`{one}`" in section for one in option.names), (command.name, option)


def test_every_setting_and_variable_is_documented() -> None:
    text = page("reference", "settings")
    assert len(inventory.settings()) > 25
    assert [one for one in inventory.settings() if f"| `{one.key}` |" not in text] == []
    assert [variable for variable in inventory.variables() if f"`{variable}`" not in text] == []


def test_every_error_code_is_documented() -> None:
    text = page("reference", "errors")
    assert [one for one in inventory.error_tree() if f"`{one.code}`" not in text] == []
    assert len(inventory.refused_wishes()) > 10
    assert [code for code in inventory.refused_wishes() if f"| `{code}` |" not in text] == []


def test_every_event_kind_and_attention_code_and_log_event_is_documented() -> None:
    assert len(events()) > 15
    assert [kind for kind in events() if f"| `{kind}` |" not in page("reference", "events")] == []
    codes = inventory.attention_codes()
    assert len(codes) > 30
    assert [code for code in codes if f"`{code}`" not in page("reference", "attention")] == []
    assert [event for event in log_events() if f"| `{event}` |" not in page("how-to", "read-the-logs")] == []


def test_every_call_is_documented() -> None:
    text = page("reference", "rest")
    assert [route for route in ROUTES if f"| `{route.method} {route.path}` |" not in text] == []


def test_every_public_name_is_importable_and_documented() -> None:
    text = page("reference", "library") + page("reference", "errors")
    for public in nonchalant.__all__:
        assert getattr(nonchalant, public) is not None
        assert f"| `{public}` |" in text, public
    _, _, of_the_client = text.partition("## The client")
    named = [*nonchalant.client.__all__, *nonchalant.web3.__all__]
    assert [public for public in named if f"`{public}`" not in of_the_client] == []


def test_the_table_of_contents_has_every_page() -> None:
    contents = (ROOT / "docs" / "README.md").read_text()
    pages = [path.relative_to(ROOT / "docs") for path in PAGES if path.parent.parent == ROOT / "docs"]
    assert [path for path in pages if f"({path})" not in contents] == []


# what is documented exists


def command_lines() -> list[tuple[str, str]]:
    """Every call of the program, from blocks and from backticks."""
    found = []
    for block in blocks("sh", "console"):
        for line in block.text.replace("\\\n", " ").splitlines():
            call = re.search(r"(?:^|[ /])nonchalant( [^|;)]*)$", line.removeprefix("$ "))
            if call and (block.language == "sh" or line.startswith("$ ")):
                found.append((block.page, call[1]))
    for path in PAGES:
        found += [(name(path), text.partition("nonchalant")[2]) for text in quoted(path) if is_a_call(text)]
    return found


def is_a_call(text: str) -> bool:
    return bool(re.match(r"(NONCHALANT_\w+=\S+ )?(\.venv/bin/)?nonchalant ", text))


@pytest.mark.parametrize(("where", "line"), command_lines(), ids=lambda value: str(value)[:60])
def test_every_command_in_the_docs_exists_with_its_options(where: str, line: str) -> None:
    words = shlex.split(line)
    paths = [words[:1]] if words[0] not in GROUPS else [[words[0], one] for one in words[1].split("|")]
    for path in paths:
        command = COMMANDS[" ".join(path)]
        known = {one for option in command.options for one in option.names}
        used = {word.partition("=")[0] for word in words if word.startswith("-")}
        assert used <= known | {"--help"}, f"{where}: nonchalant{line}"


def test_every_option_in_the_docs_exists() -> None:
    known = {one for command in COMMANDS.values() for option in command.options for one in option.names}
    strange = {
        (name(path), option)
        for path in PAGES
        for text in quoted(path)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
        if option not in known
    }
    assert strange == set()


def test_every_variable_in_the_docs_exists() -> None:
    assert set(re.findall(r"NONCHALANT_[A-Z_]+", everything())) <= inventory.variables()


def test_every_event_in_the_docs_exists() -> None:
    known = events() | log_events()
    strange = {
        (name(path), text)
        for path in PAGES
        for text in quoted(path)
        if re.fullmatch(r"(tx|attempt|lane|lease|head|chain|finality|service)\.[a-z_]+", text)
        and text not in known
        and text != "chain.json"
    }
    assert strange == set()


def test_every_call_in_the_docs_exists() -> None:
    patterns = [re.sub(r"{\w+}", "[^/]+", route.path) for route in ROUTES] + ["/openapi.json"]
    calls = set(
        re.findall(
            r"(?<![\w.])(?:http://127.0.0.1:\d+)?(/(?:v1|livez|readyz|metrics|openapi)[^\s`\"?)|]*)", everything()
        )
    )
    assert len(calls) > 8
    assert [call for call in calls if not any(re.fullmatch(pattern, call) for pattern in patterns)] == []


def quoted_in(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_code_that_looks_like_one_of_ours_exists() -> None:
    """Codes are words with an underscore; whatever else is quoted so in prose is a field, a setting or a class."""
    known = {one.code for one in inventory.error_tree()} | set(inventory.attention_codes())
    known |= set(inventory.refused_wishes())
    known |= {one.key for one in inventory.settings()} | set(generate.WORDS["send"]) | {"load_settings"}
    known |= {field for fields in generate.WORDS["fields"].values() for field in fields}
    known |= {field for event in [*inventory.events(), *inventory.log_events()] for field in event.fields}
    known |= {*nonchalant.Transaction.__struct_fields__, *nonchalant.Receipt.__struct_fields__}
    known |= set(Market.__struct_fields__)  # what a hook is given
    known |= {word for metric in CATALOGUE for word in (*series_of(metric), metric.name, *quoted_in(metric.help))}
    known |= {*METHODS, "eth_subscribe"}
    strange = {
        (name(path), text)
        for path in PAGES
        if path.name != "decisions.md"
        for text in quoted(path)
        if re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", text) and text not in known
    }
    assert strange == set()


@pytest.mark.parametrize("block", list(blocks("toml")), ids=lambda block: block.page)
def test_every_settings_file_in_the_docs_is_taken(block: Block) -> None:
    parse_settings(block.text, folder=Path("/"), environ={})


def test_the_figures_in_the_explanations_are_those_of_the_code() -> None:
    patience = Patience()
    waits = {speed: patience.bump_after[speed] // 1000 for speed in Speed}
    for text in (page("explanation", "lifecycle"), (ROOT / "CHANGELOG.md").read_text()):
        assert f"after {patience.resend_after // 1000} seconds" in text
    assert "after {fast} seconds for `fast`, {standard} for `standard`, {slow} for `slow`".format(**waits) in page(
        "explanation", "lifecycle"
    )
    assert "{fast}, {standard} or {slow} (fast, standard, slow)".format(**waits) in (ROOT / "CHANGELOG.md").read_text()
    least = (run.LEAST_NODES, run.LEAST_LANES, run.LEAST_TRANSACTIONS, run.LEAST_FAULTS, run.LEAST_KINDS)
    wanted = "at least {} nodes, {} lanes, {} transactions, and {} faults of {} kinds".format(*least)
    assert wanted in page("explanation", "simulator")
    assert f"from {run.ENOUGH} histories on" in page("how-to", "run-the-simulator")
    assert f"{STALLED_SECONDS:g} seconds" in page("explanation", "finality-and-reorgs")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(path)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{name(path)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}, target
