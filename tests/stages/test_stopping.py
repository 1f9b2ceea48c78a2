"""A node that is told to stop does so in a bounded time, whatever hangs, and hands over what it can."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from nonchalant.engine import CANCEL_SECONDS, HANG_UP_SECONDS
from nonchalant.model import Answer
from nonchalant.words import State
from tests.stages.rig import ALICE, BOB, Rig, staged
from tests.stages.voices import Voice

FOR_EVER = 1e6


@staged()
async def test_a_send_that_one_endpoint_never_answers_does_not_hold_a_node_that_stops(rig: Rig) -> None:
    async def hang(_: Any) -> Any:
        await rig.advance(FOR_EVER)

    rig.endpoints[0].answer("send", hang)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT)
    before = rig.loop.time()
    await rig.stop(rig.node)
    assert rig.loop.time() - before < HANG_UP_SECONDS + 1.0
    assert not any("lanes.cut_short" in line for line in rig.trace.lines)  # what the others said is on record
    assert (await rig.lane()).owner is None
    rig.endpoints[0].heal()
    await rig.start_node()
    assert (await rig.ends(tx)).state is State.CONFIRMED


@staged()
async def test_what_endpoints_answer_while_a_node_stops_is_on_record(rig: Rig) -> None:
    for voice in rig.endpoints:

        async def slow(raws: Sequence[bytes], voice: Voice = voice) -> Sequence[Answer]:
            await rig.advance(HANG_UP_SECONDS - 1.0)
            return await voice.endpoint.send(raws)

        voice.answer("send", slow)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SIGNED)
    await rig.stop(rig.node)
    assert await rig.state(tx) is State.SENT


@staged()
async def test_a_lane_that_hangs_and_cannot_be_ended_does_not_keep_the_node_nor_the_other_lanes(rig: Rig) -> None:
    async def stubborn(digests: Sequence[bytes]) -> Sequence[bytes]:
        while True:
            try:
                await rig.advance(FOR_EVER)
            except asyncio.CancelledError:
                continue

    rig.signers[ALICE].sign = stubborn  # type: ignore[method-assign]
    stuck, sent = await rig.submit("stuck"), await rig.submit("sent", BOB)
    await rig.reaches(sent, State.SENT)
    del rig.signers[ALICE].sign
    before = rig.loop.time()
    await rig.stop(rig.node)
    assert rig.loop.time() - before < rig.setting.drain_seconds + CANCEL_SECONDS + 1.0
    assert [(await rig.lane(lane)).owner for lane in (ALICE, BOB)] == [None, None]
    await rig.start_node()
    await rig.reaches(stuck, State.SENT)  # at once: its lease was let go
    await rig.ends(stuck)
    assert await rig.states([stuck, sent]) == [State.CONFIRMED] * 2
