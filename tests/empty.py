"""An empty database, migrated once: copying it is much quicker than migrating a new one for every test."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from babelgate.gateway.storage.database import migrate
from babelgate.gateway.storage.sqlite import open_engine


def make_database(path: Path) -> None:
    """An empty one, unless there is one already."""
    if not path.exists():
        path.write_bytes(_empty())


@cache
def _empty() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        engine = open_engine(f"sqlite:///{path}", writes=True, power=False)
        with engine.begin() as connection:
            migrate(connection)
        engine.dispose()  # the last connection takes the write-ahead log into the file
        return path.read_bytes()
