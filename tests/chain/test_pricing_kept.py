"""What an oracle said is kept for a while, and serves while it fails."""

from __future__ import annotations

import asyncio

from aiohttp import web
from structlog.testing import capture_logs

from nonchalant.chain.evm.pricing import REFRESH_SECONDS, RETRY_SECONDS
from nonchalant.words import Speed
from tests.chain.oracles import GOOD, GWEI, SECRET, caching, down, serving


async def test_an_oracle_is_asked_once_by_however_many_and_again_when_it_is_due():
    async with serving() as served, caching(served) as (cached, clock):
        first = await asyncio.gather(*(cached.quote() for _ in range(20)))
        assert len(served.requests) == 1
        assert first == [first[0]] * 20
        clock.time += REFRESH_SECONDS - 0.1
        await cached.quote()
        assert len(served.requests) == 1
        served.says(GOOD | {"fast": {"maxPriorityFee": 99}})
        clock.time += 0.2
        assert (await cached.quote()).prices[Speed.FAST] == 99 * GWEI
        assert len(served.requests) == 2


async def test_what_a_failing_oracle_said_last_serves_until_it_is_too_old():
    async with serving() as served, caching(served, max_age=60) as (cached, clock):
        said = await cached.quote()
        served.behave = down
        clock.time += 60
        assert await cached.quote() == said
        clock.time += 0.1
        assert await cached.quote() is None
        served.says(GOOD)
        clock.time += RETRY_SECONDS
        assert await cached.quote() == said


async def test_an_absurd_answer_does_not_replace_a_good_one():
    async with serving() as served, caching(served) as (cached, clock):
        said = await cached.quote()
        served.says(GOOD | {"fast": {"maxPriorityFee": 0}})
        clock.time += 2 * REFRESH_SECONDS
        assert await cached.quote() == said


async def test_a_failing_oracle_is_left_alone_for_a_while_and_reported_once():
    async with serving(down) as served, caching(served) as (cached, clock):
        with capture_logs() as logs:
            for _ in range(5):
                assert await cached.quote() is None
            assert len(served.requests) == 1
            clock.time += RETRY_SECONDS
            assert await cached.quote() is None
            assert len(served.requests) == 2
            served.says(GOOD)
            clock.time += RETRY_SECONDS
            assert await cached.quote() is not None
        assert [entry["event"] for entry in logs] == ["oracle.failing", "oracle.recovered"]
        assert SECRET not in str(logs)


async def test_a_short_age_is_kept_although_refreshing_is_rarer():
    async with serving() as served, caching(served, max_age=1) as (cached, clock):
        await cached.quote()
        clock.time += 1.1
        assert await cached.quote() is not None
        assert len(served.requests) == 2


async def test_a_caller_that_gives_up_leaves_the_others_served():
    asked, release = asyncio.Event(), asyncio.Event()

    async def slowly(request: web.Request) -> web.Response:
        asked.set()
        await release.wait()
        return web.json_response(GOOD)

    async with serving(slowly) as served, caching(served) as (cached, _):
        first, second = (asyncio.create_task(cached.quote()) for _ in range(2))
        await asked.wait()
        first.cancel()
        release.set()
        assert await second is not None
