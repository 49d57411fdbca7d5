"""Tests of notices between gateways that share a database: each shows the commits of all others at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from babelgate.canonical import Fold, Message, Record, RunStatus, Scope, Submission, TaskState, TextPart
from babelgate.canonical.event import MessageStarted, PartAdded, RunEnded, TaskChanged, ThreadChanged, encode_event
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.thread import Thread
from babelgate.gateway.clock import Clock
from babelgate.gateway.ids import new_id
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs import submission as command
from babelgate.gateway.runs.lifecycle import RunOutcome, StartedRun
from babelgate.gateway.runs.submission import Ids, Submitted
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage import deletion, listener, postgres
from babelgate.gateway.storage.blobs import FolderBlobs
from babelgate.gateway.storage.grants import GrantStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.transaction import Published, Transaction
from tests.gateway.hubs import eventually, within
from tests.gateway.storage.wire import Wire
from tests.postgres import connect

THREAD = Scope("t")


class Node:
    def __init__(self, url: str, folder: Path) -> None:
        self.heard: list[Remote] = []
        self.journal = Journal(url, shared=True, on_commit=self._commit, on_remote=self.heard.extend)
        self.reads = JournalReads(self.journal, FolderBlobs(folder, 2**20), Limits)
        self.write = self.journal.write
        self.grants = GrantStore(self.journal, Clock())

    def _commit(self, published: Sequence[Published]) -> None:
        for each in published:
            self.reads.handle_commit(each)

    async def follow(self, scope: Scope = THREAD, after: int = 0) -> list[Record]:
        async with aclosing(self.reads.follow("o", scope, after)) as batches:
            return [record async for batch in batches for record in batch]

    def records(self, scope: Scope = THREAD, after: int = 0) -> AsyncIterator[Record]:
        async def one_by_one() -> AsyncGenerator[Record]:
            async with aclosing(self.reads.follow("o", scope, after)) as batches:
                async for batch in batches:
                    for record in batch:
                        yield record

        return one_by_one()


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncGenerator[Node]:
    node = Node(url, folder)
    await node.journal.open()
    try:
        yield node
    finally:
        node.journal.channels.close_all()
        node.reads.close()
        await within(node.journal.close())


@pytest.fixture
async def nodes(url: str, tmp_path: Path) -> AsyncGenerator[Sequence[Node]]:
    async with opened(url, tmp_path) as a, opened(url, tmp_path) as b:
        yield (a, b)


def create(thread_id: str = "t") -> Callable[[Transaction], int]:
    return lambda tx: tx.create_thread("o", thread_id, ThreadChanged()).pk


def change(thread_id: str = "t", **metadata: Any) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(tx.need_thread("o", thread_id), ThreadChanged(metadata=metadata)).seq


def submit(number: int = 1) -> Callable[[Transaction], Submitted]:
    ids = Ids("t", f"task {number}", f"run {number}", f"message {number}")
    ask = Submission(agent="a", input=RunInput(messages=(Message.of("hi", role="user"),)), thread_id="t")
    return lambda tx: command.submit(tx, "o", ask, ids, Limits(), may_start=True)


async def begin(node: Node, number: int = 1) -> StartedRun:
    start = (await within(node.write(submit(number)))).start
    assert start is not None
    return start


def say(node: Node, start: StartedRun, text: str = "x") -> Awaitable[None]:
    message_id = new_id()
    events = (
        MessageStarted(message_id=message_id),
        PartAdded(message_id=message_id, index=0, part=TextPart(text=text)),
    )
    return within(node.write(lifecycle.append, start, [(each, encode_event(each)) for each in events]))


def erase(tx: Transaction) -> int:
    return deletion.erase_thread(tx, "o", "t").pk


def end_listeners(schema: str) -> None:
    with connect(schema) as other:
        ended = other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE query = format('LISTEN \"%s\"', 'babelgate_' || md5(current_schema()))"
        )
        assert ended.fetchall(), "nobody listens"


# Live


async def test_events_of_one_gateway_are_read_live_on_another(nodes: Sequence[Node]) -> None:
    a, b = nodes
    start = await begin(a)
    reader = b.records(Scope("t", "run", "run 1"))
    records = [await within(anext(reader)) for _ in range(2)]
    for each in range(20):
        await say(a, start, str(each))
        records += [await within(anext(reader)) for _ in range(2)]
        assert isinstance(records[-1].event, PartAdded) and records[-1].event.part == TextPart(text=str(each))
    await within(a.write(lifecycle.end, start, RunOutcome()))
    records += [record async for record in reader]
    assert isinstance(records[-1].event, RunEnded)
    assert records == await a.follow(Scope("t", "run", "run 1"))


async def test_readers_of_all_gateways_see_the_same_order(nodes: Sequence[Node]) -> None:
    await within(nodes[0].write(create()))
    readers = [node.records() for node in nodes for _ in range(3)]

    async def read(reader: AsyncIterator[Record]) -> list[int]:
        return [(await anext(reader)).seq for _ in range(81)]

    async def write(node: Node) -> None:
        for _ in range(40):
            await node.write(change())

    reading = [asyncio.ensure_future(read(reader)) for reader in readers]
    await within(asyncio.gather(*(write(node) for node in nodes)))
    assert await within(asyncio.gather(*reading)) == [list(range(1, 82))] * 6


async def test_notices_of_a_thread_arrive_in_commit_order(nodes: Sequence[Node]) -> None:
    """Compare sequence numbers, not numbers of notices: one notice may cover several commits."""
    a, b = nodes
    pk = await within(a.write(create()))
    for _ in range(5):
        await within(a.write(change()))
    await within(a.write(erase))
    await within(eventually(lambda: bool(b.heard) and b.heard[-1].erased), "the notices")
    assert b.heard[0].created and not any(remote.created for remote in b.heard[1:])
    assert [remote.pk for remote in b.heard] == [pk] * len(b.heard)
    seqs = [remote.seq for remote in b.heard]
    assert seqs == sorted(seqs) and seqs[-1] == 6 and a.heard == []


async def test_a_waiting_reader_learns_of_a_thread_created_elsewhere(nodes: Sequence[Node]) -> None:
    a, b = nodes
    waiting = asyncio.ensure_future(b.reads.await_thread("o", "t"))
    await within(a.write(create("another one")))
    await within(eventually(lambda: len(b.heard) == 1), "the notice")
    assert not waiting.done()
    await within(a.write(create()))
    assert await within(waiting) is True


async def test_readers_end_when_another_gateway_erases_the_thread(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await within(a.write(create()))
    reader = b.records()
    assert (await within(anext(reader))).seq == 1
    await within(a.write(erase))
    assert [record async for record in reader] == []


# Grantees


async def give(node: Node, grantee: str) -> None:
    await within(node.grants.give("o", "t", grantee, "read", "key:o", None))


async def test_gateways_learn_of_new_grantees_by_notices(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await within(a.write(create()))
    assert not b.grants.has_grantee({"owner:bob"})
    await give(a, "owner:bob")
    await within(eventually(lambda: b.grants.has_grantee({"owner:bob"})), "the notice")
    await within(eventually(lambda: not b.grants.has_grantee({"owner:carol"})), "the grantees")
    assert b.grants.has_grantee({"owner:bob"})


async def test_gateways_learn_of_grantees_after_a_lost_connection(url: str, tmp_path: Path) -> None:
    with Wire(url).running() as wire:
        async with opened(url, tmp_path) as a, opened(wire.url, tmp_path) as b:
            await within(a.write(create()))
            await within(eventually(lambda: not b.grants.has_grantee({"owner:bob"})), "the grantees")
            wire.cut()
            await within(eventually(lambda: not b.journal.is_listening), "the loss of the connection")
            await give(a, "owner:bob")
            assert b.grants.has_grantee({"owner:bob"}) and b.grants.has_grantee({"owner:carol"})
            wire.mend()
            await within(eventually(lambda: b.journal.is_listening), "the connection")
            assert b.grants.has_grantee({"owner:bob"}) and not b.grants.has_grantee({"owner:carol"})


# Reads that follow an acknowledgement of another gateway


async def test_a_read_sees_commands_acknowledged_elsewhere(nodes: Sequence[Node]) -> None:
    a, b = nodes
    start = await begin(a)
    for each in range(20):
        one, other = (a, b) if each % 2 else (b, a)
        await within(one.write(change(n=each)))
        assert (await other.reads.thread("o", "t")).metadata == {"n": each}
        assert (await other.reads.snapshot("o", "t", Fold, partial(Fold, "t"))).seq == (
            await one.reads.snapshot("o", "t", Fold, partial(Fold, "t"))
        ).seq
    await within(a.write(lifecycle.end, start, RunOutcome()))
    assert (await b.reads.run("o", "run 1")).status is RunStatus.SUCCESS
    assert (await b.reads.task("o", "task 1")).state is TaskState.COMPLETED


async def test_runs_of_another_gateway_are_followed_to_their_end(nodes: Sequence[Node]) -> None:
    a, b = nodes
    for number in range(1, 11):
        start = await begin(a, number)
        reader = b.records(Scope("t", "task", f"task {number}"))
        assert (await within(anext(reader))).event.kind == "task_created"
        await within(a.write(lifecycle.end, start, RunOutcome()))
        rest = [record async for record in reader]
        assert isinstance(rest[-1].event, TaskChanged)
        late = await within(b.follow(Scope("t", "run", f"run {number}")))
        assert isinstance(late[-1].event, RunEnded)
        assert await within(b.follow(Scope("t", "run", f"run {number}"), late[-1].seq)) == []


async def test_a_thread_erased_elsewhere_is_not_found(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await begin(a)
    await b.reads.snapshot("o", "t", Fold, partial(Fold, "t"))
    await within(a.write(erase))
    for read in (
        b.reads.thread("o", "t"),
        b.follow(),
        b.reads.snapshot("o", "t", Fold, partial(Fold, "t")),
        b.reads.run("o", "run 1"),
    ):
        with pytest.raises(FaultError) as error:
            await within(read)
        assert error.value.fault.code is FaultCode.NOT_FOUND


async def test_a_reader_ends_if_its_thread_is_erased_meanwhile(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await within(a.write(create()))
    key = b.reads.key

    async def slow(owner: str, thread_id: str) -> int:
        pk = await key(owner, thread_id)
        await within(a.write(erase))
        await within(eventually(lambda: any(remote.erased for remote in b.heard)), "the notice")
        return pk

    vars(b.reads)["key"] = slow
    with pytest.raises(FaultError) as error:
        await within(b.follow())
    assert error.value.fault.code is FaultCode.NOT_FOUND


def again(tx: Transaction) -> None:
    tx.forget_erased("o", "t")
    tx.create_thread("o", "t", ThreadChanged(metadata={"new": True}))


async def test_a_new_thread_is_followed_with_changes_of_others(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await within(a.write(create()))
    await within(b.write(erase))
    with pytest.raises(FaultError) as error:
        await within(a.follow())
    assert error.value.fault.code is FaultCode.NOT_FOUND
    await within(b.write(again))
    first = await within(anext(a.records()))
    assert first.event == ThreadChanged(metadata={"new": True})


async def test_an_id_reused_elsewhere_belongs_to_the_new_thread(nodes: Sequence[Node]) -> None:
    a, b = nodes
    await within(a.write(create()))
    await within(b.write(change(old=True)))
    assert len(await b.reads.records("o", THREAD)) == 2
    await within(a.write(erase))
    await within(a.write(again))
    assert (await b.reads.thread("o", "t")).metadata == {"new": True}
    assert len(await b.reads.records("o", THREAD)) == 1


async def test_a_removed_run_is_dropped_from_other_gateways_caches(nodes: Sequence[Node]) -> None:
    a, b = nodes
    start = await begin(a)
    await say(a, start, "secret")
    await within(a.write(lifecycle.end, start, RunOutcome()))
    assert any("secret" in repr(record) for record in await b.reads.records("o", THREAD))
    assert "secret" in repr((await b.reads.snapshot("o", "t", Fold, partial(Fold, "t"))).messages())
    await within(a.write(deletion.remove_run, "o", "run 1"))
    assert "secret" not in repr((await b.reads.snapshot("o", "t", Fold, partial(Fold, "t"))).messages())
    assert not any("secret" in repr(record) for record in await within(b.reads.records("o", THREAD)))


# Lost connections


async def test_commits_during_a_disconnection_are_found_afterwards(nodes: Sequence[Node], postgres_tables: str) -> None:
    a, b = nodes
    await within(a.write(create()))
    reader = b.records()
    assert (await within(anext(reader))).seq == 1
    for seq in range(2, 5):
        end_listeners(postgres_tables)
        assert await within(a.write(change())) == seq
        assert (await within(anext(reader))).seq == seq


async def test_a_reader_ends_after_an_erasure_during_a_disconnection(
    nodes: Sequence[Node], postgres_tables: str
) -> None:
    a, b = nodes
    pk = await within(a.write(create()))
    reader = b.records()
    assert (await within(anext(reader))).seq == 1
    end_listeners(postgres_tables)
    await within(a.write(erase))
    assert [record async for record in reader] == []
    assert any(remote.pk == pk and remote.erased for remote in b.heard)


async def test_a_lost_notice_is_compensated_soon(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_tables: str
) -> None:
    monkeypatch.setattr(postgres, "_SILENCE", 0.2)
    async with opened(url, tmp_path) as node:
        pk = await within(node.write(create()))
        reader = node.records()
        assert (await within(anext(reader))).seq == 1
        with connect(postgres_tables) as other:  # like a gateway that sends no notice
            other.execute(
                "INSERT INTO event (thread_pk, seq, at, attempt, body) SELECT %s, 2, at, 0, body FROM event "
                "WHERE thread_pk = %s AND seq = 1",
                (pk, pk),
            )
        assert (await within(anext(reader))).seq == 2


async def test_a_listener_reconnects_after_an_unanswered_check(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freeze the listening connection, so that no notice arrives and no error reports the loss."""
    for name in ("_SILENCE", "_ANSWER"):
        monkeypatch.setattr(postgres, name, 0.2)
    with Wire(url).running() as wire:
        async with opened(url, tmp_path) as a, opened(wire.url, tmp_path) as b:
            await within(a.write(create()))
            reader = b.records()
            assert (await within(anext(reader))).seq == 1
            wire.freeze_after = b"SELECT 1\0"
            assert await asyncio.to_thread(wire.frozen.wait, 10)
            for seq in range(2, 5):
                assert await within(a.write(change())) == seq
                assert (await within(anext(reader))).seq == seq


def test_a_dead_listening_connection_is_replaced_within_thirty_seconds() -> None:
    """Add up the times from the loss of the connection to the query for missed commits."""
    bounds = (postgres._SILENCE, postgres._ANSWER, listener._RETRY_DELAY)  # pyright: ignore[reportPrivateUsage]
    assert sum(bounds) <= 25


async def test_a_gateway_can_stop_during_an_unanswered_check(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_SILENCE", 0.1)
    with Wire(url).running() as wire:
        async with opened(wire.url, tmp_path):
            wire.freeze_after = b"SELECT 1\0"
            assert await asyncio.to_thread(wire.frozen.wait, 10)
            begun = monotonic()
        assert monotonic() - begun < postgres._ANSWER / 2  # pyright: ignore[reportPrivateUsage]


async def test_a_foreign_notification_is_ignored(nodes: Sequence[Node], postgres_tables: str) -> None:
    a, b = nodes
    with connect(postgres_tables) as other:
        for payload in ("", "what?", '["n",[["x"]]]'):
            other.execute("SELECT pg_notify('babelgate_' || md5(current_schema()), %s)", (payload,))
    await within(a.write(create()))
    await within(eventually(lambda: len(b.heard) == 1), "the notice")
    assert await within(b.journal.row(Thread, "o", "t")) is not None


async def test_a_gateway_that_cannot_listen_does_not_open(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(Exception, match="no_such_column"):
        patched.setattr(postgres, "CHANNEL", "no_such_column")
        await within(Journal(url, shared=True).open())
    async with opened(url, Path()):
        pass


# Hints


async def test_a_node_hints_at_all_runs_of_others(nodes: Sequence[Node], postgres_tables: str) -> None:
    a, b = nodes
    await within(b.write(create()))
    with b.journal.changes.open("o") as stream:
        hints = stream.read()

        async def until(*wanted: tuple[str, str | None, str | None]) -> None:
            missing = set(wanted)
            while missing:
                hint = await within(anext(hints), "a hint")
                missing.discard((hint.kind, hint.id, hint.status))

        start = await begin(a)
        await until(("run", "run 1", "running"), ("thread", "t", "busy"))
        await within(a.write(lifecycle.end, start, RunOutcome()))
        later = await begin(a, 2)  # at once: the other node may read the end of the first run after this
        await within(a.write(lifecycle.end, later, RunOutcome()))
        await until(("run", "run 1", "success"), ("run", "run 2", "success"), ("thread", "t", "idle"))
        end_listeners(postgres_tables)
        await until(("run", None, None), ("thread", None, None))
        await within(a.write(erase))
        await until(("run", None, None), ("thread", None, None))
