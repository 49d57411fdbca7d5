"""Tests of snapshots: a long thread is not read again from its start, and its views are the same as if it were."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.acp.write.session import SessionUrls
from babelgate.adapters.aief.write.task import TaskView
from babelgate.canonical import FaultCode, FaultError, Fold, Invocation, Message, Record, Scope, StateHistory
from babelgate.canonical.event import RunCreated, RunRemoved, ThreadChanged
from babelgate.gateway import demo
from babelgate.gateway.runs.invocation import ThreadTranscript
from babelgate.gateway.storage import journal
from babelgate.gateway.storage.fold_cache import SnapshotCache
from tests import strategies
from tests.gateway.hubs import OWNER, Echo, HubFactory, ends, registered, submit
from tests.running import Running, running

THREAD = "thread"
LARGEST = 2**30


def folded(fold: Fold) -> Any:
    return (fold.seq, fold.thread, fold.tasks, fold.runs, fold.interrupts, fold.artifacts, fold.messages())


def visible_data(view: Any) -> Any:
    """Return all data that a view shows."""
    match view:
        case StateHistory():
            return folded(view.fold), view.head, view.all()
        case TaskView():
            return folded(view.fold), view.task_with_steps() if view.fold.thread else None, view.next()
        case ThreadTranscript():
            return folded(view.fold), view.messages_except(frozenset()), view.started, view.branches
        case SessionUrls():
            return view.seq, view.size, view.urls("http://a")
        case _:
            raise AssertionError(f"What does a {type(view)} show?")


VIEWS: Sequence[Callable[[], Any]] = (
    partial(StateHistory, THREAD, OWNER),
    partial(TaskView, THREAD, "echo"),
    partial(ThreadTranscript, THREAD, OWNER),
    partial(SessionUrls, THREAD, str),
)
NAMES: Sequence[str] = ("StateHistory", "TaskView", "Transcript", "SessionUrls")


def over(empty: Callable[[], Any], records: Sequence[Record]) -> Any:
    view = empty()
    for record in records:
        view.apply(record)
    return view


@pytest.mark.parametrize("empty", VIEWS, ids=NAMES)
@given(log=strategies.records(), data=st.data())
def test_a_copy_continues_independently_from_any_record(empty: Callable[[], Any], log: list[Record], data: Any) -> None:
    cut = data.draw(st.integers(0, len(log)))
    view = over(empty, log[:cut])
    if data.draw(st.booleans()):
        visible_data(view)  # reading a view does not change it
    copy = view.copy()
    for record in log[cut:]:
        copy.apply(record)
    assert visible_data(copy) == visible_data(over(empty, log))
    assert visible_data(view) == visible_data(over(empty, log[:cut]))


class Log:
    """Log of one thread, which is read by pages. Each record is a message of about 1000 bytes."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.read: list[tuple[int, int | None]] = []

    def grow(self, count: int) -> None:
        for seq in range(len(self.records) + 1, len(self.records) + count + 1):
            event = RunCreated(run_id=str(seq), cause="input", messages=(Message.of("x" * 300, "user"),))
            self.records.append(Record(seq, 0, "t", str(seq), 0, event))

    async def page(self, after: int, until: int | None) -> Sequence[Record]:
        self.read.append((after, until))
        return [r for r in self.records if r.seq > after and (until is None or r.seq <= until)][:5]


class Nothing:
    """A view that stores no data."""

    seq, size = 0, 0

    def apply(self, record: Record) -> None:
        self.seq = record.seq

    def copy(self) -> "Nothing":
        copy = Nothing()
        copy.seq = self.seq
        return copy


def fold() -> StateHistory:
    return StateHistory(THREAD, OWNER)


async def test_a_second_read_loads_only_newer_records() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(12)
    assert (await snapshots.get(1, "a", fold, log.page, None)).seq == 12
    assert [after for after, _ in log.read] == [0, 5, 10, 12]
    log.grow(1)
    log.read.clear()
    assert (await snapshots.get(1, "a", fold, log.page, None)).seq == 13
    assert [after for after, _ in log.read] == [12, 13]


async def test_a_fold_over_the_limit_is_refused_early() -> None:
    snapshots, log = SnapshotCache(lambda: 5000), Log()
    log.grow(100)
    assert (await snapshots.get(1, "a", fold, log.page, 3)).seq == 3
    log.read.clear()
    with pytest.raises(FaultError) as refused:
        await snapshots.get(1, "a", fold, log.page, None)
    assert refused.value.fault.code is FaultCode.TOO_LARGE
    assert "limits.thread" in refused.value.fault.message
    assert len(log.read) < 5


async def test_an_earlier_snapshot_is_cached_next_to_the_newest() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(12)
    await snapshots.get(1, "a", fold, log.page, None)
    assert (await snapshots.get(1, "a", fold, log.page, 7)).seq == 7
    log.read.clear()
    assert (await snapshots.get(1, "a", fold, log.page, None)).seq == 12
    assert (await snapshots.get(1, "a", fold, log.page, 7)).seq == 7
    assert (await snapshots.get(1, "a", fold, log.page, 9)).seq == 9
    assert (await snapshots.get(1, "a", fold, log.page, 7)).seq == 7
    assert log.read == [(12, None), (7, 9)]


async def test_a_distant_earlier_snapshot_starts_from_the_best_base() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(300)
    for until, begins in ((1, 0), (299, 1), (298, 1), (297, 0), (298, 297)):
        log.read.clear()
        assert (await snapshots.get(1, "a", fold, log.page, until)).seq == until
        assert log.read[0] == (begins, until)


async def test_the_start_of_a_run_is_found_after_later_records() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(7)
    await snapshots.get(1, "a", fold, log.page, None)
    await snapshots.get(1, "a", fold, log.page, 7)
    log.grow(5)
    await snapshots.get(1, "a", fold, log.page, None)
    log.read.clear()
    assert (await snapshots.get(1, "a", fold, log.page, 7)).seq == 7
    assert log.read == []


async def test_each_caller_gets_a_copy() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(2)
    fold_copy = await snapshots.get(1, "a", fold, log.page, None)
    fold_copy.apply(log.records[0])
    fold_copy.fold.tasks["t"] = fold_copy.fold.runs["r"] = None  # pyright: ignore[reportArgumentType]
    other = await snapshots.get(1, "a", fold, log.page, None)
    assert (other.seq, list(other.fold.tasks), list(other.fold.runs)) == (2, [], ["1", "2"])


async def test_a_thread_forgotten_during_a_read_is_not_cached() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST), Log()
    log.grow(2)

    async def page(after: int, until: int | None) -> Sequence[Record]:
        records = await log.page(after, until)
        snapshots.forget(1)
        return records

    await snapshots.get(1, "a", fold, page, None)
    log.read.clear()
    await snapshots.get(1, "a", fold, log.page, None)
    assert log.read[0] == (0, None)


async def test_the_least_recently_used_snapshots_are_evicted() -> None:
    snapshots, log = SnapshotCache(lambda: LARGEST, most=35_000), Log()
    log.grow(10)

    async def is_kept(pk: int) -> bool:
        log.read.clear()
        await snapshots.get(pk, "a", fold, log.page, None)
        return log.read[0] == (10, None)

    for pk in (1, 2):
        await snapshots.get(pk, "a", fold, log.page, None)
    assert await is_kept(1)
    await snapshots.get(3, "a", fold, log.page, None)
    assert await is_kept(1)
    assert not await is_kept(2)


async def test_a_too_large_snapshot_is_not_cached() -> None:
    snapshots, log, large = SnapshotCache(lambda: LARGEST, most=25_000), Log(), Log()
    log.grow(10)
    large.grow(30)
    await snapshots.get(1, "a", fold, log.page, None)
    assert (await snapshots.get(2, "a", fold, large.page, None)).seq == 30
    log.read.clear()
    await snapshots.get(1, "a", fold, log.page, None)
    assert log.read == [(10, None)]


async def test_the_number_of_small_snapshots_is_bounded() -> None:
    snapshots = SnapshotCache(lambda: LARGEST, most=100_000)
    log = Log()
    log.grow(1)
    for pk in range(100):
        await snapshots.get(pk, "a", partial(Nothing), log.page, None)
    log.read.clear()
    await snapshots.get(0, "a", partial(Nothing), log.page, None)
    assert log.read[0] == (0, None)


async def test_a_removed_run_is_in_no_snapshot(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit(hub, "a", "secret")
    await ends(hub, receipt)
    await submit(hub, "a", "after it", thread_id=receipt.thread_id)
    history = partial(
        hub.reads.snapshot, OWNER, receipt.thread_id, StateHistory, partial(StateHistory, receipt.thread_id, OWNER)
    )
    assert "secret" in str([message.text for message in (await history()).fold.messages()])
    await hub.remove_run(OWNER, receipt.run_id)
    assert "secret" not in str(vars((await history()).fold))


async def test_a_thread_that_reuses_an_id_has_a_new_snapshot(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit(hub, "a", "secret")
    await ends(hub, receipt)
    history = partial(
        hub.reads.snapshot, OWNER, receipt.thread_id, StateHistory, partial(StateHistory, receipt.thread_id, OWNER)
    )
    assert (await history()).head is not None
    await hub.delete_thread(OWNER, receipt.thread_id)
    again = await submit(hub, "a", "new", thread_id=receipt.thread_id, if_missing="recreate")
    await ends(hub, again)
    records = await hub.reads.records(OWNER, Scope(receipt.thread_id))
    assert visible_data(await history()) == visible_data(StateHistory(receipt.thread_id, OWNER, records))
    assert "secret" not in str(vars((await history()).fold))


# A growing conversation


async def recall(call: Invocation) -> str:
    """Answer with the number of messages in the history."""
    return f"{len(call.history)} before"


async def wait(gateway: Running, thread: str) -> None:
    body = {"assistant_id": "stream", "input": {"messages": [{"role": "user", "content": "a b c d e f"}]}}
    (await gateway.http.post(f"/threads/{thread}/runs/wait", json=body)).raise_for_status()


async def stream(gateway: Running, thread: str) -> None:
    body = {"assistant_id": "stream", "input": {"messages": [{"role": "user", "content": "a b c d e f"}]}}
    (await gateway.http.post(f"/threads/{thread}/runs/stream", json=body)).raise_for_status()


async def look(gateway: Running, thread: str) -> None:
    await wait(gateway, thread)
    for path in ("", "/state", "/history"):
        (await gateway.http.get(f"/threads/{thread}{path}")).raise_for_status()


async def remember(gateway: Running, thread: str) -> None:
    body = {"assistant_id": "recall", "input": {"messages": [{"role": "user", "content": "a b c d e f"}]}}
    (await gateway.http.post(f"/threads/{thread}/runs/wait", json=body)).raise_for_status()


async def step(gateway: Running, thread: str) -> None:
    steps = f"/agent/stream/ap/v1/agent/tasks/{thread}/steps"
    (await gateway.http.post(steps, json={"input": "a b c d e f"})).raise_for_status()


class Counted:
    """Counter of the records that are read from the database."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        self._page = journal.read_page
        monkeypatch.setattr(journal, "read_page", self)

    def __call__(self, *args: Any) -> list[Record]:
        records = self._page(*args)
        self.records += len(records)
        return records


@pytest.mark.parametrize("path", ["wait", "stream"])
async def test_recent_records_are_folded_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    read = Counted(monkeypatch)
    async with running(tmp_path, {"stream": demo.stream}) as gateway:
        body = {"assistant_id": "stream", "input": {"messages": [{"role": "user", "content": "a b c"}]}}
        thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        for place in (f"/runs/{path}", f"/threads/{thread}/runs/{path}", f"/threads/{thread}/runs/{path}"):
            (await gateway.http.post(place, json=body)).raise_for_status()
    assert read.records == 0


async def test_a_log_rewritten_elsewhere_is_read_again() -> None:
    cache = SnapshotCache(lambda: LARGEST, rewrites=(RunRemoved,))
    log = [
        Record(1, 1, None, None, 0, ThreadChanged(metadata={"said": True})),
        Record(2, 2, None, None, 0, ThreadChanged(metadata={"more": True})),
    ]

    async def page(after: int, _: int | None) -> Sequence[Record]:
        return log[after:]

    async def read() -> Any:
        snapshot = await cache.get(1, "fold", partial(Fold, THREAD), page, None)
        return snapshot.seq, snapshot.thread is not None and snapshot.thread.metadata

    assert await read() == (2, {"said": True, "more": True})
    log[0] = Record(1, 1, None, None, 0, ThreadChanged())
    assert await read() == (2, {"said": True, "more": True})  # no later record reports the change
    log.append(Record(3, 3, "task", None, 0, RunRemoved(run_id="run", why="deleted")))
    assert await read() == (3, {"more": True})


@pytest.mark.parametrize("turn", [wait, stream, look, remember, step], ids=lambda turn: turn.__name__)
async def test_each_turn_reads_equally_little_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: Callable[[Running, str], Any]
) -> None:
    read = Counted(monkeypatch)
    async with running(tmp_path, {"stream": demo.stream, "recall": recall}) as gateway:
        if turn is step:
            response = await gateway.http.post("/agent/stream/ap/v1/agent/tasks", json={})
            thread = response.json()["task_id"]
        else:
            thread = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        counts: list[int] = []
        pk = await gateway.hub.reads.key("default", thread)
        for _ in range(12):
            read.records = 0
            gateway.hub.journal.channels.get(pk).forget()  # as after some time without use
            await turn(gateway, thread)
            counts.append(read.records)
    assert max(counts[2:]) <= max(counts[1:3]) + 2, counts
