"""The database that a journal is kept in: which one it is, its schema and migrations."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.settings.model import hide_password
from babelgate.gateway.storage.sqlite import Sqlite

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 16))
"""Those in `gateway/storage/migrations/versions`, oldest first. What a release writes that the one before cannot
read is a revision of its own, also where no table changes: then the one before says so, and reads nothing wrong."""
HEAD: Final = REVISIONS[-1]
_FOLDED_OTHERWISE: Final = frozenset({"0001", "0002"})
"""In databases of these, the rows that are folds of the log are not what this release would make of it."""


_READABLE_FROM: Final = "readable from"
"""In `meta`, the first revision whose gateways may use the schema as it is beside newer ones."""

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
VERSIONS: Final = (_MIGRATIONS / "versions",)
_SCHEMAS: Final = {"sqlite": _MIGRATIONS / "schema.sql", "postgresql": _MIGRATIONS / "postgresql.sql"}
"""What the migrations make of an empty database."""


DatabaseError = SQLAlchemyError
"""Base class of the errors of the driver and of statements."""


class Database(Protocol):
    """What differs between SQLite and PostgreSQL for the journal. Errors of either are OperationalError of SQLAlchemy
    where the database is at fault, and not what was asked of it."""

    @property
    def folders(self) -> Sequence[Path]:
        """Where it is kept; none if that is no affair of this machine."""
        ...

    def acquire(self) -> None:
        """Before anything else is done with it. Raises conflict, where another gateway has it."""
        ...

    def release(self) -> None: ...

    def open_writer(self) -> Engine: ...

    def open_readers(self, readers: int) -> Engine:
        """Raises conflict and OperationalError, where what they read is not what is written here."""
        ...

    def connect(self, writer: Engine) -> Connection:
        """The one connection that writes. Raises conflict, where another gateway has the database."""
        ...

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Before the schema is changed. Raises conflict, where others use it who could not go on (`expands` = they
        can)."""
        ...

    def claim(self, connection: Connection) -> None:
        """In the first transaction on each connection that writes. Raises conflict, where another gateway has written
        since this one had the database: what this one has in memory is not true any more."""
        ...

    def writing(self, connection: Connection) -> AbstractContextManager[None]:
        """A transaction of the writer, which is rolled back at an exception."""
        ...

    def together(self, connection: Connection) -> AbstractContextManager[Any]:
        """Statements of the writer's that do not wait for one another: of errors, one is told at the end."""
        ...

    def reading(self, connection: Connection) -> AbstractContextManager[None]:
        """A transaction in which all reads see the same."""
        ...

    def listen(self) -> AsyncGenerator[str | None]:
        """Yield the notices of gateways, by a connection of its own, and None at the beginning and every ten seconds.
        Raises OperationalError, when it is lost, or does not answer."""
        ...

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Send notices to all who listen, in transactions of their own. Raises OperationalError."""
        ...

    def is_lost(self, connection: Connection) -> bool:
        """Whether the connection is of no use any more."""
        ...

    @property
    def is_unclear(self) -> bool:
        """Whether the writer's connection was lost in the middle of a commit."""
        ...

    def settle(self, connection: Connection) -> bool:
        """Decide, on a new connection, whether the last commit was stored.

        After that its outcome cannot change: a commit that reaches the server later fails. Raises OperationalError.
        """
        ...

    def leave(self, connection: Connection) -> None:
        """Remove the rows that only this gateway needs, when its journal closes."""
        ...

    def abort(self, engine: Engine) -> None:
        """Interrupt the statements that other threads are executing on connections of `engine`. They fail there."""
        ...

    def is_unstorable(self, error: Exception) -> bool:
        """Return whether the database or its disk failed, and not the command.

        The same command may succeed later. Takes errors of the driver and of SQLAlchemy.
        """
        ...

    def is_unreadable(self, error: Exception) -> bool:
        """Return the same as `is_unstorable`, for an error of a read."""
        ...

    def fault_of(self, error: Exception) -> FaultError | None:
        """What the caller is told where the database takes something of one command, or of one read, for impossible."""
        ...

    def is_race(self, error: Exception) -> bool:
        """Whether another gateway was there first: where several use the database, and else never."""
        ...

    def make_way(self, connection: Connection, error: Exception) -> None:
        """After a race, outside of transactions: see that the same does not happen again and again."""
        ...

    def make_room(self, connection: Connection) -> None:
        """See in the writer's transaction, now and then, that there is a place for what will be written."""
        ...

    def give_back(self, connection: Connection) -> bool:
        """Return some space that is free to the file system, in the writer's transaction. Whether there may be more."""
        ...


def open_database(url: str, *, power: bool = False, shared: bool = False, pooler: str | None = None) -> Database:
    """Nothing is connected yet. `shared` = other gateways use it at the same time. `pooler` = the URL of a pooler of
    PostgreSQL, by which it is read. Raises invalid."""
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
    """Bring the schema to `HEAD`; whether the rows have to be folded anew. Alembic is imported only for a database of
    an earlier release: it costs a quarter of a second and 10 MB.

    Migrations expand or contract. One whose module says `expands = True` adds what gateways of the release before look
    past, so that these go on meanwhile, and may start again: a cluster is brought to a release node by node. Any other
    needs them to be stopped. `shared` = gateways of other releases may use the database at the same time.

    Raises:
        FaultError: conflict, if a newer release has written the database in a way that this one does not know.
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
            shown = hide_password(connection.engine.url.render_as_string(hide_password=False))
            raise FaultError(
                FaultCode.CONFLICT,
                f"{shown} is of a newer release of Babelgate than this one: it has "
                f"the revision {current}, and this release knows those up to {HEAD}. Install the newer release, or "
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
    return current in _FOLDED_OTHERWISE


def _expands(config: Any, current: str) -> bool:
    """Whether all that is missing only adds to the schema."""
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
