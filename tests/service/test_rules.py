"""What the settings say reaches the engine: an account's rules beside its chain's."""

from pathlib import Path

from nonchalant.config import parse_settings
from nonchalant.fees import FeeRules
from nonchalant.health import HealthRules
from nonchalant.parts import engine_rules
from nonchalant.policy import Blocks
from nonchalant.windows import Pace
from nonchalant.words import LaneKey, Speed

SETTINGS = parse_settings(
    """
    store = "sqlite:x.db"
    auth = "off"
    [[chains]]
    id = 1
    endpoints = ["http://127.0.0.1:8545"]
    fees = { max_fee_per_gas = 100, max_priority_fee_per_gas = 10, replacement_percent = 12, bump_after = "5 blocks" }
    [[chains]]
    id = 2
    endpoints = ["http://127.0.0.1:8546"]
    [[accounts]]
    chains = [1, 2]
    key = { env = "KEY" }
    window = 40
    mode = "strict"
    shared = true
    fees = { max_fee_per_gas = 80 }
    health = { min_balance = 5 }
    [[accounts]]
    chains = [1]
    key = { env = "OTHER" }
    """,
    folder=Path("/"),
    environ={},
)
ONE, ABROAD, OTHER = LaneKey(1, "0xa"), LaneKey(2, "0xa"), LaneKey(1, "0xb")
own, plain = SETTINGS.accounts
RULES = engine_rules(SETTINGS, {ONE: own, ABROAD: own, OTHER: plain}).lanes


def test_an_account_s_own_rules_hold_on_each_of_its_chains() -> None:
    for lane in (ONE, ABROAD):
        rules = RULES[lane]
        assert (rules.window, rules.pace, rules.shared) == (40, Pace.STRICT, True)
        assert rules.health == HealthRules(min_balance=5)
    assert (RULES[OTHER].window, RULES[OTHER].pace, RULES[OTHER].shared) == (16, Pace.PIPELINED, False)


def test_prices_are_the_chain_s_with_the_lower_of_both_caps() -> None:
    chain = FeeRules(max_fee=100, max_priority=10, replacement_percent=12)
    assert RULES[OTHER].fees == chain
    assert RULES[ONE].fees == chain.capped(max_fee=80, max_priority=None)
    assert RULES[ABROAD].fees == FeeRules(max_fee=80)


def test_patience_is_the_chain_s() -> None:
    assert RULES[ONE].patience.bump_after == dict.fromkeys(Speed, Blocks(5))
    assert RULES[ABROAD].patience.bump_after[Speed.FAST] == 20_000


def test_a_quarantine_reckons_with_the_widest_window_of_the_chain() -> None:
    assert [RULES[lane].largest_window for lane in (ONE, ABROAD, OTHER)] == [40, 40, 40]
