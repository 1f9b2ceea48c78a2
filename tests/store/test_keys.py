"""Keys on each store: kept by their digest, gone at once when revoked, and every deed about them written down with it."""

from __future__ import annotations

import asyncio

import pytest

from nonchalant.access import EVERYTHING, FeeRule, LanePattern, NonceRule, Scope, Within
from nonchalant.audit import Actor, Check, Deed
from nonchalant.keys import KeyRequest, Written, write
from nonchalant.ports import Filter, Store
from nonchalant.values import replace
from tests.examples import ALICE, BOB, LANE
from tests.postgres import Cluster
from tests.store.acts import OTHER_LANE, ManualClock, accept, on_postgres, second, sql

DEED = Deed(actor=Actor(id="command line", name="ops"), action="key.create", subject="new")


def a_key(number: int = 1) -> Written:
    return write(f"{number:016x}", f"{number:064x}")


def wanted(**fields: object) -> KeyRequest:
    return replace(KeyRequest(name="backend", scopes=frozenset({Scope.TX_READ})), **fields)


async def test_a_key_comes_back_as_it_was_asked_for(store: Store, clock: ManualClock) -> None:
    request = KeyRequest(
        name="backend",
        scopes=frozenset({Scope.TX_WRITE, Scope.TX_READ}),
        tenant="shop",
        lanes=(LanePattern(1), LanePattern(7, ALICE)),
        nonces=NonceRule.ORDER,
        fees=FeeRule.CAP,
        rate=2.5,
        expires_at=clock.millis + 1,
    )
    made = await store.add_key(a_key(), request, DEED)
    assert made is not None
    assert made == await store.key(a_key().id)
    assert (made.created_at, made.expires_at, made.revoked_at) == (clock.millis, clock.millis + 1, None)
    caller = made.caller
    assert (caller.key_id, caller.name, caller.scopes, caller.tenant) == (
        a_key().id,
        "backend",
        request.scopes,
        "shop",
    )
    assert (caller.lanes, caller.nonces, caller.fees, caller.rate) == (
        request.lanes,
        NonceRule.ORDER,
        FeeRule.CAP,
        2.5,
    )
    live = await store.live_keys([a_key().id, "key_nobody"])
    assert {key_id: found.caller for key_id, found in live.items()} == {a_key().id: caller}
    assert live[a_key().id].digest == a_key().digest


async def test_the_secret_is_nowhere_in_the_store(store: Store) -> None:
    await store.add_key(a_key(), wanted(), DEED)
    for table in ("keys", "audit"):
        assert a_key().text.rpartition("_")[2] not in str(
            [tuple(row) for row in await sql(store, f"SELECT * FROM {table}")]
        )


async def test_a_key_that_expired_or_was_revoked_is_not_live(store: Store, clock: ManualClock) -> None:
    await store.add_key(a_key(1), wanted(expires_at=clock.millis + 1000), DEED)
    await store.add_key(a_key(2), wanted(), DEED)
    ids = [a_key(1).id, a_key(2).id]
    clock.millis += 999
    assert set(await store.live_keys(ids)) == set(ids)
    clock.millis += 1
    assert set(await store.live_keys(ids)) == {ids[1]}
    revoked = await store.revoke_key(ids[1], DEED)
    assert revoked is not None
    assert revoked.revoked_at == clock.millis
    assert await store.live_keys(ids) == {}


async def test_a_key_whose_row_cannot_be_read_lets_nobody_in(store: Store) -> None:
    await store.add_key(a_key(1), wanted(), DEED)
    await store.add_key(a_key(2), wanted(), DEED)
    await sql(store, "UPDATE keys SET scopes = '[\"everything\"]' WHERE id = ?", a_key(1).id)
    assert set(await store.live_keys([a_key(1).id, a_key(2).id])) == {a_key(2).id}
    assert [key.id for key in await store.keys(limit=10)] == [a_key(2).id]


async def test_adding_the_same_key_again_adds_nothing_and_is_written_down_once(store: Store) -> None:
    first = await store.add_key(a_key(), wanted(), DEED)
    assert await store.add_key(a_key(), wanted(), DEED) == first
    assert (await store.audit_head()).position == 1


async def test_revoking_again_changes_nothing_and_is_written_down_once(store: Store, clock: ManualClock) -> None:
    await store.add_key(a_key(), wanted(), DEED)
    first = await store.revoke_key(a_key().id, DEED)
    clock.millis += 5
    assert await store.revoke_key(a_key().id, DEED) == first
    assert await store.revoke_key("key_nobody", DEED) is None
    assert (await store.audit_head()).position == 2


async def test_the_first_key_is_made_only_where_there_is_none_and_revoked_ones_count(store: Store) -> None:
    assert await store.add_key(a_key(1), wanted(), DEED, only_first=True) is not None
    assert (
        await store.add_key(a_key(1), wanted(), DEED, only_first=True) is not None
    )  # its commit's outcome was unknown
    assert await store.add_key(a_key(2), wanted(), DEED, only_first=True) is None
    await store.revoke_key(a_key(1).id, DEED)
    assert await store.add_key(a_key(2), wanted(), DEED, only_first=True) is None
    assert [key.id for key in await store.keys(limit=10)] == [a_key(1).id]


async def test_of_nodes_that_start_at_once_one_makes_the_first_key(postgres: Cluster) -> None:
    async with on_postgres(postgres) as store:
        nodes = [store, await second(store, postgres), await second(store, postgres)]
        try:
            made = await asyncio.gather(
                *(nodes[number % 3].add_key(a_key(number), wanted(), DEED, only_first=True) for number in range(12))
            )
        finally:
            for node in nodes[1:]:
                await node.close()
        assert len([key for key in made if key is not None]) == 1
        assert len(await store.keys(limit=100)) == 1


async def test_keys_are_listed_from_the_newest_down_page_by_page(store: Store) -> None:
    for number in range(5):
        await store.add_key(a_key(number), wanted(), DEED)
    first = await store.keys(limit=2)
    rest = await store.keys(before=first[-1].place, limit=10)
    assert [key.id for key in [*first, *rest]] == [a_key(number).id for number in (4, 3, 2, 1, 0)]


# what a listing is kept to


@pytest.mark.parametrize(
    ("within", "seen"),
    [
        (EVERYTHING, "abcd"),
        (Within(tenant="shop"), "bd"),
        (Within(lanes=(LanePattern(LANE.chain_id),)), "abcd"),
        (Within(lanes=(LanePattern(1),)), ""),
        (Within(lanes=(LanePattern(None, ALICE),)), "ab"),
        (Within(lanes=(LanePattern(1), LanePattern(*OTHER_LANE))), "cd"),
        (Within(lanes=(LanePattern(),), tenant="default"), "ac"),
        (Within(lanes=(LanePattern(*LANE),), tenant="shop"), "b"),
        (Within(lanes=()), ""),
    ],
)
async def test_a_listing_shows_what_is_within_and_its_pages_are_full(store: Store, within: Within, seen: str) -> None:
    for id, lane, tenant in (
        ("a", LANE, "default"),
        ("b", LANE, "shop"),
        ("c", OTHER_LANE, "default"),
        ("d", OTHER_LANE, "shop"),
    ):
        await accept(store, id, lane=lane, tenant=tenant)
    found, before = "", None
    for left in range(len(seen), -1, -1):
        page = await store.transactions(Filter(within=within, before=before, limit=1))
        assert len(page) == (1 if left else 0)
        found += "".join(tx.id for tx in page)
        before = page[-1].place if page else before
    assert found == seen[::-1]


async def test_lanes_are_listed_as_far_as_they_may_be_used(store: Store) -> None:
    async def seen(*lanes: LanePattern) -> list[str]:
        return [lane.record.key.address for lane in await store.lanes(Within(lanes=lanes, tenant="any"))]

    assert await seen(LanePattern()) == [ALICE, BOB]
    assert await seen(LanePattern(7)) == [ALICE, BOB]
    assert await seen(LanePattern(7, BOB), LanePattern(1)) == [BOB]
    assert await seen(LanePattern(1)) == []


async def test_the_log_of_all_this_is_whole(store: Store) -> None:
    await store.add_key(a_key(1), wanted(), DEED)
    await store.revoke_key(a_key(1).id, DEED)
    check = Check(await store.audit_head())
    assert check.read(await store.audit_after(0, limit=10)) is None
    assert check.finish() is None
    assert check.read_to.position == 2
