"""PostgreSQL itself."""

import asyncpg

from tests.postgres import Cluster


async def test_the_server_answers(postgres: Cluster) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
