"""Who may do what."""

from dataclasses import replace

from nonchalant.access import ANYBODY, Caller, LanePattern, Scope
from tests.examples import ALICE, BOB, LANE, a_transaction

READER = Caller(key_id="k", name="reader", scopes=frozenset({Scope.TX_READ}), lanes=(LanePattern(7, ALICE),))


def test_a_pattern_fits_its_lanes_and_no_others() -> None:
    fitting = [LanePattern(), LanePattern(7), LanePattern(None, ALICE), LanePattern(7, ALICE)]
    assert all(pattern.fits(LANE) for pattern in fitting)
    assert not any(pattern.fits(LANE) for pattern in (LanePattern(8), LanePattern(7, BOB), LanePattern(8, ALICE)))
    assert [str(pattern) for pattern in fitting] == ["*:*", "7:*", f"*:{ALICE}", f"7:{ALICE}"]


def test_a_caller_may_do_what_its_scopes_and_lanes_say() -> None:
    assert READER.may(Scope.TX_READ)
    assert not READER.may(Scope.TX_WRITE)
    assert READER.may_use(LANE)
    assert not READER.may_use(LANE._replace(chain_id=8))


def test_a_transaction_of_another_tenant_or_lane_is_not_seen() -> None:
    tx = a_transaction()
    assert READER.may_see(tx)
    assert not READER.may_see(replace(tx, tenant="other"))
    assert not READER.may_see(replace(tx, lane=LANE._replace(chain_id=8)))
    assert ANYBODY.may_see(replace(tx, tenant="other"))
