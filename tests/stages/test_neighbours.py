"""What stands still blocks nobody else: no other lane, chain, endpoint or transaction."""

from __future__ import annotations

import pytest

from nonchalant.fees import FeeRules
from nonchalant.sim.wire import Effect
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.rig import ABROAD, ALICE, BOB, CHAIN, ETHER, GWEI, OTHER_CHAIN, Rig, staged


@lesson("global-window")
@staged(window=2, fees=FeeRules(max_fee=30 * GWEI))
async def test_one_stuck_lane_does_not_block_another(rig: Rig) -> None:
    for voice in rig.endpoints:
        voice.refuse("txpool is full", only=lambda sent: sent.sender == ALICE.address)
    await rig.submit_all([f"stuck-{n}" for n in range(20)], ALICE)
    await rig.advance(3.0)
    going = await rig.submit_all([f"going-{n}" for n in range(6)], BOB)
    await rig.reaches(going[0], State.SENT)
    for _ in range(3):
        await rig.mine()
    await rig.finalise()
    assert await rig.states(going) == [State.CONFIRMED] * 6
    assert rig.account(ALICE).count == 0


@lesson("slow-neighbour")
@staged(lanes=(ALICE, ABROAD))
async def test_one_dead_chain_does_not_slow_another(rig: Rig) -> None:
    for voice in rig.endpoints_abroad:
        voice.down()
    await rig.submit("abroad", ABROAD)
    await rig.advance(5.0)
    tx = await rig.submit("here", ALICE)
    await rig.reaches(tx, State.SENT, 2.0)
    rig.chains[CHAIN].mine()
    await rig.reaches(tx, State.MINED, 4.0)
    for voice in rig.endpoints_abroad:
        voice.heal()
    await rig.advance(10.0)
    await rig.mine(chain=rig.chains[OTHER_CHAIN])
    assert rig.executions("abroad") == 1


@lesson("slow-neighbour")
@staged()
async def test_one_dead_endpoint_does_not_slow_the_others(rig: Rig) -> None:
    rig.endpoints[0].down()
    rig.dice.producer = rig.endpoints[1]
    await rig.advance(10.0)
    tx = await rig.submit("pay")
    await rig.reaches(tx, State.SENT, 2.0)
    rig.chain.mine()
    await rig.reaches(tx, State.MINED, 5.0)


@lesson("poisonous-row")
@staged(balance=2**300)
async def test_a_payload_that_cannot_be_encoded_does_not_stop_its_lane(rig: Rig) -> None:
    before = await rig.submit("before")
    poison = await rig.submit("poison", value=2**256, gas=100_000)
    after = await rig.submit("after")
    await rig.advance(5.0)
    assert await rig.states([before, poison, after]) == [State.SENT, State.FAILED, State.SENT]
    assert await rig.nonces([before, after]) == [0, 1]
    await rig.mine()
    assert rig.order_of_execution() == ["before", "after"]


@lesson("poisonous-row")
@pytest.mark.parametrize("column", ["payload", "fees"])
@staged(window=1)
async def test_one_undecodable_row_does_not_stop_its_lane(rig: Rig, column: str) -> None:
    rig.signer.down = True
    poison = await rig.submit("poison")
    rig.database.execute(f"UPDATE transactions SET {column} = '{{' WHERE id = ?", [poison.id])
    rig.signer.down = False
    after = await rig.submit("after")
    await rig.reaches(after, State.SENT, 10.0)
    row = rig.database.execute("SELECT held, nonce, attention FROM transactions WHERE id = ?", [poison.id]).fetchone()
    assert (row["held"], row["nonce"]) == (1, None)
    assert "undecodable" in row["attention"]


@lesson("head-of-line")
@staged(window=1)
async def test_a_transaction_that_always_reverts_leaves_the_line_and_spends_no_nonce(rig: Rig) -> None:
    hopeless = await rig.submit("hopeless", effect=Effect.NEVER)
    after = await rig.submit("after")
    failed = await rig.reaches(hopeless, State.FAILED)
    assert failed.failure is not None
    assert "would revert" in failed.failure
    await rig.reaches(after, State.SENT)
    assert (await rig.read(after)).nonce == 0
    assert rig.sent("hopeless") == []


@lesson("head-of-line")
@staged()
async def test_a_transaction_too_dear_for_the_account_lets_others_pass(rig: Rig) -> None:
    dear = await rig.submit("dear", value=100 * ETHER)
    cheap = await rig.submit("cheap", value=ETHER)
    await rig.reaches(cheap, State.SENT)
    assert (await rig.read(cheap)).nonce == 0
    assert await rig.state(dear) is State.QUEUED
    assert await rig.mark(dear) == "insufficient_funds"
