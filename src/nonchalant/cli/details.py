"""One transaction, for people: what it is to do, how it stands and why, what was signed for it, what happened."""

from __future__ import annotations

from nonchalant.amounts import format_wei
from nonchalant.cli.client import Shown
from nonchalant.cli.terminal import moment, short, show, show_fields, show_table

RAN = {
    "cancel": "what cancels it, and does nothing",
    "expiry": "what does nothing, after its deadline",
    "nothing": "what does nothing, because no node took its bytes",
}


def show_details(shown: Shown, events: list[Shown]) -> None:
    receipt, attention = shown["receipt"], shown["attention"]
    show_fields(
        [
            ("id", shown["id"]),
            ("state", shown["state"] + (" (held)" if shown["held"] else "")),
            ("why", shown["waiting"]),
            ("ran", _ran(shown)),
            ("failure", shown["failure"]),
            (
                "attention",
                attention and f"{attention['reason']} ({attention['code']}, since {moment(attention['since'])})",
            ),
            ("chain", str(shown["chain_id"])),
            ("from", shown["from"]),
            *_payload(shown),
            ("payload", None if shown["payload_version"] == 1 else f"version {shown['payload_version']}"),
            ("fees", fees_in_words(shown["fees"])),
            ("priority", str(shown["priority"])),
            ("valid until", shown["valid_until"]),
            ("tell at", shown["confirmations"] and f"{shown['confirmations']} blocks above it"),
            ("superseded", shown["on_superseded"]),
            ("nonce", None if shown["nonce"] is None else str(shown["nonce"])),
            ("hash", shown["hash"]),
            ("block", receipt and f"{receipt['block_number']} ({receipt['block_hash']}){_above(receipt)}"),
            ("cost", receipt and f"{format_wei(int(receipt['cost']))} for {receipt['gas_used']} gas"),
            ("contract", receipt and receipt["contract"]),
            ("key", shown["idempotency_key"]),
            ("batch", shown["batch"]),
            ("metadata", None if shown["metadata"] is None else str(shown["metadata"])),
            ("accepted", moment(shown["created_at"]) + " UTC"),
        ]
    )
    for earlier in shown["earlier"]:
        show(f"\npayload {earlier['version']}, before it was replaced", style="bold")
        show_fields(_payload(earlier))
    if shown["attempts"]:
        show()
        show_table(
            ("attempt", "payload", "nonce", "fees", "gas", "sent (UTC)", "nodes said", "hash"),
            [_attempt(attempt) for attempt in shown["attempts"]],
        )
    show()
    show_table(("at (UTC)", "event", ""), [_event(event) for event in events])


def _payload(shown: Shown) -> list[tuple[str, str | None]]:
    return [
        ("to", shown["to"] or "(creates a contract)"),
        ("value", format_wei(int(shown["value"]))),
        ("data", None if shown["data"] == "0x" else short(shown["data"], keep=66)),
        ("gas limit", None if shown["gas"] is None else str(shown["gas"])),
    ]


def _ran(shown: Shown) -> str | None:
    outcome = shown["outcome"]
    if outcome is None or outcome["ran"] is None:
        return None
    if outcome["ran"] != "payload":
        return RAN[outcome["ran"]]
    return None if shown["payload_version"] == 1 else f"payload {outcome['payload_version']}"


def _above(receipt: Shown) -> str:
    if receipt["confirmations"] is None:
        return ""
    fork = ", after a fork" if receipt["fork"] else ""
    return f", {len(receipt['confirmations'])} linked above it{fork}"


def _attempt(attempt: Shown) -> tuple[str, ...]:
    return (
        attempt["kind"],
        str(attempt["payload_version"] or "none"),
        str(attempt["nonce"]),
        fees_in_words(attempt["fees"]),
        str(attempt["gas"]),
        moment(attempt["sent_at"]),
        attempt["answer"] or "",
        attempt["hash"],
    )


def _event(event: Shown) -> tuple[str, ...]:
    return (
        moment(event["at"]),
        event["kind"],
        ", ".join(f"{name} {value}" for name, value in event["data"].items()),
    )


def fees_in_words(fees: dict[str, str]) -> str:
    if "speed" in fees:
        return fees["speed"]
    if "gas_price" in fees:
        return f"{format_wei(int(fees['gas_price']))} a gas"
    most, tip = int(fees["max_fee_per_gas"]), int(fees["max_priority_fee_per_gas"])
    return f"up to {format_wei(most)} a gas, tip {format_wei(tip)}"
