"""The simulated pool has the rules of the real ones: what it lets pass, the simulator could never catch."""

from __future__ import annotations

import pytest

from nonchalant import rejections
from nonchalant.model import Accepted, Account, Refused
from nonchalant.rejections import Rejection
from nonchalant.sim import wire
from nonchalant.sim.blocks import Ledger
from nonchalant.sim.pool import BESU, FLAVOURS, GATEWAY, GETH, RETH, Flavour, No, Pool, replaces
from nonchalant.sim.wire import GAS_CAP, SimTx
from tests.sim.realm import ALICE, GWEI, sealed

BASE = 20 * GWEI
LEDGER = Ledger({ALICE: Account(5, 10**18)})


def tx(nonce: int, *, price: int = 60, tip: int = 2, gas: int = 60_000) -> SimTx:
    return wire.read(sealed(nonce, price=price, tip=tip, gas=gas).raw)


def pool(flavour: Flavour = GETH, limit: int = 4) -> Pool:
    return Pool(flavour, limit=limit)


def test_the_next_nonce_is_taken_and_the_same_bytes_are_known_then() -> None:
    here = pool()
    assert here.offer(tx(5), LEDGER, BASE) is None
    assert here.offer(tx(5), LEDGER, BASE) is No.KNOWN
    assert [held.nonce for held in here.executable(LEDGER)] == [5]


def test_a_used_nonce_is_too_low() -> None:
    assert pool().offer(tx(4), LEDGER, BASE) is No.NONCE_TOO_LOW


def test_a_replacement_pays_a_tenth_more_in_every_field_rounded_up() -> None:
    old = tx(5, price=60, tip=10)
    assert replaces(tx(5, price=66, tip=11), old)
    assert not replaces(tx(5, price=66, tip=10), old)
    assert not replaces(tx(5, price=65, tip=11), old)
    here = pool()
    here.offer(old, LEDGER, BASE)
    assert here.offer(tx(5, price=62, tip=10), LEDGER, BASE) is No.REPLACEMENT
    assert here.at(ALICE, 5) == old
    assert here.offer(tx(5, price=66, tip=11), LEDGER, BASE) is None
    assert here.at(ALICE, 5) == tx(5, price=66, tip=11)


def test_clients_differ_about_a_gapped_nonce() -> None:
    queueing, refusing, swallowing = pool(GETH), pool(BESU), pool(GATEWAY)
    assert queueing.offer(tx(7), LEDGER, BASE) is None
    assert refusing.offer(tx(7), LEDGER, BASE) is No.GAPPED
    assert swallowing.offer(tx(7), LEDGER, BASE) is None
    assert (len(queueing.held()), len(refusing.held()), len(swallowing.held())) == (1, 0, 0)
    assert list(queueing.executable(LEDGER)) == []
    queueing.offer(tx(5), LEDGER, BASE)
    queueing.offer(tx(6), LEDGER, BASE)
    assert [held.nonce for held in queueing.executable(LEDGER)] == [5, 6, 7]


def test_an_account_may_hold_only_so_many() -> None:
    here = pool(limit=2)
    assert [here.offer(tx(nonce), LEDGER, BASE) for nonce in (5, 6, 7)] == [None, None, No.TOO_MANY]
    assert here.offer(tx(6, price=90, tip=9), LEDGER, BASE) is None, "replacing needs no room"


def test_an_account_with_delegated_code_may_hold_one() -> None:
    ledger = Ledger({ALICE: Account(5, 10**18, delegated=True)})
    here, lenient = pool(GETH), pool(BESU)
    assert [here.offer(tx(nonce), ledger, BASE) for nonce in (5, 6)] == [None, No.DELEGATED]
    assert here.offer(tx(5, price=90, tip=9), ledger, BASE) is None, "replacing needs no room"
    here.evict(ALICE, 5)
    assert here.offer(tx(6), ledger, BASE) is No.DELEGATED, "nor one behind a gap"
    assert [lenient.offer(tx(nonce), ledger, BASE) for nonce in (5, 6)] == [None, None]


def test_the_next_nonce_is_the_first_that_neither_chain_nor_pool_has() -> None:
    here = pool()
    assert here.next_nonce(ALICE, LEDGER) == 5
    for nonce in (5, 6, 8):
        here.offer(tx(nonce), LEDGER, BASE)
    assert here.next_nonce(ALICE, LEDGER) == 7


def test_funds_must_cover_everything_the_account_has_in_the_pool() -> None:
    ledger = Ledger({ALICE: Account(5, tx(5).cost + tx(6).cost - 1)})
    here = pool()
    assert here.offer(tx(5), ledger, BASE) is None
    assert here.offer(tx(6), ledger, BASE) is No.NO_FUNDS


def test_gas_above_the_cap_of_a_chain_that_has_one_is_refused_at_any_price() -> None:
    for cap, refused in ((GAS_CAP, True), (None, False)):
        verdict = Pool(GETH, limit=4, gas_cap=cap).offer(tx(4, gas=GAS_CAP + 1), LEDGER, BASE)
        assert (verdict is No.GREEDY) is refused


def test_gas_below_the_intrinsic_cost_is_faulty_whatever_else_holds() -> None:
    assert pool().offer(tx(4, gas=21_000), LEDGER, BASE) is No.FAULTY


def test_a_cap_below_the_base_fee_is_kept_or_refused_but_never_picked() -> None:
    assert pool(RETH).offer(tx(5, price=10), LEDGER, BASE) is No.BELOW_BASE_FEE
    here = pool(GETH)
    assert here.offer(tx(5, price=10), LEDGER, BASE) is None
    assert here.offer(tx(6), LEDGER, BASE) is None
    assert here.pick(LEDGER, BASE) == [], "and it keeps back what comes after it"
    assert here.pick(LEDGER, 9 * GWEI) == [tx(5, price=10), tx(6)]


def test_what_the_chain_has_passed_is_forgotten() -> None:
    here = pool()
    for nonce in (5, 6):
        here.offer(tx(nonce), LEDGER, BASE)
    here.prune(Ledger({ALICE: Account(6, 10**18)}))
    assert [held.nonce for held in here.held()] == [6]


EXPECTED = {
    No.FAULTY: Rejection.INTRINSIC_GAS_TOO_LOW,
    No.GREEDY: Rejection.GAS_LIMIT_EXCEEDS_BLOCK,
    No.NONCE_TOO_LOW: Rejection.NONCE_TOO_LOW,
    No.NO_FUNDS: Rejection.INSUFFICIENT_FUNDS,
    No.KNOWN: Rejection.ALREADY_KNOWN,
    No.UNDERPRICED: Rejection.UNDERPRICED,
    No.BELOW_BASE_FEE: Rejection.FEE_CAP_TOO_LOW,
    No.REPLACEMENT: Rejection.REPLACEMENT_UNDERPRICED,
    No.TOO_MANY: Rejection.ACCOUNT_LIMIT_EXCEEDED,
    No.GAPPED: Rejection.NONCE_TOO_HIGH,
    No.DELEGATED: Rejection.IN_FLIGHT_LIMIT_DELEGATED,
}


@pytest.mark.parametrize(
    ("flavour", "verdict"),
    [(flavour, verdict) for flavour in FLAVOURS for verdict in flavour.words],
    ids=lambda each: each.name,
)
def test_every_refusal_is_in_words_that_we_understand(flavour: Flavour, verdict: No) -> None:
    answer = pool(flavour).answer(tx(5), verdict, LEDGER)
    assert isinstance(answer, Refused)
    assert rejections.classify(answer.message, answer.code) is EXPECTED[verdict]


def test_what_is_taken_is_accepted() -> None:
    assert pool().answer(tx(5), None, LEDGER) == Accepted()
