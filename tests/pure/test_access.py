"""What a key stands for, how it is written, and what it may do."""

from __future__ import annotations

import pytest

from nonchalant import keys
from nonchalant.access import ANYBODY, EVERYTHING, Caller, LanePattern, Scope, Within
from nonchalant.audit import Actor, Deed
from nonchalant.errors import BadRequest
from nonchalant.keys import Key, Live
from nonchalant.logs import clean_text
from nonchalant.scalars import parse_pattern
from nonchalant.words import LaneKey
from tests.examples import ALICE, BOB, a_transaction

WRITTEN = keys.write("0123456789abcdef", "f" * 64)


def a_caller(*scopes: Scope, lanes: tuple[LanePattern, ...] = (LanePattern(),), tenant: str = "default") -> Caller:
    return Caller(key_id="key_1", name="x", scopes=frozenset(scopes), lanes=lanes, tenant=tenant)


@pytest.mark.parametrize(
    ("text", "pattern", "shown"),
    [
        ("*", LanePattern(), "*"),
        ("*:*", LanePattern(), "*"),
        ("1:*", LanePattern(1), "1:*"),
        (f"1:{ALICE}", LanePattern(1, ALICE), f"1:{ALICE}"),
        (f"*:{ALICE}", LanePattern(None, ALICE), f"*:{ALICE}"),
    ],
)
def test_patterns_are_read_and_shown(text: str, pattern: LanePattern, shown: str) -> None:
    assert parse_pattern(text, "lanes") == pattern
    assert str(pattern) == shown


@pytest.mark.parametrize("text", ["", "1", "one:*", "1:", ":", "1:0x12", "1:*:*", "-1:*", "**"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_pattern(text, "lanes")


def test_lanes_and_tenant_bound_what_may_be_used_and_seen() -> None:
    caller = a_caller(Scope.TX_READ, lanes=(LanePattern(1), LanePattern(7, ALICE)), tenant="mine")
    assert [caller.may_use(LaneKey(*lane)) for lane in ((1, BOB), (7, ALICE), (7, BOB), (8, ALICE))] == [
        True,
        True,
        False,
        False,
    ]
    assert caller.may_see(a_transaction(lane=LaneKey(7, ALICE), tenant="mine"))
    assert not caller.may_see(a_transaction(lane=LaneKey(7, ALICE), tenant="theirs"))
    assert not caller.may_see(a_transaction(lane=LaneKey(7, BOB), tenant="mine"))
    assert caller.within == Within(tenant="mine", lanes=caller.lanes)


def test_admin_is_every_scope_on_every_lane_for_every_tenant() -> None:
    admin = a_caller(Scope.ADMIN, lanes=(), tenant="mine")
    assert all(admin.may(scope) for scope in Scope)
    assert admin.may_use(LaneKey(1, BOB))
    assert admin.may_see(a_transaction(tenant="theirs"))
    assert admin.within == EVERYTHING
    assert not a_caller(Scope.LANE_ADMIN).may(Scope.ADMIN)
    assert ANYBODY.is_admin


def test_a_key_is_read_back_and_nothing_prints_its_secret() -> None:
    assert keys.read(WRITTEN.text) == WRITTEN
    assert WRITTEN.id == "key_0123456789abcdef"
    assert "f" * 64 not in f"{WRITTEN!r} {WRITTEN}"
    assert "f" * 64 not in clean_text(f"somebody sent {WRITTEN.text} in a path")


@pytest.mark.parametrize(
    "text", ["", "nck_", WRITTEN.text[:-1], WRITTEN.text + "0", WRITTEN.text.upper(), f" {WRITTEN.text}"]
)
def test_what_does_not_look_like_a_key_is_none(text: str) -> None:
    assert keys.read(text) is None


def test_only_the_right_digest_lets_in() -> None:
    caller = a_caller(Scope.SIGN)
    assert keys.holder_of(WRITTEN, Live(caller, WRITTEN.digest)) is caller
    assert keys.holder_of(WRITTEN, Live(caller, keys.write("0123456789abcdef", "e" * 64).digest)) is None
    assert keys.holder_of(WRITTEN, None) is None


def test_a_key_is_live_until_its_time_or_until_it_is_revoked() -> None:
    def a_key(**fields: int) -> Key:
        return Key(id="key_1", place=1, caller=ANYBODY, created_at=0, **fields)

    assert a_key().is_live(10**15)
    assert [a_key(expires_at=5).is_live(now) for now in (4, 5)] == [True, False]
    assert not a_key(revoked_at=1).is_live(0)


def test_who_acts_is_named_by_his_key() -> None:
    assert Actor.of(a_caller(Scope.ADMIN)) == Actor(id="key_1", name="x")
    assert Actor.of(ANYBODY) == Actor(id="anybody")


def test_long_words_of_a_deed_are_cut_wherever_they_stand() -> None:
    deed = Deed(actor=Actor(id="a"), action="b", subject="c", data={"raw": "0x" + "ab" * 900, "list": ["y" * 900, 1]})
    assert len(deed.text) < 1_200
    assert "(1802 characters)" in deed.text
