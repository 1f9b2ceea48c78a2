"""Several accounts out of one phrase (BIP-39), by a derivation path (BIP-32, BIP-44)."""

from __future__ import annotations

import re
from typing import Final

from nonchalant.errors import BadSettings
from nonchalant.signers.local import LocalSigner, from_bytes
from nonchalant.signers.recursion import recursion_limit_kept

HIGHEST_INDEX: Final = 2**31 - 1
MOST_ACCOUNTS: Final = 10_000
PATH: Final = re.compile(r"m(/\d{1,10}'?)+", re.ASCII)


def from_mnemonic(phrase: str, path: str, count: int) -> list[LocalSigner]:
    """The accounts `path`/0 to `path`/(count - 1), in this order."""
    with recursion_limit_kept():
        from eth_account.hdaccount import key_from_seed, seed_from_mnemonic
        from eth_utils.exceptions import ValidationError

    if not PATH.fullmatch(path) or any(int(step.rstrip("'")) > HIGHEST_INDEX for step in path.split("/")[1:]):
        raise BadSettings(f"the derivation path {path!r} must look like m/44'/60'/0'/0")
    if not 1 <= count <= MOST_ACCOUNTS:
        raise BadSettings(f"count is {count}; it must be between 1 and {MOST_ACCOUNTS}")
    try:
        seed = seed_from_mnemonic(" ".join(phrase.split()), "")
    except (ValidationError, ValueError, LookupError):
        seed = None
    # Raised out here, so that the library's error, which quotes the phrase, does not hang on ours.
    if seed is None:
        raise BadSettings("the mnemonic is not a valid BIP-39 phrase (not shown here); check its words and their order")
    return [from_bytes(key_from_seed(seed, f"{path}/{index}"), f"the mnemonic's key {index}") for index in range(count)]
