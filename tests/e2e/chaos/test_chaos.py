"""A small chaos: what `python -m tests.e2e.chaos` does for a quarter of an hour, in half a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest
from eth_utils import keccak

from tests.e2e.chaos.audit import Witness
from tests.e2e.chaos.links import CHUNK, Ear, Link
from tests.e2e.chaos.run import Plan, run
from tests.e2e.rig import until
from tests.postgres import Cluster


@pytest.mark.timeout(900)  # ten kills and three restarts take their time on a busy machine
async def test_nodes_that_die_freeze_and_lose_their_database_pay_everybody_exactly_once(tmp_path: Path) -> None:
    plan = Plan(transactions=150, kills=10, restarts=3, backends=10, freezes=1, cuts=1, reorgs=1, accounts=6, seed=4)
    figures = await run(tmp_path, plan)
    assert figures.crowd.killed >= plan.kills
    assert figures.crowd.frozen >= plan.freezes
    assert figures.harms.done == {
        "restarts": 3,
        "backends": 10,
        "database cuts": 1,
        "chain cuts": 1,
        "reorgs": 1,
    }
    assert figures.verdict.ends.total() >= plan.transactions
    assert figures.load.admitted > 0
    assert figures.verdict.sent > 0
    assert figures.verdict.witnessed > 0
    assert figures.waits, "somebody took a lane over"


SAID = (
    b'POST / HTTP/1.1\r\n\r\n[{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02f8aa"]},' * 2
    + b'{"jsonrpc":"2.0","id":2,"method":"eth_sendRawTransaction","params":["0x02f8bb"]}]'
)


async def test_signed_transactions_are_heard_however_they_are_cut_into_pieces() -> None:
    shown: list[bytes] = []

    async def witness(passing: Sequence[bytes]) -> None:
        shown.extend(passing)

    ear = Ear(witness)
    heard = ear.connection()
    for byte in SAID:
        await heard(bytes([byte]))
    assert list(ear.sent) == [bytes.fromhex("02f8aa"), bytes.fromhex("02f8bb")]
    assert shown == [bytes.fromhex(raw) for raw in ("02f8aa", "02f8aa", "02f8bb")]
    whole = Ear(witness)
    await whole.connection()(SAID)
    assert list(whole.sent) == list(ear.sent)


async def test_a_signed_transaction_goes_on_only_when_the_witness_has_seen_it() -> None:
    asked, go_on, arrived = asyncio.Event(), asyncio.Event(), bytearray()

    async def witness(_: Sequence[bytes]) -> None:
        asked.set()
        await go_on.wait()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            arrived.extend(data)
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server, Link(server.sockets[0].getsockname()[1], Ear(witness).connection).standing() as link:
        _, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(SAID)
        async with asyncio.timeout(60):
            await asked.wait()
        assert not arrived
        go_on.set()
        await until(lambda: arrived == SAID, "it arrived")
        writer.close()


async def test_the_witness_tells_what_is_recorded_from_what_is_not(postgres: Cluster) -> None:
    connection = await asyncpg.connect(postgres.dsn)
    await connection.execute("CREATE SCHEMA witnessed; CREATE TABLE witnessed.attempts (hash TEXT)")
    witness = Witness(postgres.dsn, "witnessed")
    try:
        await connection.execute("INSERT INTO witnessed.attempts VALUES ($1)", "0x" + keccak(b"one").hex())
        await witness([b"one", b"two"])
        assert (witness.recorded, witness.missing) == ({b"one"}, [b"two"])
    finally:
        await witness.close()
        await connection.execute("DROP SCHEMA witnessed CASCADE")
        await connection.close()
    away = Witness("postgresql://postgres@127.0.0.1:1/postgres", "witnessed")
    await away([b"one"])
    assert (away.recorded, away.missing) == (set(), [])
