"""Keystores (version 3), as geth, foundry and others write them."""

from __future__ import annotations

import msgspec

from nonchalant.errors import BadSettings
from nonchalant.signers.local import LocalSigner, from_bytes
from nonchalant.signers.recursion import recursion_limit_kept


def from_keystore(document: str, password: str, what: str) -> LocalSigner:
    """A signer from an encrypted key; `what` names it in errors. Slow on purpose (about a second): that guards it."""
    with recursion_limit_kept():
        from eth_account import Account  # a quarter of a second to import

    try:
        keystore = msgspec.json.decode(document, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise BadSettings(f"{what} is not a keystore: it is not JSON") from None
    key, wrong = b"", ""
    try:
        key = bytes(Account.decrypt(keystore, password))
    except (ValueError, KeyError, TypeError, AttributeError, NotImplementedError) as problem:
        # The library checks no shapes: a document that is no keystore makes it stumble in any of these ways.
        wrong = "does not open with this password" if "MAC" in str(problem) else "is not a keystore of version 3"
    # Raised out here, so that the library's error, which may quote a secret, does not hang on ours.
    if wrong:
        raise BadSettings(f"{what} {wrong}")
    signer = from_bytes(key, f"the key in {what}")
    claimed = keystore.get("address")
    if isinstance(claimed, str) and claimed.lower().removeprefix("0x") not in ("", signer.address[2:]):
        raise BadSettings(f"{what} says that it holds the key of {claimed[:42]}, but it holds that of {signer.address}")
    return signer
