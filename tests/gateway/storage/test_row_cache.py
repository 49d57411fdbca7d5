"""Tests of the cache of rows: it has the rows of the newest commit, separated by owner."""

from typing import Any, Final

import pytest

from babelgate.canonical import FaultError, Run, Task, TaskState, Thread
from babelgate.gateway.storage import listing, queries
from babelgate.gateway.storage.row_cache import RowCache, RowChange
from tests.gateway.hubs import OWNER, Echo, HubFactory, ends, registered, submit

EACH_DATABASE: Final = True

A, B = "a", "b"


def task(task_id: str, state: TaskState = TaskState.WORKING) -> Task:
    return Task(
        task_id=task_id, thread_id="t", agent="x", state=state, created_at=1, changed_at=1, first_seq=1, last_seq=1
    )


def change(pk: int, value: Any, owner: str = A, size: int = 1) -> RowChange:
    return RowChange(pk, owner, value, size)


def test_the_cache_holds_the_newest_row_of_each_owner() -> None:
    cache = RowCache()
    cache.apply([change(1, task("k")), change(1, task("k", TaskState.COMPLETED)), change(2, task("k"), owner=B)])
    assert cache.get(Task, A, "k") == task("k", TaskState.COMPLETED)
    assert cache.get(Task, B, "k") == task("k")
    assert cache.get(Run, A, "k") is None and cache.get(Thread, A, "k") is None


def test_rewritten_rows_are_evicted() -> None:
    cache = RowCache()
    cache.apply([change(1, task("k")), change(2, task("other")), RowChange(1)])
    assert cache.get(Task, A, "k") is None
    assert cache.get(Task, A, "other") == task("other")
    cache.apply([RowChange(3), change(1, task("k"))])
    assert cache.get(Task, A, "k") == task("k")


def test_a_row_that_grew_too_large_is_evicted() -> None:
    cache = RowCache(largest=10)
    cache.apply([change(1, task("k")), change(1, task("k", TaskState.COMPLETED), size=11)])
    assert cache.get(Task, A, "k") is None


def test_the_least_recently_changed_threads_are_evicted_first() -> None:
    cache = RowCache(most=2)
    cache.apply([change(1, task("1")), change(2, task("2")), change(1, task("1")), change(3, task("3"))])
    assert [cache.get(Task, A, name) is not None for name in "123"] == [True, False, True]
    cache.apply(change(pk, task(str(pk)), size=10**6) for pk in range(10, 20))
    assert sum(cache.get(Task, A, str(number)) is not None for number in range(20)) == 0


async def test_a_hub_returns_stored_rows_without_removed_data(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Echo()))
    receipt = await submit(hub, "a")
    await ends(hub, receipt)
    cache: RowCache = vars(hub.journal)["_publisher"].rows
    ids = (receipt.thread_id, receipt.task_id, receipt.run_id)
    reads: Any = (queries.thread, queries.task, queries.run)
    stored = [
        await hub.journal.query(read, owner=OWNER, **{name: row_id})
        for read, name, row_id in zip(reads, ("thread_id", "task_id", "run_id"), ids, strict=True)
    ]
    cached = [cache.get(kind, OWNER, row_id) for kind, row_id in zip((Thread, Task, Run), ids, strict=True)]
    assert cached == stored and None not in cached
    view = await hub.journal.query(listing.thread_view, OWNER, receipt.thread_id)
    assert view is not None and await hub.reads.thread_view(OWNER, receipt.thread_id) == view
    assert hub.journal.cached_view(OWNER, receipt.thread_id) in ([None] if hub.journal.is_shared else [view])
    await hub.remove_run(OWNER, receipt.run_id)
    assert cache.get(Run, OWNER, receipt.run_id) is None
    assert (await hub.reads.run(OWNER, receipt.run_id)).removed
    await hub.delete_thread(OWNER, receipt.thread_id)
    for read, row_id in zip((hub.reads.thread, hub.reads.task, hub.reads.run), ids, strict=True):
        with pytest.raises(FaultError, match="not found"):
            await read(OWNER, row_id)
