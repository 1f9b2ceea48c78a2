"""What is checked of the model, as the tables of its page say, and whether they try all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.anvil import ROOT
from tests.model.tlc import TEMPORAL, Verdict

MODEL = ROOT / "docs" / "model"


@dataclass(frozen=True, slots=True)
class Whole:
    """A configuration in which everything must hold."""

    name: str
    distinct: int  # states, as the page says

    is_long: bool  # left to `make test-long`

    def __str__(self) -> str:
        return self.name

    def config(self, model: Path) -> str:
        return (model / ("larger" if self.is_long else "") / f"{self.name}.cfg").read_text()

    def complaint(self, verdict: Verdict) -> str | None:
        if verdict.violated is not None:
            return f"{verdict.violated} does not hold"
        if not verdict.exhaustive:
            return "not every state was looked at"
        if verdict.distinct != self.distinct:
            return f"README.md says {self.distinct:,} distinct states, and there are {verdict.distinct:,}"
        return None


@dataclass(frozen=True, slots=True)
class Broken:
    """A configuration with broken rules, and what must not hold then. Without any: what is not so in the first place."""

    rules: tuple[str, ...]
    name: str
    breaks: str

    distinct = 0
    is_long = False

    def __str__(self) -> str:
        return f"{' and '.join(self.rules) or 'nothing'} broken: {self.breaks}"

    def config(self, model: Path) -> str:
        """Of the configuration's own promises only the one that must break, so that nothing else can be found first."""
        whole = (model / f"{self.name}.cfg").read_text()
        kept = [line for line in whole.splitlines() if not line.startswith(("INVARIANTS", "PROPERTIES"))]
        rules = ", ".join(f'"{rule}"' for rule in self.rules)
        kind = "PROPERTY" if self.breaks in named(whole, "PROPERTIES") else "INVARIANT"
        return "\n".join(kept).replace("Broken = {}", f"Broken = {{{rules}}}") + f"\n{kind} {self.breaks}\n"

    def complaint(self, verdict: Verdict) -> str | None:
        if verdict.violated is None:
            return f"{self.breaks} holds all the same" if verdict.exhaustive else "TLC failed"
        if verdict.violated not in (self.breaks, TEMPORAL):
            return f"{verdict.violated} was violated instead"
        return None


Run = Whole | Broken


def named(config: str, kind: str) -> list[str]:
    """The invariants or the properties of a configuration."""
    return [name for line in re.findall(rf"^{kind} (.*)$", config, re.MULTILINE) for name in line.split()]


def runs(model: Path) -> list[Run]:
    """What the tables of the model's page say."""
    found: list[Run] = []
    for line in (model / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4:
            continue
        if re.fullmatch(r"[\d,]+", cells[3]):
            is_long = (model / "larger" / f"{cells[0]}.cfg").exists()
            found.append(Whole(cells[0], int(cells[3].replace(",", "")), is_long))
        elif (model / f"{cells[1]}.cfg").exists():
            found.append(Broken(tuple(re.findall(r"`([^`]+)`", cells[0])), cells[1], cells[2]))
    return found


def omissions(model: Path, planned: Iterable[Run]) -> list[str]:
    """What the model has and the page does not try."""
    planned = list(planned)
    spec = (model / "Lane.tla").read_text()
    configs = {path.stem: path.read_text() for path in model.rglob("*.cfg")}
    broken = {rule for run in planned if isinstance(run, Broken) for rule in run.rules}
    fallen = {run.breaks for run in planned if isinstance(run, Broken)}
    promises = {
        name for text in configs.values() for kind in ("INVARIANTS", "PROPERTIES") for name in named(text, kind)
    }
    listed = re.search(r"^Rules == \{(.*?)^\}", spec, re.MULTILINE | re.DOTALL)
    rules = set(re.findall(r'^    "([^"]+)"', listed[1], re.MULTILINE)) if listed else set()
    sights = set(re.findall(r"^(Never\w+) ==", spec, re.MULTILINE))
    return [
        *(f"no row breaks the rule {rule!r}" for rule in sorted(rules - broken)),
        *(f"there is no rule {rule!r}" for rule in sorted(broken - rules)),
        *(f"no row breaks {name}" for name in sorted((promises | sights) - fallen)),
        *(
            f"no row for {name}.cfg"
            for name in sorted(configs.keys() - {run.name for run in planned if isinstance(run, Whole)})
        ),
    ]
