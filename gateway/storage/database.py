"""The database that a journal is kept in: which one it is, its schema and migrations."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, inspect, text

from canonical.fault import FaultCode, FaultError
from gateway.settings.model import hide_password
from gateway.storage.sqlite import Sqlite

REVISIONS: Final = tuple(f"{number:04}" for number in range(1, 14))
"""Those in `gateway/storage/migrations/versions`, oldest first. What a release writes that the one before cannot
read is a revision of its own, also where no table changes: then the one before says so, and reads nothing wrong."""
HEAD: Final = REVISIONS[-1]
_FOLDED_OTHERWISE: Final = frozenset({"0001", "0002"})
"""In databases of these, the rows that are folds of the log are not what this release would make of it."""


_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_SCHEMAS: Final = {"sqlite": _MIGRATIONS / "schema.sql", "postgresql": _MIGRATIONS / "postgresql.sql"}
"""What the migrations make of an empty database."""


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

    def prepare_migration(self, connection: Connection) -> None:
        """Before the schema is changed. Raises conflict, where others use it."""
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
        """What gateways tell one another, by a connection of its own; None at the beginning, and every half minute.
        Raises OperationalError, when it is lost."""
        ...

    def is_lost(self, connection: Connection) -> bool:
        """Whether the connection is of no use any more."""
        ...

    @property
    def unclear(self) -> bool:
        """Whether the writer's connection was lost in the middle of a commit."""
        ...

    def was_committed(self, connection: Connection) -> bool:
        """What became of that commit, by a new connection."""
        ...

    def refusal(self, error: Exception) -> FaultError | None:
        """What the caller is told where the database takes something of one command, or of one read, for impossible."""
        ...

    def is_race(self, error: Exception) -> bool:
        """Whether another gateway was there first: where several use the database, and else never."""
        ...

    def make_way(self, connection: Connection, error: Exception) -> None:
        """After a race, outside of transactions: see that the same does not happen again and again."""
        ...

    def give_back(self, connection: Connection) -> bool:
        """Return some space that is free to the file system, in the writer's transaction. Whether there may be more."""
        ...


def open_database(url: str, *, power: bool = False, shared: bool = False, pooler: str | None = None) -> Database:
    """Nothing is connected yet. `shared` = other gateways use it at the same time. `pooler` = the URL of a pooler of
    PostgreSQL, by which it is read. Raises invalid."""
    if url.startswith("sqlite:"):
        if shared:
            raise FaultError(FaultCode.INVALID, "database: several gateways can share one of PostgreSQL, and no other")
        return Sqlite(url, power=power)
    try:
        from gateway.storage.postgres import Postgres
    except ImportError as error:
        raise FaultError(FaultCode.INVALID, f"PostgreSQL needs what babelgate[postgres] installs: {error}") from None
    return Postgres(url, shared=shared, pooler=pooler)


def migrate(connection: Connection, prepare: Callable[[Connection], None] | None = None) -> bool:
    """Bring the schema to `HEAD`; whether the rows have to be folded anew. Alembic is imported only for a database of
    an earlier release, after `prepare`: it costs a quarter of a second and 10 MB.

    Raises:
        FaultError: conflict, if a newer release has written the database.
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
            shown = hide_password(connection.engine.url.render_as_string(hide_password=False))
            raise FaultError(
                FaultCode.CONFLICT,
                f"{shown} is of a newer release of Babelgate than this one: it has "
                f"the revision {current}, and this release knows those up to {HEAD}. Install the newer release, or "
                "choose another --database.",
            )
    if prepare is not None:
        prepare(connection)
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gateway.storage:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return current in _FOLDED_OTHERWISE


def _create_tables(connection: Connection) -> None:
    schema = _SCHEMAS[connection.dialect.name].read_text(encoding="utf-8")
    for statement in schema.split(";\n\n"):
        connection.exec_driver_sql(statement)
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": HEAD})
