"""Who holds the keys. Each function takes secrets that the settings have already resolved."""

from __future__ import annotations

from nonchalant.signers.keystore import from_keystore
from nonchalant.signers.local import LocalSigner, from_private_key
from nonchalant.signers.mnemonic import from_mnemonic

__all__ = ["LocalSigner", "from_keystore", "from_mnemonic", "from_private_key"]
