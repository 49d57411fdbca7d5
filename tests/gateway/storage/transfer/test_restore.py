"""Tests of the import: the whole section of a thread is checked before anything of it is written."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from babelgate.canonical.event import RunCreated, RunEnded, RunStarted, TaskChanged, TaskCreated, ThreadChanged
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.state import TaskState
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage.blobs import FolderBlobs
from babelgate.gateway.storage.transfer.form import Reader, RecordLine, ThreadLine, TransferError
from babelgate.gateway.storage.transfer.restore import Restored, check_section, restore_thread
from tests.gateway.hubs import Echo, HubFactory, registered, submit_to_end, within
from tests.gateway.storage.transfer.lines import Line, read_lines, record, short_log, write_lines, write_threads

EXPORT = Path(__file__).parents[2] / "cli" / "export-1.jsonl"


def check(path: Path, blobs: FolderBlobs) -> None:
    """Check all sections of an export."""
    with path.open("rb") as file:
        reader = Reader(file)
        while (section := reader.begin()) is not None:
            check_section(reader, section[0], blobs)


def first(lines: list[Line], kind: str, event: str | None = None) -> Line:
    """Return the first line of a kind, or the first record with an event of a kind."""
    return next(each for each in lines if each["kind"] == kind and event in (None, each.get("event", {}).get("kind")))


def without(lines: list[Line], kind: str) -> None:
    lines.remove(first(lines, kind))


def swap(lines: list[Line], one: str, other: str) -> None:
    a, b = lines.index(first(lines, one)), lines.index(first(lines, other))
    lines[a], lines[b] = lines[b], lines[a]


def assign(kind: str, name: str, value: object, event: str | None = None) -> Callable[[list[Line]], None]:
    def change(lines: list[Line]) -> None:
        first(lines, kind, event)[name] = value

    return change


def event_of(kind: str, name: str, value: object) -> Callable[[list[Line]], None]:
    def change(lines: list[Line]) -> None:
        first(lines, "record", kind)["event"][name] = value

    return change


HOSTILE: dict[str, tuple[Callable[[list[Line]], object], str]] = {
    "owner": (assign("thread", "owner", "a\nb"), "owner: must be 1 to 128 printable characters"),
    "long owner": (assign("thread", "owner", "x" * 129), "owner: must be 1 to 128 printable characters"),
    "path": (assign("thread", "thread_id", "../../etc/passwd"), "thread_id: must be a UUID"),
    "other letters": (
        assign("thread", "thread_id", "01A20A99-3951-765E-BBB0-BF0B967B0DED"),
        "thread_id: must be a UUID",
    ),
    "unknown member": (assign("thread", "more", 1), "unknown field"),
    "unknown line": (assign("alias", "kind", "nickname"), "Invalid value 'nickname'"),
    "task": (event_of("task_created", "task_id", "../x"), "task_id: must be a UUID"),
    "run": (event_of("run_created", "run_id", "x"), "run_id: must be a UUID"),
    "other task": (assign("record", "task_id", new_id(), "run_started"), "a task that the log has not created"),
    "other run": (assign("record", "run_id", new_id(), "run_started"), "a run that the log has not created"),
    "seq": (assign("record", "seq", 7, "run_started"), "the next event must have number"),
    "time": (assign("record", "at", 1, "run_started"), "earlier than the one before it"),
    "number": (assign("record", "at", 2**63, "run_started"), "too large"),
    "no number": (assign("record", "at", 1.5, "run_started"), "Expected `int"),
    "event": (assign("record", "event", {"kind": "unheard_of"}, "run_started"), "unheard_of"),
    "event that is none": (assign("record", "event", [], "run_started"), "line 6: "),
    "member of an event": (event_of("task_changed", "state", "asleep"), "asleep"),
    "beginning": (event_of("thread_changed", "kind", "run_started"), "the log must begin with a thread_changed event"),
    "no log": (
        lambda lines: lines.__setitem__(slice(2, lines.index(first(lines, "alias"))), []),
        "must come after the log",
    ),
    "nothing": (lambda lines: lines.__setitem__(slice(2, lines.index(first(lines, "section_end"))), []), "has no log"),
    "name of a file": (lambda lines: first(lines, "file")["part"].update(blob="../../x"), "does not match its hash"),
    "no name of a file": (lambda lines: first(lines, "file")["part"].pop("blob"), "the file header has no hash"),
    "hash": (assign("bytes", "data", "SGo="), "does not match its hash"),
    "base64": (assign("bytes", "data", "%%%"), "line 16: "),
    "size": (lambda lines: first(lines, "file")["part"].update(size=7), "and its header says 7"),
    "missing bytes": (lambda lines: without(lines, "bytes"), "does not match its hash"),
    "missing file": (lambda lines: (without(lines, "file"), without(lines, "bytes")), "not the ones that its log"),
    "bytes of nothing": (lambda lines: without(lines, "file"), "file data before any file header"),
    "webhook": (assign("webhook", "task_id", new_id()), "the webhook refers to a task"),
    "webhook's config": (assign("webhook", "config", 1), "webhook config must be an object"),
    "text": (assign("alias", "alias", "a\0b"), "must not contain NUL"),
    "item in a thread": (lambda lines: swap(lines, "alias", "item"), "does not belong in a thread"),
    "item": (assign("item", "value", 1), "must be an object"),
    "namespace": (assign("item", "namespace", "a"), "a store item needs a namespace"),
    "assistant": (lambda lines: first(lines, "assistant")["in_use"].update(version=3), "the version in use is missing"),
    "versions": (assign("assistant", "versions", []), "the assistant has no versions"),
    "cron": (lambda lines: first(lines, "cron")["cron"].update(cron_id="x"), "cron_id: must be a UUID"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_import_checks_the_values_of_the_file(case: str, tmp_path: Path) -> None:
    change, message = HOSTILE[case]
    lines = copy.deepcopy(read_lines(EXPORT))
    write_lines(tmp_path / "as-it-is.jsonl", lines)
    check(tmp_path / "as-it-is.jsonl", FolderBlobs(tmp_path / "blobs", 1000))
    change(lines)
    write_lines(tmp_path / "changed.jsonl", lines)
    with pytest.raises(TransferError, match=r"^line \d+: ") as refused:
        check(tmp_path / "changed.jsonl", FolderBlobs(tmp_path / "blobs", 1000))
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_over_the_configured_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="the limit of 2 bytes"):
        check(EXPORT, FolderBlobs(tmp_path / "blobs", 2))


async def restore(hub: GatewayHub, path: Path) -> Restored:
    """Import the first thread of an export."""
    with path.open("rb") as file:
        reader = Reader(file)
        section = reader.begin()
        assert section is not None
        place, begin = section
        assert isinstance(begin, ThreadLine)
        check_section(reader, place, FolderBlobs(path.parent / "blobs", 1000))
        written = hub.journal.write(restore_thread, reader, place, begin.owner, begin.thread_id)
        return await within(written, "the import")


async def is_refused(hub: GatewayHub, path: Path, code: FaultCode, message: str) -> None:
    before = await hub.journal.query(lambda connection: connection.exec_driver_sql("SELECT * FROM event").all())
    with pytest.raises(FaultError) as refused:
        await restore(hub, path)
    assert refused.value.fault.code is code and message in refused.value.fault.message
    after = await hub.journal.query(lambda connection: connection.exec_driver_sql("SELECT * FROM event").all())
    assert after == before


TASK, RUN = new_id(), new_id()
CREATED = TaskCreated(task_id=TASK, agent="echo")


@pytest.mark.parametrize(
    "log",
    [
        [record(3, RunStarted(), TASK), record(4, TaskChanged(state=TaskState.INPUT_REQUIRED), TASK)],
        [
            record(3, RunCreated(run_id=RUN), TASK, RUN),
            record(4, RunEnded(), TASK, RUN),
            record(5, RunEnded(), TASK, RUN),
        ],
        [record(3, RunCreated(run_id=RUN))],
    ],
    ids=["task", "run", "run of no task"],
)
async def test_an_illegal_log_is_refused_as_a_whole(hubs: HubFactory, tmp_path: Path, log: list[RecordLine]) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    begun = [record(1, ThreadChanged()), record(2, CREATED, TASK)]
    write_threads(tmp_path / "x.jsonl", [(new_id(), [*begun, *log])])
    await is_refused(hub, tmp_path / "x.jsonl", FaultCode.INVALID, "Nothing of it was imported.")


async def test_an_id_of_another_thread_is_a_conflict(hubs: HubFactory, tmp_path: Path) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    write_threads(tmp_path / "x.jsonl", [(new_id(), short_log(receipt.task_id))])
    await is_refused(hub, tmp_path / "x.jsonl", FaultCode.CONFLICT, "taken already")


async def test_an_import_restores_erased_threads_but_extends_none(hubs: HubFactory, tmp_path: Path) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    thread_id = new_id()
    log = [record(1, ThreadChanged()), record(2, CREATED, TASK)]
    write_threads(tmp_path / "long.jsonl", [(thread_id, log)])
    write_threads(tmp_path / "short.jsonl", [(thread_id, log[:1])])
    assert await restore(hub, tmp_path / "short.jsonl") == Restored("added")
    await is_refused(hub, tmp_path / "long.jsonl", FaultCode.CONFLICT, "its log ends before event 2")
    await hub.delete_thread("alice", thread_id)
    assert await restore(hub, tmp_path / "long.jsonl") == Restored("added")
    assert await restore(hub, tmp_path / "short.jsonl") == Restored("same")
    assert (await hub.reads.task("alice", TASK)).state is TaskState.SUBMITTED


async def test_events_of_earlier_releases_are_converted(hubs: HubFactory, tmp_path: Path) -> None:
    """Import a `run_created` with a member `webhook`, which it once had, and an unknown member, which is kept."""
    hub = await hubs.start(registered("echo", Echo()))
    created: dict[str, Any] = {"kind": "run_created", "run_id": RUN, "webhook": None, "novel": 1}
    thread_id = new_id()
    lines = [record(1, ThreadChanged()), record(2, CREATED, TASK), record(3, RunCreated(run_id=RUN), TASK, RUN)]
    write_threads(tmp_path / "x.jsonl", [(thread_id, lines)])
    changed = read_lines(tmp_path / "x.jsonl")
    first(changed, "record", "run_created")["event"] = created
    write_lines(tmp_path / "x.jsonl", changed)
    assert await restore(hub, tmp_path / "x.jsonl") == Restored("added", 1)
    assert await restore(hub, tmp_path / "x.jsonl") == Restored("same")
    run = await hub.reads.run("alice", RUN)
    event = await hub.reads.run_input("alice", run)
    assert json.loads(json.dumps(cast("Any", event.extra))) == {"babelgate": {"novel": 1}}
