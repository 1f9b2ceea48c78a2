"""Where the service is, and the key that opens it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from nonchalant.errors import BadSettings
from nonchalant.secret import FileSecret, resolve_secret

DEFAULT_URL: Final = "http://127.0.0.1:8645"


@dataclass(frozen=True, slots=True)
class Access:
    """`key` None: the service asks for none. It is never part of a `repr`."""

    url: str
    key: str | None = field(repr=False)

    @classmethod
    def find(
        cls,
        url: str | None = None,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> Access:
        """What is given, else what NONCHALANT_URL and NONCHALANT_KEY say, else loopback without a key."""
        if key is not None and key_file is not None:
            raise BadSettings("give a key or a key_file, not both")
        if key_file is not None:
            key = resolve_secret(FileSecret(Path(key_file), "key_file"))
        elif key is None:
            key = environ.get("NONCHALANT_KEY") or None
        return cls(_checked_url(url or environ.get("NONCHALANT_URL") or DEFAULT_URL), _checked_key(key))


def _checked_url(url: str) -> str:
    """Never quoted back where it could hold a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadSettings(f"the service's URL cannot be read; it looks like {DEFAULT_URL}") from None
    if parts.username is not None or parts.password is not None:
        raise BadSettings("the service's URL holds a user or a password; give an API key as `key` instead")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise BadSettings(f"the service's URL {url!r} must look like {DEFAULT_URL}")
    return url.rstrip("/")


def _checked_key(key: str | None) -> str | None:
    if key is None:
        return None
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        # What cannot be a header would be printed by whoever refuses it.
        raise BadSettings("the API key is not one: it is empty, or has characters that no key has")
    return key
