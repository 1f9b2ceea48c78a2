"""Endpoints of the simulated chain lie only as they are told to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nonchalant.errors import NodeRefused, Unreachable
from nonchalant.model import Accepted, Account, Refused, Unknown
from nonchalant.sim.endpoint import Ailment, SimEndpoint
from nonchalant.sim.trouble import Trouble
from tests.sim.realm import ALICE, SmallRealm, sealed


def ail(endpoint: SimEndpoint, ailment: Ailment, until: float = 1e9) -> None:
    endpoint.troubles.lay(Trouble(ailment, until, 1.0, lambda: None))


def test_a_forked_endpoint_has_blocks_of_its_own_until_it_rejoins() -> None:
    realm = SmallRealm()
    stray = realm.chain.endpoints[2]

    async def main() -> None:
        await realm.settle(6)
        realm.chain.fork(stray, 2)
        view = await stray.view()
        assert view.head.number == 7
        assert view.finalized == realm.chain.final.ref
        assert stray.head.at(6) is not realm.chain.head
        with pytest.raises(Unreachable):
            await stray.account(ALICE, realm.chain.head.ref)
        realm.chain.rejoin(stray)
        await realm.settle(2)
        assert (await stray.view()).head == realm.chain.head.ref

    realm.run(main())


def test_a_lying_endpoint_calls_its_head_final() -> None:
    realm = SmallRealm()
    liar = realm.chain.endpoints[0]

    async def main() -> None:
        await realm.settle(6)
        assert (await liar.view()).finalized == realm.chain.final.ref
        ail(liar, Ailment.LYING)
        assert (await liar.view()).finalized == realm.chain.head.ref

    realm.run(main())


@pytest.mark.parametrize(
    ("ailment", "at_once", "in_the_end"),
    [(Ailment.SEND_LOST, 0, 0), (Ailment.SEND_UNANSWERED, 1, 1), (Ailment.SEND_LATE, 0, 1), (Ailment.DOWN, 0, 0)],
)
def test_a_send_without_an_answer_may_have_arrived_or_not_or_arrive_later(
    ailment: Ailment, at_once: int, in_the_end: int
) -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        ail(endpoint, ailment)
        [answer] = await endpoint.send([sealed(0).raw])
        assert isinstance(answer, Unknown)
        assert len(realm.notes.arrivals) == at_once
        await realm.loop.sleep(200.0)
        assert len(realm.notes.arrivals) == in_the_end

    realm.run(main())


def test_a_rate_limited_endpoint_refuses_everything_and_takes_nothing() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        ail(endpoint, Ailment.RATE_LIMITED)
        [answer] = await endpoint.send([sealed(0).raw])
        assert isinstance(answer, Refused)
        assert not realm.notes.arrivals
        with pytest.raises(NodeRefused):
            await endpoint.view()

    realm.run(main())


def test_an_endpoint_that_does_not_know_the_type_refuses_the_bytes_and_takes_nothing() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        ail(endpoint, Ailment.SEND_REFUSED)
        assert list(await endpoint.send([sealed(0).raw])) == [Refused("transaction type not supported", -32000)]
        assert not realm.notes.arrivals

    realm.run(main())


def test_an_endpoint_that_answers_only_its_head_answers_nothing_else() -> None:
    realm = SmallRealm()
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        await realm.settle(2)
        head = realm.chain.head.ref
        ail(endpoint, Ailment.HEAD_ONLY)
        assert (await endpoint.view()).head == head
        for _ in range(5):
            for question in (
                endpoint.block(1),
                endpoint.receipts(head, []),
                endpoint.find([sealed(0).hash]),
                endpoint.account(ALICE, head),
                endpoint.executed(head),
                endpoint.market(),
            ):
                with pytest.raises((Unreachable, NodeRefused)):
                    await question
        [answer] = await endpoint.send([sealed(0).raw])
        assert isinstance(answer, Unknown)
        assert not realm.notes.arrivals

    realm.run(main())


@pytest.mark.parametrize(
    ("ailment", "wrong"),
    [
        (Ailment.COUNT_HIGH, lambda told, truth: told.count > truth.count and told.balance == truth.balance),
        (Ailment.COUNT_LOW, lambda told, truth: told.count < truth.count and told.balance == truth.balance),
        (Ailment.BALANCE_HIGH, lambda told, truth: told.count == truth.count and told.balance > truth.balance),
        (Ailment.BALANCE_LOW, lambda told, truth: told.count == truth.count and told.balance < truth.balance),
    ],
)
def test_an_endpoint_may_be_wrong_about_an_account(ailment: Ailment, wrong: Callable[[Account, Account], bool]) -> None:
    realm = SmallRealm()
    liar, honest, _ = realm.chain.endpoints

    async def main() -> None:
        await realm.execute_first(liar, blocks=2)
        head = realm.chain.head.ref
        ail(liar, ailment)
        for _ in range(10):
            assert wrong(await liar.account(ALICE, head), await honest.account(ALICE, head))

    realm.run(main())


def test_an_endpoint_that_prunes_has_only_what_is_near_its_head() -> None:
    realm = SmallRealm()
    pruned, whole, _ = realm.chain.endpoints

    async def main() -> None:
        ran = await realm.execute_first(whole, blocks=6)
        pruned.kept = 2
        ail(pruned, Ailment.BLOCKS_PRUNED)
        assert await pruned.block(4) is not None
        assert await pruned.block(3) is None
        assert await pruned.block(ran.hash) is None
        assert await whole.block(ran.hash) is not None
        assert list(await pruned.find([sealed(0).hash])) == [None]
        with pytest.raises(NodeRefused, match="missing trie node"):
            await pruned.account(ALICE, ran.ref)
        with pytest.raises(NodeRefused, match="missing trie node"):
            await pruned.executed(ran.ref)
        assert (await pruned.account(ALICE, realm.chain.head.ref)).count == 1

    realm.run(main())


def test_an_endpoint_may_have_a_block_and_none_of_its_receipts() -> None:
    realm = SmallRealm()
    pruned, whole, _ = realm.chain.endpoints

    async def main() -> None:
        ran = await realm.execute_first(whole, blocks=6)
        pruned.kept = 2
        ail(pruned, Ailment.RECEIPTS_PRUNED)
        assert await pruned.block(ran.hash) is not None
        assert list(await pruned.find([sealed(0).hash])) == [None]
        with pytest.raises(Unreachable):
            await pruned.receipts(ran.ref, [sealed(0).hash])
        assert len(await pruned.executed(ran.ref)) == 1

    realm.run(main())


@pytest.mark.parametrize(("ailment", "at_once"), [(Ailment.GAP_SWALLOWED, 0), (Ailment.GAP_DROPPED, 1)])
def test_an_endpoint_may_say_yes_to_a_gapped_nonce_and_not_keep_it(ailment: Ailment, at_once: int) -> None:
    realm = SmallRealm(gossip=0.0)
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        ail(endpoint, ailment)
        assert list(await endpoint.send([sealed(1).raw])) == [Accepted()]
        assert len(endpoint.pool.held()) == at_once
        await realm.loop.sleep(2.0)
        assert not endpoint.pool.held()

    realm.run(main())


def test_a_gapped_nonce_that_is_kept_for_a_second_stays_if_the_gap_closes_meanwhile() -> None:
    realm = SmallRealm(gossip=0.0)
    endpoint = realm.chain.endpoints[0]

    async def main() -> None:
        ail(endpoint, Ailment.GAP_DROPPED)
        await endpoint.send([sealed(1).raw])
        await realm.loop.sleep(0.5)
        await endpoint.send([sealed(0).raw])
        await realm.loop.sleep(2.0)
        assert sorted(tx.nonce for tx in endpoint.pool.held()) == [0, 1]

    realm.run(main())
