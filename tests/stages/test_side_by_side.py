"""Lanes share a chain, a store and a process, and none of them waits for another's network call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from nonchalant.model import Answer
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ALICE, BOB, Rig, staged
from tests.stages.voices import Voice

LONG = 600.0


def keep_waiting(rig: Rig, voice: Voice, question: str) -> None:
    """Whoever asks this about Alice's account waits; about Bob's it is answered."""

    async def script(*args: Any) -> Any:
        if ALICE.address in args:
            await rig.advance(LONG)
        return await getattr(voice.endpoint, question)(*args)

    voice.answer(question, script)


def keep_senders_waiting(rig: Rig, voice: Voice) -> None:
    async def script(raws: Sequence[bytes]) -> Sequence[Answer]:
        if any(rig.chain._decode(raw).sender == ALICE.address for raw in raws):
            await rig.advance(LONG)
        return await voice.endpoint.send(raws)

    voice.answer("send", script)


@lesson("mutex-over-network")
@pytest.mark.parametrize("question", ["account", "estimate", "send"])
@staged()
async def test_a_call_for_one_account_that_nobody_answers_holds_no_other_account_up(rig: Rig, question: str) -> None:
    for voice in rig.endpoints:
        if question == "send":
            keep_senders_waiting(rig, voice)
        else:
            keep_waiting(rig, voice, question)
    waiting = await rig.submit("waiting", ALICE)
    await rig.advance(5.0)
    going = await rig.submit_all((f"going-{n}" for n in range(3)), BOB)
    for tx in going:
        await rig.reaches(tx, State.SENT, 3.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states(going) == [State.CONFIRMED] * 3
    assert await rig.state(waiting) in {State.QUEUED, State.SIGNED}
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(LONG)
    await rig.mine()
    await rig.finalise()
    assert await rig.state(waiting) is State.CONFIRMED


@lesson("mutex-over-network")
@staged()
async def test_a_signer_that_takes_its_time_holds_no_other_account_up(rig: Rig) -> None:
    sign = rig.signer.sign

    async def slow(digests: Sequence[bytes]) -> Sequence[bytes]:
        await rig.advance(LONG)
        return await sign(digests)

    rig.signer.sign = slow  # type: ignore[method-assign]
    waiting = await rig.submit("waiting", ALICE)
    await rig.advance(1.0)
    going = await rig.submit("going", BOB)
    await rig.reaches(going, State.SENT, 3.0)
    await rig.mine()
    await rig.finalise()
    assert await rig.states([waiting, going]) == [State.QUEUED, State.CONFIRMED]
