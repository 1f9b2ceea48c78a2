"""The runner of the model must not be pleased by everything: on a small model with something wrong, it says what."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from nonchalant.asking import Asking
from nonchalant.cluster import Cluster
from nonchalant.desk import Desk
from nonchalant.engine import Engine
from nonchalant.lanes import Lane
from nonchalant.model import Slot
from nonchalant.ports import Store
from tests.model.__main__ import check_all
from tests.model.plan import MODEL, omissions, runs
from tests.model.tlc import check

SPEC = r"""
-------------------------------- MODULE Lane --------------------------------
EXTENDS Naturals
CONSTANTS Broken, Most
Rules == {
    "bounded" \* no comment
}
VARIABLE x
Init == x = 0
Step == x < Most /\ x' = x + 1
Check == "bounded" \in Broken /\ x' = 9
Next == Step \/ Check
Spec == Init /\ [][Next]_x
Small == x < 9
NeverTwo == x # 2
=============================================================================
"""

CONFIG = """
SPECIFICATION Spec
CONSTANTS
    Most = 3
    Broken = {}
INVARIANTS Small
"""

PAGE = """
| configuration | bounds | what may happen | distinct states |
|---|---|---|---|
| Toy | 3 | nothing | 4 |

| broken | configuration | falls | because |
|---|---|---|---|
| `bounded` | Toy | Small | it jumps |
| nothing | Toy | NeverTwo | it is reached |
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A model with nothing wrong in it."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "Lane.tla").write_text(SPEC)
    (model / "Toy.cfg").write_text(CONFIG)
    (model / "README.md").write_text(PAGE)
    return model


def complaints(model: Path) -> list[str]:
    _, wrong = check_all(model, runs(model))
    return [line.splitlines()[0] for line in wrong]


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_good_model_is_checked_in_full_and_every_broken_rule_is_caught(toy: Path) -> None:
    done, wrong = check_all(toy, runs(toy))
    assert wrong == []
    assert [verdict.exhaustive for verdict in done.values()].count(True) == 1
    assert sorted(verdict.violated for verdict in done.values() if verdict.violated) == ["NeverTwo", "Small"]


def test_a_promise_that_does_not_hold_is_told(toy: Path) -> None:
    change(toy / "Lane.tla", "Small == x < 9", "Small == x < 3")
    assert "Toy: Small does not hold" in complaints(toy)


def test_a_broken_rule_that_breaks_nothing_is_told(toy: Path) -> None:
    change(toy / "Lane.tla", "x' = 9", "x' = 3")
    assert complaints(toy) == ["bounded broken: Small: Small holds all the same"]


def test_what_is_never_reached_is_told(toy: Path) -> None:
    change(toy / "Toy.cfg", "Most = 3", "Most = 1")
    change(toy / "README.md", "| nothing | 4 |", "| nothing | 2 |")
    assert complaints(toy) == ["nothing broken: NeverTwo: NeverTwo holds all the same"]


def test_a_model_of_another_size_than_the_page_says_is_told(toy: Path) -> None:
    change(toy / "README.md", "| nothing | 4 |", "| nothing | 5 |")
    assert complaints(toy) == ["Toy: README.md says 5 distinct states, and there are 4"]


def test_an_action_that_never_happens_is_told(toy: Path) -> None:
    change(toy / "Lane.tla", "Next == Step", "Idle == x > Most /\\ x' = 0\nNext == Idle \\/ Step")
    assert complaints(toy) == ["nothing ever takes Idle"]


def test_a_bug_that_needs_no_broken_rule_is_told(toy: Path) -> None:
    change(toy / "Lane.tla", '"bounded" \\in Broken /\\ x\' = 9', "x' = 1")
    assert "Check happens although no rule is broken" in complaints(toy)


def test_a_specification_that_cannot_be_read_is_told(toy: Path) -> None:
    change(toy / "Lane.tla", "Init == x = 0", "Init == y = 0")
    assert "Toy: not every state was looked at" in complaints(toy)
    assert "bounded broken: Small: TLC failed" in complaints(toy)


def test_a_run_that_is_cut_short_is_not_called_exhaustive(toy: Path, tmp_path: Path) -> None:
    endless = CONFIG.replace("Most = 3", "Most = 900000000").replace("INVARIANTS Small", "")
    verdict = check(toy / "Lane.tla", endless, tmp_path / "run", seconds=3)
    assert (verdict.late, verdict.exhaustive, verdict.violated) == (True, False, None)


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("| `bounded` | Toy | Small | it jumps |\n", ["no row breaks the rule 'bounded'", "no row breaks Small"]),
        ("| nothing | Toy | NeverTwo | it is reached |\n", ["no row breaks NeverTwo"]),
        ("| Toy | 3 | nothing | 4 |\n", ["no row for Toy.cfg"]),
    ],
)
def test_what_the_page_does_not_try_is_told(toy: Path, missing: str, told: list[str]) -> None:
    change(toy / "README.md", missing, "")
    assert omissions(toy, runs(toy)) == told


def test_a_larger_configuration_is_known_as_such(toy: Path) -> None:
    (toy / "larger").mkdir()
    (toy / "larger" / "Huge.cfg").write_text(CONFIG)
    assert omissions(toy, runs(toy)) == ["no row for Huge.cfg"]
    change(toy / "README.md", "| Toy | 3 | nothing | 4 |", "| Toy | 3 | nothing | 4 |\n| Huge | 3 | nothing | 4 |")
    assert omissions(toy, runs(toy)) == []
    assert [str(run) for run in runs(toy) if run.is_long] == ["Huge"]


def test_the_page_tries_all_of_our_model() -> None:
    planned = runs(MODEL)
    assert len(planned) > 20
    assert omissions(MODEL, planned) == []


def test_every_piece_of_code_that_the_page_names_exists() -> None:
    classes = {one.__name__: one for one in (Asking, Cluster, Desk, Engine, Lane, Slot, Store)}
    table = (MODEL / "README.md").read_text().partition("## What stands for what")[2].partition("\n## ")[0]
    names = re.findall(r"`(\w+)\.(\w+)`", table)
    assert len(names) > 20
    for owner, name in names:
        home = classes.get(owner) or import_module(f"nonchalant.{owner}")
        assert hasattr(home, name), f"{owner}.{name}"
