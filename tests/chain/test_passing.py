"""What others ask a node through us: in its own words, apart from what the stages ask."""

from __future__ import annotations

import pytest

from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.errors import NodeRefused, Unreachable
from tests.chain.misbehaving import error, serving
from tests.chain.scripted import Script, methods, scripted


async def test_a_question_of_others_travels_alone_and_its_answer_comes_back_as_it_was():
    async with scripted(eth_getLogs=[{"data": "0x", "odd": 1.5}]) as (endpoint, node):
        await endpoint.view()
        before = len(node.bodies)
        assert await endpoint.rpc("eth_getLogs", [{"fromBlock": "0x1"}]) == b'[{"data":"0x","odd":1.5}]'.replace(
            b":", b": "
        ).replace(b",", b", ")
        assert methods(node)[before:] == [["eth_getLogs"]]
        assert node.bodies[-1]["params"] == [{"fromBlock": "0x1"}]


async def test_a_node_of_another_chain_is_asked_nothing_for_others():
    async with scripted(eth_chainId="0x2") as (endpoint, node):
        with pytest.raises(Unreachable, match="chain 2"):
            await endpoint.rpc("eth_blockNumber", [])
        assert methods(node) == [["eth_chainId"]]


async def test_what_a_node_refuses_others_has_its_code_and_data_and_nothing_of_the_url():
    def behave(body):
        if body["method"] == "eth_chainId":
            return Script()(body)
        return error(body["id"], "reverted at /v3/0a1b2c3d4e5f6071", 3, data="0x08c379a0")

    async with serving(behave) as node:
        endpoint = EvmEndpoint(1, node.url + "/v3/0a1b2c3d4e5f6071", "node", timeout=5, finality_tag=True)
        with pytest.raises(NodeRefused) as refusal:
            await endpoint.rpc("eth_call", [{}])
        await endpoint.close()
    assert (refusal.value.node_code, refusal.value.data) == (3, "0x08c379a0")
    assert "0a1b2c3d4e5f6071" not in str(refusal.value)
