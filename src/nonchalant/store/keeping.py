"""Keeping keys. What is done about one is in the audit log, by the same commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from nonchalant.access import Caller, FeeRule, LanePattern, NonceRule, Scope
from nonchalant.audit import Deed
from nonchalant.keys import Key, KeyId, KeyRequest, Live, Written
from nonchalant.store import auditing, rows
from nonchalant.store.legible import Legible, full_page
from nonchalant.store.rows import Row
from nonchalant.store.talk import Ask, Procedure, ask, ask_for_each, now


class _Rules(TypedDict):
    nonces: NonceRule
    fees: FeeRule
    rate: float | None


_read_scopes = msgspec.json.Decoder(list[Scope]).decode
_read_lanes = msgspec.json.Decoder(list[tuple[int | None, str | None]]).decode
_read_rules = msgspec.json.Decoder(_Rules).decode


def add(written: Written, wanted: KeyRequest, deed: Deed, *, only_first: bool) -> Procedure[Key | None]:
    """Keep it; None: `only_first`, and there are others. Repeating a call with the same key is safe."""
    # First of all: of two that want to be the first, one waits here.
    head = yield from auditing.lock()
    others = yield from ask("some_key")
    if only_first and others and others[0]["id"] != written.id:
        return None
    at = yield from now()
    added = yield from ask("insert_key", **_columns(written, wanted), at=at)
    if added:
        yield from auditing.note_after(head, deed)
        return key(added[0])
    return (yield from one(written.id))


def revoke(key_id: KeyId, deed: Deed) -> Procedure[Key | None]:
    """The key as it is then; None: there is none. One that is revoked already stays as it is."""
    head = yield from auditing.lock()
    at = yield from now()
    revoked = yield from ask("revoke_key", id=key_id, at=at)
    if not revoked:
        return (yield from one(key_id))
    yield from auditing.note_after(head, deed)
    return key(revoked[0])


def live(ids: Sequence[KeyId], legible: Legible) -> Procedure[Mapping[KeyId, Live]]:
    found: dict[KeyId, Live] = {}
    for row in (yield from ask_for_each("live_keys", [{"id": key_id} for key_id in ids])):
        try:
            found[row["id"]] = Live(key(row).caller, row["digest"])
        except rows.UNDECODABLE:
            legible.warn("key_id", row["id"])  # whatever it allowed once, now it allows nothing
    return found


def one(key_id: KeyId) -> Procedure[Key | None]:
    answer = yield Ask("keys", {"id": key_id, "limit": 1}, narrow=True)
    return key(answer.rows[0]) if answer.rows else None


def listed(before: int | None, limit: int, legible: Legible) -> Procedure[Sequence[Key]]:
    def page(start: int | None, limit: int) -> Procedure[Sequence[Row]]:
        answer = yield Ask("keys", {"limit": limit} | ({} if start is None else {"before": start}), narrow=True)
        return answer.rows

    def readable(found: Sequence[Row]) -> list[Key]:
        good = []
        for row in found:
            try:
                good.append(key(row))
            except rows.UNDECODABLE:
                legible.warn("key_id", row["id"])
        return good

    return (yield from full_page(page, "place", before, limit, lambda found: readable(list(found))))


def key(row: Row) -> Key:
    rules = _read_rules(row["rules"])
    return Key(
        id=row["id"],
        place=row["place"],
        caller=Caller(
            key_id=row["id"],
            name=row["name"],
            scopes=frozenset(_read_scopes(row["scopes"])),
            tenant=row["tenant"],
            lanes=tuple(LanePattern(*lane) for lane in _read_lanes(row["lanes"])),
            nonces=rules["nonces"],
            fees=rules["fees"],
            rate=rules["rate"],
        ),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


def _columns(written: Written, wanted: KeyRequest) -> dict[str, Any]:
    return {
        "id": written.id,
        "name": wanted.name,
        "digest": written.digest,
        "tenant": wanted.tenant,
        "scopes": rows.to_json(sorted(wanted.scopes)),
        "lanes": rows.to_json(wanted.lanes),
        "rules": rows.to_json({"nonces": wanted.nonces, "fees": wanted.fees, "rate": wanted.rate}),
        "expires_at": wanted.expires_at,
    }
