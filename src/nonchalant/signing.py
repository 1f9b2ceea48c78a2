"""Drafts become attempts: encoded, signed, checked against the account, and bound to the lease's epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import structlog
from msgspec import Struct

from nonchalant.desk import Desk
from nonchalant.errors import NonchalantError, Poisoned, SignerFailed
from nonchalant.model import Attempt, Draft
from nonchalant.poison import handling
from nonchalant.ports import Signer
from nonchalant.words import AttemptKind, TxId

log = structlog.get_logger()

# How many payloads a signer may refuse, each alone, before it is called away: it is not asked for a whole window.
MOST_REFUSED = 8


class Prepared(Struct, frozen=True, gc=False):
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
    signatures = await _signatures(desk, prepared)
    now, floor, epoch = desk.store_now(), desk.head.final.number, desk.lease.epoch
    attempts = list[Attempt]()
    with handling() as whom:
        for one, signature in zip(prepared, signatures, strict=True):
            whom.subject = one.subject
            # Recovering the signer takes twice as long as signing; a key of our own is either the account's or is not, which
            # its first signature in this epoch shows.
            is_known = desk.signer.in_process and (desk.signatures > 0 or bool(attempts))
            sealed = desk.chain.seal(one.draft, signature, check=not is_known)
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
                    epoch=epoch,
                    signed_at=now,
                    floor=floor,
                )
            )
    desk.signatures += len(attempts)
    desk.signed_last = prepared[-1].digest
    return attempts


async def _signatures(desk: Desk, prepared: Sequence[Prepared]) -> list[bytes]:
    """One each. What keeps the signer from signing one of them is not the signer's failure: `Poisoned` names it."""
    try:
        return await _ask(desk.signer, prepared)
    except SignerFailed:
        if len(prepared) == 1:
            raise
    suspect: Prepared | None = None
    signed: Prepared | None = None
    refused = 0
    for one in [*prepared[desk.asked_from :], *prepared[: desk.asked_from]]:
        try:
            await _ask(desk.signer, [one])
        except SignerFailed:
            suspect, refused = suspect or one, refused + 1
            if signed is None and refused == min(MOST_REFUSED, len(prepared)):
                # The signer itself, it seems; if it is not, others are asked for next time.
                desk.asked_from = (desk.asked_from + refused) % len(prepared)
                raise
        else:
            signed = one
        if suspect and signed:
            desk.signed_last = signed.digest
            try:
                await _ask(desk.signer, [suspect])
            except SignerFailed as failure:
                await convict(desk, suspect.subject, failure)
            break
    return await _ask(desk.signer, prepared)


async def convict(desk: Desk, suspect: str, failure: SignerFailed) -> NoReturn:
    """It refused this one twice, and signed another in between. `Poisoned`, unless by now it is away altogether."""
    assert desk.signed_last is not None
    await _sign(desk.signer, [desk.signed_last])
    raise Poisoned(suspect, failure) from failure


async def _ask(signer: Signer, prepared: Sequence[Prepared]) -> list[bytes]:
    return await _sign(signer, [one.digest for one in prepared])


async def _sign(signer: Signer, digests: Sequence[bytes]) -> list[bytes]:
    try:
        signatures = list(await signer.sign(digests))
    except NonchalantError:
        raise
    except Exception as error:  # a signer may be anybody's code
        # Whatever it raises pauses its own lane, as its failures do.
        log.exception("signer.broke", address=signer.address)
        raise SignerFailed(f"{type(error).__name__}: {error}") from error
    if len(signatures) != len(digests):
        raise SignerFailed(f"it gave {len(signatures)} signatures for {len(digests)} payloads")
    return signatures
