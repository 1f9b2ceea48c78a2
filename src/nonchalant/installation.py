"""Where an installation keeps its data on PostgreSQL: a server, a database, and a schema in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

SCHEMES = ("postgresql", "postgres")
SCHEMA = "nonchalant"

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Installation:
    """Prints without its password."""

    dsn: str = field(repr=False)  # as the driver takes it
    schema: str = SCHEMA

    @classmethod
    def parse(cls, url: str) -> Installation:
        """`postgresql://user@host:port/database?schema=name`; all but `schema` is the driver's.

        `ValueError` says what is wrong, and nothing of the password.
        """
        try:
            parts = urlsplit(url)
            options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise ValueError("the address cannot be read; write postgresql://USER@HOST/DATABASE") from None
        if parts.scheme not in SCHEMES:
            raise ValueError("the address does not begin with postgresql://")
        named = [value for name, value in options if name == "schema"] or [SCHEMA]
        if len(named) > 1 or _SCHEMA.fullmatch(named[0]) is None or named[0].startswith("pg_"):
            raise ValueError("schema is one word of lower-case letters, digits and _, not beginning with pg_")
        rest = urlencode([(name, value) for name, value in options if name != "schema"])
        return cls(_joined(parts.scheme, parts.netloc, parts.path, rest), named[0])

    @staticmethod
    def is_meant_by(url: str) -> bool:
        return url.partition(":")[0] in SCHEMES

    def __str__(self) -> str:
        parts = urlsplit(self.dsn)
        user, at, host = parts.netloc.rpartition("@")
        shown = f"{user.partition(':')[0]}{at}{host}"
        query = "" if self.schema == SCHEMA else f"schema={self.schema}"
        return _joined(parts.scheme, shown, parts.path, query)


def _joined(scheme: str, host: str, path: str, query: str) -> str:
    """With `//` also where there is no host."""
    return f"{scheme}://{host}{path}{'?' if query else ''}{query}"
