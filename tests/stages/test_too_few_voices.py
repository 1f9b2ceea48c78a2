"""What too few endpoints say gives nothing up that was final, and halts nobody."""

from __future__ import annotations

import pytest

from nonchalant.errors import Unreachable, WishPending
from nonchalant.model import Account, Block, BlockRef
from nonchalant.values import replace
from nonchalant.wishes import Reset
from nonchalant.words import Address, Hash, Mode, State
from tests.stages.acts import ask, settled
from tests.stages.rig import Rig, staged
from tests.stages.voices import Voice


async def final_twice(rig: Rig) -> None:
    await settled(rig, "first")
    await settled(rig, "second")


def knows_only_its_head(rig: Rig, voice: Voice) -> None:
    async def account(address: Address, block: BlockRef) -> Account:
        if block.number <= rig.chain.final.number:
            raise Unreachable("the state of that block is gone")
        return await voice.endpoint.account(address, block)

    voice.answer("account", account)


def takes_another_for_block(voice: Voice, number: int, error: Exception | None = None) -> None:
    async def block(which: int | Hash) -> Block | None:
        if which != number:
            return await voice.endpoint.block(which)
        if error is not None:
            raise error
        true = await voice.endpoint.block(which)
        return None if true is None else replace(true, hash="0x" + "ee" * 32)

    voice.answer("block", block)


@staged()
async def test_a_reset_by_force_gives_up_nothing_while_too_few_tell_what_is_final(rig: Rig) -> None:
    await final_twice(rig)
    await rig.stop(rig.node)
    for voice in rig.endpoints[:2]:
        knows_only_its_head(rig, voice)
    await rig.start_node()
    with pytest.raises(WishPending):
        await ask(rig, Reset(force=True))
    record = (await rig.lane()).record
    assert (record.settled_below, record.next_nonce, record.resets) == (2, 2, 0)


@staged()
async def test_one_endpoint_that_names_another_final_block_halts_nobody_while_the_others_are_silent(rig: Rig) -> None:
    await final_twice(rig)
    seen = (await rig.lane()).record.seen_block
    await rig.mine(4)  # finality leaves what was seen behind
    await rig.stop(rig.node)
    takes_another_for_block(rig.endpoints[0], seen)
    for voice in rig.endpoints[1:]:
        takes_another_for_block(voice, seen, Unreachable("too old"))
    await rig.start_node()
    tx = await rig.submit("third")
    await rig.advance(30.0)
    assert (await rig.lane()).control.mode is Mode.OPEN
    assert rig.sent("third") == []
    for voice in rig.endpoints:
        voice.heal()
    assert (await rig.ends(await rig.reaches(tx, State.SENT))).state is State.CONFIRMED
