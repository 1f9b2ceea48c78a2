"""Found by a third adversary: what an attention hook can do to a lane."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nonchalant.advice import Adviser, LoneThread
from nonchalant.config import load_settings
from nonchalant.errors import HookFailed, HookRefused
from nonchalant.hooks import Alert, HeadSnapshot, Wait
from nonchalant.model import BlockRef, Market, Payload, Transaction
from nonchalant.parts import adviser_of, signers_of
from nonchalant.values import replace
from nonchalant.words import Mode, Speed, State
from tests.examples import a_transaction
from tests.stages.acts import CHEAP, QUICK_BUMP, stuck
from tests.stages.rig import ALICE, Rig, staged

asked: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    asked.clear()


def answering(answer: object) -> Any:
    def hook(tx: Transaction, lane: Any, head: Any, fees: Any, now: int) -> Any:
        asked.append(tx.id)
        given = answer(tx) if callable(answer) else answer
        if isinstance(given, Exception):
            raise given
        return given

    return hook


@staged(patience=QUICK_BUMP, hook=answering(Alert("no \ud800 way")))
async def test_an_alert_that_is_no_unicode_is_told_as_far_as_it_can_be(rig: Rig) -> None:
    tx = await stuck(rig)
    await rig.advance(120.0)
    assert "no ? way" in [told["reason"] for told in await rig.told(tx, "tx.attention")]


def raises_without_an_answer(tx: Transaction) -> object:
    raise ValueError("\udcff.txt and password" + "x" * 1_000_000)


@staged(patience=QUICK_BUMP, hook=answering(raises_without_an_answer))
async def test_what_an_error_of_it_says_stays_in_the_log_and_breaks_nothing(rig: Rig) -> None:
    await stuck(rig)
    await rig.advance(120.0)
    mark = (await rig.lane()).record.attention
    assert mark is not None
    assert "ValueError" in mark.reason
    assert "password" not in mark.reason
    assert len(mark.reason) < 500


@staged(patience=QUICK_BUMP, hook=answering(lambda tx: ValueError("bad") if tx.nonce == 0 else Wait()))
async def test_an_error_is_marked_though_it_answers_about_another(rig: Rig) -> None:
    await rig.submit("first", fees=CHEAP)
    second = await rig.submit("second", fees=CHEAP)
    await rig.reaches(second, State.SENT)
    for _ in range(12):
        await rig.mine(empty=True)
        await rig.advance(10)
    assert len(set(asked)) == 2
    assert await rig.lane_mark() == "hook_failed"


MARKET = Market(base_fee=1, gas_price=1, priority=dict.fromkeys(Speed, 1))
HEAD = HeadSnapshot(BlockRef(1, "0x1"), BlockRef(1, "0x1"))


async def test_lanes_that_ask_at_once_wait_for_each_other() -> None:
    def slow(*_: Any) -> Any:
        time.sleep(0.05)
        return Wait()

    adviser = Adviser(slow, LoneThread(), parse=lambda *_: (Payload(to=None), None), check=lambda *_: None)
    tx = a_transaction()
    answers = await asyncio.gather(
        *(adviser.advise(tx, None, HEAD, MARKET, 0) for _ in range(4)),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    assert answers == [None] * 4


@staged(hook=answering(Wait()))
async def test_every_marked_one_is_asked_about(rig: Rig) -> None:
    await rig.asking.control(ALICE, Mode.PAUSED)
    txs = await rig.submit_all([f"tx-{n}" for n in range(230)])
    for tx in txs:
        await rig.asking.hold(tx.id)
    await rig.advance(120.0)
    assert len(set(asked)) == 230


SETTINGS = """
store = "sqlite:x.db"
attention_hook = "decisions:decide"
[[chains]]
id = 7
endpoints = ["http://127.0.0.1:1"]
[[accounts]]
chains = [7]
key = {{ file = "{key}" }}
"""


@pytest.mark.parametrize("fees", ["Fees(50, 90)", "Fees(2**256, 1)", "Fees(-1)", "Fees(1.5, 1)"])
async def test_what_a_caller_may_not_offer_a_hook_may_not(
    fees: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"from nonchalant import Bump, Fees\ndef decide(*_): return Bump({fees})\n"
    (tmp_path / "decisions.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "decisions", raising=False)
    (tmp_path / "key").write_text("0x" + "11" * 32)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "nonchalant.toml").write_text(SETTINGS.format(key=tmp_path / "key"))
    settings = load_settings(tmp_path / "nonchalant.toml")
    keys = {lane: account for lane, (_, account) in signers_of(settings).items()}
    [lane] = keys
    adviser = adviser_of(settings, keys)
    assert adviser is not None
    with pytest.raises((HookRefused, HookFailed)):
        await adviser.advise(replace(a_transaction(), lane=lane), None, HEAD, MARKET, 0)  # type: ignore[arg-type]


@staged(patience=QUICK_BUMP, hook=answering(ValueError("bad")))
async def test_the_mark_goes_with_what_the_hook_failed_on(rig: Rig) -> None:
    tx = await stuck(rig)
    assert await rig.lane_mark() == "hook_failed"
    await rig.ends(tx)
    await rig.advance(120.0)
    assert await rig.lane_mark() is None


@staged(patience=QUICK_BUMP, hook=answering(ValueError("bad")))
async def test_that_a_hook_fails_hides_nothing_else_about_the_lane(rig: Rig) -> None:
    await stuck(rig)
    assert await rig.lane_mark() == "hook_failed"
    for voice in rig.endpoints:
        voice.down()
    await rig.advance(300.0)
    assert await rig.lane_mark() == "chain_trouble"
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(120.0)
    assert await rig.lane_mark() == "hook_failed"
