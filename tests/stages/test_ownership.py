"""One lane, one owner: who was frozen, slow or cut off writes nothing any more."""

from __future__ import annotations

import pytest

from nonchalant import reconcile
from nonchalant.errors import LeaseLost
from nonchalant.sim.gate import Ambush, Boundary, StoreAilment
from nonchalant.values import replace
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.acts import owner_of
from tests.stages.rig import ALICE, BOB, Rig, staged


@lesson("no-fencing")
@staged()
async def test_a_frozen_owner_that_wakes_up_after_a_take_over_cannot_write(rig: Rig) -> None:
    """It has signed and is about to commit; only the database can stop it, because it has looked at its clock before."""
    old = rig.node
    rig.freeze_at(old, "store.commit", 25.0)
    tx = await rig.submit("pay")
    heir = await rig.start_node()
    sent = await rig.reaches(tx, State.SENT)
    assert await owner_of(rig) is heir
    [attempt] = await rig.attempts(tx)
    before = rig.database.execute(
        "SELECT max(position) FROM events WHERE kind NOT IN ('lane.lease', 'attempt.sent')"
    ).fetchone()[0]
    await rig.advance(30.0)  # the old one wakes up
    after = rig.database.execute(
        "SELECT max(position) FROM events WHERE kind NOT IN ('lane.lease', 'attempt.sent')"
    ).fetchone()[0]
    assert after == before
    assert await rig.read(tx) == sent
    assert [one.hash for one in await rig.attempts(tx)] == [attempt.hash]
    assert any("lease.lost" in line for line in rig.trace.lines if f" {old.name} " in line)
    await rig.mine()
    assert rig.executions("pay") == 1


@lesson("no-fencing")
@staged()
async def test_a_frozen_owner_cannot_write_even_what_no_row_version_guards(rig: Rig) -> None:
    """It is about to mark the lane for its signer; by the time it wakes up another node has worked the lane."""
    rig.signer.down = True
    signed = Ambush("signer.sign", Boundary.AFTER, 0, lambda: rig.freeze_at(old, "store.commit", 25.0))
    old = rig.node
    old.gate.lay(signed)
    tx = await rig.submit("pay")
    await rig.advance(5.0)
    assert await rig.lane_mark() is None  # it stands before its commit
    rig.signer.down = False
    heir = await rig.start_node()
    await rig.reaches(tx, State.SENT)
    assert await owner_of(rig) is heir
    await rig.advance(30.0)
    assert await rig.lane_mark() is None
    assert await rig.events("lane.attention") == []


@staged()
async def test_a_frozen_owner_does_not_stumble_over_what_its_heir_sent(rig: Rig) -> None:
    """It wakes up where it reads what people want, and one wants to cancel what got its nonce meanwhile."""
    old = rig.node
    await rig.reaches(await rig.submit("first"), State.SENT)
    rig.freeze_at(old, "store.orders", 25.0)
    heir = await rig.start_node()
    second = await rig.reaches(await rig.submit("second", via=heir), State.SENT)
    assert await owner_of(rig) is heir
    rig.kill(heir)
    await rig.asking.cancel(second.id)
    await rig.advance(45.0)
    assert await owner_of(rig) is old
    assert await rig.told(second, "tx.attention") == []
    await rig.mine()
    assert rig.executions("second") == 0


@staged()
async def test_an_owner_past_its_lease_does_not_take_what_its_heir_sent_for_a_strangers(rig: Rig) -> None:
    """It has read the lane and asked the chain, which has executed meanwhile what this copy of the lane does not know."""
    await rig.reaches(await rig.submit("pay"), State.SENT)
    desk = rig.node.engine.desks[ALICE]
    assert desk.lane.record.next_nonce == 1
    desk.lane.count = 2  # as the chain tells when an heir has used another nonce
    desk.lease = replace(desk.lease, until=desk.clock.monotonic())
    with pytest.raises(LeaseLost):
        await reconcile.begin(desk)
    assert not any("lane.quarantined" in line for line in rig.trace.lines), "nobody is alarmed"


@lesson("died-after-resend")
@lesson("no-fencing")
@staged()
async def test_a_frozen_owner_whose_broadcast_comes_late_does_no_harm(rig: Rig) -> None:
    old = rig.node
    rig.freeze_at(old, "node.send", 25.0)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    await rig.start_node()
    await rig.reaches(tx, State.SENT)
    await rig.mine()
    more = await rig.submit("more")
    await rig.advance(40.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([tx, more]) == [State.CONFIRMED] * 2
    assert rig.order_of_execution() == ["pay", "more"]
    assert rig.attempts_ever() == 2


@lesson("last-writer")
@pytest.mark.parametrize("step", ["store.queued", "signer.sign", "store.commit", "node.send", "node.account"])
@pytest.mark.parametrize("side", list(Boundary))
@staged(nodes=2)
async def test_an_owner_frozen_at_any_step_past_its_lease_leaves_one_history(
    rig: Rig, step: str, side: Boundary
) -> None:
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.freeze_at(await owner_of(rig), step, 25.0, side)
    txs = await rig.submit_all((f"pay-{n}" for n in range(3)), via=rig.nodes[0])
    for _ in range(6):
        await rig.mine()
        await rig.advance(8.0)
    await rig.finalise()
    assert await rig.states([first, *txs]) == [State.CONFIRMED] * 4
    assert list(rig.slots()) == [0, 1, 2, 3]
    for tx in txs:
        kinds = await rig.history(tx)
        assert [kinds.count(kind) for kind in ("tx.signed", "tx.mined", "tx.confirmed")] == [1, 1, 1]


@staged()
async def test_a_node_that_cannot_renew_stops_by_itself_before_its_lease_runs_out(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    cut_off = rig.node
    rig.spoil_store(cut_off, StoreAilment.REFUSED)
    expires = (await rig.lane()).expires_at
    for voice in rig.endpoints:
        voice.forget_pool()
    sends = len(rig.arrivals)
    await rig.advance(30.0)
    assert (rig.clock.now() > expires, len(rig.arrivals)) == (True, sends)
    heir = await rig.start_node()
    await rig.advance(10.0)
    assert await owner_of(rig) is heir
    assert len(rig.arrivals) > sends


@staged(nodes=2)
async def test_lanes_are_spread_over_the_nodes_that_live(rig: Rig) -> None:
    await rig.advance(5.0)  # both have heard of each other
    txs = [await rig.submit("alice", ALICE), await rig.submit("bob", BOB)]
    await rig.reaches(txs[1], State.SENT)
    assert {(await owner_of(rig, ALICE)).name, (await owner_of(rig, BOB)).name} == {"n1", "n2"}


@lesson("in-memory-nonce")
@staged(nodes=3)
async def test_requests_to_every_node_share_one_line_of_nonces(rig: Rig) -> None:
    txs = [await rig.submit(f"pay-{n}", via=rig.nodes[n % 3]) for n in range(12)]
    await rig.reaches(txs[-1], State.SENT)
    await rig.mine()
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(12)]


@staged(nodes=2)
async def test_a_lane_that_changes_hands_many_times_keeps_its_order(rig: Rig) -> None:
    txs = []
    for n in range(6):
        txs.append(await rig.submit(f"pay-{n}"))
        await rig.reaches(txs[-1], State.SENT, 40.0)
        rig.kill(await owner_of(rig))
        await rig.start_node()
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states(txs) == [State.CONFIRMED] * 6
    assert rig.order_of_execution() == [f"pay-{n}" for n in range(6)]
    assert (await rig.lane()).epoch >= 6


@staged()
async def test_an_error_in_one_lane_leaves_the_others_alone(rig: Rig) -> None:
    """Alice's signer answers with something nobody expects."""
    rig.tolerate("signer.broke")
    sign = rig.signers[ALICE].sign

    async def break_down(_digests: list[bytes]) -> list[bytes]:
        raise ZeroDivisionError("not what a signer raises")

    await rig.stop(rig.node)
    rig.signers[ALICE].sign = break_down  # type: ignore[method-assign, assignment]
    await rig.start_node()
    alice, bob = await rig.submit("alice", ALICE), await rig.submit("bob", BOB)
    await rig.reaches(bob, State.SENT, 5.0)
    assert await rig.state(alice) is State.QUEUED
    assert rig.slots(ALICE) == {}
    await rig.stop(rig.node)
    rig.signers[ALICE].sign = sign  # type: ignore[method-assign]
    await rig.start_node()
    await rig.reaches(alice, State.SENT)
