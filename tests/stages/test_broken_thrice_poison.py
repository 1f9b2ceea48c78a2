"""Found by a third adversary: what is set aside, and what the lane owes the others meanwhile."""

from typing import Any

import pytest

from nonchalant import filling, judging, rescue
from nonchalant.errors import SignerFailed
from nonchalant.poison import ASIDE_FOR
from nonchalant.windows import Pace
from nonchalant.wishes import Release, Reserve
from nonchalant.words import Speed, State
from tests.stages.acts import QUICK_BUMP
from tests.stages.poisons import POISON, choke_encoder, choke_signer, settles
from tests.stages.rig import ALICE, GWEI, Rig, staged

HOLDER = "a" * 32


def tolerate(rig: Rig) -> None:
    for event in ("lane.poisoned", "tx.set_aside", "lane.broke"):
        rig.tolerate(event)


@staged()
async def test_a_mark_that_could_not_be_written_is_written_later(rig: Rig) -> None:
    tolerate(rig)
    choke_encoder(rig, "bad")
    rig.database.execute(
        "CREATE TRIGGER no_marks BEFORE UPDATE ON transactions WHEN NEW.attention LIKE '%set_aside%'"
        " BEGIN SELECT RAISE(ABORT, 'not now'); END"
    )
    sent = await rig.submit("sent")
    await rig.reaches(sent, State.SENT)
    bad = await rig.submit("bad")
    await rig.advance(10.0)
    rig.database.execute("DROP TRIGGER no_marks")
    await rig.advance(300.0)
    assert await rig.mark(bad) == "set_aside"


@staged(patience=QUICK_BUMP)
async def test_what_is_left_aside_is_given_up_past_its_deadline_and_leaves_no_hole(rig: Rig) -> None:
    tolerate(rig)
    bad = await rig.submit("bad", valid_for=200.0, fees=Speed.FAST)
    await rig.reaches(bad, State.SENT)
    choke_encoder(rig, "bad")
    for voice in rig.endpoints:
        voice.endpoint.pool.clear()
    rig.chain.fee_level = 500 * GWEI
    await rig.mine(3, empty=True)
    for _ in range(10):
        await rig.mine(1, empty=True)
        await rig.advance(4)
    assert await rig.mark(bad) == "set_aside"
    await rig.advance(200.0)
    for voice in rig.endpoints:
        voice.endpoint.pool.clear()
    good = await rig.submit("good")
    rig.chain.fee_level = 1 * GWEI
    await settles(rig, good, blocks=30)
    assert await rig.state(bad) in (State.EXPIRED, State.CONFIRMED)


@staged(pace=Pace.STRICT)
async def test_a_payload_the_signer_refuses_leaves_the_line_where_one_goes_at_a_time(rig: Rig) -> None:
    tolerate(rig)
    choke_signer(rig, "bad", SignerFailed("not this one"))
    bad, *good = await rig.submit_all(["bad", *(f"good-{n}" for n in range(5))])
    await rig.advance(60.0)
    await settles(rig, *good, blocks=60)
    assert await rig.mark(bad) == "set_aside"
    assert await rig.lane_mark() is None


@staged(pace=Pace.STRICT)
async def test_a_signer_that_is_down_for_a_while_sets_nobody_aside_where_one_goes_at_a_time(rig: Rig) -> None:
    rig.signer.down = True
    txs = await rig.submit_all(["a", "b", "c"])
    await rig.advance(63.0)
    assert await rig.lane_mark() == "signer_failed"
    rig.signer.down = False
    await rig.advance(10.0)
    await settles(rig, *txs, blocks=30)
    assert await rig.lane_mark() is None


@staged()
async def test_a_replacement_the_signer_refuses_is_refused_and_the_lane_goes_on(rig: Rig) -> None:
    choke_signer(rig, "bad", SignerFailed("not this one"))
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    await rig.asking.replace(tx.id, rig.payload("bad"))
    await rig.advance(3.0)
    good = await rig.submit("good")
    await rig.reaches(good, State.SENT)
    await rig.advance(30.0)
    assert rig.wishes_open() == 0
    assert await rig.lane_mark() is None
    await settles(rig, tx, good)


@staged()
async def test_a_failure_that_is_nobody_s_holds_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerate(rig)
    with monkeypatch.context() as broken:

        def boom(*_: Any) -> Any:
            raise KeyError("slow")

        broken.setattr(judging.prices, "opening", boom)
        txs = await rig.submit_all([f"tx-{n}" for n in range(20)])
        await rig.advance(120.0)
    await rig.advance(60.0)
    assert [tx.held for tx in [await rig.read(tx) for tx in txs]] == [False] * 20
    await settles(rig, *txs, blocks=30)


@staged()
async def test_the_lane_s_mark_goes_with_what_it_was_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerate(rig)
    await rig.asking.of_lane(ALICE, Reserve(HOLDER, 5_000))
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)
    real = rescue._move

    async def broken(desk: Any, work: Any, slot: Any, *args: Any, **named: Any) -> Any:
        if slot.tx_id is None and slot.attempts:
            raise POISON
        return await real(desk, work, slot, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(rescue, "_move", broken)
        await rig.advance(20.0)
        await settles(rig, tx, blocks=30)
    await rig.mine(8)
    await rig.advance(60)
    assert await rig.lane_mark() is None


@staged()
async def test_gaps_are_closed_once_that_works_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    tolerate(rig)
    reserved = await rig.asking.of_lane(ALICE, Reserve(HOLDER, 5_000))
    tx = await rig.submit("tx")
    await rig.reaches(tx, State.SENT)

    async def boom(*_: Any) -> Any:
        raise KeyError("slow")

    with monkeypatch.context() as patch:
        patch.setattr(filling, "fill", boom)
        await rig.asking.of_lane(ALICE, Release(int(str(reserved.data["nonce"])), HOLDER))
        await rig.advance(20.0)
    await rig.advance(ASIDE_FOR / 1000)
    await rig.mine(8)
    assert await rig.state(tx) is State.CONFIRMED
