"""What nodes say: every message that we were given, and those of others, each with what it means."""

import csv
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    client: str
    category: str
    code: int | None
    message: str


def read(name: str) -> list[Row]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return [
            Row(
                client=row["client"],
                category=row["category"],
                code=int(row["json_rpc_code"]) if row["json_rpc_code"] else None,
                message=row["message"],
            )
            for row in csv.DictReader(file)
        ]


KNOWN = read("node_errors.csv")
UNSEEN = read("unseen_errors.csv")

# What a node puts where the file has a placeholder; each row is filled three times, each hole with another value.
FILLINGS = {
    "address": (
        "0x8A3f2bD0f5F1d5c3E1bAdC0deFacE00112233445",
        "0x" + "0" * 40,
        "0xdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
    ),
    "amount": ("5", "0.000001", "123456789012345678901234567890"),
    "block": ("0", "19000000", "0x121eac0"),
    "block_id": ("finalized", "hash 0x" + "ab" * 32, "number 0x10"),
    "blocks": ("1", "5", "100"),
    "body": ("", "stream timeout", "<html><body>Request Time-out</body></html>"),
    "bytes": ("24577", "131072", "2097431"),
    "cap": ("1.00", "100", "0.5"),
    "chain_id": ("1", "137", "0x2105"),
    "counter": ("keccak", "steps", "poseidon"),
    "counters": ("counter: steps", "not enough steps", "keccak=5"),
    "debug": ("Verification(RuntimeApi)", "Pool(CycleDetected)", "Pool(InvalidBlockId)"),
    "detail": ("connection refused", "nonce too low", "HTTP error 429 with body: insufficient funds"),
    "duration": ("5s", "30.5s", "1m0s"),
    "fee": ("1.10", "250.00", "0.6"),
    "fork": ("Prague", "Cancun", "Osaka"),
    "from": ("0x1", "0x121eac0", "100"),
    "gas": ("21000", "30000000", "5"),
    "hash": ("ab" * 32, "0x" + "cd" * 32, "00" * 32),
    "html": ("", "<html><head><title>nginx</title></head></html>", "<!DOCTYPE html><h1>cloudflare</h1>"),
    "import_result": ("INTERNAL_ERROR", "INVALID", "ALREADY_EXISTS", "FEE_TOO_LOW", "STALE"),
    "method": ("eth_sendRawTransaction", "eth_getLogs", "debug_traceTransaction"),
    "n": ("2", "16", "10000"),
    "nonce": ("0", "7", "1848"),
    "path": ("", "0a0b", "060f"),
    "pct": ("10", "100", "12"),
    "price": ("1", "1000000000", "20000000000"),
    "reason": ("", "ERC20: transfer amount exceeds balance", "unexpected condition 0x08"),
    "root": ("0x" + "ef" * 32, "12ab", "0x00"),
    "short_hash": ("a1b2c3…d4e5f6", "0xabcdef", "b94a8f"),
    "status": ("429", "500", "404"),
    "symbol": ("ether", "BNB", "celo"),
    "to": ("0x2", "0x121ebff", "latest"),
    "tx_hash": ("0x" + "12" * 32, "0x" + "ff" * 32, "0xcc429429429429429429"),
    "tx_id": ("0.0.902@1700000000.000000001", "0.0.5@1.2", "0.0.1337@1690000000.999999999"),
    "type": ("2", "0x03", "Eip4844"),
    "uuid": ("0f8fad5b-d9cb-469f-a165-70867728950e", "00000000-0000-0000-0000-000000000429", "c0ffee"),
    "version": ("0", "1", "255"),
    "wei": ("0", "1000000000", "115792089237316195423570985008687907853269984665640564039457584007913129639935"),
}


def filled(message: str) -> Iterator[str]:
    """The message with its placeholders filled, at least three times, always the same."""
    pieces = re.split(r"<([a-z_]+)>", message)  # text, hole, text, hole, …, text
    holes = pieces[1::2]
    for turn in range(max([3, *(len(FILLINGS[hole]) for hole in holes)]) if holes else 1):
        values = [FILLINGS[hole][(turn + place) % len(FILLINGS[hole])] for place, hole in enumerate(holes)]
        yield "".join(itertools.chain(*itertools.zip_longest(pieces[::2], values, fillvalue="")))
