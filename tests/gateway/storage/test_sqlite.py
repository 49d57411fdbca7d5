"""Tests of SQLite: its file, how it is opened, and the lock that admits one gateway at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from babelgate.canonical import FaultCode, FaultError
from babelgate.gateway.storage.sqlite import LockFile, open_engine, sqlite_path


def test_a_journal_needs_a_file_database() -> None:
    assert sqlite_path("sqlite:///a/b.db") == Path("a/b.db")
    assert sqlite_path("sqlite:////a/b.db") == Path("/a/b.db")
    for url in ("sqlite://", "sqlite:///:memory:"):
        with pytest.raises(FaultError, match="needs a file"):
            sqlite_path(url)


@pytest.mark.parametrize(("power", "level"), [(False, 1), (True, 2)])
def test_the_writer_and_readers_have_the_expected_settings(tmp_path: Path, power: bool, level: int) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    writer, reader = (open_engine(url, writes=writes, power=power) for writes in (True, False))
    for engine, query_only in ((writer, 0), (reader, 1)):
        with engine.begin() as connection:
            pragmas = ("journal_mode", "synchronous", "foreign_keys", "query_only")
            values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in pragmas]
            assert values == ["wal", level, 1, query_only]
        engine.dispose()


def test_a_second_gateway_on_the_database_is_refused(tmp_path: Path) -> None:
    first, second = LockFile(tmp_path / "a.db"), LockFile(tmp_path / "a.db")
    first.acquire()
    with pytest.raises(FaultError) as error:
        second.acquire()
    assert error.value.fault.code is FaultCode.CONFLICT
    assert "\n" not in error.value.fault.message and "another gateway" in error.value.fault.message
    LockFile(tmp_path / "b.db").acquire()
    first.release()
    second.acquire()
    second.release()


def test_the_lock_excludes_another_process(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "a.db")
    lock.acquire()
    script = (
        "import pathlib, sys, babelgate.gateway.storage.sqlite as d; d.LockFile(pathlib.Path(sys.argv[1])).acquire()"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", script, str(tmp_path / "a.db")]
    refused = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=30)
    assert refused.returncode != 0 and "another gateway uses this database" in refused.stderr
    lock.release()
    subprocess.run(command, cwd=root, check=True, timeout=30)
