"""Nothing accepted is lost, nobody waits without limit, and one bad request fails alone."""

from __future__ import annotations

import asyncio

import pytest

from nonchalant import intake
from nonchalant.errors import NonchalantError, QueueFull, RowMoved, ShuttingDown, StoreUnavailable
from nonchalant.sim.gate import StoreAilment
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ALICE, BOB, Rig, staged


@staged(queue_limit=3)
async def test_a_full_queue_is_an_error_and_loses_nothing(rig: Rig) -> None:
    rig.signer.down = True
    txs = [await rig.submit(f"pay-{n}", key=f"key-{n}") for n in range(3)]
    with pytest.raises(QueueFull):
        await rig.submit("one too many")
    again = await rig.submit("pay-1", key="key-1")  # what was accepted is known, also at the limit
    assert again.id == txs[1].id
    await rig.submit("bob is not concerned", BOB)
    rig.signer.down = False
    await rig.advance(10.0)
    await rig.submit("there is room again")
    await rig.advance(2.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay-0", "pay-1", "pay-2", "there is room again"]


@staged(queue_limit=3)
async def test_the_queue_limit_holds_within_one_commit(rig: Rig) -> None:
    rig.signer.down = True
    answers = await asyncio.gather(*(rig.submit(f"pay-{n}") for n in range(5)), return_exceptions=True)
    assert [isinstance(answer, QueueFull) for answer in answers] == [False] * 3 + [True] * 2


@lesson("batch-neighbours")
@staged()
async def test_one_request_that_cannot_be_stored_fails_alone(rig: Rig) -> None:
    rig.tolerate("request.unstorable")
    wishes = [rig.submit(f"pay-{n}", priority=77 if n == 50 else 5) for n in range(100)]  # 77: the schema refuses it
    answers = await asyncio.gather(*wishes, return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)] == [50]
    assert isinstance(answers[50], RowMoved)
    assert rig.database.execute("SELECT count(*) FROM transactions").fetchone()[0] == 99


@staged()
async def test_many_requests_share_a_commit(rig: Rig) -> None:
    before = rig.database.execute("SELECT commits FROM meta").fetchone()[0]
    txs = await asyncio.gather(*(rig.submit(f"pay-{n}") for n in range(200)))
    after = rig.database.execute("SELECT commits FROM meta").fetchone()[0]
    assert len({tx.id for tx in txs}) == 200
    assert after - before <= 5


@staged()
async def test_a_caller_that_went_away_does_not_take_its_request_along(rig: Rig) -> None:
    asked = rig.spawn(rig.submit("pay"))
    await rig.advance(0.001)
    asked.cancel()
    await rig.advance(3.0)
    await rig.mine()
    assert rig.order_of_execution() == ["pay"]


@staged()
async def test_a_store_that_stays_away_is_an_error_after_a_while(rig: Rig) -> None:
    rig.spoil_store(rig.node, StoreAilment.REFUSED)
    began = rig.loop.time()
    with pytest.raises(StoreUnavailable):
        await rig.submit("pay")
    assert rig.loop.time() - began < 5.0
    rig.node.gate.store_troubles.end()
    await rig.reaches(await rig.submit("another"), State.SENT)


@staged()
async def test_too_many_callers_waiting_are_told_to_come_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_WAITING", 10)
    rig.spoil_store(rig.node, StoreAilment.REFUSED)
    asked = [rig.spawn(rig.submit(f"pay-{n}")) for n in range(15)]
    await rig.advance(0.1)
    refused = [task for task in asked if task.done()]
    assert refused
    assert all(isinstance(task.exception(), QueueFull) for task in refused)
    rig.node.gate.store_troubles.end()
    await rig.advance(3.0)
    assert all(task.done() for task in asked)
    await rig.mine()
    assert rig.account().count == len(asked) - len(refused)


@staged()
async def test_shutdown_refuses_new_requests_and_answers_those_it_took(rig: Rig) -> None:
    asked = [rig.spawn(rig.submit(f"pay-{n}")) for n in range(3)]
    await rig.advance(0.001)
    stopping = rig.spawn(rig.node.intake.close())
    await rig.advance(0.0)
    with pytest.raises(ShuttingDown):
        await rig.submit("too late")
    await stopping
    assert [task.result().state for task in asked] == [State.QUEUED] * 3


@staged()
async def test_a_request_for_a_lane_that_nobody_declared_spends_nothing(rig: Rig) -> None:
    rig.tolerate("request.unstorable")
    stranger = ALICE._replace(address="0x" + "cc" * 20)
    with pytest.raises((KeyError, NonchalantError)):
        await rig.submit("pay", stranger)
    await rig.reaches(await rig.submit("sound"), State.SENT)
