"""What a quote makes of a market, and what is then paid on a real node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nonchalant.app import Nonchalant
from nonchalant.chain.evm.endpoints import EvmEndpoint
from nonchalant.chain.evm.pricing import RETRY_SECONDS, Cached, Fixed, HttpOracle, Quote, Quotes, priced
from nonchalant.config import load_settings
from nonchalant.errors import Unreachable
from nonchalant.fees import FeeRules, opening
from nonchalant.model import Fees, Market
from nonchalant.words import Speed
from tests.anvil import ADDRESSES, CHAIN_ID, KEYS, running
from tests.chain.oracles import GOOD, GWEI, PRICES, SECRET, HandClock, caching, down, serving

# what a quote makes of a market


def test_a_quote_is_what_is_paid_beyond_the_base_fee():
    market = priced(10 * GWEI, Quote(PRICES))
    assert market == Market(base_fee=10 * GWEI, gas_price=12 * GWEI, priority=PRICES)
    assert opening(Speed.FAST, market, FeeRules()) == Fees(25 * GWEI, 5 * GWEI)


@pytest.mark.parametrize("includes_base_fee", [True, False])
def test_without_a_base_fee_each_speed_pays_exactly_its_quote(includes_base_fee):
    market = priced(None, Quote(PRICES, includes_base_fee))
    assert market is not None
    assert {speed: opening(speed, market, FeeRules()) for speed in Speed} == {
        speed: Fees(price) for speed, price in PRICES.items()
    }


def test_the_base_fee_is_taken_off_a_quote_that_includes_it():
    market = priced(2 * GWEI, Quote(PRICES, includes_base_fee=True))
    assert market is not None
    assert market.priority == {Speed.SLOW: 0, Speed.STANDARD: 0, Speed.FAST: 3 * GWEI}


def test_a_whole_price_below_the_base_fee_is_not_believed():
    assert priced(5 * GWEI, Quote(PRICES, includes_base_fee=True)) is not None
    assert priced(5 * GWEI + 1, Quote(PRICES, includes_base_fee=True)) is None


def test_a_price_of_nothing_is_a_price_where_it_is_fixed():
    market = priced(0, Quote(dict.fromkeys(Speed, 0)))
    assert market is not None
    assert opening(Speed.FAST, market, FeeRules()) == Fees(0, 0)


# on a real node


@asynccontextmanager
async def quoted(url: str, quotes: Quotes) -> AsyncIterator[EvmEndpoint]:
    endpoint = EvmEndpoint(CHAIN_ID, url, "anvil", timeout=10, finality_tag=True, quotes=quotes)
    try:
        yield endpoint
    finally:
        await endpoint.close()
        await quotes.close()


async def test_fixed_prices_come_with_the_base_fee_of_the_chain():
    async with running() as node, quoted(node.url, Fixed(PRICES)) as endpoint:
        await node.set_next_base_fee(7 * GWEI)
        await node.mine()
        market = await endpoint.market()
        assert market.base_fee > 0
        assert market.priority == PRICES
        assert market.gas_limit == 30_000_000


async def test_fixed_prices_are_the_gas_prices_of_a_chain_without_base_fee():
    async with running("--hardfork", "berlin") as node, quoted(node.url, Fixed(PRICES)) as endpoint:
        market = await endpoint.market()
        assert market.base_fee is None
        assert opening(Speed.FAST, market, FeeRules()) == Fees(5 * GWEI)


async def test_while_the_oracle_fails_the_node_is_asked():
    async with (
        serving() as served,
        running() as node,
        caching(served) as (cached, clock),
        quoted(node.url, cached) as endpoint,
    ):
        assert (await endpoint.market()).priority[Speed.FAST] == 32 * GWEI
        served.behave = down
        clock.time += 61
        assert (await endpoint.market()).priority[Speed.FAST] < 32 * GWEI
        served.says(GOOD)
        clock.time += RETRY_SECONDS
        assert (await endpoint.market()).priority[Speed.FAST] == 32 * GWEI


async def test_while_an_oracle_is_below_the_base_fee_the_node_is_asked():
    paths = dict.fromkeys(Speed, ("price",))
    async with serving({"price": 1}) as served, running() as node:
        oracle = HttpOracle(served.url, paths=paths, decimals=0, includes_base_fee=True, timeout=5)
        async with quoted(node.url, Cached(oracle, max_age=60, clock=HandClock())) as endpoint:
            market = await endpoint.market()
        assert served.requests
        assert market.gas_price > 1
        assert market.priority[Speed.FAST] > 1


async def test_a_node_that_is_gone_is_unreachable_whatever_the_quotes():
    async with quoted("http://127.0.0.1:1", Fixed(PRICES)) as endpoint:
        with pytest.raises(Unreachable):
            await endpoint.market()


@pytest.mark.parametrize("source", ["fixed", "oracle"])
async def test_a_running_node_pays_what_the_settings_say(tmp_path, monkeypatch, source):
    monkeypatch.setenv("RELAYER_KEY", KEYS[0])
    monkeypatch.setenv("ORACLE_KEY", SECRET)
    async with serving({"result": {"price": "1.234"}}) as served, running(block_time=1) as node:
        fees = {
            "fixed": '{ source = "fixed", fixed = "1.234 gwei" }',
            "oracle": f"""{{ source = "oracle", oracle = {{ url = "{served.url}", unit = "gwei",
                paths = {{ standard = "result.price" }}, headers = {{ X-Key = {{ env = "ORACLE_KEY" }} }} }} }}""".replace(
                "\n", " "
            ),
        }[source]
        file = tmp_path / "nonchalant.toml"
        file.write_text(f"""
            store = "sqlite:{tmp_path}/test.db"
            [[chains]]
            id = {CHAIN_ID}
            endpoints = ["{node.url}"]
            poll_interval = 0.1
            fees = {fees}
            [[accounts]]
            chains = [{CHAIN_ID}]
            key = {{ env = "RELAYER_KEY" }}
        """)
        async with Nonchalant.open(load_settings(file)) as app:
            handle = await app.send(chain_id=CHAIN_ID, sender=ADDRESSES[0], to=ADDRESSES[1], value=1, fees="fast")
            tx = await handle.settled(timeout=30)
            [attempt] = (await app.store.attempts([tx.id]))[tx.id]
        assert tx.state == "confirmed"
        assert attempt.fees.priority == 1_234_000_000
        assert source == "fixed" or served.requests[0].headers["X-Key"] == SECRET
