"""The attention hook: asked about what is marked, limited, and held to the rules."""

import asyncio
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nonchalant import hooks, wishes
from nonchalant.advice import Adviser, LoneThread, load_hook
from nonchalant.attend import AGAIN
from nonchalant.errors import BadRequest, BadSettings, HookFailed, HookRefused
from nonchalant.fees import FeeRules
from nonchalant.hooks import Alert, Bump, Cancel, HeadSnapshot, Replace, Wait
from nonchalant.model import BlockRef, Fees, Market, Payload, Transaction
from nonchalant.words import AttemptKind, Speed, State
from tests.examples import a_transaction
from tests.stages.acts import QUICK_BUMP, stuck
from tests.stages.rig import GWEI, Rig, staged

BETTER = Fees(300 * GWEI, 30 * GWEI)
TOO_DEAR = Fees(10_000 * GWEI, 30 * GWEI)
CAPPED = FeeRules(max_fee=1_000 * GWEI)

asked: list[tuple[str, str]] = []  # transaction and mark, of the test that runs


@pytest.fixture(autouse=True)
def _forget() -> None:
    asked.clear()


def answering(answer: object) -> Any:
    def hook(tx: Transaction, lane: Any, head: Any, fees: Any, now: int) -> Any:
        assert tx.attention is not None
        assert (lane.key, head.top.number >= head.final.number, fees.gas_price > 0) == (tx.lane, True, True)
        asked.append((tx.id, tx.attention.code))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return hook


@staged(patience=QUICK_BUMP, hook=answering(Wait()))
async def test_it_is_asked_when_a_mark_is_set_and_again_at_a_slow_rhythm(rig: Rig) -> None:
    tx = await stuck(rig)
    assert asked == [(tx.id, "price_at_cap")]
    await rig.advance(10 * AGAIN / 1000)
    assert 9 <= len(asked) <= 12
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]


@staged(patience=QUICK_BUMP, fees=CAPPED, hook=answering(Bump(BETTER)))
async def test_a_bump_it_wants_is_signed_like_anybody_s(rig: Rig) -> None:
    tx = await stuck(rig)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL, AttemptKind.BUMP]
    assert (await rig.attempts(tx))[-1].fees == BETTER


@staged(patience=QUICK_BUMP, hook=answering(Cancel()))
async def test_a_cancel_it_wants_takes_the_nonce(rig: Rig) -> None:
    tx = await stuck(rig)
    assert AttemptKind.CANCEL in await rig.kinds(tx)


@staged(patience=QUICK_BUMP, hook=answering(Replace({"label": "other"})))
async def test_a_replacement_it_wants_is_refused_where_a_caller_s_would_be(rig: Rig) -> None:
    """At the price it has, nodes would not take it."""
    tx = await stuck(rig)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]
    assert await rig.lane_mark() == "hook_refused"


@staged(patience=QUICK_BUMP, fees=CAPPED, hook=answering(Bump(TOO_DEAR)))
async def test_a_bump_above_the_cap_is_refused_and_marked(rig: Rig) -> None:
    tx = await stuck(rig)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]
    attention = (await rig.lane()).record.attention
    assert attention is not None
    assert attention.code == "hook_refused"
    assert "above the cap" in attention.reason


@staged(patience=QUICK_BUMP, hook=answering(ZeroDivisionError("in the hook")))
async def test_an_error_of_it_counts_as_waiting_and_is_marked(rig: Rig) -> None:
    tx = await stuck(rig)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]
    assert await rig.mark(tx) == "price_at_cap"
    assert await rig.lane_mark() == "hook_failed"


@staged(patience=QUICK_BUMP, hook=answering("bump"))
async def test_a_wrong_answer_of_it_counts_as_waiting_and_is_marked(rig: Rig) -> None:
    tx = await stuck(rig)
    assert await rig.kinds(tx) == [AttemptKind.ORIGINAL]
    assert await rig.lane_mark() == "hook_failed"


@staged(patience=QUICK_BUMP, hook=answering(Alert("call somebody")))
async def test_an_alert_is_told_and_changes_nothing(rig: Rig) -> None:
    tx = await stuck(rig)
    [alert] = [event for event in await rig.store.history(tx.id) if event.data.get("code") == "hook_alert"]
    assert alert.data["reason"] == "call somebody"
    assert await rig.mark(tx) == "price_at_cap"


@staged(hook=answering(Cancel()))
async def test_what_is_queued_and_marked_is_cancelled_without_a_nonce(rig: Rig) -> None:
    tx = await rig.submit("dear", value=10**30, gas=21_000)
    ended = await rig.reaches(tx, State.CANCELLED)
    assert asked == [(tx.id, "insufficient_funds")]
    assert ended.nonce is None


@staged(hook=answering(Cancel()))
async def test_what_is_held_is_asked_about_though_its_lane_has_no_other_work(rig: Rig) -> None:
    rig.signer.down = True
    tx = await rig.submit("pay")
    await rig.asking.hold(tx.id, "a look first")
    await rig.reaches(tx, State.CANCELLED)
    assert asked == [(tx.id, "held")]


@staged(patience=QUICK_BUMP)
async def test_without_a_hook_nothing_is_cancelled_by_itself(rig: Rig) -> None:
    tx = await stuck(rig)
    await rig.advance(3600.0)
    assert AttemptKind.CANCEL not in await rig.kinds(tx)


# asking it


def adviser(hook: Any, offload: Any = None) -> Adviser:
    def parse(_lane: object, given: Mapping[str, object]) -> tuple[Payload, None]:
        if "to" not in given:
            raise BadRequest("missing", field="to")
        return Payload(to=str(given["to"])), None

    return Adviser(hook, offload or LoneThread(), parse=parse, check=lambda _lane, _fees: None)


def ask(one: Adviser) -> Any:
    block = BlockRef(1, "0x1")
    market = Market(base_fee=1, gas_price=2, priority={})
    return one.advise(a_transaction(), None, HeadSnapshot(block, block), market, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (Wait(), None),
        (Cancel(), wishes.Cancel("tx")),
        (Bump(), wishes.Bump("tx", None)),
        (Bump(Speed.FAST), wishes.Bump("tx", Speed.FAST)),
        (Bump(Fees(2, 1)), wishes.Bump("tx", Fees(2, 1))),
        (Replace({"to": "0xb0"}), wishes.Replace("tx", Payload(to="0xb0"), None)),
        (Alert("look"), hooks.Alert("look")),
    ],
)
async def test_every_answer_becomes_what_a_caller_would_ask_for(answer: Any, advice: object) -> None:
    assert await ask(adviser(lambda *_: answer)) == advice


@pytest.mark.parametrize(
    "answer", [None, True, "wait", Wait, Bump("fast"), Bump(Fees(-1)), Bump(Fees(True)), Alert("")], ids=repr
)
async def test_anything_else_is_a_failure(answer: Any) -> None:
    with pytest.raises(HookFailed, match="none of the answers"):
        await ask(adviser(lambda *_: answer))


async def test_a_replacement_that_is_no_request_is_refused() -> None:
    with pytest.raises(HookRefused, match="to: missing"):
        await ask(adviser(lambda *_: Replace({})))


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)], ids=repr)
async def test_whatever_it_raises_is_a_failure_and_ends_nothing(error: BaseException) -> None:
    def hook(*_: object) -> None:
        raise error

    with pytest.raises(HookFailed):
        await ask(adviser(hook))


async def test_one_that_never_returns_costs_one_thread_however_often_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nonchalant.advice.HOOK_SECONDS", 0.05)
    forever, one = threading.Event(), LoneThread()
    slow = adviser(lambda *_: forever.wait(), one)
    with pytest.raises(HookFailed, match="did not answer"):
        await ask(slow)
    for _ in range(20):
        with pytest.raises(HookFailed, match="has not returned yet"):
            await ask(slow)
    [thread] = [thread for thread in threading.enumerate() if thread.name == "attention-hook"]
    forever.set()
    await asyncio.to_thread(thread.join)
    monkeypatch.undo()
    assert await ask(adviser(lambda *_: Wait(), one)) is None


# finding it

MODULE = """
def decide(transaction, lane, head, fees, now): ...
async def later(transaction, lane, head, fees, now): ...
def short(transaction): ...
number = 5
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_hooks.py").write_text(MODULE)
    (tmp_path / "broken_hooks.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some_hooks", "broken_hooks"):
        sys.modules.pop(name, None)


def test_a_function_is_found_by_its_name(modules: None) -> None:
    assert load_hook("some_hooks:decide").__name__ == "decide"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no_such_module:decide", "cannot import no_such_module"),
        ("broken_hooks:decide", "ZeroDivisionError"),
        ("some_hooks:nothing", "has no nothing"),
        ("some_hooks:number", "not a plain function"),
        ("some_hooks:later", "not a plain function"),
        ("some_hooks:short", "cannot be called with"),
    ],
)
def test_one_that_cannot_be_used_is_a_bad_setting(modules: None, name: str, problem: str) -> None:
    with pytest.raises(BadSettings, match=problem):
        load_hook(name)
