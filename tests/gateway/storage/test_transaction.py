"""Tests of the writer's view of threads: it reads back what was written, and nothing that was rolled back."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from babelgate.canonical import FaultError, Message, RunStatus, TaskState
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
)
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import ThreadState, Transaction, latest_pk
from babelgate.gateway.storage.waiting import Waiting
from tests.gateway.hubs import within
from tests.gateway.invariant import check_database

EACH_DATABASE: Final = True
T = TypeVar("T")


@pytest.fixture
async def journal(tmp_path: Path, postgres: str | None) -> AsyncGenerator[Journal]:
    opened = Journal(postgres or f"sqlite:///{tmp_path / 'journal.db'}")
    await opened.open()
    yield opened
    await within(opened.query(check_database))
    await within(opened.close())


async def do(journal: Journal, command: Callable[[Transaction], T]) -> T:
    return await within(journal.write(command))


def thread(tx: Transaction) -> ThreadState:
    return tx.thread("o", "t") or tx.create_thread("o", "t", ThreadChanged(metadata={"a": 1}))


def task(tx: Transaction, task_id: str = "k") -> ThreadState:
    state = thread(tx)
    tx.append(state, TaskCreated(task_id=task_id, agent="a"), task_id=task_id)
    return state


def run(tx: Transaction, run_id: str, task_id: str = "k") -> ThreadState:
    state = thread(tx)
    tx.append(state, RunCreated(run_id=run_id), task_id=task_id, run_id=run_id)
    return state


def start(tx: Transaction, run_id: str) -> None:
    state = thread(tx)
    tx.append(state, RunStarted(), task_id="k", run_id=run_id, attempt=1)
    if state.tasks["k"].state is not TaskState.WORKING:
        tx.append(state, TaskChanged(state=TaskState.WORKING), task_id="k")


def end(tx: Transaction, run_id: str, status: RunStatus = RunStatus.SUCCESS) -> None:
    tx.append(thread(tx), RunEnded(status=status), task_id="k", run_id=run_id, attempt=1)


def working(tx: Transaction) -> None:
    task(tx)
    run(tx, "r")
    start(tx, "r")


def reload(tx: Transaction) -> tuple[Any, ...]:
    """Load the thread from its rows again, and assert that it is equal to the one in memory."""
    cached = tx.need_thread("o", "t")
    tx.forget()
    state = tx.need_thread("o", "t")
    assert state is not cached
    for name in ("pk", "thread", "seq", "at", "tasks", "runs", "interrupts"):
        assert getattr(state, name) == getattr(cached, name), name
    return state.seq, list(state.tasks), list(state.runs), list(state.interrupts)


async def test_a_thread_read_back_equals_the_one_in_memory(journal: Journal) -> None:
    def ask(tx: Transaction) -> None:
        state = thread(tx)
        for name in ("q", "p"):
            raised = InterruptRaised(interrupt_id=name, message=Message(message_id=name))
            tx.append(state, raised, task_id="k", run_id="r", attempt=1)

    def pause(tx: Transaction) -> None:
        end(tx, "r", RunStatus.PAUSED)
        tx.append(thread(tx), TaskChanged(state=TaskState.INPUT_REQUIRED), task_id="k")

    def answer(tx: Transaction) -> None:
        state = run(tx, "s")
        for name in ("q", "p"):
            tx.append(state, InterruptAnswered(interrupt_id=name, value=name), task_id="k", run_id="s")
        tx.append(state, TaskChanged(state=TaskState.WORKING), task_id="k")

    await do(journal, working)
    assert await do(journal, reload) == (5, ["k"], ["r"], [])
    await do(journal, ask)
    assert await do(journal, reload) == (7, ["k"], ["r"], [("k", "q"), ("k", "p")])
    await do(journal, pause)
    assert await do(journal, reload) == (9, ["k"], [], [("k", "q"), ("k", "p")])
    await do(journal, answer)
    assert await do(journal, reload) == (13, ["k"], ["s"], [])


async def test_ended_runs_leave_memory_and_are_read_from_rows(journal: Journal) -> None:
    def finish(tx: Transaction) -> tuple[Any, ...]:
        end(tx, "r")
        state = thread(tx)
        tx.append(state, TaskChanged(state=TaskState.COMPLETED), task_id="k")
        return find(tx)

    def find(tx: Transaction) -> tuple[Any, ...]:
        state = thread(tx)
        run_found, task_found = tx.find_run("o", "r"), tx.find_task("o", "k")
        assert run_found is not None and task_found is not None and run_found[1] == "t"
        return len(state.tasks), len(state.runs), run_found[0].status, task_found.state

    await do(journal, working)
    for command in (finish, find):  # before its rows are written, and afterwards
        assert await do(journal, command) == (0, 0, RunStatus.SUCCESS, TaskState.COMPLETED)
    assert await do(journal, lambda tx: (tx.find_run("p", "r"), tx.find_task("p", "k"))) == (None, None)


async def test_one_transaction_may_end_one_run_and_start_the_next(journal: Journal) -> None:
    """Order the rows so that ended runs are written first: the index on running runs is checked row by row."""

    def hand_over(tx: Transaction) -> None:
        start_next = run(tx, "a-later-id-that-sorts-first")
        end(tx, "r")
        start(tx, "a-later-id-that-sorts-first")
        assert start_next.running is not None

    await do(journal, working)
    await do(journal, hand_over)
    await do(journal, lambda tx: end(tx, "a-later-id-that-sorts-first"))
    await do(journal, lambda tx: tx.append(thread(tx), TaskChanged(state=TaskState.COMPLETED), task_id="k"))


async def test_the_database_refuses_two_active_runs_on_a_thread(journal: Journal) -> None:
    def second(tx: Transaction) -> None:
        run(tx, "s")
        start(tx, "s")

    await do(journal, working)
    with pytest.raises(FaultError):
        await do(journal, second)


@pytest.mark.parametrize("state", [TaskState.INPUT_REQUIRED, TaskState.SUBMITTED])
async def test_a_change_that_violates_a_constraint_is_not_written(journal: Journal, state: TaskState) -> None:
    await do(journal, task)

    def change(tx: Transaction) -> None:
        tx.append(thread(tx), TaskChanged(state=state), task_id="k")

    with pytest.raises(FaultError):
        await do(journal, change)
    assert (await do(journal, lambda tx: thread(tx).tasks["k"])).state is TaskState.SUBMITTED


async def test_an_unknown_question_cannot_be_answered(journal: Journal) -> None:
    def answer(tx: Transaction) -> None:
        tx.append(thread(tx), InterruptAnswered(interrupt_id="?"), task_id="k")

    await do(journal, working)
    with pytest.raises(FaultError):
        await do(journal, answer)


async def test_times_never_decrease(tmp_path: Path, postgres: str | None) -> None:
    times = iter([100, 100, 50, 200, 10, 10, 10])
    journal = Journal(postgres or f"sqlite:///{tmp_path / 'clock.db'}", clock=Clock(lambda: next(times)))
    await journal.open()
    pk = await do(journal, lambda tx: thread(tx).pk)
    for _ in range(4):
        await do(journal, lambda tx: tx.append(thread(tx), ThreadChanged()).at)
    assert [record.at for record in await journal.page(pk, 0)] == [100, 100, 100, 200, 200]
    await within(journal.close())


async def test_waiting_runs_are_counted_by_agent_and_owner(journal: Journal) -> None:
    def waiting(tx: Transaction) -> tuple[int, int]:
        counts = tx.waiting("o", "a")
        assert (counts.agent, counts.owners) == (counts.owner_at_agent, 1)
        return counts.agent, counts.owner

    def counted(tx: Transaction) -> tuple[int, int]:
        """Count the waiting runs again from the rows."""
        tx.forget()
        return waiting(tx)

    def three(tx: Transaction) -> None:
        task(tx)
        for run_id in ("r", "s", "u"):
            run(tx, run_id)

    def fails(tx: Transaction) -> None:
        assert waiting(tx) == (3, 3)
        run(tx, "v")
        assert waiting(tx) == (4, 4)
        raise FaultError("conflict", "no")  # type: ignore[arg-type]

    def drop(tx: Transaction) -> None:
        tx.append(thread(tx), RunEnded(status=RunStatus.CANCELLED), task_id="k", run_id="u")

    assert await do(journal, waiting) == (0, 0)
    await do(journal, three)
    assert await do(journal, waiting) == await do(journal, counted) == (3, 3)
    with pytest.raises(FaultError):
        await do(journal, fails)
    assert await do(journal, waiting) == (3, 3)
    await do(journal, lambda tx: start(tx, "r"))
    assert await do(journal, waiting) == await do(journal, counted) == (2, 2)
    await do(journal, drop)
    assert await do(journal, waiting) == await do(journal, counted) == (1, 1)
    await do(journal, lambda tx: end(tx, "r"))
    assert await do(journal, waiting) == (1, 1)


async def test_a_delayed_run_is_counted_separately(journal: Journal) -> None:
    def delay(tx: Transaction) -> None:
        task(tx)
        later = RunCreated(run_id="r", start_after=tx.now() + 60_000_000)
        tx.append(thread(tx), later, task_id="k", run_id="r")

    def waiting(tx: Transaction) -> Waiting:
        return tx.waiting("o", "a")

    def counted(tx: Transaction) -> Waiting:
        tx.forget()
        return tx.waiting("o", "a")

    delayed = Waiting(agent=0, owner_at_agent=0, owners=1, owner=0, delayed=1)
    await do(journal, waiting)
    await do(journal, delay)
    assert await do(journal, waiting) == await do(journal, counted) == delayed
    await do(journal, lambda tx: start(tx, "r"))
    assert await do(journal, waiting) == await do(journal, counted) == delayed._replace(delayed=0)


async def test_an_unneeded_thread_leaves_memory(journal: Journal) -> None:
    def make(tx: Transaction) -> None:
        tx.__dict__["_cached"] = 2
        for number in range(10):
            tx.create_thread("o", str(number), ThreadChanged(metadata={"n": number}))

    def read(tx: Transaction) -> tuple[int, list[Any]]:
        held = len(tx.__dict__["_states"])
        return held, [tx.need_thread("o", str(number)).thread.metadata["n"] for number in range(10)]

    await do(journal, make)
    assert await do(journal, read) == (2, list(range(10)))


async def test_keys_are_not_reused(journal: Journal, tmp_path: Path) -> None:
    first = await do(journal, lambda tx: tx.create_thread("o", "a", ThreadChanged()).pk)
    second = await do(journal, lambda tx: tx.create_thread("p", "a", ThreadChanged()).pk)
    assert second > first
    assert await journal.query(latest_pk) == second


async def test_a_removed_run_is_marked_wherever_it_is_found(journal: Journal) -> None:
    def remove(tx: Transaction) -> None:
        tx.append(thread(tx), RunRemoved(run_id="r", why="rollback"), task_id="k")

    def removed(tx: Transaction) -> bool:
        run_found = tx.find_run("o", "r")
        assert run_found is not None
        return run_found[0].removed

    await do(journal, working)
    await do(journal, lambda tx: end(tx, "r"))
    await do(journal, lambda tx: tx.append(thread(tx), TaskChanged(state=TaskState.COMPLETED), task_id="k"))
    assert await do(journal, removed) is False
    await do(journal, remove)
    assert await do(journal, removed) is True


async def test_writing_the_row_of_a_run_keeps_its_crashes(journal: Journal) -> None:
    def crashes(tx: Transaction) -> list[tuple[str, int]]:
        tx.flush()
        rows = tx.connection.exec_driver_sql("SELECT status, crashes FROM run ORDER BY run_id").all()
        return [(status, count) for status, count in rows]

    await do(journal, working)
    assert await do(journal, crashes) == [("running", 0)]
    await do(journal, lambda tx: tx.connection.exec_driver_sql("UPDATE run SET crashes = 2"))
    await do(journal, lambda tx: end(tx, "r"))
    await do(journal, lambda tx: run(tx, "s"))
    assert await do(journal, crashes) == [("success", 2), ("pending", 0)]
