"""The simulated chain tells the truth about itself: blocks, finality, reorgs, what others do, what is signed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from nonchalant.errors import NodeRefused, SignerFailed, Unencodable, Unreachable
from nonchalant.model import Accepted, Account, BlockRef, Draft, Fees, Payload, Refused
from nonchalant.sim import wire
from nonchalant.sim.blocks import Deed, Happening
from nonchalant.sim.chain import FOREIGN
from nonchalant.sim.pool import BESU
from nonchalant.sim.wire import Effect, Order, SimSigner
from nonchalant.values import replace
from nonchalant.words import LaneKey
from tests.sim.realm import ALICE, BOB, GWEI, SmallRealm, sealed

DRAFT = Draft(lane=LaneKey(7, ALICE), nonce=0, payload=Payload(to=BOB), gas=21_000, fees=Fees(1, 1))


def count(realm: SmallRealm, address: str = ALICE) -> int:
    return realm.chain.head.ledger.account(address).count


def test_bytes_sent_to_one_node_spread_and_are_executed_once() -> None:
    realm = SmallRealm()
    first = realm.chain.endpoints[0]

    async def main() -> None:
        assert list(await first.send([sealed(0).raw, sealed(1).raw])) == [Accepted(), Accepted()]
        await realm.loop.sleep(3.0)
        assert all(endpoint.pool.holds(sealed(1).hash) for endpoint in realm.chain.endpoints)
        await realm.settle(3)
        [block] = realm.chain.executions("order-0")
        assert count(realm) == 2
        [receipt] = await first.find([sealed(0).hash])
        assert receipt is not None
        assert receipt.block == block.ref
        assert receipt.succeeded
        assert receipt.gas_price == 22 * GWEI
        assert all(not endpoint.pool.held() for endpoint in realm.chain.endpoints)
        assert (await first.account(ALICE, block.ref)).balance == 10**18 - 2 * receipt.cost

    realm.run(main())


def test_without_gossip_only_the_node_that_was_told_knows() -> None:
    realm = SmallRealm(gossip=0.0)

    async def main() -> list[int]:
        await realm.chain.endpoints[0].send([sealed(0).raw])
        await realm.loop.sleep(3.0)
        return [len(endpoint.pool.held()) for endpoint in realm.chain.endpoints]

    assert realm.run(main()) == [1, 0, 0]


def test_endpoints_learn_of_blocks_late_and_a_frozen_one_not_at_all() -> None:
    realm = SmallRealm()
    one, other, frozen = realm.chain.endpoints

    async def main() -> None:
        frozen.frozen = True
        block = realm.chain.mine()
        assert (await one.view()).head.number == 0
        with pytest.raises(Unreachable):
            await one.account(ALICE, block.ref)
        await realm.loop.sleep(1.0)
        assert [(await each.view()).head.number for each in (one, other, frozen)] == [1, 1, 0]
        realm.chain.rejoin(frozen)
        await realm.loop.sleep(1.0)
        assert (await frozen.view()).head == block.ref

    realm.run(main())


def test_finality_lags_and_no_reorg_reaches_it() -> None:
    realm = SmallRealm()

    async def main() -> None:
        await realm.settle(10)
        final = realm.chain.final
        assert final.number == 6
        assert realm.chain.reorg(99, keep=0.0, forget=True) == 4
        assert realm.chain.head.number == 11
        assert realm.chain.head.has(final)
        assert [block.number for block in realm.notes.dropped] == [10, 9, 8, 7]

    realm.run(main())


@pytest.mark.parametrize(("keep", "forget", "after"), [(1.0, True, 1), (0.0, True, 0), (0.0, False, 1)])
def test_a_reorg_runs_the_transaction_again_or_puts_it_back_or_forgets_it(
    keep: float, forget: bool, after: int
) -> None:
    realm = SmallRealm()

    async def main() -> None:
        was = await realm.execute_first(realm.chain.endpoints[0], blocks=2)
        realm.chain.reorg(2, keep=keep, forget=forget)
        assert not realm.chain.canonical(was)
        assert len(realm.chain.executions("order-0")) == int(keep)
        await realm.loop.sleep(2.0)
        await realm.settle(2)
        assert len(realm.chain.executions("order-0")) == count(realm) == after

    realm.run(main())


def test_a_node_of_another_client_forgets_what_was_reorged_out() -> None:
    realm = SmallRealm(flavour=BESU)

    async def main() -> None:
        await realm.execute_first(realm.chain.endpoints[0], blocks=1)
        realm.chain.reorg(1, keep=0.0, forget=False)
        await realm.loop.sleep(2.0)
        await realm.settle(2)
        assert count(realm) == 0

    realm.run(main())


def test_a_chain_may_make_no_blocks_for_a_while() -> None:
    realm = SmallRealm()
    realm.chain.start()

    async def main() -> None:
        await realm.loop.sleep(20.0)
        realm.chain.resting, height = True, realm.chain.head.number
        await realm.loop.sleep(60.0)
        assert realm.chain.head.number == height > 0
        realm.chain.resting = False
        await realm.loop.sleep(20.0)
        assert realm.chain.head.number > height

    realm.run(main())


def test_a_foreign_transaction_takes_the_nonce_and_ours_is_too_low_then() -> None:
    realm = SmallRealm()

    async def main() -> None:
        for endpoint in realm.chain.endpoints:
            await endpoint.send([sealed(0).raw])
        realm.chain.intrude(ALICE)
        block = realm.chain.mine()
        assert [tx.order.label.split("-")[0] for tx in block.transactions] == [FOREIGN]
        await realm.loop.sleep(2.0)
        [answer] = await realm.chain.endpoints[0].send([sealed(0).raw])
        assert answer == Refused("nonce too low: next nonce 1, tx nonce 0", -32000)
        [seen] = await realm.chain.endpoints[0].executed(block.ref)
        assert (seen.sender, seen.nonce) == (ALICE, 0)

    realm.run(main())


def test_an_authorisation_takes_the_nonce_and_no_transaction_shows_it() -> None:
    realm = SmallRealm()
    realm.chain.happen(Happening(Deed.AUTHORISED, ALICE))
    block = realm.chain.mine()
    assert count(realm) == 1
    assert block.executed() == []


def test_an_authorisation_for_code_delegates_the_account_until_one_for_none() -> None:
    realm = SmallRealm()
    realm.chain.happen(Happening(Deed.DELEGATED, ALICE))
    realm.chain.mine()
    assert realm.chain.head.ledger.account(ALICE) == Account(1, 10**18, delegated=True)
    realm.chain.happen(Happening(Deed.AUTHORISED, ALICE))
    realm.chain.mine()
    assert realm.chain.head.ledger.account(ALICE) == Account(2, 10**18)


def test_a_pending_count_is_the_pool_s_and_not_the_chain_s() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        await endpoint.send([sealed(0).raw, sealed(1).raw])
        assert await endpoint.pending(ALICE) == 2
        assert (await endpoint.account(ALICE, realm.chain.head.ref)).count == 0

    realm.run(main())


def test_a_replay_knows_the_state_of_the_block_before() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]
    dependent = Payload(to=BOB, data=Order("second", Effect.AFTER, "order-0").data())

    async def main() -> None:
        await realm.settle()
        early = realm.chain.head.ref
        assert await endpoint.replay(ALICE, dependent, 60_000, early) == "execution reverted: the order does not run"
        await endpoint.send([sealed(0, "order-0").raw])
        await realm.loop.sleep(3.0)
        await realm.settle()
        with_it = realm.chain.head.ref
        await realm.settle()
        assert await endpoint.replay(ALICE, dependent, 60_000, with_it) is not None
        assert await endpoint.replay(ALICE, dependent, 60_000, realm.chain.head.ref) is None
        with pytest.raises(Unreachable):
            await endpoint.replay(ALICE, dependent, 60_000, BlockRef(early.number, "0xelse"))

    realm.run(main())


def test_money_that_was_drained_comes_back_and_survives_a_reorg() -> None:
    realm = SmallRealm()

    async def main() -> None:
        amount = realm.chain.drain(ALICE)
        await realm.settle()
        assert realm.chain.head.ledger.account(ALICE).balance == 0
        [answer] = await realm.chain.endpoints[0].send([sealed(0).raw])
        assert isinstance(answer, Refused)
        assert answer.message.startswith("insufficient funds")
        realm.chain.happen(Happening(Deed.FUNDED, ALICE, amount))
        await realm.settle()
        realm.chain.reorg(1, keep=0.0, forget=True)
        assert realm.chain.head.ledger.account(ALICE).balance == 10**18

    realm.run(main())


def test_the_base_fee_moves_by_an_eighth_at_most_and_prices_follow() -> None:
    realm = SmallRealm()

    async def main() -> None:
        realm.chain.fee_level = 100 * GWEI
        await realm.settle()
        assert realm.chain.head.base_fee == 22_500_000_000
        await realm.settle(20)
        assert realm.chain.head.base_fee == 100 * GWEI
        assert (await realm.chain.endpoints[0].market()).base_fee == 100 * GWEI

    realm.run(main())


def test_estimates_know_the_state_of_the_block_they_are_asked_for() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        async def estimate(order: Order, at: BlockRef) -> int:
            return await endpoint.estimate(ALICE, Payload(to=BOB, data=order.data()), at)

        before = realm.chain.head.ref
        dependent = Order("second", Effect.AFTER, "order-0")
        for order in (dependent, Order("x", Effect.NEVER)):
            with pytest.raises(NodeRefused, match="execution reverted"):
                await estimate(order, before)
        assert await estimate(Order("y", Effect.REVERTS), before) > 21_000
        await realm.execute_first(endpoint, blocks=2)
        assert await estimate(dependent, realm.chain.head.ref) > 21_000
        with pytest.raises(NodeRefused, match="execution reverted"):
            await estimate(dependent, before)
        with pytest.raises(NodeRefused, match="insufficient funds"):
            await endpoint.estimate(ALICE, Payload(to=BOB, value=10**19), before)

    realm.run(main())


def test_blocks_come_by_themselves_and_the_same_seed_gives_the_same_chain() -> None:
    def history(seed: int) -> list[str]:
        realm = SmallRealm(seed=seed)
        realm.chain.start()
        realm.run(realm.loop.sleep(100.0))
        return [block.hash for block in realm.notes.heads] + [str(realm.loop.fingerprint)]

    assert 18 < len(history(1)) < 40
    assert history(1) == history(1) != history(2)


def test_what_is_sealed_reads_back_as_it_was_signed() -> None:
    signer = SimSigner(ALICE)
    [signature] = asyncio.run(_sign(signer, wire.digest(DRAFT)))
    bytes_out = wire.seal(DRAFT, signature)
    tx = wire.read(bytes_out.raw)
    assert (tx.hash, tx.sender, tx.nonce, tx.gas) == (bytes_out.hash, ALICE, 0, 21_000)


async def _sign(signer: SimSigner, digest: bytes) -> list[bytes]:
    return list(await signer.sign([digest]))


@pytest.mark.parametrize(
    "harm", [lambda signer: setattr(signer, "down", True), lambda signer: setattr(signer, "wrong", True)]
)
def test_a_signer_that_fails_gives_no_sealed_bytes(harm: Callable[[SimSigner], None]) -> None:
    signer = SimSigner(ALICE)
    harm(signer)
    with pytest.raises(SignerFailed):
        wire.seal(DRAFT, asyncio.run(_sign(signer, wire.digest(DRAFT)))[0])


def test_a_value_that_fits_no_word_cannot_be_encoded() -> None:
    with pytest.raises(Unencodable):
        wire.digest(replace(DRAFT, payload=Payload(to=BOB, value=2**256)))
