"""Drafts become attempts: encoded, signed, checked against the account, and bound to the lease's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from nonchalant.desk import Desk
from nonchalant.errors import NonchalantError, Poisoned, SignerFailed
from nonchalant.model import Attempt, AttemptKind, Draft, TxId
from nonchalant.poison import handling
from nonchalant.ports import Signer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be signed, and for whom. `tx_id` None: a filler."""

    draft: Draft
    digest: bytes
    kind: AttemptKind
    tx_id: TxId | None
    payload_version: int

    @property
    def subject(self) -> str:
        return self.tx_id or f"nonce {self.draft.nonce}"


def prepare(desk: Desk, draft: Draft, kind: AttemptKind, tx_id: TxId | None, payload_version: int) -> Prepared:
    """`Unencodable` if the chain has no way to write this payload."""
    return Prepared(draft, desk.chain.digest(draft), kind, tx_id, payload_version)


async def sign(desk: Desk, prepared: Sequence[Prepared]) -> list[Attempt]:
    """One attempt each. `SignerFailed` if the signer cannot, or if what it gave is not the account's signature."""
    if not prepared:
        return []
    signatures = await _signatures(desk.signer, prepared)
    now, floor = desk.clock.now(), desk.head.final.number
    attempts = []
    for one, signature in zip(prepared, signatures, strict=True):
        with handling(one.subject):
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
    desk.signatures += len(attempts)
    return attempts


async def _signatures(signer: Signer, prepared: Sequence[Prepared]) -> list[bytes]:
    """One each. What keeps the signer from signing one of them is not the signer's failure: `Poisoned` names it."""
    try:
        return await _ask(signer, prepared)
    except SignerFailed:
        if len(prepared) == 1:
            raise
    suspect: Prepared | None = None
    for one in prepared:
        try:
            await _ask(signer, [one])
        except SignerFailed:
            if suspect is not None:
                raise  # not one of them: the signer itself
            suspect = one
    if suspect is not None:
        try:
            # Once more, after the others: the signer may only have been away until now.
            await _ask(signer, [suspect])
        except SignerFailed as failure:
            raise Poisoned(suspect.subject, failure) from failure
    return await _ask(signer, prepared)


async def _ask(signer: Signer, prepared: Sequence[Prepared]) -> list[bytes]:
    try:
        signatures = list(await signer.sign([one.digest for one in prepared]))
    except NonchalantError:
        raise
    except Exception as error:  # a signer may be anybody's code
        # Whatever it raises pauses its own lane, as its failures do.
        log.exception("signer.broke", address=signer.address)
        raise SignerFailed(f"{type(error).__name__}: {error}") from error
    if len(signatures) != len(prepared):
        raise SignerFailed(f"it gave {len(signatures)} signatures for {len(prepared)} payloads")
    return signatures
