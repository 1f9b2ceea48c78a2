"""What a transaction must bring in gas before anything of it runs.

With less, no block can ever hold it. Not every node says so: some take such bytes, and everything behind them waits.
"""

from __future__ import annotations

from typing import Final

from nonchalant.model import Payload

TRANSACTION: Final = 21_000
CREATION: Final = 32_000
WORD_OF_CODE: Final = 2  # of the code that creates a contract (EIP-3860)
LISTED_ADDRESS: Final = 2_400  # in an access list (EIP-2930)
LISTED_KEY: Final = 1_900
# A byte of data is one token if it is zero, else four (EIP-2028, EIP-7623).
TOKENS: Final = 4
TOKEN: Final = 4
TOKEN_AT_LEAST: Final = 10  # however little else is done


def least_gas(payload: Payload, *, calldata_floor: bool = True) -> int:
    """The least limit that the payload can be executed with. `calldata_floor`: the chain has EIP-7623's."""
    zeros = payload.data.count(0)
    tokens = zeros + TOKENS * (len(payload.data) - zeros)
    gas = TRANSACTION + TOKEN * tokens
    if payload.to is None:
        gas += CREATION + WORD_OF_CODE * ((len(payload.data) + 31) // 32)
    for _, keys in payload.access_list:
        gas += LISTED_ADDRESS + LISTED_KEY * len(keys)
    return max(gas, TRANSACTION + TOKEN_AT_LEAST * tokens) if calldata_floor else gas
