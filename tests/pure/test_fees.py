"""Opening prices, and prices that replace them."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nonchalant.fees import (
    RUNAWAY,
    FeeRules,
    headroom,
    is_payable,
    is_within_caps,
    opening,
    outbid,
    raised,
    replacement_floor,
)
from nonchalant.model import Fees, Market
from nonchalant.values import replace
from nonchalant.words import Speed
from tests.lessons import lesson

GWEI = 10**9
TIPS = {Speed.SLOW: 1 * GWEI, Speed.STANDARD: 2 * GWEI, Speed.FAST: 5 * GWEI}
MARKET = Market(base_fee=20 * GWEI, gas_price=22 * GWEI, priority=TIPS)
LEGACY = Market(base_fee=None, gas_price=10 * GWEI + 1, priority={})
FREE = FeeRules()

amounts = st.integers(0, 2**64)
caps = st.none() | amounts


@st.composite
def offers(draw: st.DrawFn) -> Fees:
    """What was signed before: legacy, or with a tip that is not above the whole."""
    max_fee = draw(amounts)
    return Fees(max_fee, draw(st.none() | st.integers(0, max_fee)))


@st.composite
def markets(draw: st.DrawFn) -> Market:
    return Market(
        base_fee=draw(st.none() | amounts),
        gas_price=draw(amounts),
        priority={speed: draw(amounts) for speed in Speed},
    )


rules = st.builds(
    FeeRules,
    speed=st.sampled_from(Speed),
    min_priority=amounts,
    max_priority=caps,
    max_fee=caps,
    replacement_percent=st.integers(0, 200),
)
wishes = st.sampled_from(Speed) | offers()


@pytest.mark.parametrize("speed", Speed)
def test_an_opening_offer_doubles_the_base_fee_and_adds_the_speed_s_tip(speed: Speed) -> None:
    assert opening(speed, MARKET, FREE) == Fees(40 * GWEI + TIPS[speed], TIPS[speed])


@pytest.mark.parametrize(
    ("speed", "price"),
    [(Speed.SLOW, 10 * GWEI + 1), (Speed.STANDARD, 11 * GWEI + 2), (Speed.FAST, 12_500_000_002)],
)
def test_without_a_base_fee_the_gas_price_is_paid_with_a_margin_by_speed_rounded_up(speed: Speed, price: int) -> None:
    assert opening(speed, LEGACY, FREE) == Fees(price, None)


@pytest.mark.parametrize("speed", Speed)
def test_without_a_base_fee_a_speed_adds_what_the_market_says_if_it_does(speed: Speed) -> None:
    assert opening(speed, replace(LEGACY, priority=TIPS), FREE) == Fees(LEGACY.gas_price + TIPS[speed], None)


def test_fees_named_by_the_user_are_taken_as_they_are() -> None:
    assert opening(Fees(7, 3), MARKET, FeeRules(max_fee=1, min_priority=9)) == Fees(7, 3)


def test_the_floor_lifts_a_tip_and_a_gas_price() -> None:
    assert opening(Speed.SLOW, MARKET, FeeRules(min_priority=30 * GWEI)) == Fees(70 * GWEI, 30 * GWEI)
    assert opening(Speed.SLOW, LEGACY, FeeRules(min_priority=30 * GWEI)) == Fees(30 * GWEI, None)


def test_the_caps_bound_an_opening_offer() -> None:
    assert opening(Speed.FAST, MARKET, FeeRules(max_fee=25 * GWEI)) == Fees(25 * GWEI, 5 * GWEI)
    assert opening(Speed.FAST, MARKET, FeeRules(max_priority=3 * GWEI)) == Fees(43 * GWEI, 3 * GWEI)
    assert opening(Speed.FAST, LEGACY, FeeRules(max_fee=9 * GWEI)) == Fees(9 * GWEI, None)


@given(st.sampled_from(Speed), markets(), rules)
def test_an_opening_offer_keeps_every_cap_and_never_tips_more_than_it_pays(
    speed: Speed, market: Market, rules: FeeRules
) -> None:
    offer = opening(speed, market, rules)
    assert rules.max_fee is None or offer.max_fee <= rules.max_fee
    assert (offer.priority is None) == (market.base_fee is None)
    if offer.priority is not None:
        assert offer.priority <= offer.max_fee
        assert rules.max_priority is None or offer.priority <= rules.max_priority


def test_an_offer_below_the_base_fee_is_not_payable() -> None:
    assert is_payable(Fees(20 * GWEI, 0), MARKET)
    assert not is_payable(Fees(20 * GWEI - 1, 0), MARKET)
    assert is_payable(Fees(1), LEGACY)


@lesson("replacement-step")
@given(offers(), st.integers(0, 200))
def test_the_replacement_floor_is_the_chain_s_step_more_on_every_field_rounded_up(previous: Fees, step: int) -> None:
    floor = replacement_floor(previous, FeeRules(replacement_percent=step))
    pairs = [(previous.max_fee, floor.max_fee)]
    assert (floor.priority is None) == (previous.priority is None)
    if previous.priority is not None and floor.priority is not None:
        pairs.append((previous.priority, floor.priority))
    for old, new in pairs:
        assert new > old
        assert new * 100 >= old * (100 + step)
        assert (new - 1) * 100 < old * (100 + step) or new == old + 1


def test_the_step_is_a_tenth_unless_the_chain_has_another() -> None:
    assert replacement_floor(Fees(101, 10), FREE) == Fees(112, 11)
    assert raised(Fees(100 * GWEI, 10 * GWEI), Speed.SLOW, MARKET, FeeRules(replacement_percent=25)) == Fees(
        125 * GWEI, 12_500_000_000
    )


@given(offers(), wishes, markets(), rules)
def test_a_raised_offer_replaces_the_previous_one_within_every_cap(
    previous: Fees, wish: Speed | Fees, market: Market, rules: FeeRules
) -> None:
    if isinstance(wish, Fees):
        cap = wish.max_fee
    else:
        ceiling = RUNAWAY * max(opening(wish, market, rules).max_fee, GWEI)
        cap = ceiling if rules.max_fee is None else min(ceiling, rules.max_fee)
    least = replacement_floor(previous, rules)
    offer = raised(previous, wish, market, rules)
    too_dear = least.max_fee > cap or (
        None not in (least.priority, rules.max_priority) and least.priority > rules.max_priority  # type: ignore[operator]
    )
    # None exactly when no replacement fits: at the cap we keep re-sending, and below it we never freeze.
    assert (offer is None) == too_dear
    if offer is None:
        return
    assert offer.max_fee >= least.max_fee
    assert offer.max_fee <= cap
    assert (offer.priority is None) == (previous.priority is None)
    if offer.priority is not None and least.priority is not None:
        assert least.priority <= offer.priority <= offer.max_fee
        assert rules.max_priority is None or offer.priority <= rules.max_priority


@given(offers(), markets())
def test_a_raised_offer_is_never_below_fresh_prices_when_nothing_caps_it(previous: Fees, market: Market) -> None:
    assume((previous.priority is None) == (market.base_fee is None))
    fresh = opening(Speed.STANDARD, market, FREE)
    assume(replacement_floor(previous, FREE).max_fee <= RUNAWAY * max(fresh.max_fee, GWEI))
    offer = raised(previous, Speed.STANDARD, market, FREE)
    assert offer is not None
    assert offer.max_fee >= fresh.max_fee
    assert (offer.priority or 0) >= (fresh.priority or 0)


def test_a_fresh_price_below_the_previous_one_still_raises_by_the_step() -> None:
    assert raised(Fees(100 * GWEI, 10 * GWEI), Speed.SLOW, MARKET, FREE) == Fees(110 * GWEI, 11 * GWEI)


def test_a_price_that_is_many_times_the_market_s_is_not_raised_any_more() -> None:
    fresh = opening(Speed.SLOW, MARKET, FREE).max_fee
    assert raised(Fees(fresh * RUNAWAY, GWEI), Speed.SLOW, MARKET, FREE) is None
    assert raised(Fees(fresh * RUNAWAY // 2, GWEI), Speed.SLOW, MARKET, FREE) is not None


def test_fees_named_by_the_user_are_the_user_s_cap() -> None:
    assert raised(Fees(50 * GWEI, 1 * GWEI), Fees(54 * GWEI, 1 * GWEI), MARKET, FREE) is None
    assert raised(Fees(40 * GWEI, 1 * GWEI), Fees(60 * GWEI, 1 * GWEI), MARKET, FREE) == Fees(44 * GWEI, 2 * GWEI)


def test_fees_that_are_only_to_begin_with_are_no_cap() -> None:
    wish = Fees(50 * GWEI, 1 * GWEI, firm=False)
    assert opening(wish, MARKET, FREE) == Fees(50 * GWEI, 1 * GWEI)
    assert raised(Fees(50 * GWEI, 1 * GWEI), wish, MARKET, FREE) == Fees(55 * GWEI, 2 * GWEI)
    assert raised(Fees(50 * GWEI, 1 * GWEI), wish, MARKET, FeeRules(max_fee=54 * GWEI)) is None
    assert headroom(1000, replace(wish, max_fee=1000), FREE, 1) == 100


def test_fees_that_are_only_to_begin_with_are_held_to_the_caps() -> None:
    caps = FeeRules(max_fee=45 * GWEI, max_priority=3 * GWEI)
    assert opening(Fees(90 * GWEI, 9 * GWEI, firm=False), MARKET, caps) == Fees(45 * GWEI, 3 * GWEI)
    assert opening(Fees(90 * GWEI, firm=False), MARKET, caps) == Fees(45 * GWEI)


def test_fees_that_are_only_to_begin_with_begin_at_the_market_s_where_no_block_would_take_them() -> None:
    assert opening(Fees(19 * GWEI, 1 * GWEI, firm=False), MARKET, FREE) == opening(Speed.STANDARD, MARKET, FREE)
    assert opening(Fees(19 * GWEI, firm=False), MARKET, FREE) == Fees(42 * GWEI)
    assert opening(Fees(1, firm=False), LEGACY, FREE) == Fees(1)


def test_at_the_cap_of_the_tip_there_is_no_raise() -> None:
    tight = FeeRules(max_priority=2 * GWEI)
    assert raised(Fees(50 * GWEI, 2 * GWEI), Speed.STANDARD, MARKET, tight) is None


def test_an_offer_without_a_tip_is_raised_without_one_even_where_the_chain_has_a_base_fee() -> None:
    assert raised(Fees(20 * GWEI), Speed.STANDARD, MARKET, FREE) == Fees(42 * GWEI, None)


# an account's own caps, and what bumping may take


@given(rules, caps, caps)
def test_an_account_s_cap_counts_where_it_is_below_the_chain_s(
    chain: FeeRules, max_fee: int | None, tip: int | None
) -> None:
    both = chain.capped(max_fee=max_fee, max_priority=tip)
    assert both.max_fee == min((cap for cap in (chain.max_fee, max_fee) if cap is not None), default=None)
    assert both.max_priority == min((cap for cap in (chain.max_priority, tip) if cap is not None), default=None)
    assert replace(both, max_fee=chain.max_fee, max_priority=chain.max_priority) == chain


def test_the_headroom_is_what_so_many_steps_add_to_a_price() -> None:
    assert headroom(1000, Speed.FAST, FREE, 1) == 100
    assert headroom(1000, Speed.FAST, FREE, 3) == 331
    assert headroom(1000, Speed.FAST, FREE, 0) == 0


def test_no_headroom_is_kept_beyond_a_cap() -> None:
    assert headroom(1000, Speed.FAST, FeeRules(max_fee=1050), 3) == 50
    assert headroom(1000, Fees(1000, 1), FREE, 3) == 0
    assert headroom(1000, Speed.FAST, FeeRules(max_fee=900), 3) == 0


# what does nothing, in place of something


@given(offers(), markets(), rules)
def test_what_cancels_replaces_what_it_cancels_unless_the_caps_forbid_it_and_never_breaks_them(
    previous: Fees, market: Market, rules: FeeRules
) -> None:
    offer = outbid(previous, market, rules)
    least = replacement_floor(previous, rules)
    assert (offer.priority is None) == (previous.priority is None)
    assert offer.priority is None or offer.priority <= offer.max_fee
    if is_within_caps(least, rules):
        assert offer.max_fee >= least.max_fee
        assert (offer.priority or 0) >= (least.priority or 0)
    assert is_within_caps(offer, rules)


def test_what_cancels_is_priced_like_a_fast_replacement() -> None:
    assert outbid(Fees(30 * GWEI, GWEI), MARKET, FREE) == raised(Fees(30 * GWEI, GWEI), Speed.FAST, MARKET, FREE)


def test_where_nothing_is_known_to_be_signed_a_fresh_offer_is_enough() -> None:
    assert outbid(None, MARKET, FREE) == opening(Speed.FAST, MARKET, FREE)


@pytest.mark.parametrize("previous", [Fees(9_000 * GWEI, 10 * GWEI), Fees(9_000 * GWEI)])
def test_what_was_offered_beyond_reason_is_cancelled_by_a_step_more(previous: Fees) -> None:
    assert raised(previous, Speed.FAST, MARKET, FREE) is None
    assert outbid(previous, MARKET, FREE) == replacement_floor(previous, FREE)


@lesson("price-cap")
def test_at_the_cap_what_cancels_offers_all_that_the_cap_allows() -> None:
    capped = FeeRules(max_fee=50 * GWEI, max_priority=4 * GWEI)
    assert outbid(Fees(48 * GWEI, 4 * GWEI), MARKET, capped) == Fees(48 * GWEI, 4 * GWEI)
    assert outbid(Fees(60 * GWEI, 9 * GWEI), MARKET, capped) == Fees(50 * GWEI, 4 * GWEI)
    assert outbid(Fees(48 * GWEI), LEGACY, FeeRules(max_fee=50 * GWEI)) == Fees(48 * GWEI)


@pytest.mark.parametrize(
    ("fees", "within"),
    [
        (Fees(50, 4), True),
        (Fees(51, 4), False),
        (Fees(50, 5), False),
        (Fees(50), True),
        (Fees(51), False),
    ],
)
def test_a_price_keeps_the_caps_when_no_field_is_above_its_own(fees: Fees, within: bool) -> None:
    assert is_within_caps(fees, FeeRules(max_fee=50, max_priority=4)) is within
    assert is_within_caps(fees, FREE)
