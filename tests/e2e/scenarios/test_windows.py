"""How many may be in flight: strict mode, delegated accounts, and a window that shrinks and grows back."""

from __future__ import annotations

import pytest

from nonchalant.testing.rules import AccountLimit, DelegatedLimit
from nonchalant.words import State
from tests.e2e.ledger import recipient
from tests.e2e.scenarios.conftest import Interlude
from tests.e2e.scenarios.scene import Scene
from tests.lessons import lesson

KEYS = [f"k{n}" for n in range(6)]


async def test_in_strict_mode_one_is_in_flight_and_the_next_goes_once_it_was_consumed(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(account='mode = "strict"')
    await scene.pay(*KEYS[:4])
    for number, key in enumerate(KEYS[:4]):
        await scene.sent(key)
        assert await scene.pool() == [number]
        assert {tx.state for tx in await scene.txs(KEYS[number + 1 : 4])} <= {State.QUEUED}
        if number == 1:
            await interlude()
        await scene.mined(key)
    await scene.settle()
    await scene.audit()


@lesson("delegated-account")
async def test_a_delegated_account_has_one_in_flight_and_is_refused_nothing(scene: Scene, interlude: Interlude) -> None:
    await scene.authorise(nonce=0, code=recipient("wallet"))
    await scene.start()
    scene.proxy.enforce(DelegatedLimit())
    await scene.pay(*KEYS[:4])
    await scene.sent(KEYS[0])
    await interlude()
    await scene.settle()
    assert await scene.nonces(*KEYS[:4]) == [1, 2, 3, 4]
    assert [each.message for each in scene.proxy.sent if "delegated" in each.message] == []
    await scene.audit()


@lesson("delegated-account")
async def test_an_account_that_delegates_while_several_are_in_flight_loses_none_of_them(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start()
    scene.proxy.enforce(DelegatedLimit())
    await scene.pay(*KEYS[:4])
    await scene.sent()
    await scene.proxy.forget_mempool()
    await scene.authorise(nonce=0, code=recipient("wallet"))
    await interlude()
    await scene.settle()
    assert sorted(nonce or 0 for nonce in await scene.nonces(*KEYS[:4])) == [1, 2, 3, 4]
    await scene.audit()


@lesson("account-limit")
@pytest.mark.telling
async def test_a_window_shrinks_to_what_nodes_take_and_grows_back_when_they_take_more(
    scene: Scene, interlude: Interlude
) -> None:
    await scene.start(window=6)
    limit = scene.proxy.enforce(AccountLimit(2))
    await scene.pay(*KEYS)
    await scene.until(lambda: _window(scene) == 2, "learnt")
    refused = limit.hits
    assert await scene.pool() == [0, 1]
    await scene.until(lambda: len(scene.proxy.sent) > 12, "those two are sent again, and again")
    assert limit.hits == refused
    await interlude()
    await scene.mined(*KEYS[:2])
    limit.off()
    await scene.settle()
    for key in ("more", "and more"):  # each in a block of its own, which makes room for one
        await scene.pay(key)
        await scene.settle()
    assert _window(scene) is None
    await scene.audit()


def _window(scene: Scene) -> int | None:
    [(window,)] = scene.ask("SELECT window FROM lanes")
    return window
