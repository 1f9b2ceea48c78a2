"""Our own side fails: the signer, a row, the disk, the payload; and the lane goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

import pytest

from nonchalant.errors import SignerFailed
from nonchalant.signers import from_private_key
from nonchalant.testing.faults import SEND
from nonchalant.words import State
from tests import anvil
from tests.e2e.ledger import recipient
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import ALICE, GWEI, Scene
from tests.e2e.site import REVERT
from tests.lessons import lesson

KEYS = ["a", "b", "c"]


class Down:
    address = ALICE
    in_process = False

    async def sign(self, digests: Sequence[bytes]) -> Sequence[bytes]:
        raise SignerFailed("the signer does not answer")


@lesson("nonce-before-store")
@pytest.mark.parametrize("trouble", ["down", "wrong key"])
async def test_a_signer_that_fails_pauses_its_lane_and_loses_no_nonce(
    scene: Scene, interlude: Interlude, trouble: str
) -> None:
    await scene.start(accounts=2)
    sound = scene.signers[ALICE].signer
    scene.signers[ALICE].signer = Down() if trouble == "down" else from_private_key(anvil.KEYS[3])
    await scene.pay(*KEYS)
    await scene.pay("bob's", account=1)
    await scene.until(lambda: _lane_marked(scene, "signer_failed"), "the lane is marked")
    await scene.settle("bob's")
    assert {tx.state for tx in await scene.txs(KEYS)} == {State.QUEUED}
    assert [each for each in scene.proxy.sent if each.transaction and each.transaction.sender == ALICE] == []
    scene.signers[ALICE].signer = sound
    await interlude()
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    assert await scene.lane_mark() is None
    await scene.audit()


async def _lane_marked(scene: Scene, code: str) -> bool:
    return await scene.lane_mark() == code


async def test_a_signer_that_fails_under_what_is_in_flight_does_not_stop_it(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay(*KEYS)
    await scene.sent()
    scene.signers[ALICE].signer = Down()
    await scene.proxy.forget_mempool()
    await scene.until(
        lambda: _lane_marked(scene, "signer_failed"), "a bump cannot be signed", tick=lambda: scene.base_fee(30 * GWEI)
    )
    await interlude()
    await scene.base_fee(GWEI)
    await scene.settle()
    await scene.audit()


@lesson("poisonous-row")
@pytest.mark.parametrize("column", ["payload", "fees"])
async def test_a_row_that_cannot_be_read_is_set_aside_and_the_others_go(
    scene: Scene, interlude: Interlude, column: str
) -> None:
    await scene.start()
    outage = scene.proxy.status(503)
    await scene.pay("poison", *KEYS)
    scene.alter(f"UPDATE transactions SET {column} = '{{' WHERE idempotency_key = 'poison'")
    outage.off()
    await interlude()
    await scene.settle(*KEYS)
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    [(held, nonce, attention)] = scene.ask(
        "SELECT held, nonce, attention FROM transactions WHERE idempotency_key = 'poison'"
    )
    assert (held, nonce) == (1, None)
    assert "undecodable" in attention


@lesson("poisonous-row")
async def test_a_row_that_cannot_be_read_and_has_a_nonce_is_sent_again_as_it_was_signed(scene: Scene) -> None:
    await scene.start()
    await scene.pay("poison", *KEYS)
    await scene.sent()
    await scene.kill()
    await scene.proxy.forget_mempool()
    scene.alter("UPDATE transactions SET payload = '{' WHERE idempotency_key = 'poison'")
    await scene.come_back()
    await scene.settle(*KEYS)
    await scene.until(lambda: _state(scene, "poison") == "confirmed", "it ends too", tick=scene.tick)
    assert [scene.ask("SELECT count(*) FROM attempts WHERE nonce = 0")] == [[(1,)]]
    assert await scene.count() == 4


def _state(scene: Scene, key: str) -> str:
    [(state,)] = scene.ask("SELECT state FROM transactions WHERE idempotency_key = ?", key)
    return str(state)


@lesson("nonce-before-store")
async def test_a_store_that_is_locked_for_a_while_loses_nothing(scene: Scene, interlude: Interlude) -> None:
    await scene.start()
    await scene.pay("a")
    await scene.sent()
    await scene.pay("b", "c")
    with closing(sqlite3.connect(scene.store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await scene.chain.mine()
        await scene.until(lambda: scene.proxy.calls["eth_getTransactionReceipt"] > 0, "the block is read")
        other.execute("ROLLBACK")
    await interlude()
    await scene.settle()
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    await scene.audit()


@lesson("head-of-line")
async def test_what_always_reverts_leaves_the_line_and_spends_no_nonce(scene: Scene, interlude: Interlude) -> None:
    await scene.chain.set_code(recipient("hopeless"), REVERT)
    await scene.start(window=1)
    await scene.pay("hopeless", *KEYS)
    await interlude()
    await scene.settle()
    assert "revert" in ((await scene.tx("hopeless")).failure or "")
    assert await scene.nonces(*KEYS) == [0, 1, 2]
    await scene.audit(failed=["hopeless"])


@lesson("reverted-is-reverted")
async def test_what_reverts_on_the_chain_is_called_reverted_and_only_at_finality(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.chain.set_code(recipient("reverts"), REVERT)
    await scene.start()
    await scene.pay("reverts", gas=100_000)
    await scene.pay(*KEYS)
    await scene.sent()
    await scene.mined(*KEYS)
    assert (await scene.tx("reverts")).state is State.MINED
    await interlude()
    await scene.settle()
    await scene.audit(reverted=["reverts"])


async def test_bytes_that_one_node_refuses_and_another_may_hold_are_outrun_by_what_does_nothing(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(endpoints=2)
    scene.proxies[0].refuse(SEND, "intrinsic gas too low", matching=lambda sent: bool(sent.data))
    silence = scene.proxies[1].timeout_before_acceptance(matching=lambda sent: bool(sent.data))
    await scene.pay("faulty", data="0x11", gas=21_040)
    await scene.pay("behind")
    await silence.struck()
    await interlude()
    await scene.settle()
    assert await scene.nonces("behind") == [1]
    assert (await scene.audit(failed=["faulty"])).cancels == 1
