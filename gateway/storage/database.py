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

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 26))
"""Schema revisions in `gateway/storage/migrations/versions`, oldest first.

A row format that the previous release cannot read is a new revision too, even if no table changes. So an older release
refuses to open the database instead of misreading it."""
HEAD: Final = REVISIONS[-1]
_FOLDED_DIFFERENTLY: Final = frozenset({"0001", "0002"})
"""Revisions in which rows of tasks, runs and questions were computed by other rules. After their migration, this
release computes all rows from the logs again."""


_READABLE_FROM: Final = "readable from"
"""Key in the table `meta` of the oldest revision whose gateways can still work with the schema.

During an upgrade of a cluster, these run next to gateways of newer revisions."""

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
VERSIONS: Final = (_MIGRATIONS / "versions",)
_SCHEMAS: Final = {"sqlite": _MIGRATIONS / "schema.sql", "postgresql": _MIGRATIONS / "postgresql.sql"}
"""SQL files that create the tables of an empty database, by dialect. All migrations together produce the same
tables."""


DatabaseError = SQLAlchemyError
"""Base class of all errors of SQLAlchemy and of the database drivers."""


class Database(Protocol):
    """Operations of the journal that differ between SQLite and PostgreSQL.

    The methods of both implementations raise SQLAlchemy's OperationalError if the database or the connection fails."""

    @property
    def folders(self) -> Sequence[Path]:
        """Folders of this machine that hold the database. Empty if it is on a server."""
        ...

    def acquire(self) -> None:
        """Take the lock on the database, before any other method is called. Raises conflict if another gateway uses
        it."""
        ...

    def release(self) -> None:
        """Release the lock that `acquire` took."""
        ...

    def open_writer(self) -> Engine:
        """Return a new SQLAlchemy engine for the single connection that writes."""
        ...

    def open_readers(self, readers: int) -> Engine:
        """Return a new SQLAlchemy engine for `readers` connections that read.

        Raises conflict if a connection pooler leads to another database than the writer's, and OperationalError."""
        ...

    def connect(self, writer: Engine) -> Connection:
        """Open the only connection that writes, on the engine of `open_writer`.

        Raises conflict if another gateway uses the database."""
        ...

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Check that the schema may be changed now. `expands` says that running gateways can continue with the new
        schema.

        Raises conflict if they cannot, and other gateways are running."""
        ...

    def claim(self, connection: Connection) -> None:
        """Record this gateway as the writer of the database, in the first transaction on each connection that writes.

        Raises conflict if another gateway has written since this one last did: the state in memory is then out of
        date."""
        ...

    def writing(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a context manager for one transaction of the writer. An exception rolls it back."""
        ...

    def together(self, connection: Connection) -> AbstractContextManager[Any]:
        """Return a context manager that pipelines the writer's statements: it sends them without waiting for each
        result.

        Leaving the context raises the first error, if any."""
        ...

    def reading(self, connection: Connection) -> AbstractContextManager[None]:
        """Return a context manager for a transaction in which all reads see one snapshot of the database."""
        ...

    def listen(self) -> AsyncGenerator[str | None]:
        """Connect separately, and yield the notices of other gateways. Yield None after connecting and every ten
        seconds.

        Raises OperationalError if the connection is lost or the server does not answer."""
        ...

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Send notices to the listeners of all gateways, each in a separate transaction. Raises OperationalError if the
        database cannot be reached."""
        ...

    def is_lost(self, connection: Connection) -> bool:
        """Return True if the connection cannot be used any more."""
        ...

    @property
    def is_unclear(self) -> bool:
        """True if the writer's connection was lost during a commit, so that its outcome is unknown."""
        ...

    def settle(self, connection: Connection) -> bool:
        """Return True if the commit with the unknown outcome was stored. Called on a new connection while `is_unclear`.

        The answer is final: a commit that reaches the server later fails. Raises OperationalError if the database
        cannot be reached."""
        ...

    def leave(self, connection: Connection) -> None:
        """Delete the rows that this gateway has stored only for itself, such as the number of its last commit.

        Called when the journal closes."""
        ...

    def abort(self, engine: Engine) -> None:
        """Interrupt the statements that other threads are executing on connections of `engine`. They raise an error
        there."""
        ...

    def is_unstorable(self, error: Exception) -> bool:
        """Return True if an error of the driver or of SQLAlchemy means that the database or its disk failed.

        The same command may then succeed later. False means that the command itself is at fault."""
        ...

    def is_unreadable(self, error: Exception) -> bool:
        """Return True if an error of a read means that the database or its disk failed. False: the read itself is at
        fault."""
        ...

    def fault_of(self, error: Exception) -> FaultError | None:
        """Return the fault to raise for a value that the database cannot store, such as an id that is too long.

        Return None for any other error.
        """
        ...

    def is_race(self, error: Exception) -> bool:
        """Return True if a command failed because another gateway changed the same rows first. Always False on an
        unshared database."""
        ...

    def make_way(self, connection: Connection, error: Exception) -> None:
        """End stalled sessions of other gateways after this gateway has waited in vain for a lock.

        Called after a lost race, outside of transactions, before the retry. Does nothing for other kinds of races."""
        ...

    def make_room(self, connection: Connection) -> None:
        """Create the partitions of the log table that the next records need.

        Called periodically, in a transaction of the writer."""
        ...

    def give_back(self, connection: Connection) -> bool:
        """Return a portion of the file's free space to the file system, in a transaction of the writer (SQLite).

        Return True if there may be more."""
        ...


def open_database(url: str, *, power: bool = False, shared: bool = False, pooler: str | None = None) -> Database:
    """Return the database at a URL, without connecting.

    With `power`, commits survive a power failure (SQLite). With `shared`, other gateways use the database at the same
    time. `pooler` is the URL of a PostgreSQL connection pooler for the connections that read. Raises invalid for a
    wrong combination, or if the extra for PostgreSQL is not installed.
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
    """Upgrade the schema to `HEAD`, or create it. Return True if all rows must then be computed from the logs again.

    `prepare`, if given, is called before a migration changes the schema. With `shared`, gateways of other releases may
    use the database at the same time. Alembic is imported only for a database of an earlier release: the import takes a
    quarter of a second and 10 MB.

    A migration with `expands = True` in its module adds only tables and columns that gateways of the previous release
    ignore. Those keep running and may restart, so a cluster is upgraded node by node. Before any other migration, all
    gateways must stop.

    Raises conflict if a newer release has changed the schema in a way that this one does not know.
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
    """Return True if all migrations after the revision `current` are compatible with running gateways of that
    revision."""
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
