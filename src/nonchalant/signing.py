"""Drafts become attempts: encoded, signed, checked against the account, and bound to the lease's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nonchalant.desk import Desk
from nonchalant.model import Attempt, AttemptKind, Draft, TxId


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be signed, and for whom. `tx_id` None: a filler."""

    draft: Draft
    digest: bytes
    kind: AttemptKind
    tx_id: TxId | None
    payload_version: int


def prepare(desk: Desk, draft: Draft, kind: AttemptKind, tx_id: TxId | None, payload_version: int) -> Prepared:
    """`Unencodable` if the chain has no way to write this payload."""
    return Prepared(draft, desk.chain.digest(draft), kind, tx_id, payload_version)


async def sign(desk: Desk, prepared: Sequence[Prepared]) -> list[Attempt]:
    """One attempt each. `SignerFailed` if the signer cannot, or if what it gave is not the account's signature."""
    if not prepared:
        return []
    signatures = await desk.signer.sign([one.digest for one in prepared])
    now, floor = desk.clock.now(), desk.head.final.number
    attempts = []
    for one, signature in zip(prepared, signatures, strict=True):
        sealed = desk.chain.seal(one.draft, signature)
        attempts.append(
            Attempt(
                hash=sealed.hash,
                nonce=one.draft.nonce,
                tx_id=one.tx_id,
                kind=one.kind,
                payload_version=one.payload_version,
                fees=one.draft.fees,
                gas=one.draft.gas,
                raw=sealed.raw,
                epoch=desk.lease.epoch,
                signed_at=now,
                floor=floor,
            )
        )
    return attempts
