"""Endpoints that are not there: at the start, one of two, and an anvil that restarts and forgets its pool."""

from pathlib import Path

from nonchalant.app import Nonchalant
from nonchalant.words import State
from tests import anvil
from tests.e2e.rig import settings
from tests.e2e.site import Site, pay
from tests.ports import free_port


async def test_a_chain_that_is_unreachable_at_the_start_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    async with Nonchalant.open(settings(tmp_path, f"http://127.0.0.1:{port}", timeout=1)) as node:
        handles = [await pay(node, f"early{i}", i % 5) for i in range(10)]
        assert {handle.transaction.state for handle in handles} == {State.QUEUED}
        assert await node.trouble() is None
        async with anvil.running(port=port) as chain:
            site = Site(chain, tmp_path)
            await site.settle(*handles)
            await site.audit([f"early{i}" for i in range(10)])


async def test_one_dead_endpoint_of_two_is_borne(site: Site) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    keys = [f"two{i}" for i in range(20)]
    async with site.node(site.chain.url, dead, timeout=1) as node:
        handles = [await pay(node, key, i % 5) for i, key in enumerate(keys)]
        await site.settle(*handles)
    await site.audit(keys)


async def test_two_endpoints_that_both_work_execute_nothing_twice(site: Site) -> None:
    twin = site.chain.url.replace("127.0.0.1", "localhost")
    keys = [f"twin{i}" for i in range(20)]
    async with site.node(site.chain.url, twin) as node:
        handles = [await pay(node, key, i % 5) for i, key in enumerate(keys)]
        await site.settle(*handles)
    audit = await site.audit(keys)
    assert audit.fillers == 0


async def test_a_chain_node_that_restarts_and_forgets_its_pool_loses_nothing(tmp_path: Path, hurried: None) -> None:
    port = free_port()
    options = ("--state", str(tmp_path / "chain.json"), "--preserve-historical-states")
    keys = [f"again{i}" for i in range(20)]
    async with Nonchalant.open(settings(tmp_path, f"http://127.0.0.1:{port}", timeout=1)) as node:
        async with anvil.running(*options, port=port) as chain:
            early = [await pay(node, key, i % 5) for i, key in enumerate(keys[:10])]
            await Site(chain, tmp_path).become(early, State.MINED, State.CONFIRMED)
            late = [await pay(node, key, i % 5) for i, key in enumerate(keys[10:])]
            await Site(chain, tmp_path).become(late, State.SENT, mine=False)
            chain.process.terminate()  # politely: it writes its state on the way out
            await chain.process.wait()
        during = await pay(node, "during", 0)
        async with anvil.running(*options, port=port) as chain:
            site = Site(chain, tmp_path)
            await site.settle(*early, *late, during)
            assert {handle.transaction.state for handle in (*early, *late, during)} == {State.CONFIRMED}
            await site.audit([*keys, "during"])
