"""A small chaos: what `python -m tests.e2e.chaos` does for a quarter of an hour, in half a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.chaos.links import Ear
from tests.e2e.chaos.run import Plan, run


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
    assert figures.verdict.sent > 0
    assert figures.waits, "somebody took a lane over"


def test_signed_transactions_are_heard_however_they_are_cut_into_pieces() -> None:
    ear = Ear()
    said = (
        b'POST / HTTP/1.1\r\n\r\n[{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x02f8aa"]},' * 2
    )
    said += b'{"jsonrpc":"2.0","id":2,"method":"eth_sendRawTransaction","params":["0x02f8bb"]}]'
    heard = ear.connection(b"")
    for byte in said:
        heard(bytes([byte]))
    assert list(ear.sent) == [bytes.fromhex("02f8aa"), bytes.fromhex("02f8bb")]
    whole = Ear()
    whole.connection(b"")(said)
    assert list(whole.sent) == list(ear.sent)
