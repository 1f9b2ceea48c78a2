"""How values are written in JSON: types that say so in the OpenAPI document, and check nothing.

What comes in is checked by `scalars`, which tells in words what is wrong; what goes out is written right.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

MAX_DATA: Final = 128 * 1024  # bytes: what geth's pool takes as one whole transaction
MAX_REASON: Final = 500
MOST_CONFIRMATIONS: Final = 10_000
MOST_SECONDS: Final = 600  # that a nonce is reserved for
MAX_IDEMPOTENCY_KEY: Final = 255
MOST_TOGETHER: Final = 500  # transactions of a batch
MAX_NAME: Final = 100
MOST_PATTERNS: Final = 100  # of lanes, for one key
LEAST_RATE: Final = 0.01  # calls a second
MOST_RATE: Final = 1_000_000.0

NUMBER_PATTERN: Final = "^([0-9]{1,100}|0x[0-9a-fA-F]{1,100})$"
ADDRESS_PATTERN: Final = "^0x[0-9a-fA-F]{40}$"
HASH_PATTERN: Final = "^0x[0-9a-fA-F]{64}$"
BYTES_PATTERN: Final = "^0x([0-9a-fA-F]{2})*$"
BATCH_PATTERN: Final = "^batch_[0-9a-f]{32}$"
LANES_PATTERN: Final = r"^(\*|(\*|[0-9]{1,19}):(\*|0x[0-9a-fA-F]{40}))$"
TENANT_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
KEY_ID_PATTERN: Final = "^key_[0-9a-f]{16}$"
KEY_PATTERN: Final = "^nck_[0-9a-f]{16}_[0-9a-f]{64}$"

ADDRESS_EXAMPLE: Final = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
SENDER_EXAMPLE: Final = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"
HASH_EXAMPLE: Final = "0x88df016429689c079f3b2f6ad39fa052532c56795b733da78a91ebe6a713944b"


def _written(**words: Any) -> Meta:
    return Meta(extra_json_schema=words)


AddressText = Annotated[str, _written(pattern=ADDRESS_PATTERN, examples=[ADDRESS_EXAMPLE])]
HashText = Annotated[str, _written(pattern=HASH_PATTERN, examples=[HASH_EXAMPLE])]
BytesText = Annotated[str, _written(pattern=BYTES_PATTERN, examples=["0xa9059cbb"])]
WeiText = Annotated[str, _written(pattern="^[0-9]+$", examples=["1000000000000000"])]
TimeText = Annotated[str, _written(format="date-time", examples=["2030-01-31T12:00:00.000Z"])]
TxIdText = Annotated[str, _written(examples=["tx_019a8b3fe1c05f3a9c2d4e6b7a8091a2"])]
BatchText = Annotated[str, _written(pattern=BATCH_PATTERN, examples=["batch_019a8b3fe1c05f3a9c2d4e6b7a8091a2"])]
HolderText = Annotated[str, _written(pattern="^[0-9a-f]{32}$")]
CursorText = Annotated[str, _written(pattern="^[0-9]+$", examples=["4711"])]

KeyIdText = Annotated[str, _written(pattern=KEY_ID_PATTERN, examples=["key_0123456789abcdef"])]
KeyText = Annotated[str, _written(pattern=KEY_PATTERN)]
DigestText = Annotated[str, _written(pattern="^[0-9a-f]{64}$")]
LanesText = Annotated[str, _written(pattern=LANES_PATTERN, examples=["*", "1:*", f"1:{SENDER_EXAMPLE}"])]
TenantText = Annotated[str, _written(pattern=TENANT_PATTERN, examples=["default"])]

# A count, a height, a nonce: what never is below nothing.
Whole = Annotated[int, _written(minimum=0)]

# What callers write, within its limits.
DataText = Annotated[str, _written(pattern=BYTES_PATTERN, maxLength=2 + 2 * MAX_DATA, examples=["0xa9059cbb"])]
ReasonText = Annotated[str, _written(maxLength=MAX_REASON)]
Priority = Annotated[int, _written(minimum=0, maximum=9)]
Depth = Annotated[int, _written(minimum=1, maximum=MOST_CONFIRMATIONS)]
Seconds = Annotated[float, _written(exclusiveMinimum=0, maximum=MOST_SECONDS)]

NameText = Annotated[str, _written(minLength=1, maxLength=MAX_NAME, examples=["billing"])]
Rate = Annotated[float, _written(minimum=LEAST_RATE, maximum=MOST_RATE)]

# What they may write as they like.
Number = Whole | Annotated[str, _written(pattern=NUMBER_PATTERN, examples=["1000000000000000", "0x38d7ea4c68000"])]
Moment = Whole | Annotated[str, _written(examples=["2030-01-31T12:00:00Z"])]
