"""Tests of file permissions: only the user of the gateway can read what it stores."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from babelgate.gateway.storage.permission import make_folder, make_private
from tests.empty import make_database
from tests.gateway.command import BOUND, served


@pytest.fixture(autouse=True)
def usual_umask() -> Generator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Return the permissions of all files and folders below a folder, by path."""
    return {str(path.relative_to(folder)): f"{path.stat().st_mode & 0o777:o}" for path in folder.rglob("*")}


def upload(url: str) -> None:
    task = httpx.post(f"{url}/agent/echo/ap/v1/agent/tasks", json={"input": "Hello"}, timeout=BOUND).json()["task_id"]
    where = f"{url}/agent/echo/ap/v1/agent/tasks/{task}/artifacts"
    assert httpx.post(where, files={"file": ("a.txt", b"mine")}, timeout=BOUND).status_code == 200


def test_new_files_are_private_to_the_user(tmp_path: Path) -> None:
    with served(tmp_path, "--database", f"sqlite:///{tmp_path}/new/folder/x.db") as running:
        upload(running.url)
        by_path = modes(tmp_path / "new")
        stored = [name for name in by_path if len(Path(name).name) == 64]
        assert len(stored) == 1
        assert {
            "folder/x.db",
            "folder/x.db-wal",
            "folder/x.db-shm",
            "folder/x.db.lock",
            "folder/x.blobs",
        } < by_path.keys()
        for name, mode in modes(tmp_path).items():
            assert mode == ("700" if (tmp_path / name).is_dir() else "600"), name


def test_existing_files_become_private_at_the_start(tmp_path: Path) -> None:
    make_database(tmp_path / "x.db")
    (tmp_path / "x.blobs" / "00").mkdir(parents=True)
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE other (name)")  # creates the -wal and -shm files, too
        assert modes(tmp_path)["x.db"] == modes(tmp_path)["x.db-wal"] == "644"
        with served(tmp_path, "--database", f"sqlite:///{tmp_path}/x.db"):
            by_path = modes(tmp_path)
    assert by_path["x.blobs"] == "700"
    assert {name: mode for name, mode in by_path.items() if name.startswith("x.db")} == dict.fromkeys(
        ("x.db", "x.db-wal", "x.db-shm", "x.db.lock"), "600"
    )


def test_existing_folders_and_stricter_modes_are_unchanged(tmp_path: Path) -> None:
    shared, read_only = tmp_path / "shared", tmp_path / "read_only"
    shared.mkdir(0o755)
    read_only.touch(0o444)
    make_folder(shared)
    make_folder(shared / "a" / "b")
    make_private([read_only, tmp_path / "not there"])
    assert modes(tmp_path) == {"shared": "755", "shared/a": "700", "shared/a/b": "700", "read_only": "400"}
