"""Room in a queue is not counted for every request, and yet a limit is a limit."""

from hypothesis import given
from hypothesis import strategies as st

from nonchalant.model import Transaction
from nonchalant.ports import NoRoom, Store
from nonchalant.store.room import BELIEVED, SHARES, KnownRoom
from tests.examples import LANE, a_request
from tests.store.acts import ManualClock

LIMIT = 3 * SHARES


async def test_a_node_alone_accepts_just_what_the_limit_allows(store: Store) -> None:
    answers = [
        answer
        for start in range(0, LIMIT + 20, 20)
        for answer in await store.accept([a_request(f"t{start + n}") for n in range(20)], limits={LANE: LIMIT})
    ]
    assert [type(answer) for answer in answers] == [Transaction] * LIMIT + [NoRoom] * 20


async def test_what_others_accepted_counts_as_soon_as_it_is_counted_again(store: Store, clock: ManualClock) -> None:
    limits = {LANE: 2 * SHARES}
    await store.accept([a_request("first")], limits=limits)
    ours = store._room  # type: ignore[attr-defined]
    store._room = KnownRoom()  # type: ignore[attr-defined] # as another node on the same database
    await store.accept([a_request(f"o{n}") for n in range(2 * SHARES - 1)], limits=limits)
    store._room = ours  # type: ignore[attr-defined]
    clock.pass_seconds(BELIEVED / 1000)
    assert await store.accept([a_request("last")], limits=limits) == [NoRoom()]


@given(
    nodes=st.integers(1, 10),
    acts=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40), st.integers(0, 400)), max_size=200),
    limit=st.integers(1, 3_000),
)
def test_nodes_that_accept_at_once_go_beyond_a_limit_by_a_hundredth_each_at_most(
    nodes: int, acts: list[tuple[int, int, int]], limit: int
) -> None:
    known, depth, now = [KnownRoom() for _ in range(nodes)], 0, 0
    for node, wanted, pause in acts:
        room, now = known[node % nodes], now + pause
        if room.is_ample(LANE, limit, wanted, now):
            depth += wanted
        else:
            room.counted(LANE, limit, min(depth, limit), wanted, now)
            depth += max(0, min(wanted, limit - depth))
        assert depth <= limit * (1 + (nodes - 1) / SHARES)


def test_a_limit_that_changed_is_counted_anew() -> None:
    room = KnownRoom()
    room.counted(LANE, 10_000, 0, 1, 0)
    assert room.is_ample(LANE, 10_000, 1, 0)
    assert not room.is_ample(LANE, 20_000, 1, 0)
    assert not room.is_ample(LANE, 10_000, 1, BELIEVED)
    assert not room.is_ample(LANE, 10_000, 10_000 // SHARES, 0)
