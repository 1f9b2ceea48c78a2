"""Where an installation keeps its data on PostgreSQL: a server, a database, and a schema in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from nonchalant.errors import BadSettings

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
        """`postgresql://user@host:port/database?schema=name`; all but `schema` is the driver's."""
        try:
            parts = urlsplit(url)
            options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise BadSettings("store: the address cannot be read; write postgresql://user@host/database") from error
        if parts.scheme not in SCHEMES:
            raise BadSettings("store: the address does not begin with postgresql://")
        named = [value for name, value in options if name == "schema"] or [SCHEMA]
        if len(named) > 1 or _SCHEMA.fullmatch(named[0]) is None or named[0].startswith("pg_"):
            raise BadSettings("store: schema is one word of lower-case letters, digits and _, not beginning with pg_")
        rest = urlencode([(name, value) for name, value in options if name != "schema"])
        return cls(urlunsplit(parts._replace(query=rest)), named[0])

    def __str__(self) -> str:
        parts = urlsplit(self.dsn)
        user, at, host = parts.netloc.rpartition("@")
        shown = f"{user.partition(':')[0]}{at}{host}"
        query = "" if self.schema == SCHEMA else f"schema={self.schema}"
        return urlunsplit((parts.scheme, shown, parts.path, query, ""))
