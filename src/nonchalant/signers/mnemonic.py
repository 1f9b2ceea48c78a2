"""Several accounts out of one phrase (BIP-39), by a derivation path (BIP-32, BIP-44)."""

from __future__ import annotations

import hmac
import re
from typing import Final

from coincurve import PrivateKey

from nonchalant.errors import BadSettings
from nonchalant.signers.local import LocalSigner
from nonchalant.signers.recursion import recursion_limit_kept

HARDENED: Final = 2**31
MOST_ACCOUNTS: Final = 10_000
PATH: Final = re.compile(r"m(/\d{1,10}'?)+", re.ASCII)


def from_mnemonic(phrase: str, path: str, count: int) -> list[LocalSigner]:
    """The accounts `path`/0 to `path`/(count - 1), in this order."""
    with recursion_limit_kept():
        from eth_account.hdaccount import seed_from_mnemonic
        from eth_utils.exceptions import ValidationError

    if not PATH.fullmatch(path) or any(int(step.rstrip("'")) >= HARDENED for step in path.split("/")[1:]):
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
    above, code = _derived(seed, path)
    return [LocalSigner(_child(above, code, index)[0]) for index in range(count)]


# What the accounts have in common is derived once: thousands of them would otherwise keep a start waiting.


def _derived(seed: bytes, path: str) -> tuple[PrivateKey, bytes]:
    """The key at the path, and its chain code."""
    digest = hmac.digest(b"Bitcoin seed", seed, "sha512")
    key, code = PrivateKey(digest[:32]), digest[32:]
    for step in path.split("/")[1:]:
        key, code = _child(key, code, int(step.rstrip("'")) + (HARDENED if step.endswith("'") else 0))
    return key, code


def _child(above: PrivateKey, code: bytes, index: int) -> tuple[PrivateKey, bytes]:
    told = b"\0" + above.secret if index >= HARDENED else above.public_key.format()
    digest = hmac.digest(code, told + index.to_bytes(4, "big"), "sha512")
    # One in 2^127 is no key; then this raises ValueError, and nobody has ever seen it.
    return above.add(digest[:32]), digest[32:]
