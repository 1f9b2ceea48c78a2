"""Versions of the schema on SQLite. Version 1 is `schema.sql`; each file of `migrations/` leads from one to the next.

A new file goes the same way as an old one, so both end with the same schema. A program works on one version only.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from nonchalant.errors import BadSettings, StoreUnavailable
from nonchalant.installation import Installation

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_SQL = files("nonchalant.store") / "sql"

# How long whoever writes waits for another process's commit before it gives up.
BUSY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Status:
    """A store's schema. `version` 0: there is nothing yet, the first start or `db migrate` makes it."""

    path: Path | Installation
    version: int
    latest: int

    @property
    def is_current(self) -> bool:
        return self.version == self.latest


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    script: str


def folder_of(dialect: str) -> Traversable:
    return _SQL / dialect


def known(folder: Traversable = _SQL / "sqlite") -> Sequence[Migration]:
    """Every step there is, the first one included; numbers leave no hole and are not used twice."""
    found = [Migration(1, "schema", (folder / "schema.sql").read_text())]
    later = folder / "migrations"
    if later.is_dir():
        for file in sorted(later.iterdir(), key=lambda file: file.name):
            numbered = _NUMBERED.fullmatch(file.name)
            if numbered is None or int(numbered[1]) != found[-1].version + 1:
                raise ValueError(f"{file.name}: the next migration is {found[-1].version + 1:04d}_name.sql")
            found.append(Migration(int(numbered[1]), file.name, file.read_text()))
    return found


def version_of(connection: sqlite3.Connection) -> int:
    """0: nothing is there yet."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def create(connection: sqlite3.Connection, store_id: str | None, steps: Sequence[Migration] | None = None) -> None:
    """Make the newest schema in an empty file, unless another process just did.

    All in one transaction: who opens the file meanwhile finds nothing or all of it, and no older version. Without a
    `store_id` the store gets one by chance.
    """
    with _transaction(connection):
        if version_of(connection) == 0:
            for step in steps or known():
                _run(connection, step)
            connection.execute(
                "INSERT INTO meta (store_id) VALUES (coalesce(?, lower(hex(randomblob(16)))))", (store_id,)
            )


def check(connection: sqlite3.Connection) -> None:
    """`BadSettings`, with the remedy, unless the file has the version this program works on."""
    check_version(version_of(connection), known()[-1].version)


def check_version(found: int, latest: int) -> None:
    if found != latest:
        raise BadSettings(
            f"store: it has schema version {found}, this program needs {latest}; "
            + ("run `nonchalant db migrate`" if found < latest else "upgrade Nonchalant")
        )


def refuse_newer(status: Status) -> None:
    if status.version > status.latest:
        raise BadSettings(
            f"store: it has schema version {status.version}, this program knows {status.latest}; upgrade Nonchalant"
        )


def status(url: str, migrations: Sequence[Migration] | None = None) -> Status:
    """What is there, without changing it."""
    path, steps = _path(url), migrations or known()
    if not path.exists():
        return Status(path, 0, steps[-1].version)
    connection = _open(path)
    try:
        return Status(path, version_of(connection), steps[-1].version)
    except sqlite3.Error as error:
        raise BadSettings(f"store: {path} cannot be read ({error}); is it a database of Nonchalant?") from error
    finally:
        connection.close()


def migrate(url: str, migrations: Sequence[Migration] | None = None) -> Status:
    """Bring the store to the newest version, making it if it is missing. Each step of an older one is one transaction.

    Refused while a node works on the file: it would go on with statements of the old version.
    """
    before, steps = status(url, migrations), migrations or known()
    refuse_newer(before)
    path = _path(url)
    connection = _open(path)
    try:
        # A table is rebuilt by dropping it; what refers to it is checked when the step is done instead.
        connection.execute("PRAGMA foreign_keys = OFF")
        create(connection, None, steps)
        for step in steps:
            _apply(connection, step)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} was not migrated: {error}") from error
    finally:
        connection.close()
    return status(url, migrations)


def _apply(connection: sqlite3.Connection, step: Migration) -> None:
    with _transaction(connection):
        # Looked at under the write lock: another process may be migrating too.
        if version_of(connection) >= step.version:
            return
        _refuse_while_in_use(connection)
        _run(connection, step)
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise sqlite3.IntegrityError(f"{step.name} leaves rows of {broken[0]} that refer to nothing")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:  # interrupted, too: no step is ever half done
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _run(connection: sqlite3.Connection, step: Migration) -> None:
    for statement in _statements(step.script):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {step.version}")


def _refuse_while_in_use(connection: sqlite3.Connection) -> None:
    [nodes] = connection.execute(
        "SELECT count(*) FROM nodes WHERE expires_at > strftime('%s', 'now') * 1000"
    ).fetchone()
    if nodes:
        raise StoreUnavailable(f"{nodes} node(s) work on this store; stop them, then run `nonchalant db migrate` again")


def _path(url: str) -> Path:
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or not path:
        raise BadSettings(f'store: {url!r} is not "sqlite:PATH"')
    return Path(path)


def _open(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
    except sqlite3.Error as error:
        raise BadSettings(
            f"store: cannot open {path} ({error}); check that the folder exists and is writable"
        ) from error


def _statements(script: str) -> Iterator[str]:
    """The script's statements; a trigger's body is part of its statement."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
