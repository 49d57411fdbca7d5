"""Database of the journal: the interface that SQLite and PostgreSQL implement, the schema, and its migrations."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.settings.model import hide_password
from babelgate.gateway.storage.sqlite import Sqlite

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 23))
"""Schema revisions in `gateway/storage/migrations/versions`, oldest first.

A new row format that the release before cannot read is a revision too, even if no table changes. An older release then
refuses to open the database instead of misreading it.
"""
HEAD: Final = REVISIONS[-1]
_FOLDED_DIFFERENTLY: Final = frozenset({"0001", "0002"})
"""Revisions whose task, run and question rows this release would fold differently, so it folds them again."""


_READABLE_FROM: Final = "readable from"
"""Name in `meta` of the oldest revision whose gateways may still use the schema, next to newer ones."""

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
VERSIONS: Final = (_MIGRATIONS / "versions",)
_SCHEMAS: Final = {"sqlite": _MIGRATIONS / "schema.sql", "postgresql": _MIGRATIONS / "postgresql.sql"}
"""Files with the schema of an empty database, the same that all migrations produce."""


DatabaseError = SQLAlchemyError
"""Base class of driver errors and statement errors."""


class Database(Protocol):
    """Operations of the journal that differ between SQLite and PostgreSQL.

    Both raise OperationalError of SQLAlchemy if the database fails, as opposed to one statement.
    """

    @property
    def folders(self) -> Sequence[Path]:
        """Folders of this machine that hold the database. Empty if it is on a server."""
        ...

    def acquire(self) -> None:
        """Lock the database, before any other method is called. Raises conflict if another gateway uses it."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...

    def open_writer(self) -> Engine:
        """Return a new engine for one connection that writes."""
        ...

    def open_readers(self, readers: int) -> Engine:
        """Return a new engine for `readers` connections that read.

        Raises conflict if they lead to another database than the writer's, and OperationalError.
        """
        ...

    def connect(self, writer: Engine) -> Connection:
        """Return the only connection that writes. Raises conflict if another gateway uses the database."""
        ...

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Check that the schema may be changed now.

        Raises conflict if running gateways could not continue with the new schema. `expands` = they can.
        """
        ...

    def claim(self, connection: Connection) -> None:
        """Record this gateway as the last writer, in the first transaction on each connection that writes.

        Raises conflict if another gateway has written meanwhile: the state in memory is out of date then.
        """
        ...

    def writing(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a context manager for one transaction of the writer. An exception rolls it back."""
        ...

    def together(self, connection: Connection) -> AbstractContextManager[Any]:
        """Return a context manager that sends the writer's statements together, without waiting for each result. Its
        end raises the first error, if any."""
        ...

    def reading(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a context manager for a transaction in which all reads see one snapshot of the database."""
        ...

    def listen(self) -> AsyncGenerator[str | None]:
        """Yield notices of other gateways from a separate connection, and None at the beginning and every ten seconds.

        Raises OperationalError if the connection is lost or the server does not answer.
        """
        ...

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Send notices to all listeners, each in a separate transaction. Raises OperationalError."""
        ...

    def is_lost(self, connection: Connection) -> bool:
        """Return True if the connection cannot be used any more."""
        ...

    @property
    def is_unclear(self) -> bool:
        """True if the writer's connection was lost during a commit, so that its outcome is unknown."""
        ...

    def settle(self, connection: Connection) -> bool:
        """Return True if the last commit was stored. Called on a new connection, if `is_unclear`.

        The outcome cannot change after that: a commit that reaches the server later fails. Raises OperationalError.
        """
        ...

    def leave(self, connection: Connection) -> None:
        """Remove the rows that only this gateway needs, when its journal closes."""
        ...

    def abort(self, engine: Engine) -> None:
        """Interrupt the statements that other threads are executing on connections of `engine`. They fail there."""
        ...

    def is_unstorable(self, error: Exception) -> bool:
        """Return True if the database or its disk failed, as opposed to the command.

        The same command may succeed later. `error` is an error of the driver or of SQLAlchemy.
        """
        ...

    def is_unreadable(self, error: Exception) -> bool:
        """Return True if the database or its disk failed during a read, as opposed to the read itself."""
        ...

    def fault_of(self, error: Exception) -> FaultError | None:
        """Return the fault to raise for a value that the database cannot store, such as an id that is too long.

        Return None for any other error.
        """
        ...

    def is_race(self, error: Exception) -> bool:
        """Return True if the command lost a race against another gateway. Always False for an unshared database."""
        ...

    def make_way(self, connection: Connection, error: Exception) -> None:
        """End sessions that block this one, after a lost race. Called outside of transactions, before a retry."""
        ...

    def make_room(self, connection: Connection) -> None:
        """Create the partitions that the next records need. Called periodically, in a transaction of the writer."""
        ...

    def give_back(self, connection: Connection) -> bool:
        """Return some free space to the file system, in a transaction of the writer.

        Return True if there may be more.
        """
        ...


def open_database(url: str, *, power: bool = False, shared: bool = False, pooler: str | None = None) -> Database:
    """Return the database at a URL, without connecting. Raises invalid.

    `power` = survive a power failure (SQLite). `shared` = other gateways use it at the same time. `pooler` = URL of a
    PostgreSQL connection pooler for the connections that read.
    """
    if url.startswith("sqlite:"):
        if shared:
            raise FaultError(
                FaultCode.INVALID,
                "database: a cluster needs PostgreSQL. Set database to postgresql://host/name, or set "
                "cluster: false and workers: 1.",
            )
        return Sqlite(url, power=power)
    try:
        from babelgate.gateway.storage.postgres import Postgres
    except ImportError as error:
        raise FaultError(FaultCode.INVALID, f"PostgreSQL needs what babelgate[postgres] installs: {error}") from None
    return Postgres(url, shared=shared, pooler=pooler)


class Prepare(Protocol):
    def __call__(self, connection: Connection, *, expands: bool) -> None: ...


def migrate(connection: Connection, prepare: Prepare | None = None, *, shared: bool = False) -> bool:
    """Upgrade the schema to `HEAD`. Return True if the caller must fold all logs into their rows again. `prepare`, if
    given, is called before a migration changes the schema.

    Alembic is imported only for a database of an earlier release: the import takes a quarter of a second and 10 MB.

    Migrations expand or contract. A migration with `expands = True` in its module adds only what gateways of the
    release before ignore. They keep running and may restart, so a cluster is upgraded node by node. Before any other
    migration, all gateways must stop. `shared` = gateways of other releases may use the database at the same time.

    Raises:
        FaultError: conflict, if a newer release has changed the schema in a way that this one does not know.
    """
    current = None
    tables = inspect(connection).get_table_names()
    if not tables or (connection.dialect.name == "postgresql" and "alembic_version" not in tables):
        _create_tables(connection)
        return False
    if "alembic_version" in tables:
        current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if current == HEAD:
            return False
        if current is not None and current not in REVISIONS:
            if shared and _readable_from(connection) in REVISIONS:
                return False
            safe_url = hide_password(connection.engine.url.render_as_string(hide_password=False))
            raise FaultError(
                FaultCode.CONFLICT,
                f"{safe_url} was written by a newer release of Babelgate: it has "
                f"revision {current}, and this release supports revisions up to {HEAD}. Install the newer release, or "
                "choose another --database.",
            )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "babelgate.gateway.storage:migrations")
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(str(folder) for folder in VERSIONS))
    config.attributes["connection"] = connection
    expands = current is not None and _expands(config, current)
    if prepare is not None:
        prepare(connection, expands=expands)
    before = _readable_from(connection) if expands else None
    command.upgrade(config, "head")
    _set_readable_from(connection, (before or current or HEAD) if expands else HEAD)
    return current in _FOLDED_DIFFERENTLY


def _expands(config: Any, current: str) -> bool:
    """Return True if every missing migration only expands the schema."""
    from alembic.script import ScriptDirectory

    missing = ScriptDirectory.from_config(config).iterate_revisions("head", current)
    return all(getattr(script.module, "expands", False) is True for script in missing)


def _readable_from(connection: Connection) -> str | None:
    where = {"name": _READABLE_FROM}
    return connection.execute(text("SELECT value FROM meta WHERE name = :name"), where).scalar()


def _set_readable_from(connection: Connection, revision: str) -> None:
    row = {"name": _READABLE_FROM, "value": revision}
    connection.execute(text("DELETE FROM meta WHERE name = :name"), row)
    connection.execute(text("INSERT INTO meta (name, value) VALUES (:name, :value)"), row)


def _create_tables(connection: Connection) -> None:
    schema = _SCHEMAS[connection.dialect.name].read_text(encoding="utf-8")
    for statement in schema.split(";\n\n"):
        connection.exec_driver_sql(statement)
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": HEAD})
