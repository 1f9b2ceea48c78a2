"""Acceptance: what is acknowledged is there, once, and one answer never depends on a neighbour."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nonchalant.lifecycle import Confirmed, Included
from nonchalant.model import Transaction
from nonchalant.ports import Duplicate, Filter, KeyTaken, NoRoom, Store
from nonchalant.words import State
from tests.examples import LANE, a_receipt, a_request
from tests.lessons import lesson
from tests.store.acts import LIMITS, OTHER_LANE, ManualClock, accept, assign, everything, take, work


async def test_an_accepted_transaction_is_queued_and_can_be_read(store: Store, clock: ManualClock) -> None:
    [tx] = await accept(store, "a", metadata={"invoice": 42}, idempotency_key="k", priority=9)
    assert (tx.state, tx.version, tx.held, tx.nonce, tx.hash) == (State.QUEUED, 1, False, None, None)
    assert (tx.created_at, tx.updated_at) == (clock.now(), clock.now())
    assert await store.transaction("a") == tx


async def test_a_transaction_s_place_rises_with_its_arrival(store: Store) -> None:
    accepted = await accept(store, "z", "a", "m")
    assert [tx.place for tx in accepted] == sorted(tx.place for tx in accepted)
    assert len({tx.place for tx in accepted}) == 3


async def test_acceptance_is_an_event_in_the_same_commit(store: Store, clock: ManualClock) -> None:
    await accept(store, "a")
    [event] = await store.history("a")
    assert (event.kind, event.tx_id, event.lane, event.at) == ("tx.accepted", "a", LANE, clock.now())


async def test_a_known_key_with_the_same_body_answers_the_first_transaction(store: Store) -> None:
    [first] = await accept(store, "a", idempotency_key="k", body_hash="x")
    answers = await store.accept([a_request("b", idempotency_key="k", body_hash="x")], limits=LIMITS)
    assert answers == [Duplicate(first)]
    assert await store.transaction("b") is None


async def test_a_known_key_with_another_body_is_taken(store: Store) -> None:
    await accept(store, "a", idempotency_key="k", body_hash="x")
    answers = await store.accept([a_request("b", idempotency_key="k", body_hash="y")], limits=LIMITS)
    assert answers == [KeyTaken()]
    assert await store.transaction("b") is None


async def test_keys_of_different_tenants_do_not_meet(store: Store) -> None:
    [one] = await accept(store, "a", idempotency_key="k", tenant="one")
    [two] = await accept(store, "b", idempotency_key="k", tenant="two")
    assert (one.id, two.id) == ("a", "b")
    for tenant, tx in (("two", two), ("one", one)):
        again = a_request("c", idempotency_key="k", tenant=tenant)
        assert await store.accept([again], limits=LIMITS) == [Duplicate(tx)]


async def test_transactions_without_a_key_never_collide(store: Store) -> None:
    assert len(await accept(store, "a", "b", "c")) == 3


async def test_one_key_twice_in_a_batch_makes_one_transaction(store: Store) -> None:
    first, second = await store.accept(
        [a_request("a", idempotency_key="k"), a_request("b", idempotency_key="k")], limits=LIMITS
    )
    assert isinstance(first, Transaction)
    assert second == Duplicate(first)


async def test_repeating_a_call_with_the_same_ids_answers_the_same_and_writes_nothing(store: Store) -> None:
    requests = [a_request("a", idempotency_key="k"), a_request("b")]
    first = await store.accept(requests, limits=LIMITS)
    before = await everything(store)
    assert await store.accept(requests, limits=LIMITS) == first
    assert await everything(store) == before


@lesson("idempotency-key-again")
async def test_a_key_posted_again_after_completion_never_queues_again(store: Store) -> None:
    [tx] = await accept(store, "a", idempotency_key="k")
    lease = await take(store)
    [signed] = await assign(store, lease, (tx, 0))
    making = work(lease)
    making.move(signed, Included(a_receipt(signed.hash)))
    making.move(signed, Confirmed())
    await store.commit(making.change(), lease)
    [answer] = await store.accept([a_request("b", idempotency_key="k")], limits=LIMITS)
    assert isinstance(answer, Duplicate)
    assert (answer.transaction.id, answer.transaction.state) == ("a", State.CONFIRMED)
    assert await store.queued(LANE, limit=9) == []


async def test_a_full_lane_has_no_room_and_its_neighbour_has(store: Store) -> None:
    limits = {LANE: 2, OTHER_LANE: 2}
    answers = await store.accept(
        [a_request("a"), a_request("b"), a_request("c"), a_request("d", lane=OTHER_LANE)], limits=limits
    )
    assert [type(answer) for answer in answers] == [Transaction, Transaction, NoRoom, Transaction]
    assert await store.accept([a_request("e")], limits=limits) == [NoRoom()]
    assert await store.transaction("c") is None


async def test_at_the_limit_what_is_known_is_still_answered(store: Store) -> None:
    [tx] = await accept(store, "a", idempotency_key="k")
    answers = await store.accept(
        [a_request("a", idempotency_key="k"), a_request("b", idempotency_key="k"), a_request("c")],
        limits={LANE: 1},
    )
    assert answers == [tx, Duplicate(tx), NoRoom()]


async def test_what_has_a_nonce_makes_room_again(store: Store) -> None:
    [tx] = await accept(store, "a")
    await assign(store, await take(store), (tx, 0))
    [answer] = await store.accept([a_request("b")], limits={LANE: 1})
    assert isinstance(answer, Transaction)


async def test_a_mixed_batch_has_one_answer_each_in_order(store: Store) -> None:
    [old] = await accept(store, "old", idempotency_key="k", body_hash="x")
    answers = await store.accept(
        [
            a_request("a"),
            a_request("b", idempotency_key="k", body_hash="y"),
            a_request("c", idempotency_key="k", body_hash="x"),
            a_request("d"),
            a_request("e"),
            a_request("old", idempotency_key="k", body_hash="x"),
        ],
        limits={LANE: 3},
    )
    assert [type(answer) for answer in answers[:2]] == [Transaction, KeyTaken]
    assert answers[2:] == [Duplicate(old), await store.transaction("d"), NoRoom(), old]
    assert [tx.id for tx in await store.queued(LANE, limit=9)] == ["old", "a", "d"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abcdef"), st.sampled_from([None, "k", "l"]), st.sampled_from("xy")), max_size=6
        ),
        max_size=6,
    )
)
async def test_every_batch_is_answered_as_a_dictionary_of_ids_and_keys_would(
    store: Store, batches: list[list[tuple[str, str | None, str]]]
) -> None:
    """One store over all examples: ids are made unique by the number of rows there are already."""
    salt = str(len(await store.transactions(Filter(limit=10_000))))
    by_id: dict[str, str] = {}
    by_key: dict[str, tuple[str, str]] = {}
    for batch in batches:
        requests = [a_request(salt + id, idempotency_key=key and salt + key, body_hash=body) for id, key, body in batch]
        answers = await store.accept(requests, limits={LANE: 100_000})
        for request, answer in zip(requests, answers, strict=True):
            key = request.idempotency_key
            if request.id in by_id:
                assert isinstance(answer, Transaction)
                assert answer.id == request.id
            elif key in by_key:
                first, body = by_key[key]
                if body == request.body_hash:
                    assert isinstance(answer, Duplicate)
                    assert answer.transaction.id == first
                else:
                    assert answer == KeyTaken()
            else:
                assert isinstance(answer, Transaction)
                by_id[request.id] = request.id
                if key is not None:
                    by_key[key] = (request.id, request.body_hash)
