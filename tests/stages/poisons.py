"""What makes stages fail on one transaction: payloads that something chokes on, and rows that somebody spoilt."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nonchalant.model import Draft, Transaction
from nonchalant.sim.wire import read_order
from nonchalant.words import State
from tests.stages.rig import ALICE, Rig

POISON = OverflowError("this one is too much")

# JSON of the right shape, and of other types than what was written.
OTHER_PAYLOAD = '{"to":5,"value":"1","data":"","gas":null,"access_list":[]}'
OTHER_RECEIPT = '{"hash":5,"block":["x","y"],"succeeded":"no","gas_used":"x","gas_price":"1","contract":5,"l1_fee":"1"}'

SPOILT: list[tuple[str, str, object]] = [
    ("transactions", "payload", OTHER_PAYLOAD),
    ("transactions", "earlier", f"[{OTHER_PAYLOAD}]"),
    ("transactions", "receipt", OTHER_RECEIPT),
    ("transactions", "deep", '["5",5]'),
    ("transactions", "attention", "[1,2,3]"),
    *[
        ("transactions", column, text)
        for column in ("payload", "earlier", "fees", "metadata", "on_superseded", "receipt", "deep", "attention")
        for text in ("{", "[1]", "nonsense")
    ],
    ("transactions", "state", "nonsense"),
    ("transactions", "failure", "nonsense"),
    ("transactions", "confirmations", 10**18),
    ("slots", "kind", "nonsense"),
    ("slots", "wanted", "nonsense"),
    ("slots", "payload_version", 99),
    ("slots", "receipt", "{"),
    ("attempts", "kind", "nonsense"),
    ("attempts", "fees", "nonsense"),
    ("attempts", "answer", "nonsense"),
    ("attempts", "payload_version", 99),
    ("attempts", "gas", -1),
    ("events", "data", "{"),
    ("events", "kind", ""),
    ("lanes", "attention", "{"),
    ("lanes", "unhealthy", "{"),
]


async def settles(rig: Rig, *txs: Transaction, blocks: int = 12) -> None:
    """Blocks come until all of them are confirmed."""
    for _ in range(blocks):
        if all([await rig.state(tx) is State.CONFIRMED for tx in txs]):
            return
        await rig.mine()
    assert await rig.states(txs) == [State.CONFIRMED] * len(txs)


def label_of(draft: Draft) -> str:
    """Empty: it is nobody's."""
    return read_order(draft.payload.data).label if draft.payload.data else ""


def choke_encoder(rig: Rig, label: str) -> None:
    """On every payload whose label begins so."""
    digest = rig.chain.digest

    def choke(draft: Draft) -> bytes:
        if label_of(draft).startswith(label):
            raise POISON
        return digest(draft)

    rig.chain.digest = choke  # type: ignore[method-assign]


def choke_signer(rig: Rig, label: str, error: Exception) -> None:
    """On every batch with a payload whose label begins so."""
    sign, digest = rig.signer.sign, rig.chain.digest
    poisonous: set[bytes] = set()

    def remember(draft: Draft) -> bytes:
        made = digest(draft)
        if label_of(draft).startswith(label):
            poisonous.add(made)
        return made

    async def choke(digests: Sequence[bytes]) -> Sequence[bytes]:
        if poisonous & set(digests):
            raise error
        return await sign(digests)

    rig.chain.digest = remember  # type: ignore[method-assign]
    rig.signer.sign = choke  # type: ignore[method-assign]


@contextmanager
def past_every_check(rig: Rig) -> Iterator[None]:
    """Write past every check and trigger, as a faulty disk or hand would."""
    triggers = rig.database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for trigger in triggers:
        rig.database.execute(f"DROP TRIGGER {trigger['name']}")
    rig.database.execute("PRAGMA ignore_check_constraints = ON")
    yield
    rig.database.execute("PRAGMA ignore_check_constraints = OFF")
    for trigger in triggers:
        rig.database.execute(trigger["sql"])


def spoil(rig: Rig, table: str, column: str, value: object, tx: Transaction) -> None:
    where, names = {
        "transactions": ("id = ?", [tx.id]),
        "slots": ("tx_id = ?", [tx.id]),
        "attempts": ("tx_id = ?", [tx.id]),
        "events": ("tx_id = ?", [tx.id]),
        "lanes": ("address = ?", [ALICE.address]),
    }[table]
    with past_every_check(rig):
        rig.database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value, *names))
