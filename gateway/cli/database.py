"""Database access for the commands that do not run a gateway."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from babelgate.canonical.value import JsonObject
from babelgate.gateway.cli.errors import USAGE, CliError
from babelgate.gateway.settings.load import ConfigError, load
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.storage.database import HEAD, Connection, DatabaseError, open_database
from babelgate.gateway.storage.row_counts import read_revision


def load_settings(config: Path | None, database: str | None) -> Settings:
    """Return the settings of a configuration file (None: no file). `database` replaces its database, unless it is None.
    Raises CliError for an invalid configuration."""
    flags: JsonObject = {} if database is None else {"database": database}
    try:
        return load(config, flags)
    except ConfigError as error:
        raise CliError(*error.problems, code=USAGE) from None


@contextmanager
def connect_to_any(settings: Settings) -> Generator[tuple[Connection, str | None]]:
    """Connect to a database of any release, which a gateway may be using. Yield the connection, and the revision of the
    schema (None: it has none).

    Raises CliError for a database that is missing or cannot be read.
    """
    if settings.database.startswith("sqlite:") and not settings.database_path.is_file():
        raise CliError(f"{settings.database}: there is no such database")
    with ExitStack() as stack:
        try:
            engine = open_database(settings.database).open_readers(1)
            stack.callback(engine.dispose)
            connection = stack.enter_context(engine.connect())
            with connection.begin():
                revision = read_revision(connection)
        except DatabaseError as error:
            raise CliError(f"{settings.database_shown} cannot be read: {reason_of(error)}") from None
        yield connection, revision


@contextmanager
def connect_to_read(settings: Settings) -> Generator[Connection]:
    """Connect to a database that a gateway may be using, and yield the connection. Raises CliError if it is missing,
    cannot be read, or has another schema than this release."""
    with connect_to_any(settings) as (connection, revision):
        if revision != HEAD:
            raise CliError(
                f"{settings.database_shown} belongs to another release (revision {revision}, this release has {HEAD}): "
                "start a gateway of this release on it once to migrate it, or use the release that wrote it"
            )
        yield connection


def reason_of(error: Exception) -> str:
    """Return the message of an exception on one line. For an exception of SQLAlchemy, it is that of the database
    driver."""
    return " ".join(str(getattr(error, "orig", None) or error).split())
