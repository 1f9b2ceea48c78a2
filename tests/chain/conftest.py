"""A node, the fault proxy before it, and those who ask them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.testing import FaultProxy
from tests.anvil import Anvil, running
from tests.chain.proxied import client


@pytest.fixture
async def node() -> AsyncIterator[Anvil]:
    async with running() as anvil:
        yield anvil


@pytest.fixture
async def proxy(node: Anvil) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(node.url) as made:
        yield made


@pytest.fixture
async def endpoint(proxy: FaultProxy) -> AsyncIterator[EvmEndpoint]:
    async with client(proxy.url) as made:
        yield made


@pytest.fixture
async def hasty(proxy: FaultProxy) -> AsyncIterator[EvmEndpoint]:
    """A client that gives up soon, and knows already whom it talks to."""
    async with client(proxy.url, patience=3) as made:
        await made.view()
        yield made


@pytest.fixture
async def truth(node: Anvil) -> AsyncIterator[EvmEndpoint]:
    """The node itself, past the proxy."""
    async with client(node.url) as made:
        yield made
