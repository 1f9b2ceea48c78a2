"""The bound of a quarantine is fixed at take-over, from a head that may lag."""

from __future__ import annotations

from typing import Any

from nonchalant.words import State
from tests.stages.acts import lose_one
from tests.stages.rig import ETHER, Rig, staged

WINDOW = 3


async def _lose_eight_payments(rig: Rig) -> list[Any]:
    """Six of them executed, in blocks that are not final, two in flight; the copy has all of them queued."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    rig.signer.down = True
    txs = await rig.submit_all([f"pay-{n}" for n in range(8)], value=ETHER // 100)
    copy = rig.database.serialize()
    rig.signer.down = False
    await rig.reaches(txs[2], State.SENT)
    await rig.mine()
    await rig.reaches(txs[5], State.SENT)
    await rig.mine(5, empty=True)
    await rig.mine()
    await rig.reaches(txs[7], State.SENT)
    rig.kill(rig.node)
    return [txs, copy]


async def _see_it_through(rig: Rig) -> None:
    await rig.mine(80)
    assert [rig.executions(f"pay-{n}") <= 1 for n in range(8)] == [True] * 8


@staged(window=WINDOW, largest_window=WINDOW, finality_lag=10)
async def test_a_quarantine_that_began_on_a_lagging_head_does_not_end_before_what_was_lost_is_final(rig: Rig) -> None:
    """All endpoints lag when the node starts on the older copy, and catch up a moment later."""
    before = [voice.endpoint.head for voice in rig.endpoints]
    _, copy = await _lose_eight_payments(rig)
    for voice, head in zip(rig.endpoints, before, strict=True):
        voice.endpoint.head, voice.endpoint.frozen = head, True
    await rig.restore_store(copy)
    await rig.advance(20.0)
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(5.0)
    await _see_it_through(rig)


async def _restore_while_blocks_are_slow(rig: Rig, copy: bytes) -> None:
    """The follower shows its final block as the head until it has linked what is above: here that takes long."""
    for voice in rig.endpoints:

        async def slow(ref: Any, voice: Any = voice) -> Any:
            await rig.advance(8.0)
            return await voice.endpoint.block(ref)

        voice.answer("block", slow)
    await rig.restore_store(copy)
    await rig.advance(40.0)
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(5.0)


@staged(window=WINDOW, largest_window=WINDOW, finality_lag=10)
async def test_a_quarantine_that_began_before_the_head_was_linked_does_not_end_too_early(rig: Rig) -> None:
    _, copy = await _lose_eight_payments(rig)
    await _restore_while_blocks_are_slow(rig, copy)
    await _see_it_through(rig)


@staged(window=WINDOW, largest_window=WINDOW, finality_lag=10)
async def test_used_nonces_that_show_only_after_the_take_over_are_a_sign_of_loss_too(rig: Rig) -> None:
    """No witness (the whole machine was restored): `is_suspect` is asked once, of a head that is not linked yet."""
    _, copy = await _lose_eight_payments(rig)
    rig.forget_witness()
    await _restore_while_blocks_are_slow(rig, copy)
    await _see_it_through(rig)


@staged(window=WINDOW, largest_window=WINDOW)
async def test_who_takes_a_lane_over_after_a_quarantine_still_believes_its_chain(rig: Rig) -> None:
    """The height of the last final block and its hash are written together: apart, they name a block that never was."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    await rig.mine()
    await rig.finalise()
    await lose_one(rig)
    await rig.submit("second", value=100 * ETHER)  # work, but nothing that would write the height anew
    await rig.advance(15.0)
    assert (await rig.lane()).record.quarantined_below is not None
    while (await rig.lane()).record.quarantined_below is not None:
        await rig.mine()
    rig.kill(rig.node)
    await rig.start_node()
    third = await rig.submit("third")
    await rig.reaches(third, State.SENT)
