"""Keys and the audit log as the outside sees them. Nothing here tells a secret, nor its digest."""

from __future__ import annotations

from typing import Any

import msgspec

from nonchalant.access import FeeRule, NonceRule, Scope
from nonchalant.audit import Entry, Head
from nonchalant.keys import Key, Written
from nonchalant.notation import CursorText, DigestText, KeyIdText, KeyText, LanesText, TenantText, TimeText, Whole
from nonchalant.views import show_time
from nonchalant.words import Millis


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """`live`: it can be used now. `rate` is in calls a second, for each node; null: as many as the node takes."""

    id: KeyIdText
    name: str
    tenant: TenantText
    scopes: list[Scope]
    lanes: list[LanesText]
    nonces: NonceRule
    fees: FeeRule
    rate: float | None
    live: bool
    created_at: TimeText
    expires_at: TimeText | None
    revoked_at: TimeText | None


class NewKeyView(KeyView, frozen=True, kw_only=True):
    """`key` is what its holder sends. It is told this once, and kept nowhere."""

    key: KeyText

    def __repr__(self) -> str:
        return f"<NewKeyView {self.id}>"  # without the secret


class KeysView(msgspec.Struct, frozen=True, kw_only=True):
    keys: list[KeyView]
    next_cursor: CursorText | None


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """One deed. `actor` is a key's id, or a word for who acts without one. `hash` is that of all the rest."""

    position: Whole
    at: TimeText
    actor: str
    name: str
    action: str
    subject: str
    data: Any
    previous: DigestText
    hash: DigestText


class HeadView(msgspec.Struct, frozen=True, kw_only=True):
    """Where the log ends: keep the hash elsewhere, and nobody can write the log anew unseen."""

    position: Whole
    hash: DigestText


class AuditView(msgspec.Struct, frozen=True, kw_only=True):
    entries: list[EntryView]
    head: HeadView


def show_key(key: Key, now: Millis) -> KeyView:
    return KeyView(**_fields(key, now))


def show_new_key(key: Key, written: Written, now: Millis) -> NewKeyView:
    return NewKeyView(**_fields(key, now), key=written.text)


def _fields(key: Key, now: Millis) -> dict[str, Any]:
    caller = key.caller
    return {
        "id": key.id,
        "name": caller.name,
        "tenant": caller.tenant,
        "scopes": sorted(caller.scopes),
        "lanes": [str(lane) for lane in caller.lanes],
        "nonces": caller.nonces,
        "fees": caller.fees,
        "rate": caller.rate,
        "live": key.is_live(now),
        "created_at": show_time(key.created_at),
        "expires_at": None if key.expires_at is None else show_time(key.expires_at),
        "revoked_at": None if key.revoked_at is None else show_time(key.revoked_at),
    }


def show_entry(entry: Entry) -> EntryView:
    try:
        data = msgspec.json.decode(entry.data)
    except msgspec.DecodeError:
        data = entry.data  # somebody changed it; verifying tells
    return EntryView(
        position=entry.position,
        at=show_time(entry.at),
        actor=entry.actor,
        name=entry.name,
        action=entry.action,
        subject=entry.subject,
        data=data,
        previous=entry.previous,
        hash=entry.hash,
    )


def show_head(head: Head) -> HeadView:
    return HeadView(position=head.position, hash=head.hash)
