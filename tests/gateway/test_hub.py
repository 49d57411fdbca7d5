"""Tests of the hub as servers use it: readers, files, owners, and a full disk."""

import asyncio
import sqlite3
from contextlib import aclosing
from typing import Any, cast
from uuid import uuid4

import pytest

from babelgate.canonical import (
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Record,
    RunInput,
    RunStatus,
    Scope,
    Submission,
    TaskFilter,
    TaskState,
    TextPart,
    Webhook,
)
from babelgate.canonical.event import (
    Custom,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunChanged,
    RunCreated,
    RunEnded,
    TaskChanged,
)
from babelgate.canonical.fold import Fold
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage import unavailable
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    answer,
    begin,
    converse,
    ends,
    eventually,
    fails,
    finish,
    follow,
    log,
    reaches,
    refused,
    registered,
    say,
    states,
    submit,
    submit_and_ask,
    submit_to_end,
    within,
)

# Reading


async def test_a_reader_gets_stored_and_live_records_to_the_end(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).say("one")
    reading = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "message_ended")
    activation.say("two").end()
    assert await within(reading) == await log(hub, receipt, "task")


async def test_scopes_end_with_their_run_task_or_thread(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    of_run = Scope(receipt.thread_id, "run", receipt.run_id)
    run = asyncio.ensure_future(follow(hub, of_run))
    task = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
    thread = asyncio.ensure_future(follow(hub, Scope(receipt.thread_id)))
    (await agent.called()).ask("name").end()
    assert isinstance((await within(run))[-1].event, RunEnded)
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    assert not task.done()
    await answer(hub, receipt.task_id, "Bob")
    (await agent.called()).end()
    last = (await within(task))[-1].event
    assert isinstance(last, TaskChanged) and last.state is TaskState.COMPLETED
    await converse(hub, agent, thread_id=receipt.thread_id)
    assert not thread.done()
    await hub.delete_thread(OWNER, receipt.thread_id)
    records = await within(thread)
    assert states(records) == ["working", "input_required", "working", "completed", "working", "completed"]


async def test_a_reader_of_an_ended_scope_gets_all_records(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    await ends(hub, await submit(hub, "echo", thread_id=receipt.thread_id))
    for kind, ident in (("task", receipt.task_id), ("run", receipt.run_id)):
        scope = Scope(receipt.thread_id, cast("Any", kind), ident)
        whole = await follow(hub, scope)
        assert whole == await log(hub, receipt, kind)
        assert await follow(hub, scope, whole[3].seq) == whole[4:]
        assert await follow(hub, scope, whole[-1].seq) == []
        assert await follow(hub, scope, 10**6) == []


async def test_a_reader_of_an_unknown_scope_ends_at_once(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    assert await follow(hub, Scope(receipt.thread_id, "task", str(uuid4()))) == []
    with refused(FaultCode.NOT_FOUND):
        await follow(hub, Scope(str(uuid4())))


async def test_readers_of_a_task_get_nothing_after_its_end(hubs: HubFactory) -> None:
    """Cover readers that begin before, at and after the end of the task."""
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit(hub, "echo")
    scope = Scope.task(receipt.task)
    task = await ends(hub, receipt)
    before = await follow(hub, scope)
    await hub.remove_run(OWNER, receipt.run_id)
    for _ in ("from memory", "from the journal"):
        after = await follow(hub, scope)
        assert [record.seq for record in after] == [record.seq for record in before]
        assert await follow(hub, scope, task.last_seq) == []
        assert after == await log(hub, receipt, "task")
        vars(hub.journal.channels)["_channels"].clear()
    assert (await log(hub, receipt))[-1].event.kind == "run_removed"


async def test_the_metadata_of_an_ended_run_can_be_replaced(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, call = await begin(hub, agent, metadata={"a": "1", "b": "2"})
    with pytest.raises(FaultError, match="can be changed once it has ended"):
        await hub.change_run(OWNER, receipt.run_id, {"a": "3"})
    await finish(hub, call, receipt)
    of_task = await log(hub, receipt, "task")
    changed = await hub.change_run(OWNER, receipt.run_id, {"a": "3"})
    assert changed.metadata == {"a": "3"}
    assert await hub.reads.run(OWNER, receipt.run_id) == changed
    assert await log(hub, receipt, "task") == of_task
    records = await log(hub, receipt)
    assert records[-1].event == RunChanged(run_id=receipt.run_id, metadata={"a": "3"})
    assert Fold(receipt.thread_id, OWNER, records).runs[receipt.run_id].metadata == {"a": "3"}


async def test_a_slow_reader_switches_from_pages_to_memory_without_gaps(hubs: HubFactory) -> None:
    """Write a log longer than the ring and than a page while the reader waits."""
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("")
    reading = hub.reads.follow(OWNER, Scope.task(receipt.task))
    async with aclosing(reading):
        records = list(await within(anext(reading)))
        for number in range(3000):
            activation.more(f"{number} ")
        await finish(hub, activation, receipt)
        records += [record async for batch in reading for record in batch]
    assert records == await log(hub, receipt, "task")
    assert len(records) > 3000


async def test_cancelled_readers_are_removed(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit_and_ask(hub, agent, "name")
    for _ in range(20):
        reader = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
        await follow(hub, Scope.task(receipt.task), until=lambda r: r.event.kind == "interrupt_raised")
        reader.cancel()
        await asyncio.wait([reader])
    channels = list(vars(hub.journal.channels)["_channels"].values())
    assert [channel.readers for channel in channels] == [0]


async def test_records_returns_a_whole_scope_of_any_length(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    first = await submit(hub, "a", "first")
    (await agent.called()).say(*(Custom(name=str(number)) for number in range(2500))).end()
    await ends(hub, first)
    second = await converse(hub, agent, "second", thread_id=first.thread_id)
    assert sum(isinstance(record.event, Custom) for record in await log(hub, first, "task")) == 2500
    assert {record.task_id for record in await log(hub, second, "task")} == {second.task_id}
    everything = await log(hub, first)
    assert [record.seq for record in everything] == list(range(1, len(everything) + 1))
    assert await hub.reads.records(OWNER, Scope(first.thread_id), after=2000) == everything[2000:]


# Files


async def test_small_files_are_inline_and_large_ones_by_hash(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(limits=Limits(inline=10))
    parts = (TextPart(text="two files"), FilePart(name="s", inline=b"small"), FilePart(name="l", inline=b"x" * 11))
    receipt = await hub.submit(
        OWNER, Submission(agent="a", input=RunInput(messages=(Message(role="user", parts=parts),)))
    )
    (await agent.called()).say(MessageStarted(), PartAdded(part=FilePart(name="o", inline=b"out"))).end()
    await ends(hub, receipt)

    def inputs(records: list[Record]) -> list[bytes | None]:
        created = next(record.event for record in records if isinstance(record.event, RunCreated))
        return [part.inline for part in created.messages[0].parts if isinstance(part, FilePart)]

    plain = await log(hub, receipt)
    assert inputs(plain) == [None, None]
    filled = list(await hub.reads.records(OWNER, Scope(receipt.thread_id), inline=True))
    assert inputs(filled) == [b"small", None]
    output = next(record.event.part for record in filled if isinstance(record.event, PartAdded))
    assert isinstance(output, FilePart) and output.inline == b"out"
    reading = hub.reads.follow(OWNER, Scope.task(receipt.task), inline=True)
    read = [record async for batch in reading for record in batch]
    assert inputs(read) == [b"small", None]


async def test_a_file_is_visible_only_to_owners_that_use_it(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    message = Message(role="user", parts=(FilePart(name="a.txt", media_type="text/plain", inline=b"abc"),))
    receipt = await hub.submit(OWNER, Submission(agent="echo", input=RunInput(messages=(message,))))
    await ends(hub, receipt)
    created = next(r.event for r in await log(hub, receipt) if isinstance(r.event, RunCreated))
    (part,) = created.messages[0].parts
    assert isinstance(part, FilePart) and part.blob is not None
    found = await hub.reads.file(OWNER, part.blob)
    assert (found.name, found.media_type, found.inline) == ("a.txt", "text/plain", b"abc")
    for owner, blob in (("bob", part.blob), (OWNER, "0" * 64), (OWNER, "../../etc/passwd")):
        with refused(FaultCode.NOT_FOUND):
            await hub.reads.file(owner, blob)


async def test_a_submission_with_a_too_large_file_changes_nothing(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    vars(hub)["_parts"].blobs.limit = 10
    message = Message(role="user", parts=(FilePart(inline=b"x" * 11),))
    with refused(FaultCode.TOO_LARGE):
        await hub.submit(OWNER, Submission(agent="echo", input=RunInput(messages=(message,))))
    assert (await hub.reads.tasks(OWNER, TaskFilter(), limit=1)).total == 0


# Owners


async def test_another_owner_finds_nothing_and_may_use_the_same_ids(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    thread_id, task_id, run_id = (str(uuid4()) for _ in range(3))
    mine = await submit_and_ask(
        hub, agent, "name", thread_id=thread_id, task_id=task_id, run_id=run_id, alias="x", protocol="p"
    )
    hook = Webhook(webhook_id="w", task_id=task_id, dialect="d", url="http://127.0.0.1:1/")
    await hub.set_webhook(OWNER, hook)
    for call in (
        hub.reads.thread("bob", thread_id),
        hub.reads.task("bob", task_id),
        hub.reads.run("bob", run_id),
        hub.reads.chain("bob", task_id),
        hub.reads.records("bob", Scope(thread_id)),
        hub.cancel("bob", task_id),
        hub.delete_thread("bob", thread_id),
        hub.remove_run("bob", run_id),
        hub.change_run("bob", run_id, {}),
        hub.reads.webhooks("bob", task_id),
        hub.set_webhook("bob", hook),
        hub.delete_webhook("bob", task_id, "w"),
        answer(hub, task_id, "Eve", owner="bob"),
        submit(hub, "a", follow_up=task_id, owner="bob"),
        submit(hub, "a", continues=task_id, owner="bob"),
        submit(hub, "a", thread_id=thread_id, if_missing="reject", owner="bob"),
        follow(hub, Scope(thread_id), owner="bob"),
    ):
        with refused(FaultCode.NOT_FOUND):
            await within(call)
    assert await hub.reads.open_interrupts("bob", task_id) == []
    assert await hub.reads.aliases("bob", "p", [thread_id]) == {}
    assert (await hub.reads.tasks("bob", TaskFilter(), limit=10)).total == 0
    before = await log(hub, mine)
    same = await submit(hub, "a", thread_id=thread_id, task_id=task_id, run_id=run_id, owner="bob")
    assert (same.thread_id, same.task_id, same.run_id) == (thread_id, task_id, run_id)
    (await agent.called()).ask("name").end()
    await reaches(hub, same, TaskState.INPUT_REQUIRED, owner="bob")
    await answer(hub, task_id, "Bob", owner="bob")
    (await agent.called()).end()
    await ends(hub, same, owner="bob")
    assert await log(hub, mine) == before
    await hub.delete_thread("bob", thread_id)
    assert await log(hub, mine) == before
    assert [found.webhook_id for found in await hub.reads.webhooks(OWNER, task_id)] == ["w"]


# A full disk


class Disk:
    """Disk of the database, which a test can fill."""

    def __init__(self, hub: GatewayHub) -> None:
        self.hub = hub
        self.raw: sqlite3.Connection | None = None

    async def fill(self) -> None:
        def grab(tx: Transaction) -> Any:
            return tx.connection.connection.dbapi_connection

        self.raw = await within(self.hub.journal.write(grab))
        assert self.raw is not None
        (pages,) = self.raw.execute("PRAGMA page_count").fetchone()
        self.raw.execute(f"PRAGMA max_page_count={pages}")

    def empty(self) -> None:
        assert self.raw is not None
        self.raw.execute("PRAGMA max_page_count=1000000")


LARGE = "x" * 200_000


async def test_a_full_disk_refuses_inputs_until_there_is_space(
    hubs: HubFactory, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    disk = Disk(hub)
    await ends(hub, await submit(hub, "echo"))
    assert await hub.ready() is None
    await disk.fill()
    with refused(FaultCode.UNAVAILABLE) as error:
        await submit(hub, "echo", LARGE)
    assert "x" * 50 not in error.value.fault.message
    assert "could not be stored" in caplog.text  # the gateway is not ready until a smaller write succeeds
    disk.empty()
    assert await hub.ready() is None
    await ends(hub, await submit(hub, "echo", LARGE))


async def test_a_gateway_on_a_nearly_full_disk_is_not_ready(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the gateway is not ready even before a write has failed."""
    hub = await hubs.start(registered("echo", Echo()))
    assert await hub.ready() is None
    monkeypatch.setattr("babelgate.gateway.runs.readiness.MIN_FREE", 2**62)
    assert "bytes left" in (await hub.ready() or "")


async def test_a_gateway_with_a_read_only_database_is_not_ready(hubs: HubFactory) -> None:
    """Check that the gateway is not ready even before a caller has tried to write."""
    hub = await hubs.start(registered("echo", Echo()))
    await hub.retention.stop()  # retention writes when it starts
    await hub.journal.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA query_only=ON"))
    assert hub.journal.failure is None
    assert "readonly" in (await hub.ready() or "")
    assert hub.journal.failure is not None


async def test_output_during_a_full_disk_is_stored_later(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    disk = Disk(hub)
    await disk.fill()
    activation.more(LARGE).more("after it")
    await within(eventually(lambda: hub.journal.failure is not None), "the refusal")
    disk.empty()
    activation.end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    texts = [record.event.text for record in await log(hub, receipt) if isinstance(record.event, PartDelta)]
    assert "".join(texts) == LARGE + "after it"


async def test_a_run_with_unstorable_output_fails_with_a_whole_log(
    hubs: HubFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE_OF_RUNS", 0.0)
    hub, agent = await hubs.scripted(concurrency=1)
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    disk = Disk(hub)
    await disk.fill()
    activation.more(LARGE).more("after the loss").say(MessageStarted(message_id="later"))
    await within(activation.closed.wait())
    disk.empty()
    await fails(hub, receipt, FaultCode.UNAVAILABLE)
    records = await log(hub, receipt)
    assert not any(isinstance(record.event, PartDelta) for record in records)
    assert "later" not in str(records)
    await converse(hub, agent)


async def test_a_run_fails_if_its_last_output_is_refused(hubs: HubFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE_OF_RUNS", 0.2)
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    (pump,) = hub.engine.pumps()
    disk = Disk(hub)
    await disk.fill()
    activation.more(LARGE)
    await within(eventually(lambda: hub.journal.failure is not None), "the refusal")
    activation.end()
    await within(eventually(lambda: pump.refused is not None), "the end of all tries")
    disk.empty()
    await fails(hub, receipt, FaultCode.UNAVAILABLE)


async def test_an_unstorable_end_is_stored_later(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    receipt, waiting = await submit(hub, "a"), await submit(hub, "a", "waiting")
    activation = await agent.called()
    disk = Disk(hub)
    await disk.fill()
    activation.end(RunEnded(output=LARGE))
    await within(activation.closed.wait())
    await within(eventually(lambda: hub.journal.failure is not None), "the end on its way to the disk")
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.RUNNING
    disk.empty()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert (await hub.reads.run(OWNER, receipt.run_id)).output == LARGE
    await finish(hub, await agent.called(), waiting)


# The end


async def test_a_stopped_hub_refuses_every_call(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    await hubs.stop(hub)
    for call in (
        submit(hub, "echo"),
        hub.cancel(OWNER, receipt.task_id),
        hub.reads.task(OWNER, receipt.task_id),
        hub.delete_thread(OWNER, receipt.thread_id),
    ):
        with refused(FaultCode.SHUTTING_DOWN):
            await within(call)
    assert (await follow(hub, Scope.task(receipt.task)))[-1].event.kind == "task_changed"  # from memory
    vars(hub.journal.channels)["_channels"].clear()
    assert await follow(hub, Scope.task(receipt.task)) == []


async def test_a_stop_under_load_takes_at_most_the_grace_period(hubs: HubFactory) -> None:
    agent, stubborn = Scripted(), Scripted(stubborn=True)
    hub = await hubs.start(registered("a", agent), registered("b", stubborn), limits=Limits(cancel_grace=0.1))
    receipts = [await submit(hub, "a") for _ in range(5)]
    receipts.append(await submit(hub, "b"))
    await stubborn.called()
    readers = [asyncio.ensure_future(follow(hub, Scope.task(receipt.task))) for receipt in receipts]
    await within(hubs.stop(hub), seconds=5)
    for records in await within(asyncio.gather(*readers)):
        assert not any(isinstance(record.event, RunEnded) for record in records)


async def test_output_during_a_stop_is_never_stored_in_part(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt, activation = await begin(hub, agent)
    activation.say(*say("in time"))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "message_ended")
    activation.say("on the edge")
    await hubs.stop(hub)
    hub = await hubs.start(registered("a", agent, idempotent=True))
    await finish(hub, await agent.called(), receipt)
    assert "in time" in str(await log(hub, receipt))
