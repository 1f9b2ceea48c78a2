"""How a service is reached, by the command line and by the client: where it is, and the key that opens it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from nonchalant import keys
from nonchalant.errors import BadSettings
from nonchalant.secret import read_private

DEFAULT_URL: Final = "http://127.0.0.1:8645"
KEY: Final = "NONCHALANT_KEY"


def read_url(url: str) -> SplitResult:
    """`BadSettings` if no service can be there; what may hold a password is not repeated."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadSettings(f"the service's URL cannot be read; it looks like {DEFAULT_URL}") from None
    if parts.username is not None or parts.password is not None:
        raise BadSettings(f"the service's URL holds a user or a password; give an API key instead, as {KEY}")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise BadSettings(f"the service's URL {url!r} must look like {DEFAULT_URL}")
    return parts


def find_key(file: Path | None, environ: Mapping[str, str] | None = None, *, where: str = "--key-file") -> str | None:
    """The API key in the file, which nobody else may read, or in NONCHALANT_KEY; None: none is given."""
    if file is not None:
        return read_key(read_private(file, where), where)
    text = (os.environ if environ is None else environ).get(KEY, "")
    return read_key(text, KEY) if text else None


def read_key(text: str, where: str) -> str:
    """It is never repeated, whatever it is."""
    written = keys.read(text.strip())
    if written is None:
        raise BadSettings(f"{where}: what is there is no API key; one looks like nck_, 16 and 64 hex digits")
    return written.text
