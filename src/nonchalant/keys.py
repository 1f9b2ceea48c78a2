"""API keys: what one stands for, how it is written, and how a written one is recognised.

A key is written as `nck_`, the public part of its id, and a secret of 256 random bits. Only a digest of the whole is
kept. A fast hash is enough: there is nothing to guess in 256 bits, unlike in a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from nonchalant.access import (
    DEFAULT_TENANT,
    EVERY_LANE,
    Caller,
    FeeRule,
    LanePattern,
    NonceRule,
    Scope,
)
from nonchalant.words import Millis

KeyId = str

_PARTS: Final = re.compile(r"nck_([0-9a-f]{16})_[0-9a-f]{64}", re.ASCII)

# What the digest of an unknown key is compared with, so that it takes as long as that of a known one.
_NOBODYS: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    """What a new key should be; `expires_at` None: it does not expire by itself."""

    name: str
    scopes: frozenset[Scope]
    tenant: str = DEFAULT_TENANT
    lanes: tuple[LanePattern, ...] = EVERY_LANE
    nonces: NonceRule = NonceRule.EXACT
    fees: FeeRule = FeeRule.WISH
    rate: float | None = None
    expires_at: Millis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it is kept, without its digest. `place` orders keys by when they were made."""

    id: KeyId
    place: int
    caller: Caller
    created_at: Millis
    expires_at: Millis | None = None
    revoked_at: Millis | None = None

    def is_live(self, now: Millis) -> bool:
        """For showing. Who is let in is judged by the store, at its own time."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


@dataclass(frozen=True, slots=True)
class Live:
    """A key that can be used now, and the digest that whoever uses it must have."""

    caller: Caller
    digest: str


@dataclass(frozen=True, slots=True)
class Written:
    """A key as its holder has it. Prints without its secret."""

    id: KeyId
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"<Written {self.id}>"


def write(public: str, secret: str) -> Written:
    """A new key, of 64 and 256 random bits as hex digits."""
    written = read(f"nck_{public}_{secret}")
    assert written is not None
    return written


def read(text: str) -> Written | None:
    """None: it does not look like a key."""
    parts = _PARTS.fullmatch(text)
    return None if parts is None else Written(f"key_{parts[1]}", text)


def holder_of(written: Written, live: Live | None) -> Caller | None:
    """Whom the key stands for; None: it is not this one, or there is none. It takes as long either way."""
    same = hmac.compare_digest(written.digest, _NOBODYS if live is None else live.digest)
    return live.caller if live is not None and same else None
