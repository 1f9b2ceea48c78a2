"""What contracts answer: reasons for a revert, simulations, and calls that rest on earlier ones."""

from __future__ import annotations

from typing import Any

import pytest
from eth_abi import encode

from nonchalant.chain.evm.keccak import keccak
from nonchalant.words import State
from tests.e2e.ledger import recipient
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import Scene
from tests.lessons import lesson

# CALLDATACOPY everything, REVERT with it: the caller chooses what the contract says.
ECHO = bytes.fromhex("363d3d37363dfd")
# Called without data it remembers that; called with data it reverts unless it remembers. As approve and transferFrom.
APPROVAL = bytes.fromhex("3660095760015f55005b5f546012575f5ffd5b00")
APPROVE, SPEND = "0x", "0x01"

ABI = [
    {
        "type": "error",
        "name": "TooPoor",
        "inputs": [{"name": "has", "type": "uint256"}, {"name": "needs", "type": "uint256"}],
    }
]


def said(signature: str, *values: Any) -> str:
    types = signature.partition("(")[2].rstrip(")").split(",")
    return "0x" + (keccak(signature.encode())[:4] + encode(types, values)).hex()


CASES = {
    "Error": (said("Error(string)", "not today"), "not today"),
    "Panic": (said("Panic(uint256)", 0x11), "overflow"),
    "custom": (said("TooPoor(uint256,uint256)", 3, 5), "TooPoor"),
    "imitation": (said("Error(string)", "nonce too low"), "nonce too low"),
    "nothing": ("0x", None),
}


@lesson("reverted-is-reverted")
@pytest.mark.parametrize("case", CASES)
async def test_what_reverted_says_why(scene: Scene, interlude: Interlude, case: str) -> None:
    data, reason = CASES[case]
    await scene.chain.set_code(recipient("echo"), ECHO)
    await scene.start()
    await scene.send("reverts", to=recipient("echo"), data=data, gas=100_000, abi=ABI)
    await scene.pay("after")
    await scene.sent()
    await scene.mined("reverts", "after")
    await interlude()
    await scene.settle()
    failure = (await scene.tx("reverts")).failure
    assert reason is None or reason in (failure or "")
    await scene.audit(reverted=["reverts"])


@lesson("revert-text")
@pytest.mark.parametrize("case", CASES)
async def test_what_would_revert_fails_with_the_reason_and_spends_no_nonce(scene: Scene, case: str) -> None:
    data, reason = CASES[case]
    await scene.chain.set_code(recipient("echo"), ECHO)
    await scene.start()
    await scene.send("estimated", to=recipient("echo"), data=data, abi=ABI)
    await scene.send("simulated", to=recipient("echo"), data=data, abi=ABI, gas=100_000, simulate=True)
    await scene.pay("after")
    await scene.settle()
    for key in ("estimated", "simulated"):
        failure = (await scene.tx(key)).failure or ""
        assert "revert" in failure
        assert reason is None or reason in failure
    assert await scene.nonces("after") == [0]
    await scene.audit(failed=["estimated", "simulated"])


@lesson("dependent-estimates")
@pytest.mark.parametrize("simulate", [False, True], ids=["estimated", "simulated"])
async def test_a_call_that_rests_on_an_earlier_one_waits_for_it(
    scene: Scene, interlude: Interlude, simulate: bool
) -> None:
    await scene.chain.set_code(recipient("token"), APPROVAL)
    await scene.start()
    more = {"gas": 100_000, "simulate": True} if simulate else {}
    await scene.send("approve", to=recipient("token"), data=APPROVE)
    await scene.send("spend", to=recipient("token"), data=SPEND, **more)
    await scene.pay("independent")
    await scene.sent("approve", "independent")
    await scene.marked("spend", "waits_for_earlier")
    await interlude()
    await scene.settle()
    assert await scene.nonces("approve", "independent", "spend") == [0, 1, 2]
    await scene.audit()


@lesson("dependent-estimates")
async def test_a_call_whose_approval_is_cancelled_fails_and_spends_no_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.chain.set_code(recipient("token"), APPROVAL)
    await scene.start()
    await scene.send("approve", to=recipient("token"), data=APPROVE)
    await scene.send("spend", to=recipient("token"), data=SPEND)
    await scene.sent("approve")
    await scene.marked("spend", "waits_for_earlier")
    await scene.cancel("approve")
    await interlude()
    await scene.cancelling("approve")
    await scene.settle()
    await scene.audit(cancelled=["approve"], failed=["spend"])


async def test_a_call_that_ran_after_its_approval_runs_after_it_again_when_a_reorg_takes_both(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_code(recipient("token"), APPROVAL)
    await scene.start()
    await scene.mine(2)
    await scene.send("approve", to=recipient("token"), data=APPROVE)
    await scene.sent("approve")
    await scene.send("spend", to=recipient("token"), data=SPEND, gas=100_000)
    await scene.sent("spend")
    await scene.mined("approve", "spend")
    await scene.chain.reorg(1)
    await interlude()
    await scene.become(State.SENT)
    await scene.settle()
    await scene.audit()


async def test_more_gas_than_a_block_has_fails_before_a_nonce_is_spent(scene: Scene) -> None:
    await scene.start()
    await scene.pay("greedy", gas=2_000_000_000)
    await scene.pay("after")
    await scene.settle()
    assert await scene.nonces("after") == [0]
    await scene.audit(failed=["greedy"])
