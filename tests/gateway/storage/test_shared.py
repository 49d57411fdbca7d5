"""Tests of gateways that share a database: their concurrent commands on one thread behave as if one came first."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, LiteralString, TypeVar, cast

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from babelgate.canonical import Answers, FaultCode, FaultError, Message, RunStatus, Submission, TaskState
from babelgate.canonical.event import InterruptRaised, ThreadChanged, encode_event
from babelgate.canonical.hub import ThreadChange
from babelgate.canonical.run_input import RunInput
from babelgate.gateway.runs import lifecycle, thread_commands
from babelgate.gateway.runs import submission as command
from babelgate.gateway.runs.lifecycle import RunOutcome, StartedRun
from babelgate.gateway.runs.submission import Ids, Submitted
from babelgate.gateway.settings.model import Limits, Queue
from babelgate.gateway.storage import database, deletion, postgres, queries
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import Erased, Transaction
from tests.gateway.hubs import eventually, within
from tests.gateway.invariant import check_database
from tests.gateway.storage.wire import Wire
from tests.postgres import connect, new_schema, url_of

T = TypeVar("T")
ROUNDS = 40


@asynccontextmanager
async def opened(url: str, *, shared: bool = True) -> AsyncGenerator[Journal]:
    journal = Journal(url, shared=shared)
    await journal.open()
    try:
        yield journal
    finally:
        await within(journal.close())


@asynccontextmanager
async def opened_at_last(url: str) -> AsyncGenerator[Journal]:
    """Open a journal, and retry until the others are gone.

    PostgreSQL ends a session only some time after its connection is closed.
    """
    async with asyncio.timeout(30):
        while True:
            journal = Journal(url, shared=True)
            try:
                await journal.open()
            except FaultError:
                continue
            break
    try:
        yield journal
    finally:
        await within(journal.close())


@pytest.fixture
async def nodes(url: str) -> AsyncGenerator[Sequence[Journal]]:
    async with opened(url) as a, opened(url) as b, opened(url) as c:
        yield (a, b, c)
        await within(a.query(check_database))
        assert await within(a.query(find_leftovers)) == []


def find_leftovers(connection: Connection) -> list[Any]:
    """Return the tables and keys of rows whose thread does not exist."""
    leftovers: list[Any] = []
    for table in ("event", "task", "run", "interrupt", "thread_value", "blob_use"):
        here = f"FROM {table} WHERE NOT EXISTS (SELECT FROM thread WHERE pk = thread_pk)"
        leftovers += connection.exec_driver_sql(f"SELECT DISTINCT '{table}', thread_pk {here}").all()
    return leftovers


def create(thread_id: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.create_thread("o", thread_id, ThreadChanged()).pk


def change(thread_id: str, **metadata: Any) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(tx.need_thread("o", thread_id), ThreadChanged(metadata=metadata)).seq


def metadata(thread_id: str) -> Callable[[Transaction], Any]:
    return lambda tx: tx.need_thread("o", thread_id).thread.metadata


def ids(number: int | str) -> Ids:
    return Ids(f"thread {number}", f"task {number}", f"run {number}", f"message {number}")


def submit(
    number: int | str,
    thread_id: str | None = "t",
    limits: Limits | None = None,
    *,
    may_start: bool = True,
    owner: str = "o",
    **more: Any,
) -> Callable[[Transaction], Submitted]:
    ask = Submission(agent="a", input=RunInput(messages=(Message.of("hi", role="user"),)), thread_id=thread_id, **more)
    return lambda tx: command.submit(tx, owner, ask, ids(number), limits or Limits(), may_start=may_start)


def erase(thread_id: str) -> Callable[[Transaction], Erased]:
    return lambda tx: deletion.erase_thread(tx, "o", thread_id)


def code(result: Any) -> FaultCode | None:
    return result.fault.code if isinstance(result, FaultError) else None


async def at_once(*writes: Awaitable[Any]) -> list[Any]:
    return await within(asyncio.gather(*writes, return_exceptions=True))


async def group(journal: Journal, *commands: Callable[[Transaction], Any], before: Awaitable[Any]) -> list[Any]:
    """Run the commands as one group that begins after `before` has finished. Return their results."""
    held, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        held.set()
        assert go.wait(10)

    first = journal.write(hold)
    assert await asyncio.to_thread(held.wait, 10)
    writes = [journal.write(each) for each in commands]
    await within(before)
    go.set()
    await within(first)
    return await at_once(*writes)


async def pause(journal: Journal, start: StartedRun) -> None:
    """End a run with an open question."""
    question = InterruptRaised(interrupt_id="q", message=Message.of("which?"))
    await within(journal.write(lifecycle.append, start, [(question, encode_event(question))]))
    await within(journal.write(lifecycle.end, start, RunOutcome()))


# One thread


async def test_records_of_several_gateways_are_numbered_without_gaps(
    nodes: Sequence[Journal], caplog: pytest.LogCaptureFixture
) -> None:
    pk = await within(nodes[0].write(create("t")))

    async def append(node: int) -> list[int]:
        return [await nodes[node].write(change("t", **{str(node): each})) for each in range(ROUNDS)]

    seqs = await within(asyncio.gather(*(append(node) for node in range(3))))
    assert sorted(chain.from_iterable(seqs)) == list(range(2, 3 * ROUNDS + 2))
    assert [record.seq for record in await nodes[1].page(pk, 0)] == list(range(1, 3 * ROUNDS + 2))
    last = {str(node): ROUNDS - 1 for node in range(3)}
    for node in nodes:
        assert await within(node.write(metadata("t"))) == last
    assert sum(node.races for node in nodes) > 0 and caplog.messages == []


async def test_a_reading_command_sees_another_gateways_commit(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    await within(a.write(create("t")))
    for each in range(ROUNDS):
        await within(a.write(change("t", n=each)))
        assert await within(b.write(metadata("t"))) == {"n": each}
        await within(b.write(change("t", n=-each)))
        assert await within(a.write(metadata("t"))) == {"n": -each}


async def test_a_refusal_depends_on_the_current_thread(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    begun = await within(a.write(submit(1)))
    assert begun.start is not None
    await within(b.write(metadata("t")))  # b now has the thread with its run in memory
    await within(a.write(lifecycle.end, begun.start, RunOutcome()))
    assert (await within(b.write(submit(2, strategy="reject")))).start is not None
    with pytest.raises(FaultError, match="busy"):
        await within(a.write(submit(3, strategy="reject")))


async def test_only_stale_commands_of_a_group_are_repeated(
    nodes: Sequence[Journal],
) -> None:
    a, b, _ = nodes
    for name in ("t", "u", "v"):
        await within(b.write(create(name)))

    def fail(tx: Transaction) -> None:
        change("v", wrong=1)(tx)
        raise FaultError(FaultCode.CONFLICT, "no")

    done = await group(
        b,
        change("t", x=1),
        change("u", x=1),
        fail,
        change("t", x=2),
        change("v", x=1),
        before=a.write(change("t", y=1)),
    )
    assert [code(each) or each for each in done] == [3, 2, FaultCode.CONFLICT, 4, 2]
    assert [await within(a.write(metadata(name))) for name in ("t", "u", "v")] == [{"x": 2, "y": 1}, {"x": 1}, {"x": 1}]


async def test_a_command_that_fails_on_stale_data_is_repeated(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    await within(a.write(create("t")))
    await within(b.write(metadata("t")))
    await within(a.write(change("t", ready=True)))

    def begin_if_ready(tx: Transaction) -> int:
        ready = tx.need_thread("o", "t").thread.metadata
        change("t", begun=True)(tx)
        if not ready:
            raise RuntimeError("not ready")
        return len(ready)

    assert await within(b.write(begin_if_ready)) == 1


# Rules of one gateway that also hold for several


async def test_one_run_is_active_on_a_thread(nodes: Sequence[Journal]) -> None:
    for each in range(ROUNDS):
        done = await at_once(*(node.write(submit(f"{each} {n}", f"t{each}")) for n, node in enumerate(nodes)))
        assert sorted(submitted.start is not None for submitted in done) == [False, False, True]


async def test_the_first_answer_wins(nodes: Sequence[Journal]) -> None:
    for each in range(ROUNDS):
        begun = await within(nodes[0].write(submit(each, f"t{each}")))
        assert begun.start is not None
        await pause(nodes[0], begun.start)

        def answer(tx: Transaction, number: str, task_id: str = f"task {each}") -> Submitted:
            return command.answer(tx, "o", Answers(task_id=task_id, bare=number), ids(number), Limits(), may_start=True)

        done = await at_once(*(node.write(answer, f"{each} {n}") for n, node in enumerate(nodes)))
        assert sorted(str(code(result)) for result in done) == ["None", "not_awaiting", "not_awaiting"]


async def test_records_of_an_adopted_run_are_refused(
    nodes: Sequence[Journal],
) -> None:
    a, b, _ = nodes
    begun = (await within(a.write(submit(1)))).start
    assert begun is not None
    again = await within(b.write(lifecycle.restart, begun))
    for late in (a.write(lifecycle.append, begun, []), a.write(lifecycle.end, begun, RunOutcome())):
        with pytest.raises(FaultError, match="no longer attempt 1"):
            await within(late)
    await within(b.write(lifecycle.end, again, RunOutcome()))
    task = await within(a.write(lambda tx: tx.need_task("o", "task 1")))
    assert task.state is TaskState.COMPLETED


async def test_a_concurrent_cancel_and_end_leave_one_end(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    for each in range(ROUNDS):
        begun = (await within(a.write(submit(each, f"t{each}")))).start
        assert begun is not None
        ended, cancelled = await at_once(
            a.write(lifecycle.end, begun, RunOutcome()), b.write(command.cancel, "o", f"task {each}")
        )
        assert not isinstance(ended, BaseException)
        run = await within(a.query(queries.run, "o", f"run {each}"))
        assert run is not None and run.status is (RunStatus.SUCCESS if code(cancelled) else RunStatus.CANCELLED)


async def test_a_thread_created_on_two_gateways_exists_once(nodes: Sequence[Journal]) -> None:
    for each in range(ROUNDS):
        results = await at_once(
            *(node.write(thread_commands.create, "o", f"t{each}", "new", ThreadChange(), "raise") for node in nodes)
        )
        assert sorted(str(code(result)) for result in results) == ["None", "conflict", "conflict"]
    creations = [node.write(thread_commands.create, "o", "t", "new", ThreadChange(), "return") for node in nodes]
    assert len({thread.created_at for thread in await at_once(*creations)}) == 1


async def test_concurrent_submissions_under_an_alias_share_the_thread(nodes: Sequence[Journal]) -> None:
    for each in range(ROUNDS):
        done = await at_once(
            *(node.write(submit(f"{each} {n}", None, alias=f"s{each}")) for n, node in enumerate(nodes))
        )
        assert len({submitted.receipt.thread_id for submitted in done}) == 1


async def test_a_task_id_is_created_once(nodes: Sequence[Journal]) -> None:
    for each in range(ROUNDS):
        writes = [node.write(submit(f"{each} {n}", None, task_id=f"k{each}")) for n, node in enumerate(nodes)]
        assert sorted(str(code(result)) for result in await at_once(*writes)) == ["None", "conflict", "conflict"]


async def test_a_burst_on_one_node_does_not_affect_other_owners(nodes: Sequence[Journal]) -> None:
    limits = Limits(queue=Queue(thread=100, agent=4, owner=100))
    for each in range(4):
        await within(nodes[0].write(submit(each, f"t{each}", limits, may_start=False)))
        await within(nodes[0].write(submit(f"later {each}", f"l{each}", limits, may_start=False, start_in=10**15)))
    refusals: list[FaultCode | None] = []
    for number, owner in enumerate(("o", "p", "p", "p")):
        written = nodes[1].write(submit(f"more {number}", f"u{number}", limits, may_start=False, owner=owner))
        refusals.append(code((await at_once(written))[0]))
    assert refusals == [FaultCode.QUEUE_FULL, None, None, FaultCode.QUEUE_FULL]


async def test_waiting_runs_of_all_nodes_count_for_the_limits(nodes: Sequence[Journal]) -> None:
    limits = Limits(queue=Queue(thread=100, agent=3, owner=100))
    for each in range(3):
        await within(nodes[each % 2].write(submit(each, f"t{each}", limits, may_start=False)))
    for node in nodes:
        with pytest.raises(FaultError, match="3 runs are already waiting for agent a"):
            await within(node.write(submit("late", "u", limits, may_start=False)))
    await within(nodes[2].write(command.cancel, "o", "task 1"))
    in_one_group = await group(
        nodes[0],
        submit("x", "u", limits, may_start=False),
        submit("y", "v", limits, may_start=False),
        before=asyncio.sleep(0),
    )
    assert [code(each) for each in in_one_group] == [None, FaultCode.QUEUE_FULL]


async def test_a_delayed_run_is_found_due_despite_a_late_notice(
    nodes: Sequence[Journal],
) -> None:
    a, b, _ = nodes
    await within(a.write(submit(1, start_in=0)))
    await within(b.write(metadata("t")))
    await within(a.write(submit(2, start_in=3600 * 10**6)))

    def waits(tx: Transaction) -> list[bool]:
        state = tx.need_thread("o", "t")
        return [tx.wait(state, run) > 0 for run in state.pending]

    assert await within(b.write(waits)) == [False, True]


# Erasure


async def test_no_command_writes_to_a_thread_erased_elsewhere(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    await within(a.write(create("t")))
    await within(b.write(change("t")))  # b has it in memory
    await within(a.write(erase("t")))
    for late in (b.write(change("t")), b.write(metadata("t")), b.write(erase("t"))):
        with pytest.raises(FaultError) as error:
            await within(late)
        assert error.value.fault.code is FaultCode.NOT_FOUND


async def test_an_erasure_and_a_concurrent_write_are_serialized(nodes: Sequence[Journal]) -> None:
    a, b, c = nodes
    for each in range(ROUNDS):
        name = f"t{each}"
        await within(a.write(create(name)))
        done = await at_once(
            a.write(change(name)),
            b.write(change(name)),
            c.write(erase(name)),
            b.write(change(name)),
            a.write(erase(name)),
        )
        assert {code(result) for result in done} <= {None, FaultCode.NOT_FOUND}
        assert sum(isinstance(result, Erased) for result in done) == 1


async def test_an_erasure_leaves_no_pending_records(nodes: Sequence[Journal]) -> None:
    """Erase the thread after the other gateway has inserted its record, and before that one commits."""
    a, b, _ = nodes
    pk = await within(a.write(create("t")))
    held, go = threading.Event(), threading.Event()

    def slowly(tx: Transaction) -> None:
        change("t")(tx)
        tx.sql.insert_event.run_many(tx.connection, tx._events)  # pyright: ignore[reportPrivateUsage]
        tx._events.clear()  # pyright: ignore[reportPrivateUsage]
        if not go.is_set():
            held.set()
            assert go.wait(10)

    writing = b.write(slowly)
    assert await asyncio.to_thread(held.wait, 10)
    await within(a.write(erase("t")))
    go.set()
    with pytest.raises(FaultError) as error:
        await within(writing)
    assert error.value.fault.code is FaultCode.NOT_FOUND
    assert await within(a.page(pk, 0)) == []


async def test_a_reused_id_is_the_new_thread_on_all_gateways(nodes: Sequence[Journal]) -> None:
    a, b, _ = nodes
    old = await within(a.write(create("t")))
    await within(b.write(change("t", old=True)))
    await within(a.write(erase("t")))
    await within(a.write(thread_commands.create, "o", "t", "new", ThreadChange(), "raise"))
    assert await within(b.write(change("t", new=True))) == 2
    assert await within(a.write(metadata("t"))) == {"new": True}
    assert await within(a.write(lambda tx: tx.need_thread("o", "t").pk)) != old


async def test_checkpoints_of_an_adopted_run_are_refused(
    nodes: Sequence[Journal],
) -> None:
    """Write rows that append nothing to the log, so that only the comparison before the commit detects the change."""
    a, b, _ = nodes
    begun = (await within(a.write(submit(1)))).start
    assert begun is not None

    def put(tx: Transaction) -> None:
        state = tx.need_thread("o", "t")
        if state.runs["run 1"].attempt != 1:
            raise FaultError(FaultCode.CONFLICT, "no longer")
        tx.connection.exec_driver_sql("INSERT INTO meta VALUES ('put', '')")

    [done] = await group(a, put, before=b.write(lifecycle.restart, begun))
    assert code(done) is FaultCode.CONFLICT
    assert await within(a.query(lambda c: c.exec_driver_sql("SELECT FROM meta WHERE name = 'put'").all())) == []


async def test_no_run_is_adopted_between_check_and_commit(nodes: Sequence[Journal], postgres_tables: str) -> None:
    a, b, _ = nodes
    begun = (await within(a.write(submit(1)))).start
    assert begun is not None
    tx = a._writer.tx  # pyright: ignore[reportPrivateUsage]
    confirm, held, go = vars(type(tx))["confirm"], threading.Event(), threading.Event()

    def slowly() -> None:
        confirm(tx)
        held.set()
        assert go.wait(30)

    vars(tx)["confirm"] = slowly
    put = a.write(lambda tx: tx.need_thread("o", "t").runs["run 1"].attempt)
    assert await asyncio.to_thread(held.wait, 10)
    taking = b.write(lifecycle.restart, begun)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE thread%'"
    with connect(postgres_tables) as other:
        await within(eventually(lambda: taking.done() or other.execute(waits).fetchone() != (0,)), "either")
    assert not taking.done()
    go.set()
    assert await within(put) == 1
    assert (await within(taking)).run.attempt == 2


# The database


async def test_exclusive_and_shared_gateways_exclude_each_other(
    url: str,
) -> None:
    async with opened(url) as one, opened(url) as two:
        with pytest.raises(FaultError, match="another gateway uses this database"):
            await Journal(url).open()
        await within(one.write(create("t")))
        await within(two.write(change("t")))
    async with opened(url, shared=False) as alone:
        with pytest.raises(FaultError, match="another gateway uses this database"):
            await Journal(url, shared=True).open()
        assert await within(alone.write(change("t"))) == 3


async def test_keys_of_threads_are_unique_across_gateways(url: str) -> None:
    keys: list[int] = []
    for shared in (False, True, False, True):
        async with opened(url, shared=shared) as one:
            keys += [await within(one.write(create(f"{len(keys)} {each}"))) for each in range(3)]
    async with opened(url) as one, opened(url) as two:
        names = [f"u{each}" for each in range(200)]
        writes = [(one, two)[each % 2].write(create(name)) for each, name in enumerate(names)]
        keys += await within(asyncio.gather(*writes))
    assert len(set(keys)) == len(keys) == 212


async def test_concurrent_first_starts_create_the_tables_once() -> None:
    with new_schema() as schema:
        nodes = [Journal(url_of(schema), shared=True) for _ in range(3)]
        await within(asyncio.gather(*(node.open() for node in nodes)))
        await within(nodes[0].write(create("t")))
        assert [await within(node.write(change("t"))) for node in nodes] == [2, 3, 4]
        for node in nodes:
            await within(node.close())


class NewerRelease:
    """A release with one more migration. Databases that are opened while it is installed belong to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self._here = (database.VERSIONS, database.REVISIONS, database.HEAD)

    @contextmanager
    def installed(self, change: str, *, expands: bool) -> Generator[None]:
        text = NEWER.format(before=database.HEAD, expands=expands, change=change)
        (self._folder / "newer.py").write_text(text)
        versions, revisions, _ = self._here
        with self._patched((*versions, self._folder), (*revisions, "newer"), "newer"):
            yield

    @contextmanager
    def removed(self) -> Generator[None]:
        with self._patched(*self._here):
            yield

    @contextmanager
    def _patched(self, versions: object, revisions: object, head: str) -> Generator[None]:
        with self._monkeypatch.context() as patch:
            patch.setattr(database, "VERSIONS", versions)
            patch.setattr(database, "REVISIONS", revisions)
            patch.setattr(database, "HEAD", head)
            yield


NEWER = """from alembic import op
revision = "newer"
down_revision = "{before}"
branch_labels = None
depends_on = None
expands = {expands}

def upgrade() -> None:
    op.execute("{change}")
"""


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewerRelease:
    return NewerRelease(tmp_path, monkeypatch)


async def test_a_release_with_an_additive_migration_can_join(url: str, newer: NewerRelease) -> None:
    async with opened(url) as old:
        await within(old.write(create("t")))
        with newer.installed("ALTER TABLE thread ADD COLUMN colour TEXT", expands=True):
            new = Journal(url, shared=True)
            await within(new.open())
        assert await within(new.write(change("t"))) == 2
        assert await within(old.write(change("t"))) == 3
        async with opened(url) as restarted:
            assert await within(restarted.write(change("t"))) == 4
            assert await within(new.write(change("t"))) == 5
        with newer.installed("", expands=True):
            async with opened(url) as another:
                assert await within(another.write(change("t"))) == 6
        await within(new.close())
    with pytest.raises(FaultError, match="newer release"):  # a gateway that does not share the database refuses it
        await within(Journal(url).open())


async def test_a_release_with_a_breaking_migration_excludes_this_one(url: str, newer: NewerRelease) -> None:
    with newer.installed("CREATE TABLE one_more (n INTEGER)", expands=False):
        async with AsyncExitStack() as stack:
            with newer.removed():
                old = await stack.enter_async_context(opened(url))
            await within(old.write(create("t")))
            with pytest.raises(FaultError, match="Stop them all"):
                await within(Journal(url, shared=True).open())
            assert await within(old.write(change("t"))) == 2
        async with opened_at_last(url) as new:
            assert await within(new.write(change("t"))) == 3
            with newer.removed(), pytest.raises(FaultError, match="newer release"):
                await within(Journal(url, shared=True).open())


@pytest.mark.parametrize("together", [False, True], ids=["between statements", "amid statements sent together"])
async def test_a_gateway_frozen_in_a_transaction_blocks_no_other(
    url: str, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    monkeypatch.setattr(postgres, "_STILL", "300ms")
    held, go = threading.Event(), threading.Event()

    def stand(tx: Transaction) -> None:
        change("t")(tx)
        with still.database.together(tx.connection) if together else nullcontext():
            tx.flush()
            held.set()
            assert go.wait(30)

    async with opened(url) as still, opened(url) as other:
        await within(still.write(create("t")))
        standing = still.write(stand)
        assert await asyncio.to_thread(held.wait, 10)
        assert await within(other.write(change("t"))) == 2
        go.set()
        with pytest.raises(FaultError):  # Unstored, or the fault of the command that was executing statements
            await within(standing)
        await within(eventually(lambda: still.failure is None), "the connection")
        assert await within(still.write(change("t"))) == 3


async def test_a_gateway_frozen_at_its_start_blocks_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the gateway while it holds the lock of starting gateways."""
    monkeypatch.setattr(postgres, "_ENTERING", "300ms")
    with Wire(url).running() as wire:
        async with opened(url) as one:
            await within(one.write(create("t")))
            wire.freeze_after = b"babelgate enters"
            starting = asyncio.ensure_future(Journal(wire.url, shared=True).open())
            assert await asyncio.to_thread(wire.frozen.wait, 10)
            end_writer(one)
            await within(written(one))
            async with opened(url) as other:
                await within(other.write(change("t")))
        wire.cut()
        with pytest.raises(OperationalError):
            await within(starting)


async def test_a_gateway_frozen_at_a_reconnect_blocks_no_other(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the gateway while it holds the row of the last writer."""
    monkeypatch.setattr(postgres, "_ENTERING", "300ms")
    with Wire(url).running() as wire:
        async with opened(url) as one, opened(wire.url) as still:
            await within(one.write(create("t")))
            wire.freeze_after = b"INSERT INTO meta"
            end_writer(still)
            standing = still.write(change("t"))
            assert await asyncio.to_thread(wire.frozen.wait, 10)
            end_writer(one)
            await within(written(one))
            async with opened(url) as other:
                await within(other.write(change("t")))
            wire.cut()
            with pytest.raises(FaultError):
                await within(standing)


async def test_a_waiting_start_names_the_other_start(
    url: str, postgres_tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_ENTER_PATIENCE", "100ms")
    with connect(postgres_tables) as other:
        with other.transaction():
            other.execute(cast("LiteralString", postgres._ENTER))  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(FaultError, match="another gateway of the cluster is starting") as error:
                await within(Journal(url, shared=True).open())
            assert error.value.fault.code is FaultCode.CONFLICT
        async with opened(url) as after:
            await within(after.write(create("t")))


def end_writer(journal: Journal) -> None:
    """End the session of a journal's writer on the server."""
    connection = journal._writer.link.connection  # pyright: ignore[reportPrivateUsage]
    assert connection is not None
    driver = cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)
    with connect() as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", (driver.info.backend_pid,))


async def written(journal: Journal) -> int:
    """Change the thread, and retry until the database stores the change. Return the result of the command."""
    return await journal.write_patiently(change("t"))


async def test_sqlite_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="a cluster needs PostgreSQL"):
        Journal(f"sqlite:///{tmp_path / 'a.db'}", shared=True)


async def test_the_first_start_cleans_up_after_killed_gateways(url: str, postgres_tables: str) -> None:
    count = "SELECT count(*) FROM meta WHERE name LIKE 'commit %'"
    with connect(postgres_tables) as other:
        for _ in range(3):
            async with opened(url):
                assert other.execute(count).fetchone() == (1,)
        async with opened(url), opened(url):
            assert other.execute(count).fetchone() == (2,)


@pytest.mark.parametrize("by_run", [False, True])
async def test_a_task_ended_elsewhere_is_read_consistently(nodes: Sequence[Journal], by_run: bool) -> None:
    """Check that the rows of a task and its thread are consistent. When they were not, a cancel failed with 500."""
    first, second, _ = nodes
    submitted = await within(first.write(submit(1, None)))
    assert submitted.start is not None
    ends, ended = threading.Event(), threading.Event()

    def look(tx: Transaction) -> tuple[bool, bool]:
        if by_run:
            found = tx.find_run("o", "run 1")
            assert found is not None
            is_over = found[0].has_ended
        else:
            is_over = tx.need_task("o", "task 1").is_terminal
        ends.set()
        assert ended.wait(10)
        return is_over, "task 1" not in tx.need_thread("o", submitted.receipt.thread_id).tasks

    looking = second.write(look)
    assert await asyncio.to_thread(ends.wait, 10)
    await within(first.write(lifecycle.end, submitted.start, RunOutcome()))
    ended.set()
    assert await within(looking) == (True, True)
