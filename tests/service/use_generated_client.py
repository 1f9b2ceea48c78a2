"""A program of somebody who generated a client: run by the generator's Python, in a process of its own.

usage: use_generated_client.py FOLDER_OF_THE_PACKAGE URL
"""

import sys

folder, url = sys.argv[1:]
sys.path.insert(0, folder)

from generated import Client  # noqa: E402 - it is in the folder that was named
from generated.api.lanes import get_lane, pause_lane, resume_lane  # noqa: E402
from generated.api.transactions import (  # noqa: E402
    get_history,
    get_transaction,
    list_transactions,
    post_batch,
    post_transaction,
)
from generated.models import BatchBody, FeesBody, Problem, ReasonBody, Speed, State, TransactionBody  # noqa: E402

SENDER = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
OTHER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"

with Client(base_url=url, timeout=120) as client:
    body = TransactionBody(chain_id=31337, from_=SENDER, to=OTHER, value="1000", fees=FeesBody(speed=Speed.FAST))
    accepted = post_transaction.sync_detailed(client=client, body=body, idempotency_key="invoice 4711")
    assert accepted.status_code == 202, accepted
    sent = accepted.parsed
    assert accepted.headers["Location"] == f"/v1/transactions/{sent.id}"
    again = post_transaction.sync_detailed(client=client, body=body, idempotency_key="invoice 4711")
    assert (again.parsed.id, again.headers["Idempotency-Replayed"]) == (sent.id, "true")

    seen = sent
    while seen.state not in (State.CONFIRMED, State.REVERTED, State.FAILED):
        seen = get_transaction.sync(client=client, id=sent.id, wait=30)
    assert (seen.state, seen.from_, seen.to, seen.value) == (State.CONFIRMED, SENDER, OTHER, "1000")
    assert (seen.nonce, seen.receipt.succeeded, seen.receipt.hash_) == (0, True, seen.hash_)
    assert [attempt.hash_ for attempt in seen.attempts] == [seen.hash_]
    history = get_history.sync(client=client, id=sent.id).events
    assert (history[0].kind, history[0].lane.address) == ("tx.accepted", SENDER)

    page = list_transactions.sync(client=client, state=State.CONFIRMED, from_=SENDER, limit=1)
    assert [tx.id for tx in page.transactions] == [sent.id]

    together = BatchBody(transactions=[body, body])
    batch = post_batch.sync(client=client, body=together, idempotency_key="both")
    assert [tx.batch for tx in batch.transactions] == [batch.batch, batch.batch]
    assert len(list_transactions.sync(client=client, batch=batch.batch).transactions) == 2
    for tx in batch.transactions:
        while get_transaction.sync(client=client, id=tx.id, wait=30).state != State.CONFIRMED:
            pass

    lane = get_lane.sync(client=client, chain_id=31337, address=SENDER)
    assert (lane.next_nonce, lane.control.mode) == (3, "open")
    assert (
        pause_lane.sync(client=client, chain_id=31337, address=SENDER, body=ReasonBody(reason="a look")).control.mode
        == "paused"
    )
    assert resume_lane.sync(client=client, chain_id=31337, address=SENDER).control.mode == "open"

    wrong = post_transaction.sync(client=client, body=TransactionBody(chain_id=31337, from_=SENDER, to="0x12"))
    assert isinstance(wrong, Problem), wrong
    assert (wrong.status, wrong.code, wrong.field) == (400, "bad_request", "to")
    missing = get_transaction.sync(client=client, id="nobody")
    assert isinstance(missing, Problem), missing
    assert (missing.status, missing.code) == (404, "not_found")

sys.stdout.write("used\n")
