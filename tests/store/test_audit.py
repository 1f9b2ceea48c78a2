"""The audit log on each store: one chain, however many write; and nobody who meddles with it stays unseen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nonchalant.audit import NOTHING, Actor, Broken, Check, Deed, Head
from nonchalant.ports import Store
from nonchalant.store.postgres import PostgresStore
from tests.postgres import Cluster
from tests.store.acts import REFUSED, ManualClock, on_postgres, second, sql

ALL = "position, at, actor, name, action, subject, data, previous, hash"


def a_deed(subject: str, **data: object) -> Deed:
    return Deed(actor=Actor(id="key_1", name="ops"), action="lane.pause", subject=subject, data=data)


async def checked(store: Store, kept: str | None = None, *, page: int = 2) -> Broken | Head:
    check = Check(await store.audit_head(), kept)
    while entries := await store.audit_after(check.read_to.position, limit=page):
        broken = check.read(entries)
        if broken is not None:
            return broken
    return check.finish() or check.read_to


@pytest.fixture
async def written(store: Store) -> Store:
    for number in range(1, 6):
        assert await store.note(a_deed(f"lane {number}", number=number)) == number
    return store


@pytest.fixture
async def unguarded(written: Store) -> Store:
    """As somebody sees it who owns the database."""
    triggers = ["audit_entries_never_change", "audit_entries_stay"]
    for trigger in triggers:
        on = " ON audit" if isinstance(written, PostgresStore) else ""
        await sql(written, f"DROP TRIGGER {trigger}{on}")
    return written


async def test_entries_say_who_did_what_when_and_follow_one_another(store: Store, clock: ManualClock) -> None:
    assert await store.audit_head() == Head(0, NOTHING)
    await store.note(a_deed("lane", reason="look", more=[1, None, 0.5]))
    clock.millis += 7
    await store.note(a_deed("other"))
    first, then = await store.audit_after(0, limit=10)
    assert (first.position, first.at, first.actor, first.name) == (1, clock.millis - 7, "key_1", "ops")
    assert (first.action, first.subject) == ("lane.pause", "lane")
    assert first.data == '{"more":[1,null,0.5],"reason":"look"}'
    assert (first.previous, then.previous, then.at) == (NOTHING, first.hash, clock.millis)
    assert await store.audit_head() == Head(2, then.hash)
    assert await store.audit_after(1, limit=10) == [then]


async def test_a_whole_log_is_found_whole(written: Store) -> None:
    head = await written.audit_head()
    assert await checked(written) == head
    assert await checked(written, head.hash) == head
    [third] = await written.audit_after(2, limit=1)
    assert await checked(written, third.hash) == head  # it has grown since that was kept
    assert await checked(written, NOTHING) == head


async def test_what_is_not_printable_or_too_long_is_written_so_that_the_hash_fits(store: Store) -> None:
    await store.note(a_deed("a\0b\n\ud800" + "x" * 1000, text="\0" + "y" * 1000))
    assert await checked(store) == await store.audit_head()
    [entry] = await store.audit_after(0, limit=1)
    assert entry.subject.startswith("a?b??x")
    assert len(entry.data) < 600


async def test_the_schema_refuses_to_change_or_remove_entries(written: Store) -> None:
    for statement in ("UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"):
        with pytest.raises(REFUSED, match="what was done stays written"):
            await sql(written, statement)
    if isinstance(written, PostgresStore):
        with pytest.raises(REFUSED, match="what was done stays written"):
            await sql(written, "TRUNCATE audit")
    assert await checked(written) == await written.audit_head()


@pytest.mark.parametrize(
    "change",
    [
        "at = at + 1",
        "actor = 'key_2'",
        "name = 'somebody'",
        "action = 'lane.resume'",
        "subject = 'another'",
        "data = '{\"number\":4}'",
        "data = '{ \"number\":3}'",
        "hash = '" + "1" * 64 + "'",
        "previous = '" + "1" * 64 + "'",
    ],
)
async def test_a_changed_entry_is_found(unguarded: Store, change: str) -> None:
    await sql(unguarded, f"UPDATE audit SET {change} WHERE position = 3")
    broken = await checked(unguarded)
    assert isinstance(broken, Broken)
    assert broken.position == 3


async def test_a_removed_entry_is_found(unguarded: Store) -> None:
    await sql(unguarded, "DELETE FROM audit WHERE position = 3")
    assert await checked(unguarded) == Broken(3, "it is missing; the next is entry 4")


async def test_a_removed_beginning_is_found(unguarded: Store) -> None:
    await sql(unguarded, "DELETE FROM audit WHERE position <= 2")
    assert await checked(unguarded) == Broken(1, "it is missing; the next is entry 3")


async def test_an_entry_taken_out_with_the_later_ones_moved_up_is_found(unguarded: Store) -> None:
    await sql(unguarded, "DELETE FROM audit WHERE position = 3")
    await sql(unguarded, "UPDATE audit SET position = 3 WHERE position = 4")
    assert await checked(unguarded) == Broken(3, "it does not follow the one before it")


async def test_entries_that_changed_places_are_found(unguarded: Store) -> None:
    for old, new in ((2, 99), (4, 2), (99, 4)):
        await sql(unguarded, "UPDATE audit SET position = ? WHERE position = ?", new, old)
    assert await checked(unguarded) == Broken(2, "it does not follow the one before it")


async def test_an_end_that_was_cut_off_is_found(unguarded: Store) -> None:
    await sql(unguarded, "DELETE FROM audit WHERE position > 3")
    assert await checked(unguarded) == Broken(4, "it is missing, with all after it; 5 entries were written")


async def test_an_end_cut_off_with_the_head_put_right_is_found_by_who_kept_a_hash(unguarded: Store) -> None:
    kept = (await unguarded.audit_head()).hash
    await sql(unguarded, "DELETE FROM audit WHERE position > 3")
    await sql(unguarded, "UPDATE audit_head SET position = 3, hash = (SELECT hash FROM audit WHERE position = 3)")
    assert await checked(unguarded) == await unguarded.audit_head()
    broken = await checked(unguarded, kept)
    assert isinstance(broken, Broken)
    assert broken.position == 4


async def test_a_note_of_the_end_that_does_not_fit_is_found(written: Store) -> None:
    await sql(written, "UPDATE audit_head SET hash = ?", "1" * 64)
    assert await checked(written) == Broken(5, "the store noted another hash for it")


async def test_a_log_that_grows_while_it_is_read_is_whole(written: Store) -> None:
    check = Check(await written.audit_head())
    await written.note(a_deed("meanwhile"))
    assert check.read(await written.audit_after(0, limit=100)) is None
    assert check.finish() is None
    assert check.read_to.position == 6


async def test_a_log_written_anew_from_some_entry_on_is_found_by_who_kept_a_hash(unguarded: Store) -> None:
    kept = (await unguarded.audit_head()).hash
    await sql(unguarded, "DELETE FROM audit WHERE position > 3")
    await sql(unguarded, "UPDATE audit_head SET position = 3, hash = (SELECT hash FROM audit WHERE position = 3)")
    for number in (4, 5):
        await unguarded.note(a_deed(f"something else {number}"))
    assert await checked(unguarded) == await unguarded.audit_head()
    assert isinstance(await checked(unguarded, kept), Broken)


@pytest.fixture
async def nodes(postgres: Cluster) -> AsyncIterator[list[PostgresStore]]:
    async with on_postgres(postgres) as store:
        others = [await second(store, postgres) for _ in range(2)]
        yield [store, *others]
        for other in others:
            await other.close()


async def test_several_nodes_write_one_chain(nodes: list[PostgresStore]) -> None:
    positions = await asyncio.gather(*(nodes[n % 3].note(a_deed(f"lane {n}")) for n in range(60)))
    assert sorted(positions) == list(range(1, 61))
    head = await checked(nodes[0])
    assert isinstance(head, Head)
    assert head.position == 60
