"""At most once on chain: what looks like a failure, and is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from nonchalant.errors import KeyReused
from nonchalant.follow import RECEIPT_SECONDS
from nonchalant.model import BlockRef, Executed, Receipt
from nonchalant.sim.gate import Boundary, StoreAilment
from nonchalant.sim.pool import No
from nonchalant.words import Hash, State
from tests.lessons import lesson
from tests.stages.acts import QUICK_BUMP, bumped_in_vain, goes_once_all_are_well
from tests.stages.rig import Rig, refused, staged, unreachable
from tests.stages.voices import Voice


@lesson("missing-receipt")
@pytest.mark.parametrize("error", [unreachable(), refused("internal error", -32603)], ids=["unreachable", "refused"])
@staged()
async def test_a_receipt_call_that_fails_is_not_proof_of_replacement(rig: Rig, error: Exception) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.fail("receipts", error)
        voice.fail("find", error)
    await rig.mine()
    await rig.finalise()
    await rig.advance(60.0)
    assert await rig.state(tx) is State.SENT
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.CONFIRMED)
    assert "tx.superseded" not in await rig.history(tx)
    assert rig.executions("pay") == 1


@lesson("missing-receipt")
@staged()
async def test_receipts_that_nobody_finds_are_not_proof_of_replacement(rig: Rig) -> None:
    """A new owner looks its attempts up; every endpoint says that it knows none of them."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)

    async def nothing(hashes: list[Hash]) -> list[Receipt | None]:
        return [None] * len(hashes)

    for voice in rig.endpoints:
        voice.answer("find", nothing)
    await rig.mine()
    await rig.finalise()
    await rig.start_node()
    confirmed = await rig.reaches(tx, State.CONFIRMED, 60.0)
    assert confirmed.receipt is not None
    assert "tx.superseded" not in await rig.history(tx)
    assert rig.executions("pay") == 1


@lesson("missing-receipt")
@staged()
async def test_a_lagging_node_that_knows_no_receipt_is_not_proof_of_replacement(rig: Rig) -> None:
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    rig.kill(rig.node)
    rig.endpoints[0].lag()  # the first one to be asked
    rig.endpoints[1].lag()
    await rig.mine()
    await rig.start_node()
    await rig.reaches(tx, State.MINED, 60.0)
    await rig.finalise()
    assert "tx.superseded" not in await rig.history(tx)
    assert rig.executions("pay") == 1


@lesson("send-timeout")
@staged()
async def test_a_time_out_after_acceptance_keeps_the_hash_and_the_nonce(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.time_out_after()
    tx = await rig.submit("pay")
    await rig.advance(6.0)
    await rig.mine()
    mined = await rig.reaches(tx, State.MINED)
    assert [attempt.hash for attempt in await rig.attempts(tx)] == [mined.hash]
    for voice in rig.endpoints:
        voice.heal()
    await rig.submit("next")
    await rig.advance(3.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay", "next"]


@lesson("send-timeout")
@staged()
async def test_a_time_out_before_acceptance_is_sent_again_with_the_same_bytes(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.time_out_before()
    tx = await rig.submit("pay")
    other = await rig.submit("other")
    await rig.advance(10.0)
    assert rig.arrivals == []
    assert await rig.nonces([tx, other]) == [0, 1]
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(30.0)
    assert len({sent.hash for sent in rig.sent("pay")}) == 1
    assert len(await rig.attempts(tx)) == 1
    await rig.mine()
    assert rig.order_of_execution() == ["pay", "other"]


@lesson("older-attempt-mined")
@lesson("consumed-by-ourselves")
@staged(patience=QUICK_BUMP)
async def test_an_older_attempt_that_is_mined_settles_the_transaction(rig: Rig) -> None:
    tx = await bumped_in_vain(rig)
    original, *bumps = await rig.attempts(tx)
    assert bumps
    await rig.mine()
    mined = await rig.read(tx)
    assert (mined.state, mined.hash) == (State.MINED, original.hash)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert not {"tx.superseded", "tx.requeued"} & set(await rig.history(tx))
    assert await rig.events("lane.foreign") == []


@lesson("died-after-resend")
@staged(patience=QUICK_BUMP)
async def test_an_older_attempt_mined_while_nobody_looked_settles_the_transaction(rig: Rig) -> None:
    tx = await bumped_in_vain(rig)
    assert len(await rig.attempts(tx)) > 1
    rig.kill(rig.node)
    await rig.mine()
    await rig.finalise()
    await rig.mine(3)
    await rig.start_node()
    confirmed = await rig.reaches(tx, State.CONFIRMED)
    assert confirmed.hash == (await rig.attempts(tx))[0].hash


@lesson("nonce-too-low-is-ours")
@staged()
async def test_nonce_too_low_means_look_and_never_a_new_nonce(rig: Rig) -> None:
    """The endpoints know the block before the follower does: our own attempt is what made the nonce too low."""
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    for voice in rig.endpoints:
        voice.fail("view", unreachable())
    await rig.mine()
    await rig.advance(60.0)
    assert No.NONCE_TOO_LOW in {verdict for _, _, verdict in rig.arrivals}
    assert await rig.state(tx) is State.SENT
    for voice in rig.endpoints:
        voice.heal()
    await rig.reaches(tx, State.MINED)
    await rig.finalise()
    assert await rig.state(tx) is State.CONFIRMED
    assert list(rig.slots()) == [0]


@staged()
async def test_nonce_too_low_from_nodes_that_are_wrong_changes_nothing(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("nonce too low: next nonce 1, tx nonce 0")
    tx = await rig.submit("pay")
    await rig.advance(120.0)
    assert (await rig.read(tx)).nonce == 0
    await goes_once_all_are_well(rig, tx)
    assert list(rig.slots()) == [0]


@lesson("two-preparations")
@lesson("in-memory-nonce")
@staged()
async def test_two_preparations_of_one_transaction_cannot_take_two_nonces(rig: Rig) -> None:
    """The first owner is frozen in the middle of signing; the second does the work; then the first wakes up."""
    first = rig.node
    rig.freeze_at(first, "signer.sign", 30.0)
    tx = await rig.submit("pay")
    await rig.start_node()
    await rig.reaches(tx, State.SENT)
    await rig.submit("more")
    await rig.advance(30.0)
    assert rig.signer.asked >= 2
    assert rig.attempts_ever() == 2
    assert list(rig.slots()) == [0, 1]
    await rig.mine()
    assert rig.order_of_execution() == ["pay", "more"]


@lesson("idempotency-key-again")
@staged(nodes=2)
async def test_re_posting_an_idempotency_key_never_re_queues_also_after_completion(rig: Rig) -> None:
    request = rig.request("pay", key="invoice-42")
    again = rig.request("pay", key="invoice-42")
    one, other = rig.nodes
    tx, is_new = await one.intake.submit(request)
    assert is_new
    for state in (State.SENT, State.MINED, State.CONFIRMED):
        known, is_new = await other.intake.submit(again)
        assert (known.id, is_new) == (tx.id, False)
        if state is State.MINED:
            await rig.mine()
        if state is State.CONFIRMED:
            await rig.finalise()
        await rig.reaches(tx, state)
    known, is_new = await one.intake.submit(again)
    assert (known.id, known.state, is_new) == (tx.id, State.CONFIRMED, False)
    await rig.mine(3)
    assert rig.account().count == 1


@lesson("idempotency-key-again")
@staged()
async def test_one_key_posted_many_times_at_once_is_one_transaction(rig: Rig) -> None:
    txs = await rig.submit_all(["pay"] * 20, key="invoice-42")
    assert len({tx.id for tx in txs}) == 1
    await rig.advance(3.0)
    await rig.mine()
    assert rig.account().count == 1


@staged()
async def test_a_key_used_for_something_else_is_refused(rig: Rig) -> None:
    await rig.submit("pay", key="invoice-42")
    with pytest.raises(KeyReused):
        await rig.submit("pay another", key="invoice-42")
    await rig.advance(3.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay"]


@pytest.mark.parametrize("ailment", [StoreAilment.DONE_UNSAID, StoreAilment.LOST_UNSAID, StoreAilment.DONE_LATE])
@staged()
async def test_an_acceptance_of_unknown_outcome_is_repeated_with_the_same_id(rig: Rig, ailment: StoreAilment) -> None:
    rig.spoil_store(rig.node, ailment)
    asked = [rig.spawn(rig.submit(f"pay-{n}")) for n in range(5)]
    await rig.advance(0.5)
    assert not any(task.done() for task in asked)
    rig.node.gate.store_troubles.end()
    await rig.advance(60.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([task.result() for task in asked]) == [State.CONFIRMED] * 5
    assert rig.account().count == 5


@pytest.mark.parametrize("ailment", [StoreAilment.DONE_UNSAID, StoreAilment.LOST_UNSAID, StoreAilment.DONE_LATE])
@staged()
async def test_an_assignment_of_unknown_outcome_is_read_under_a_new_epoch(rig: Rig, ailment: StoreAilment) -> None:
    tx = await rig.submit("warm up")
    await rig.reaches(tx, State.SENT)
    epoch = (await rig.lane()).epoch
    txs = await rig.submit_all(f"pay-{n}" for n in range(3))
    rig.spoil_store(rig.node, ailment)
    await rig.advance(0.1)
    rig.node.gate.store_troubles.end()
    await rig.advance(60.0)
    assert (await rig.lane()).epoch > epoch
    assert set(await rig.nonces(txs)) == {1, 2, 3}
    await rig.mine()
    assert rig.account().count == 4


@pytest.mark.parametrize(
    "step", ["store.accept", "store.acquire", "store.load", "signer.sign", "store.commit", "node.send"]
)
@pytest.mark.parametrize("side", list(Boundary))
@staged(nodes=2)
async def test_a_node_that_dies_at_any_step_leaves_one_execution_each_and_no_hole(
    rig: Rig, step: str, side: Boundary
) -> None:
    dying, living = rig.nodes
    await rig.advance(2.0)
    for node in rig.nodes:
        rig.kill_at(node, step, side)
    tasks = [rig.spawn(rig.submit(f"pay-{n}", via=dying)) for n in range(3)]
    await rig.advance(5.0)
    await rig.start_node()
    living.gate.clear()
    await rig.advance(30.0)
    await rig.mine(2)
    await rig.advance(20.0)
    await rig.mine()
    await rig.finalise()
    accepted = [task.result() for task in tasks if task.done()]
    assert len(accepted) == 3 or step == "store.accept"
    assert await rig.states(accepted) == [State.CONFIRMED] * len(accepted)
    assert list(rig.slots()) == list(range(rig.account().count))


@lesson("errors-that-accept")
@staged()
async def test_already_known_means_accepted(rig: Rig) -> None:
    """The node died between the send and its record; the next one sends again, and everyone knows it already."""
    rig.kill_at(rig.node, "node.send", Boundary.AFTER)
    tx = await rig.submit("pay")
    await rig.advance(1.0)
    assert await rig.state(tx) is State.SIGNED
    await rig.start_node()
    await rig.reaches(tx, State.SENT)
    assert No.KNOWN in {verdict for _, _, verdict in rig.arrivals}
    assert [attempt.answer for attempt in await rig.attempts(tx)] == ["accepted"]
    assert "attempt.refused" not in await rig.history(tx)


@lesson("errors-that-accept")
@staged()
async def test_a_node_that_took_it_and_gave_up_waiting_for_the_receipt_has_accepted_it(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("Transaction 0x5a timeout waiting for receipt", 4)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    assert [attempt.answer for attempt in await rig.attempts(tx)] == ["accepted"]


@lesson("missing-receipt")
@staged()
async def test_proofs_for_several_reach_down_to_where_the_oldest_was_signed(rig: Rig) -> None:
    """One of two that lost their nonces ran before the other was even signed; only its block tells."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.kill(rig.node)
    await rig.mine()
    await rig.finalise()

    for voice in rig.endpoints:
        voice.answer("find", _forgotten)
        voice.fail("executed", unreachable())
    await rig.start_node()
    second = await rig.submit("second")
    assert (await rig.reaches(second, State.SENT)).nonce == 1
    rig.intrude()
    await rig.mine()
    await rig.finalise()
    for voice in rig.endpoints:
        voice.heal()
        voice.answer("find", _forgotten)
    await rig.tells(second, "tx.requeued", 120.0)
    await rig.ends(await rig.reaches(second, State.SENT))
    assert await rig.states([first, second]) == [State.CONFIRMED] * 2
    assert (rig.executions("first"), rig.executions("second")) == (1, 1)


@lesson("missing-receipt")
@staged()
async def test_a_proof_that_was_begun_for_one_says_nothing_of_another(rig: Rig) -> None:
    """It has passed the block that ran the other before anybody looked for that."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    rig.kill(rig.node)
    await rig.mine()
    ran = rig.chain.head.number
    await rig.finalise()
    await rig.mine(4)
    for voice in rig.endpoints:
        voice.answer("find", _forgotten)
        voice.answer("executed", _only_above(voice, ran))
    await rig.start_node()
    await rig.tells(first, "tx.attention")  # the search has come as far as it can
    second = await rig.submit("second")
    await rig.reaches(second, State.SENT)
    for voice in rig.endpoints:
        voice.fail("receipts", unreachable())
    await rig.mine()
    await rig.advance(RECEIPT_SECONDS + 10.0)
    await rig.finalise()
    assert await rig.state(second) is State.SENT
    for voice in rig.endpoints:
        voice.heal()
        voice.answer("find", _forgotten)
    for tx in (first, second):
        await rig.reaches(tx, State.CONFIRMED, 180.0)
    await rig.mine(6)
    assert (rig.executions("first"), rig.executions("second")) == (1, 1)


async def _forgotten(hashes: Sequence[Hash]) -> Sequence[None]:
    return [None] * len(hashes)


def _only_above(voice: Voice, height: int) -> Callable[[BlockRef], Awaitable[Sequence[Executed]]]:
    """It tells what blocks executed, of those that are higher than this."""

    async def executed(block: BlockRef) -> Sequence[Executed]:
        if block.number <= height:
            raise unreachable()
        return await voice.endpoint.executed(block)

    return executed
