"""Secrets: where they are kept, and how they are read when they are needed. They are never part of a `repr`."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nonchalant.tables import Found, Table, bad, file_path, label


@dataclass(frozen=True, slots=True)
class EnvSecret:
    name: str
    where: str = ""  # the key of the settings that names it


@dataclass(frozen=True, slots=True)
class FileSecret:
    path: Path
    where: str = ""


Secret = EnvSecret | FileSecret


def parse_secret(found: Found, known: Sequence[str] = ("env", "file")) -> Secret:
    """Where the settings say a secret is kept. `known` are the ways that an error tells of, where there are more."""
    if isinstance(found.value, str):
        raise bad(found.path, 'a secret never stands in the settings itself; use { env = "…" } or { file = "…" }')
    table = Table(found, known)
    name = table.take("env", label, None)
    path = table.take("file", file_path, None)
    if name is not None and path is None:
        return EnvSecret(name, f"{found.path}.env")
    if path is not None and name is None:
        return FileSecret(path, f"{found.path}.file")
    raise bad(found.path, f"expected exactly one of {', '.join(known)}")


def resolve_secret(secret: Secret, environ: Mapping[str, str] | None = None) -> str:
    """The secret itself, without the line end an editor leaves; `BadSettings` if it is not there or not kept private."""
    if isinstance(secret, EnvSecret):
        value = (os.environ if environ is None else environ).get(secret.name, "")
        if not value:
            raise bad(secret.where, f"the environment variable {secret.name} is not set")
        return value
    text = read_private(secret.path, secret.where).removesuffix("\n").removesuffix("\r")
    if not text:
        raise bad(secret.where, f"{secret.path} is empty")
    return text


def read_private(path: Path, where: str) -> str:
    """The text of a file that nobody but its owner can read or change."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise bad(where, f"others can read or change {path}; run: chmod 600 {shlex.quote(str(path))}")
            return file.read()
    except OSError as error:
        raise bad(where, f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise bad(where, f"{path} is not UTF-8 text") from None


def host_of(url: str) -> str:
    """What to call whoever serves this URL: host and port, because what comes before and after them may be a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port is None else f"{host}:{parts.port}"
