"""Whatever row, answer or payload makes a stage fail stops no more than that one transaction."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nonchalant import broadcast, rescue, settle, watch
from nonchalant.errors import SignerFailed
from nonchalant.model import Answer, BlockRef, Draft, Receipt, Sealed
from nonchalant.policy import Patience
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.poisons import POISON, choke_encoder, choke_signer, label_of, settles
from tests.stages.rig import Rig, staged, unreachable

# a payload that something chokes on


@lesson("poisonous-row")
@staged()
async def test_a_payload_the_encoder_chokes_on_is_held_and_the_others_go_on(rig: Rig) -> None:
    rig.tolerate("lane.poisoned")
    rig.tolerate("tx.set_aside")
    digest = rig.chain.digest
    choke_encoder(rig, "bad")
    before, bad, after = await rig.submit_all(["before", "bad", "after"])
    await settles(rig, before, after)
    held = await rig.read(bad)
    assert (held.state, held.held, held.nonce) == (State.QUEUED, True, None)
    assert held.attention is not None
    assert held.attention.code == "set_aside"
    assert "OverflowError" in held.attention.reason
    # Whoever mends the cause releases it, and it goes.
    rig.chain.digest = digest  # type: ignore[method-assign]
    await rig.asking.release(bad.id, "set_aside")
    await settles(rig, bad)


@staged()
async def test_bytes_that_cannot_be_sealed_are_set_aside_alone(rig: Rig) -> None:
    rig.tolerate("lane.poisoned")
    rig.tolerate("tx.set_aside")
    seal = rig.chain.seal

    def choke(draft: Draft, signature: bytes, *, check: bool = True) -> Sealed:
        if label_of(draft) == "bad":
            raise POISON
        return seal(draft, signature, check=check)

    rig.chain.seal = choke  # type: ignore[method-assign]
    bad, good = await rig.submit_all(["bad", "good"])
    await settles(rig, good)
    assert await rig.mark(bad) == "set_aside"


@pytest.mark.parametrize("error", [POISON, SignerFailed("the policy of this signer forbids it")], ids=repr)
@staged()
async def test_a_payload_the_signer_chokes_on_is_set_aside_and_the_lane_is_not_paused_for_it(
    rig: Rig, error: Exception
) -> None:
    for event in ("signer.broke", "lane.poisoned", "tx.set_aside"):
        rig.tolerate(event)
    choke_signer(rig, "bad", error)
    before, bad, after = await rig.submit_all(["before", "bad", "after"])
    await settles(rig, before, after)
    assert await rig.mark(bad) == "set_aside"
    assert await rig.lane_mark() is None


@staged()
async def test_a_signer_that_comes_back_between_two_answers_casts_suspicion_on_nobody(rig: Rig) -> None:
    sign, asked = rig.signer.sign, 0

    async def away_for_two(digests: Sequence[bytes]) -> Sequence[bytes]:
        nonlocal asked
        asked += 1
        if asked <= 2:  # all of them at once, and then the first alone
            raise SignerFailed("the signer is away")
        return await sign(digests)

    rig.signer.sign = away_for_two  # type: ignore[method-assign]
    await settles(rig, *await rig.submit_all(["a", "b", "c"]))
    assert asked > 2


@staged()
async def test_a_signer_that_fails_for_everybody_sets_nobody_aside(rig: Rig) -> None:
    rig.tolerate("signer.broke")
    sign = rig.signer.sign

    async def choke(_digests: Sequence[bytes]) -> Sequence[bytes]:
        raise POISON

    rig.signer.sign = choke  # type: ignore[method-assign]
    txs = await rig.submit_all(["a", "b", "c"])
    await rig.advance(60.0)
    assert await rig.lane_mark() == "signer_failed"
    assert [tx.held for tx in [await rig.read(tx) for tx in txs]] == [False] * 3
    await rig.stop(rig.node)
    rig.signer.sign = sign  # type: ignore[method-assign]
    await rig.start_node()
    await settles(rig, *txs)
    assert await rig.lane_mark() is None


@staged()
async def test_a_bump_the_signer_refuses_does_not_keep_others_from_being_bumped(rig: Rig) -> None:
    for event in ("lane.poisoned", "tx.set_aside"):
        rig.tolerate(event)
    bad, good = await rig.submit_all(["bad", "good"])
    await rig.reaches(good, State.SENT)
    await rig.stop(rig.node)
    choke_signer(rig, "bad", SignerFailed("not this one"))
    await rig.start_node()
    rig.chain.fee_level = 200 * 10**9
    for _ in range(4):
        await rig.mine(3, empty=True)
        await rig.advance(70.0)
    assert len(await rig.attempts(bad)) == 1
    assert len(await rig.attempts(good)) > 1
    assert await rig.mark(bad) == "set_aside"


# a stage that fails while it handles one


def break_for(bad: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The stage's own step, which raises for one transaction: its third argument is the slot."""

    def broken(*args: Any, **named: Any) -> Any:
        if args[2].tx_id == bad:
            raise POISON
        return function(*args, **named)

    return broken


@pytest.mark.parametrize(
    ("module", "steps"),
    [
        (watch, ["_tell_depth"]),
        (settle, ["_settle_one"]),
        (broadcast, ["tell_taken", "_conclude"]),
        (rescue, ["_move"]),
    ],
    ids=["watch", "settle", "broadcast", "rescue"],
)
@staged(patience=Patience(resend_after=1_000))  # so that rescuing soon has something to do about it
async def test_a_stage_that_fails_on_one_slot_leaves_it_aside_and_the_others_go_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, module: Any, steps: Sequence[str]
) -> None:
    rig.tolerate("lane.poisoned")
    rig.tolerate("tx.set_aside")
    before, bad = await rig.submit_all(["before", "bad"])
    with monkeypatch.context() as broken:
        for step in steps:
            broken.setattr(module, step, break_for(bad.id, getattr(module, step)))
        after = await rig.submit("after")
        await rig.advance(10.0)  # before a block has it: watching would tell what broadcasting could not
        await settles(rig, before, after)
        new = await rig.submit("new")
        await settles(rig, new)
        assert "tx.attention" in await rig.history(bad)
        assert (await rig.read(bad)).nonce is not None
        if module is not settle:
            # What another stage leaves alone is still watched and settled.
            await rig.finalise()
            assert await rig.state(bad) is State.CONFIRMED
    # A new owner tries again, and finds nothing wrong.
    await rig.stop(rig.node)
    await rig.start_node()
    await settles(rig, bad)
    assert rig.executions("bad") == 1


@staged()
async def test_a_failure_that_names_nobody_makes_the_lane_careful_until_it_has_a_name(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses every commit that has one certain transaction in it."""
    rig.tolerate("lane.poisoned")
    rig.tolerate("tx.set_aside")
    rig.database.execute(
        "CREATE TRIGGER poison BEFORE UPDATE ON transactions WHEN NEW.metadata = '{\"bad\":true}' AND NEW.held = 0"
        " BEGIN SELECT RAISE(ABORT, 'poison'); END"
    )
    txs = await rig.submit_all([f"pay-{n}" for n in range(6)])
    rig.database.execute("DROP TRIGGER poison")
    rig.database.execute("UPDATE transactions SET metadata = '{\"bad\":true}' WHERE id = ?", (txs[2].id,))
    rig.database.execute(
        "CREATE TRIGGER poison BEFORE UPDATE ON transactions WHEN NEW.metadata = '{\"bad\":true}' AND NEW.held = 0"
        " BEGIN SELECT RAISE(ABORT, 'poison'); END"
    )
    good = [tx for tx in txs if tx is not txs[2]]
    await rig.advance(20.0)
    await settles(rig, *good, blocks=30)
    assert (await rig.read(txs[2])).held
    assert await rig.mark(txs[2]) == "set_aside"


@staged()
async def test_who_is_changed_by_somebody_else_while_a_lane_is_careful_is_not_poisonous(rig: Rig) -> None:
    """The lane works one at a time, but what is queued is everybody's still."""
    first = await rig.submit("first")
    await rig.reaches(first, State.SENT)
    [desk] = rig.node.engine.desks.values()
    desk.careful_until = desk.ticks() + 3_600_000
    digest, changes = rig.chain.digest, []

    def changed_meanwhile(draft: Draft) -> bytes:
        if label_of(draft) == "popular" and len(changes) < 5:
            changes.append(draft.nonce)
            rig.database.execute("UPDATE transactions SET version = version + 1 WHERE state = 'queued'")
        return digest(draft)

    rig.chain.digest = changed_meanwhile  # type: ignore[method-assign]
    popular = await rig.submit("popular")
    await rig.reaches(popular, State.SENT)
    assert len(changes) == 5
    assert "tx.attention" not in await rig.history(popular)


@staged()
async def test_many_poisonous_ones_cost_the_lane_seconds_each(rig: Rig) -> None:
    rig.tolerate("lane.poisoned")
    rig.tolerate("tx.set_aside")
    choke_encoder(rig, "bad")
    labels = [f"bad-{n}" if n % 2 else f"good-{n}" for n in range(10)]
    txs = dict(zip(labels, await rig.submit_all(labels), strict=True))
    good = [tx for label, tx in txs.items() if label.startswith("good")]
    for tx in good:
        await rig.reaches(tx, State.SENT, 30.0)


# an answer that something chokes on


@pytest.mark.parametrize("question", ["estimate", "account", "market", "find", "block", "receipts", "view"])
@staged()
async def test_an_endpoint_whose_answers_break_its_adapter_is_passed_over(rig: Rig, question: str) -> None:
    rig.tolerate("endpoint.broke")
    rig.endpoints[0].fail(question, KeyError("result"))
    txs = await rig.submit_all(["a", "b"])
    await settles(rig, *txs)


@staged()
async def test_a_send_that_breaks_on_one_does_not_keep_the_others_from_being_sent(rig: Rig) -> None:
    rig.tolerate("endpoint.broke")
    for voice in rig.endpoints:

        async def choke(raws: Sequence[bytes], voice: Any = voice) -> Sequence[Answer]:
            if any(rig.chain._decode(raw).order.label == "bad" for raw in raws):
                raise POISON
            return await voice.endpoint.send(raws)  # type: ignore[no-any-return]

        voice.answer("send", choke)
    before, bad, after = await rig.submit_all(["before", "bad", "after"])
    await rig.reaches(after, State.SENT)
    await rig.mine()
    assert rig.executions("before") == 1
    # Its nonce is between theirs, so what is behind it waits for it; it was handed over, and nobody knows more.
    assert await rig.state(bad) is State.SENT
    for voice in rig.endpoints:
        voice.heal()
    await settles(rig, before, bad, after, blocks=20)


@staged()
async def test_a_receipt_that_nobody_can_tell_stops_neither_the_chain_nor_the_lane(rig: Rig) -> None:
    bad, good = await rig.submit_all(["bad", "good"])
    await rig.reaches(good, State.SENT)
    unread = (await rig.read(bad)).hash
    for voice in rig.endpoints:

        async def receipts(block: BlockRef, hashes: Sequence[str], voice: Any = voice) -> Sequence[Receipt]:
            if unread in hashes:
                raise unreachable()
            return await voice.endpoint.receipts(block, hashes)  # type: ignore[no-any-return]

        async def find(hashes: Sequence[str], voice: Any = voice) -> Sequence[Receipt | None]:
            found = await voice.endpoint.find(hashes)
            return [None if receipt and receipt.hash == unread else receipt for receipt in found]

        voice.answer("receipts", receipts)
        voice.answer("find", find)
    await rig.mine()
    await rig.advance(40.0)
    await rig.finalise()
    await rig.advance(40.0)
    assert await rig.state(good) is State.CONFIRMED
    assert await rig.state(bad) is State.SENT
    assert await rig.mark(bad) == "receipt_unreadable"
    new = await rig.submit("new")
    await settles(rig, new)
    asked = rig.endpoints[0].asked["receipts"]
    await rig.advance(600.0)
    assert rig.endpoints[0].asked["receipts"] - asked < 60  # less and less often
    for voice in rig.endpoints:
        voice.heal()
    await rig.advance(70.0)
    await settles(rig, bad)
    assert rig.executions("bad") == 1
