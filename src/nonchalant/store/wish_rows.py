"""Wishes as rows: one for every kind, with its name, whom it is about, and the rest as JSON."""

from __future__ import annotations

import msgspec

from nonchalant.store import rows
from nonchalant.store.rows import Row
from nonchalant.wishes import Act, Bump, Cancel, Fill, Release, Replace, Reserve, Reset, Sync, Use, Wish


def columns(wish: Wish) -> dict[str, object]:
    return {
        "id": wish.id,
        **wish.lane._asdict(),
        "tx_id": wish.tx_id,
        "kind": type(wish.act).__name__.lower(),
        "body": rows.to_json(_wish_body(wish.act)),
    }


def _wish_body(act: Act) -> dict[str, object]:
    match act:
        case Replace(_, payload, fees):
            return {"payload": rows.payload_fields(payload), "fees": None if fees is None else rows.fees_text(fees)}
        case Bump(_, fees):
            return {"fees": None if fees is None else rows.fees_text(fees)}
        case Reserve(holder, millis):
            return {"holder": holder, "millis": millis}
        case Use(nonce, holder, hash, raw):
            return {"nonce": nonce, "holder": holder, "hash": hash, "raw": None if raw is None else raw.hex()}
        case Release(nonce, holder):
            return {"nonce": nonce, "holder": holder}
        case Fill(nonce):
            return {"nonce": nonce}
        case Reset(force):
            return {"force": force}
        case Cancel() | Sync():
            return {}


def wish(row: Row) -> Wish:
    return Wish(row["id"], rows.lane_key(row), _act(row["kind"], row["tx_id"], row["body"]))


def _act(kind: str, tx_id: str, body: str) -> Act:
    fields = msgspec.json.decode(body)
    match kind:
        case "cancel":
            return Cancel(tx_id)
        case "replace":
            return Replace(
                tx_id,
                rows.payload_of(msgspec.convert(fields["payload"], rows.PayloadFields)),
                None if fields["fees"] is None else rows.wish(fields["fees"]),
            )
        case "bump":
            return Bump(tx_id, None if fields["fees"] is None else rows.wish(fields["fees"]))
        case "reserve":
            return Reserve(fields["holder"], fields["millis"])
        case "use":
            raw = fields["raw"]
            return Use(fields["nonce"], fields["holder"], fields["hash"], None if raw is None else bytes.fromhex(raw))
        case "release":
            return Release(fields["nonce"], fields["holder"])
        case "sync":
            return Sync()
        case "fill":
            return Fill(fields["nonce"])
        case "reset":
            return Reset(fields["force"])
        case _:
            raise ValueError(f"{kind} is no wish")
