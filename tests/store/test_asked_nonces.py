"""Nonces that clients ask for: one transaction each, whoever asks and how often."""

import asyncio

import pytest

from nonchalant.lifecycle import Cancelled, step
from nonchalant.model import LaneRecord, Payload, Transaction
from nonchalant.ports import Duplicate, NonceTaken, NoRoom, Store
from tests.examples import BOB, LANE, a_request
from tests.store.acts import LIMITS, OTHER_LANE, accept, assign, settle, take, work

OTHER = Payload(to=BOB, value=2)


async def answers(store: Store, *names: str, nonce: int = 5, **fields: object) -> list[object]:
    return list(await store.accept([a_request(name, asked_nonce=nonce, **fields) for name in names], limits=LIMITS))


async def test_it_is_kept_and_read_back(store: Store) -> None:
    [tx] = await accept(store, "a", asked_nonce=5)
    assert tx.asked_nonce == 5
    assert await store.transaction("a") == tx


async def test_the_same_request_again_is_the_same_transaction(store: Store) -> None:
    [first] = await accept(store, "a", asked_nonce=5)
    assert await answers(store, "b") == [Duplicate(first)]
    assert await store.transaction("b") is None


async def test_another_payload_at_the_nonce_is_refused(store: Store) -> None:
    await accept(store, "a", asked_nonce=5)
    assert await answers(store, "b", payload=OTHER) == [NonceTaken("a")]
    assert await store.transaction("b") is None
    assert await answers(store, "c", tenant="somebody else") == [NonceTaken(None)]


async def test_another_lane_has_nonces_of_its_own(store: Store) -> None:
    await accept(store, "a", asked_nonce=5)
    [tx] = await answers(store, "b", lane=OTHER_LANE)
    assert isinstance(tx, Transaction)


async def test_two_in_one_commit_make_one_transaction(store: Store) -> None:
    first, again, other = await store.accept(
        [a_request("a", asked_nonce=5), a_request("b", asked_nonce=5), a_request("c", asked_nonce=5, payload=OTHER)],
        limits=LIMITS,
    )
    assert isinstance(first, Transaction)
    assert (again, other) == (Duplicate(first), NonceTaken("a"))


async def test_one_that_ended_without_a_nonce_frees_the_number(store: Store) -> None:
    [tx] = await accept(store, "a", asked_nonce=5)
    moved, events = step(tx, Cancelled(), 1)
    await store.alter_queued(moved, events)
    [after] = await answers(store, "b", payload=OTHER)
    assert isinstance(after, Transaction)
    assert await answers(store, "c") == [NonceTaken("b")]


async def test_one_that_has_a_nonce_keeps_the_number(store: Store) -> None:
    [tx] = await accept(store, "a", asked_nonce=0)
    await assign(store, await take(store), (tx, 0))
    assert await answers(store, "b", nonce=0, payload=OTHER) == [NonceTaken("a")]


async def test_one_that_finds_no_room_frees_the_number(store: Store) -> None:
    refused = await store.accept([a_request("a", asked_nonce=5)], limits={LANE: 0})
    assert refused == [NoRoom()]
    [tx] = await answers(store, "b", payload=OTHER)
    assert isinstance(tx, Transaction)


async def test_repeating_a_call_with_the_same_ids_is_safe(store: Store) -> None:
    [first] = await accept(store, "a", asked_nonce=5)
    assert await answers(store, "a") == [first]


async def test_an_idempotency_key_is_looked_at_first(store: Store) -> None:
    [first] = await accept(store, "a", asked_nonce=5, idempotency_key="k", body_hash="x")
    assert await answers(store, "b", nonce=6, idempotency_key="k", body_hash="x") == [Duplicate(first)]
    [tx] = await answers(store, "c", nonce=6, payload=OTHER)
    assert isinstance(tx, Transaction)


async def test_of_many_that_ask_at_once_one_has_it(store: Store) -> None:
    found = await asyncio.gather(*(answers(store, f"t{n}", payload=Payload(to=BOB, value=n + 1)) for n in range(12)))
    accepted = [answer for [answer] in found if isinstance(answer, Transaction)]
    assert len(accepted) == 1
    assert [answer for [answer] in found if answer not in accepted] == [NonceTaken(accepted[0].id)] * 11


async def test_the_owner_sees_them_before_the_others(store: Store) -> None:
    await accept(store, "a", "b", priority=9)
    await accept(store, "c", asked_nonce=7)
    await accept(store, "d", asked_nonce=6)
    assert [tx.id for tx in await store.queued(LANE, limit=1)] == ["d", "c", "a"]


async def test_a_reset_that_gives_nonces_out_again_forgets_who_asked_for_them(store: Store) -> None:
    [tx] = await accept(store, "a", asked_nonce=0)
    lease = await take(store)
    await assign(store, lease, (tx, 0))
    await settle(store, lease, "a")
    making = work(lease)
    making.unsettle_from(0)
    making.record(LaneRecord(key=LANE, resets=1))
    await store.commit(making.change(), lease)
    [other] = await answers(store, "b", nonce=0, payload=OTHER)
    assert isinstance(other, Transaction)


# batches


async def together(store: Store, *names: str, key: str | None = "k", hash: str = "x", **fields: object) -> list[object]:
    first, *others = names
    requests = [a_request(first, idempotency_key=key, body_hash=hash, batch=f"batch_{first}", **fields)]
    requests += [a_request(name, batch=f"batch_{first}", **fields) for name in others]
    return list(await store.accept_together(requests, limits=LIMITS))


async def test_what_is_accepted_together_is_one_batch(store: Store) -> None:
    accepted = await together(store, "a", "b", "c")
    assert [(tx.id, tx.batch) for tx in accepted if isinstance(tx, Transaction)] == [
        (name, "batch_a") for name in "abc"
    ]
    assert [await store.transaction(name) for name in "abc"] == accepted


async def test_the_key_of_a_batch_answers_all_of_it_again(store: Store) -> None:
    accepted = await together(store, "a", "b", "c")
    assert await together(store, "d", "e", "f") == [Duplicate(tx) for tx in accepted]  # type: ignore[arg-type]
    assert [await store.transaction(name) for name in "def"] == [None] * 3


async def test_the_same_call_made_twice_is_safe(store: Store) -> None:
    accepted = await together(store, "a", "b")
    assert await together(store, "a", "b") == accepted


async def test_if_one_does_not_fit_none_is_kept(store: Store) -> None:
    requests = [a_request(name, batch="batch_a") for name in "abc"]
    answers = await store.accept_together(requests, limits={LANE: 2})
    assert answers[2] == NoRoom()
    assert [await store.transaction(name) for name in "abc"] == [None] * 3
    assert await store.events_after(0, limit=10) == []


@pytest.mark.parametrize("first", ["single", "batch"])
async def test_a_key_is_for_one_request_or_one_batch(store: Store, first: str) -> None:
    if first == "single":
        await accept(store, "a", idempotency_key="k", body_hash="y")
        answers = await together(store, "b", "c")
    else:
        await together(store, "b", "c")
        answers = list(await store.accept([a_request("a", idempotency_key="k", body_hash="y")], limits=LIMITS))
    assert type(answers[0]).__name__ == "KeyTaken"
