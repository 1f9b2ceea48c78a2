"""A signer that refuses some payloads and signs others: only those wait that it refuses, however they are mixed."""

from collections.abc import Sequence

import pytest

from nonchalant.errors import SignerFailed
from nonchalant.windows import Pace
from nonchalant.words import State
from tests.lessons import lesson
from tests.stages.poisons import choke_signer, settles
from tests.stages.rig import Rig, staged

REFUSED = SignerFailed("the policy of this signer forbids it")

MIXED = ("bgbg", "gbgb", "bbgg", "bgbgbgbgb", "bbbbbbbbbbgg", "bbb" + "g" * 12)


def tolerate(rig: Rig) -> None:
    for event in ("lane.poisoned", "tx.set_aside", "signer.failed", "signer.refuses"):
        rig.tolerate(event)


async def only_the_bad_wait(rig: Rig, pattern: str) -> None:
    labels = [f"{'bad' if kind == 'b' else 'good'}-{number}" for number, kind in enumerate(pattern)]
    txs = dict(zip(labels, await rig.submit_all(labels), strict=True))
    for _ in range(6 * len(pattern)):
        await rig.advance(20.0)
        await rig.mine()
    states = {label: await rig.state(tx) for label, tx in txs.items()}
    assert {label for label, state in states.items() if state is State.CONFIRMED} == {
        label for label in labels if label.startswith("good")
    }
    assert {await rig.mark(tx) for label, tx in txs.items() if label.startswith("bad")} == {"set_aside"}
    assert await rig.lane_mark() is None


@pytest.mark.parametrize("pattern", MIXED)
@lesson("poisonous-row")
@staged()
async def test_several_that_are_refused_are_set_aside_and_the_others_go(rig: Rig, pattern: str) -> None:
    tolerate(rig)
    choke_signer(rig, "bad", REFUSED)
    await only_the_bad_wait(rig, pattern)


@pytest.mark.parametrize("pattern", ["bgbggg", "bbgggg", "bbbbgggg"])
@staged(pace=Pace.STRICT)
async def test_so_it_is_where_one_goes_at_a_time(rig: Rig, pattern: str) -> None:
    tolerate(rig)
    choke_signer(rig, "bad", REFUSED)
    await only_the_bad_wait(rig, pattern)


@staged()
async def test_bumps_that_are_refused_do_not_keep_the_others_from_being_bumped(rig: Rig) -> None:
    tolerate(rig)
    first, second, good = await rig.submit_all(["bad-1", "bad-2", "good"])
    await rig.reaches(good, State.SENT)
    await rig.stop(rig.node)
    choke_signer(rig, "bad", REFUSED)
    await rig.start_node()
    rig.chain.fee_level = 200 * 10**9
    for _ in range(6):
        await rig.mine(3, empty=True)
        await rig.advance(70.0)
    assert [await rig.mark(tx) for tx in (first, second)] == ["set_aside"] * 2
    assert [len(await rig.attempts(tx)) for tx in (first, second)] == [1, 1]
    assert len(await rig.attempts(good)) > 1
    assert await rig.lane_mark() is None


@pytest.mark.parametrize("answers", ["F", "FF", "FFF", "FOFFF", "FFOFF"])
@staged()
async def test_a_signer_that_comes_and_goes_casts_suspicion_on_nobody(rig: Rig, answers: str) -> None:
    """F: away when it is asked; afterwards it stays. Nothing is logged as poison, or this test would be told."""
    sign, left = rig.signer.sign, list(answers)

    async def come_and_go(digests: Sequence[bytes]) -> Sequence[bytes]:
        if left and left.pop(0) == "F":
            raise SignerFailed("the signer is away")
        return await sign(digests)

    rig.signer.sign = come_and_go  # type: ignore[method-assign]
    a, b = await rig.submit_all(["a", "b"])
    await rig.advance(60.0)
    await settles(rig, a, b)
    assert not left


@staged()
async def test_a_signer_that_goes_away_while_prices_are_raised_is_blamed_on_no_transaction(rig: Rig) -> None:
    txs = await rig.submit_all(["a", "b", "c"])
    await rig.reaches(txs[-1], State.SENT)
    await rig.stop(rig.node)
    sign, signed = rig.signer.sign, 0

    async def once(digests: Sequence[bytes]) -> Sequence[bytes]:
        nonlocal signed
        if signed:
            raise SignerFailed("the signer is away")
        signed += 1
        return await sign(digests)

    rig.signer.sign = once  # type: ignore[method-assign]
    await rig.start_node()
    rig.chain.fee_level = 200 * 10**9
    for _ in range(3):
        await rig.mine(3, empty=True)
        await rig.advance(70.0)
    assert signed
    assert await rig.lane_mark() == "signer_failed"
    assert "set_aside" not in [await rig.mark(tx) for tx in txs]
    rig.signer.sign = sign  # type: ignore[method-assign]
    rig.chain.fee_level = 10**9
    await settles(rig, *txs, blocks=30)
