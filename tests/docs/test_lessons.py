"""Every lesson is answered by tests or is open with its reason, and the page says which."""

from pathlib import Path

import pytest

from tests import lessons
from tests.lessons import FOLDER, LESSONS, PAGE, TABLE, answers, lesson


@pytest.fixture(scope="module")
def answered() -> set[str]:
    return {answer.lesson for answer in answers()}


def test_the_committed_page_is_what_the_suite_says() -> None:
    assert PAGE.read_text() == lessons.page(), "run `make docs`"


def test_every_lesson_has_an_id_of_its_own() -> None:
    assert len(LESSONS) == len(TABLE)


def test_a_lesson_is_either_answered_or_open(answered: set[str]) -> None:
    assert [one.id for one in TABLE if one.id not in answered and one.open is None] == [], "write the test"
    assert [one.id for one in TABLE if one.id in answered and one.open is not None] == [], "it is not open any more"


def test_a_marker_that_names_no_lesson_fails(answered: set[str]) -> None:
    assert set(LESSONS) >= answered
    with pytest.raises(ValueError, match="no lesson"):
        lesson("unheard-of")


def test_only_tests_that_pytest_collects_carry_a_marker() -> None:
    for answer in answers():
        assert answer.test.startswith("test_"), answer
        assert answer.file.name.startswith("test_"), answer
        assert (FOLDER / answer.file).exists()


def test_a_marker_that_the_page_could_not_see_fails(tmp_path: Path) -> None:
    (tmp_path / "test_odd.py").write_text("@lesson(CONSTANT)\ndef test_odd(): ...\n")
    with pytest.raises(ValueError, match="as it stands"):
        list(answers(tmp_path))
