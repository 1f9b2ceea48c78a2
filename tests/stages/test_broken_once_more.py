from __future__ import annotations

from typing import Any

from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ALICE, GWEI, Rig, staged, unreachable


@staged()
async def test_a_node_that_stops_while_an_endpoint_hangs_lets_its_lanes_go(rig: Rig) -> None:
    """`_own` pops the lease when it is cancelled at the end of the drain, so `leave` has nothing to release."""

    async def hang(raws: Any) -> Any:
        await rig.advance(60.0)
        raise AssertionError

    rig.endpoints[0].answer("send", hang)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    await rig.advance(1.0)
    await rig.stop(rig.node)
    assert (await rig.lane()).owner is None


@staged()
async def test_a_proof_over_many_blocks_does_not_hold_the_lane_up(rig: Rig) -> None:
    old = await rig.submit("old")
    await rig.reaches(old, State.SENT)
    for voice in rig.endpoints:
        voice.endpoint.pool.evict(ALICE.address, 0)
    for _ in range(1500):
        rig.chain.mine(empty=True)
        if rig.chain.head.number % 100 == 0:
            await rig.advance(3.0)
    rig.intrude()
    await rig.mine(empty=True)
    for _ in range(rig.setting.finality_lag):
        rig.chain.mine(empty=True)
    await rig.advance(4.0)
    began = rig.loop.time()
    new = await rig.submit("new")
    await rig.reaches(new, State.SENT, seconds=1000.0)
    assert rig.loop.time() - began < 10.0


@staged()
async def test_an_endpoint_that_answers_its_head_and_hangs_else_does_not_slow_the_chain(rig: Rig) -> None:
    slow = rig.endpoints[0]
    for question in ("account", "market", "estimate", "find", "receipts", "block", "executed"):

        async def hang(*_: Any) -> Any:
            await rig.advance(10.0)
            raise unreachable()

        slow.answer(question, hang)
    began = rig.loop.time()
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT, seconds=1000.0)
    assert rig.loop.time() - began < 15.0


@staged(queue_limit=10_000)
async def test_a_long_queue_without_funds_is_read_in_proportion(rig: Rig) -> None:
    from nonchalant.store.sqlite import SqliteStore

    rig.drain()
    await rig.mine()
    rows = 0
    plain = SqliteStore.queued

    async def counted(self: Any, lane: Any, *, limit: int, skip: Any = ()) -> Any:
        nonlocal rows
        found = await plain(self, lane, limit=limit, skip=skip)
        rows += len(found)
        return found

    SqliteStore.queued = counted  # type: ignore[method-assign]
    try:
        await rig.submit_all([f"p{n}" for n in range(5000)], value=GWEI, gas=100_000)
        await rig.advance(60.0)
    finally:
        SqliteStore.queued = plain  # type: ignore[method-assign]
    judged = len(rig.node.engine.desks[ALICE].postponed)
    assert rows < 10 * judged


@staged(depth=2, finality_lag=4)
async def test_with_a_depth_what_lost_its_nonce_is_held_and_not_sent_again(rig: Rig) -> None:
    """Where finality is a depth, what lost its nonce is held."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.intrude()
    await rig.mine(6)
    assert "tx.requeued" not in await rig.history(tx)
    assert (await rig.read(tx)).held


@staged()
async def test_a_request_that_is_on_disk_is_not_refused_because_of_the_witness(rig: Rig) -> None:
    """`witness.saw` runs after COMMIT; its OSError reaches the client as a failure, though the payment goes out."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    saw, rig._witness.saw = rig._witness.saw, full  # type: ignore[method-assign]
    error: Exception | None = None
    try:
        await rig.submit("pay")
    except Exception as problem:  # noqa: BLE001 - whatever a client would be told
        error = problem
    rig._witness.saw = saw  # type: ignore[method-assign]
    rig.tolerate("")
    rig.broken.clear()
    await rig.advance(40.0)
    await rig.mine()
    assert error is None or rig.executions("pay") == 0


@lesson("poisonous-row")
@staged()
async def test_one_poisonous_row_with_a_slot_does_not_stop_its_lane(rig: Rig) -> None:
    """Queued rows left the line already; rows with a slot must not stop it either."""
    bad = await rig.submit("bad")
    await rig.reaches(bad, State.SENT)
    await rig.stop(rig.node)
    rig.database.execute("UPDATE transactions SET metadata = '{' WHERE id = ?", [bad.id])
    rig.tolerate("")
    await rig.start_node()
    later = await rig.submit("later")
    await rig.advance(60.0)
    rig.broken.clear()
    assert await rig.state(later) is State.SENT


@staged()
async def test_one_poisonous_row_does_not_hide_the_others_from_a_listing(rig: Rig) -> None:
    from nonchalant.ports import Filter

    bad, good = await rig.submit_all(["bad", "good"])
    await rig.reaches(good, State.SENT)
    rig.database.execute("UPDATE transactions SET metadata = '{' WHERE id = ?", [bad.id])
    found = await rig.store.transactions(Filter())
    assert good.id in [tx.id for tx in found]
