"""Tests of checkpoints in the database: find, list, copy and delete them, and never those of another owner."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection

from babelgate.gateway.storage.checkpoints import (
    copy_thread,
    find,
    forget_run,
    page,
    put,
    put_writes,
)
from babelgate.gateway.storage.database import migrate, open_database
from babelgate.gateway.storage.stored_checkpoint import PendingWrite, StoredCheckpoint

EACH_DATABASE: Final = True


@pytest.fixture
def connection(tmp_path: Path, postgres: str | None) -> Iterator[Connection]:
    engine = open_database(postgres or f"sqlite:///{tmp_path / 'a.db'}").open_writer()
    with engine.begin() as connection:
        migrate(connection)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def stored(checkpoint_id: str, ns: str = "", run_id: str | None = "r1") -> StoredCheckpoint:
    return StoredCheckpoint(
        ns=ns, checkpoint_id=checkpoint_id, parent_id=None, run_id=run_id, form="msgpack", body=b"x"
    )


def write(idx: int, body: bytes, task_id: str = "k", path: str = "") -> PendingWrite:
    return PendingWrite(task_id=task_id, idx=idx, task_path=path, channel="c", form="msgpack", body=body)


def ids(checkpoints: list[StoredCheckpoint]) -> list[str]:
    return [each.checkpoint_id for each in checkpoints]


def test_checkpoints_are_found_by_id_or_as_the_newest(connection: Connection) -> None:
    for checkpoint_id in ("2", "1", "3"):
        put(connection, "o", "t", stored(checkpoint_id))
    put(connection, "o", "t", stored("9", ns="inner:1"))
    newest, second = find(connection, "o", "t", ""), find(connection, "o", "t", "", "2")
    assert newest is not None and newest.checkpoint_id == "3"
    assert second is not None and second.checkpoint_id == "2"
    assert find(connection, "o", "t", "", "9") is None
    assert ids(page(connection, "o", "t", None, limit=9)) == ["9", "3", "2", "1"]
    assert ids(page(connection, "o", "t", "", before="3", limit=1)) == ["2"]


def test_checkpoints_belong_to_their_owner(connection: Connection) -> None:
    put(connection, "o", "t", stored("1"))
    assert find(connection, "p", "t", "") is None
    put(connection, "p", "t", stored("2"))
    forget_run(connection, "p", "r1")
    assert ids(page(connection, "o", "t", None, limit=9)) == ["1"]


def test_the_first_write_counts_and_the_newest_special_write(connection: Connection) -> None:
    put(connection, "o", "t", stored("1"))
    for body in (b"first", b"second"):
        put_writes(connection, "o", "t", "", "1", [write(0, body), write(-3, body)], "r1")
    found = find(connection, "o", "t", "", "1")
    assert found is not None
    assert [(each.idx, each.body) for each in found.writes] == [(-3, b"second"), (0, b"first")]


def test_writes_are_listed_in_the_order_of_application(connection: Connection) -> None:
    put(connection, "o", "t", stored("1"))
    writes = [write(0, b"b", "y", "~2"), write(1, b"a2", "z", "~1"), write(0, b"a1", "z", "~1")]
    put_writes(connection, "o", "t", "", "1", writes, "r1")
    found = find(connection, "o", "t", "", "1")
    assert found is not None
    assert [each.body for each in found.writes] == [b"a1", b"a2", b"b"]


def test_a_checkpoint_stored_again_replaces_itself(connection: Connection) -> None:
    put(connection, "o", "t", stored("1"))
    put(connection, "o", "t", stored("1", run_id="r2"))
    assert [each.run_id for each in page(connection, "o", "t", "", limit=9)] == ["r2"]


def test_checkpoints_of_a_run_are_deleted_with_it(connection: Connection) -> None:
    put(connection, "o", "t", stored("1", run_id="r1"))
    put(connection, "o", "t", stored("2", run_id="r2"))
    put_writes(connection, "o", "t", "", "1", [write(0, b"of r2")], "r2")
    forget_run(connection, "o", "r2")
    (left,) = page(connection, "o", "t", None, limit=9)
    assert (left.checkpoint_id, left.writes) == ("1", [])


def test_a_copy_has_the_same_ids_on_another_thread(connection: Connection) -> None:
    put(connection, "o", "t", stored("1"))
    put(connection, "o", "t", stored("2", ns="inner:1"))
    put_writes(connection, "o", "t", "", "1", [write(0, b"w")], "r1")
    assert copy_thread(connection, "o", "t", "u") == {"1", "2"}
    put(connection, "o", "u", stored("3"))
    copied = find(connection, "o", "u", "", "1")
    assert copied is not None and [each.body for each in copied.writes] == [b"w"]
    assert ids(page(connection, "o", "t", None, limit=9)) == ["2", "1"]
    assert copy_thread(connection, "o", "nothing", "v") == frozenset()
