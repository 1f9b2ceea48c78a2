"""What the words say about themselves."""

from nonchalant.words import LIVE_STATES, TERMINAL_STATES, State
from tests.examples import ALICE, LANE


def test_a_lane_is_written_as_chain_and_address() -> None:
    assert str(LANE) == f"7:{ALICE}"


def test_every_state_is_either_live_or_an_end() -> None:
    assert frozenset(State) == LIVE_STATES | TERMINAL_STATES
    assert not LIVE_STATES & TERMINAL_STATES
