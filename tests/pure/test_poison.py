"""Who is to blame for a failure, and when that one is left aside."""

import pytest

from nonchalant.errors import (
    IllegalMove,
    LeaseLost,
    NodeRefused,
    Poisoned,
    RowMoved,
    SignerFailed,
    StoreUnavailable,
    Unreachable,
)
from nonchalant.poison import ASIDE_FOR, STRIKES, Strikes, handling, parts, subject_of
from tests.examples import a_slot


@pytest.mark.parametrize(
    "error", [Unreachable(), NodeRefused("no"), LeaseLost(), SignerFailed(), StoreUnavailable(), RowMoved()], ids=repr
)
def test_the_world_s_own_troubles_name_nobody(error: Exception) -> None:
    with pytest.raises(type(error)), handling("tx"):
        raise error


@pytest.mark.parametrize("error", [IllegalMove(), KeyError("x"), AssertionError()], ids=repr)
def test_what_nobody_expected_names_whoever_was_handled(error: Exception) -> None:
    with pytest.raises(Poisoned, match="tx") as poisoned, handling("tx"):
        raise error
    assert (poisoned.value.subject, poisoned.value.cause) == ("tx", error)


def test_a_name_once_given_stays() -> None:
    with pytest.raises(Poisoned) as poisoned, handling("outer"), handling("inner"):
        raise KeyError("x")
    assert poisoned.value.subject == "inner"


def test_a_row_that_moved_is_blamed_only_on_one_that_is_committed_alone() -> None:
    with pytest.raises(Poisoned), handling("tx", commits=True):
        raise RowMoved


def test_what_the_caller_answers_itself_and_what_is_nobody_s_pass() -> None:
    with pytest.raises(KeyError), handling("tx", answers=(KeyError,)):
        raise KeyError("x")
    with pytest.raises(KeyError), handling(None):
        raise KeyError("x")


def test_nothing_raised_is_nothing_blamed() -> None:
    with handling("tx"):
        pass


def test_the_second_time_a_stage_leaves_it_aside_and_other_stages_do_not() -> None:
    strikes, poison = Strikes(), Poisoned("tx", KeyError("x"))
    assert [strikes.strike("rescue", poison) for _ in range(STRIKES)] == [False] * (STRIKES - 1) + [True]
    assert set(strikes.aside) == {("rescue", "tx")}
    assert "KeyError" in strikes.untold["tx"]
    assert not strikes.strike("watch", poison)
    assert not strikes.strike("rescue", Poisoned("other", KeyError("x")))


def test_what_was_changed_is_tried_again_from_the_beginning() -> None:
    strikes, poison = Strikes(), Poisoned("tx", KeyError("x"))
    for _ in range(STRIKES):
        strikes.strike("rescue", poison)
    strikes.strike("watch", Poisoned("other", KeyError("x")))
    strikes.forgive("tx")
    assert strikes.aside == {}
    assert not strikes.strike("rescue", poison)
    assert strikes.strike("watch", Poisoned("other", KeyError("x")))


def test_a_failure_without_a_name_makes_the_lane_careful_and_is_counted() -> None:
    strikes = Strikes()
    strikes.broke(KeyError("x"))
    strikes.broke(ValueError("y"))
    assert (strikes.careful, strikes.restarts, strikes.trouble) == (True, 2, "ValueError")
    strikes.broke(RowMoved("ours to say"))
    assert strikes.trouble == "ours to say"


def test_what_is_left_aside_is_tried_once_more_after_a_while_and_forgotten_when_it_is_gone() -> None:
    strikes, poison = Strikes(), Poisoned("tx", KeyError("x"))
    for _ in range(STRIKES):
        strikes.strike("rescue", poison, 1_000)
    strikes.look_again(1_000 + ASIDE_FOR - 1, {"tx"})
    assert ("rescue", "tx") in strikes.aside
    strikes.look_again(1_000 + ASIDE_FOR, {"tx"})
    assert strikes.aside == {}
    assert strikes.strike("rescue", poison, 1_000 + ASIDE_FOR)  # once is enough now
    strikes.look_again(1_000 + ASIDE_FOR, ())
    assert ("rescue", "tx") in strikes.aside  # nobody was told yet
    strikes.untold.clear()
    strikes.look_again(1_000 + ASIDE_FOR, ())
    assert strikes.aside == {}
    assert not strikes.strike("rescue", poison)


def test_a_careful_lane_works_one_by_one_and_others_in_one_go() -> None:
    assert parts([1, 2], careful=False) == [[1, 2]]
    assert parts([1, 2], careful=True) == [[1], [2]]
    assert parts([], careful=True) == parts([], careful=False) == [[]]


def test_a_slot_that_is_nobody_s_is_named_by_its_nonce() -> None:
    assert subject_of(a_slot(3)) == "tx"
    assert subject_of(a_slot(3, tx_id=None)) == "nonce 3"
