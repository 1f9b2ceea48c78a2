"""The audit itself: it passes what is right, and finds each promise that is broken behind everybody's back."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncpg
import pytest

from nonchalant.app import Nonchalant
from nonchalant.values import replace
from nonchalant.words import State
from tests.e2e.chaos.audit import Verdict, Witness, audit
from tests.e2e.rig import settings
from tests.e2e.site import ALICE, Site, pay
from tests.postgres import Cluster

SCHEMA = "audited"
KEYS = ("a", "b", "c")
STOPPED = "a node that left"


@dataclass
class Aftermath:
    """Three payments that settled, and what the harness would know of them."""

    site: Site
    connection: asyncpg.Connection
    acknowledged: dict[str, str]
    sent: dict[bytes, int]
    witness: Witness

    async def audit(self) -> Verdict:
        return await audit(
            self.site.chain,
            self.connection,
            acknowledged=self.acknowledged,
            asked=len(KEYS),
            unwanted=(),
            sent=self.sent,
            witness=self.witness,
            stopped=(STOPPED,),
        )


@pytest.fixture
async def aftermath(site: Site, postgres: Cluster) -> AsyncIterator[Aftermath]:
    made = settings(site.folder, site.chain.url, accounts=1)
    async with Nonchalant.open(replace(made, store=f"{postgres.dsn}?schema={SCHEMA}")) as node:
        handles = [await pay(node, key) for key in KEYS]
        await site.settle(*handles)
        assert {handle.transaction.state for handle in handles} == {State.CONFIRMED}
    connection = await asyncpg.connect(postgres.dsn, server_settings={"search_path": SCHEMA})
    raws = await connection.fetch("SELECT raw FROM attempts")
    # Without the triggers that would not have any of it.
    await connection.execute("SET session_replication_role = replica")
    yield Aftermath(
        site,
        connection,
        {key: handle.id for key, handle in zip(KEYS, handles, strict=True)},
        {row["raw"]: time.time_ns() // 1_000_000 for row in raws},
        Witness(postgres.dsn, SCHEMA),
    )
    await connection.execute(f"SET client_min_messages = error; DROP SCHEMA {SCHEMA} CASCADE")
    await connection.close()


BROKEN = {
    "P2: acknowledged, and not in the store": "DELETE FROM transactions WHERE idempotency_key = 'b'",
    "P2, P8: left over": "UPDATE slots SET settled = FALSE, settled_at = NULL WHERE nonce = 1",
    "P7: ended as nobody asked": (
        "UPDATE transactions SET state = 'failed', failure = '[]' WHERE idempotency_key = 'c'"
    ),
    "ran by bytes that are nowhere recorded": "DELETE FROM attempts WHERE nonce = 2",
    "P1: .* ran at the slot of another": (
        "UPDATE slots SET tx_id = (SELECT id FROM transactions WHERE idempotency_key = 'b') WHERE nonce = 0"
    ),
    "P4: sent at .*, and recorded later": "UPDATE attempts SET signed_at = signed_at + 3600000 WHERE nonce = 1",
    "a consumed 2 nonces": (
        "UPDATE attempts SET tx_id = (SELECT id FROM transactions WHERE idempotency_key = 'a') WHERE nonce = 1"
    ),
    "P6: .*epochs do not rise": (
        "INSERT INTO told_events (told, kind, chain_id, address, at, data)"
        " SELECT told + 1000, kind, chain_id, address, at, data FROM told_events WHERE kind = 'lane.lease'"
    ),
    "who stops in good order leaves no lease": f"UPDATE leases SET owner = '{STOPPED}'",
    "P6: .*a stale owner wrote": "UPDATE attempts SET epoch = epoch + 1 WHERE nonce = 0",
    "was told": "DELETE FROM events WHERE kind = 'tx.confirmed' AND tx_id IN (SELECT min(id) FROM transactions)",
    r"tx_\w+: \[.tx.signed": "DELETE FROM events WHERE kind = 'tx.accepted' AND tx_id IN (SELECT min(id) FROM transactions)",
}


async def test_each_promise_that_was_broken_is_found(aftermath: Aftermath) -> None:
    verdict = await aftermath.audit()
    assert (verdict.ends, verdict.attempts, verdict.sent, verdict.fillers) == ({"confirmed": 3}, 3, 3, 0)
    for words, harm in BROKEN.items():
        harmed = aftermath.connection.transaction()
        await harmed.start()
        await aftermath.connection.execute(harm)
        with pytest.raises(AssertionError, match=words):
            await aftermath.audit()
        await harmed.rollback()
    aftermath.sent[b"\x02never recorded"] = 0
    with pytest.raises(AssertionError, match="P4: sent, and nowhere recorded"):
        await aftermath.audit()
    del aftermath.sent[b"\x02never recorded"]
    aftermath.witness.missing.append(b"\x02recorded too late")
    with pytest.raises(AssertionError, match="P4: on their way before they were committed"):
        await aftermath.audit()
    aftermath.witness.missing.clear()
    chain = aftermath.site.chain
    await aftermath.audit()
    # Last, because the chain does not forget: the same is paid again, by bytes that nobody here knows.
    paid = json.loads(
        await aftermath.connection.fetchval("SELECT payload FROM transactions WHERE idempotency_key = 'a'")
    )
    await chain.send_as(ALICE, to=paid["to"], value=hex(int(paid["value"])))
    await chain.mine()
    with pytest.raises(AssertionError, match="a ran 2 times"):
        await aftermath.audit()
