"""What servers see of the hub: readers, files, other owners, and what happens when the disk is full."""

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
    House,
    Scripted,
    answer,
    begin,
    converse,
    ends,
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
    turned,
    within,
)

# Reading


async def test_a_reader_gets_what_is_there_and_then_what_comes_until_the_task_ends(hubs: House) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    going = (await agent.called()).say("one")
    reading = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "message_ended")
    going.say("two").end()
    assert await within(reading) == await log(hub, receipt, "task")


async def test_scopes_end_where_what_they_follow_ends(hubs: House) -> None:
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
    seen = await within(thread)
    assert states(seen) == ["working", "input_required", "working", "completed", "working", "completed"]


async def test_a_reader_of_what_has_ended_gets_all_of_it_and_ends(hubs: House) -> None:
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


async def test_a_reader_of_what_does_not_exist_ends_at_once(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    assert await follow(hub, Scope(receipt.thread_id, "task", str(uuid4()))) == []
    with refused(FaultCode.NOT_FOUND):
        await follow(hub, Scope(str(uuid4())))


async def test_what_comes_after_the_end_of_a_task_is_shown_to_none_of_its_readers(hubs: House) -> None:
    """Whether they were there at the end, came afterwards, or begin behind it."""
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


async def test_the_metadata_of_an_ended_run_are_replaced_and_the_thread_tells_of_it(hubs: House) -> None:
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


async def test_a_slow_reader_goes_from_pages_to_the_ring_without_a_gap(hubs: House) -> None:
    """The log is longer than the ring and than a page while the reader stands still."""
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    going = (await agent.called()).open("")
    reading = hub.reads.follow(OWNER, Scope.task(receipt.task))
    async with aclosing(reading):
        seen = list(await within(anext(reading)))
        for number in range(3000):
            going.more(f"{number} ")
        await finish(hub, going, receipt)
        seen += [record async for batch in reading for record in batch]
    assert seen == await log(hub, receipt, "task")
    assert len(seen) > 3000


async def test_readers_that_come_and_go_leave_nothing_behind(hubs: House) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit_and_ask(hub, agent, "name")
    for _ in range(20):
        reader = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
        await follow(hub, Scope.task(receipt.task), until=lambda r: r.event.kind == "interrupt_raised")
        reader.cancel()
        await asyncio.wait([reader])
    channels = list(vars(hub.journal.channels)["_channels"].values())
    assert [channel.readers for channel in channels] == [0]


async def test_records_are_the_whole_of_a_scope_however_long_it_is(hubs: House) -> None:
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


async def test_small_files_travel_inside_the_records_and_large_ones_by_hash(hubs: House) -> None:
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


async def test_a_file_is_reached_only_by_an_owner_whose_thread_names_it(hubs: House) -> None:
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


async def test_a_submission_whose_file_is_too_large_makes_nothing(hubs: House) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    vars(hub)["_parts"].blobs.limit = 10
    message = Message(role="user", parts=(FilePart(inline=b"x" * 11),))
    with refused(FaultCode.TOO_LARGE):
        await hub.submit(OWNER, Submission(agent="echo", input=RunInput(messages=(message,))))
    assert (await hub.reads.tasks(OWNER, TaskFilter(), limit=1)).total == 0


# Owners


async def test_another_owner_finds_nothing_and_may_use_the_same_ids(hubs: House) -> None:
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
    """The database's disk, as the writer finds it."""

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


async def test_a_full_disk_refuses_what_does_not_fit_and_everything_goes_on_when_there_is_room(
    hubs: House, caplog: pytest.LogCaptureFixture
) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    disk = Disk(hub)
    await ends(hub, await submit(hub, "echo"))
    assert await hub.ready() is None
    await disk.fill()
    with refused(FaultCode.UNAVAILABLE) as error:
        await submit(hub, "echo", LARGE)
    assert "x" * 50 not in error.value.fault.message
    assert "could not be stored" in caplog.text  # until something is that fits, the gateway is not ready
    disk.empty()
    assert await hub.ready() is None
    await ends(hub, await submit(hub, "echo", LARGE))


async def test_a_gateway_on_a_disk_without_room_is_not_ready(hubs: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody's words do not fit."""
    hub = await hubs.start(registered("echo", Echo()))
    assert await hub.ready() is None
    monkeypatch.setattr("babelgate.gateway.runs.readiness.MIN_FREE", 2**62)
    assert "bytes left" in (await hub.ready() or "")


async def test_a_gateway_whose_database_cannot_be_written_to_is_not_ready(hubs: House) -> None:
    """Before anybody has tried."""
    hub = await hubs.start(registered("echo", Echo()))
    await hub.retention.stop()  # which writes when it starts
    await hub.journal.write(lambda tx: tx.connection.exec_driver_sql("PRAGMA query_only=ON"))
    assert hub.journal.failure is None
    assert "readonly" in (await hub.ready() or "")
    assert hub.journal.failure is not None


async def test_what_an_agent_says_while_the_disk_is_full_is_stored_when_there_is_room(hubs: House) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    going = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    disk = Disk(hub)
    await disk.fill()
    going.more(LARGE).more("after it")
    await within(turned(lambda: hub.journal.failure is not None), "the refusal")
    disk.empty()
    going.end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    texts = [record.event.text for record in await log(hub, receipt) if isinstance(record.event, PartDelta)]
    assert "".join(texts) == LARGE + "after it"


async def test_a_run_whose_words_cannot_be_stored_ends_failed_when_there_is_room_and_its_log_is_whole(
    hubs: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE_OF_RUNS", 0.0)
    hub, agent = await hubs.scripted(concurrency=1)
    receipt = await submit(hub, "a")
    going = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    disk = Disk(hub)
    await disk.fill()
    going.more(LARGE).more("after the loss").say(MessageStarted(message_id="later"))
    await within(going.closed.wait())
    disk.empty()
    await fails(hub, receipt, FaultCode.UNAVAILABLE)
    records = await log(hub, receipt)
    assert not any(isinstance(record.event, PartDelta) for record in records)
    assert "later" not in str(records)
    await converse(hub, agent)


async def test_a_run_fails_whose_agent_ended_before_its_words_were_refused(
    hubs: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE_OF_RUNS", 0.2)
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    going = (await agent.called()).open("stored ")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    (pump,) = hub.engine.pumps()
    disk = Disk(hub)
    await disk.fill()
    going.more(LARGE)
    await within(turned(lambda: hub.journal.failure is not None), "the refusal")
    going.end()
    await within(turned(lambda: pump.refused is not None), "the end of all tries")
    disk.empty()
    await fails(hub, receipt, FaultCode.UNAVAILABLE)


async def test_an_end_that_cannot_be_stored_is_stored_as_soon_as_it_can(hubs: House) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    receipt, waiting = await submit(hub, "a"), await submit(hub, "a", "waiting")
    going = await agent.called()
    disk = Disk(hub)
    await disk.fill()
    going.end(RunEnded(output=LARGE))
    await within(going.closed.wait())
    await within(turned(lambda: hub.journal.failure is not None), "the end on its way to the disk")
    assert (await hub.reads.run(OWNER, receipt.run_id)).status is RunStatus.RUNNING
    disk.empty()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    assert (await hub.reads.run(OWNER, receipt.run_id)).output == LARGE
    await finish(hub, await agent.called(), waiting)


# The end


async def test_a_hub_that_has_stopped_refuses_everything_and_hangs_nowhere(hubs: House) -> None:
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


async def test_a_stop_with_everything_going_on_takes_no_longer_than_the_grace(hubs: House) -> None:
    agent, stubborn = Scripted(), Scripted(stubborn=True)
    hub = await hubs.start(registered("a", agent), registered("b", stubborn), limits=Limits(cancel_grace=0.1))
    receipts = [await submit(hub, "a") for _ in range(5)]
    receipts.append(await submit(hub, "b"))
    await stubborn.called()
    readers = [asyncio.ensure_future(follow(hub, Scope.task(receipt.task))) for receipt in receipts]
    await within(hubs.stop(hub), seconds=5)
    for records in await within(asyncio.gather(*readers)):
        assert not any(isinstance(record.event, RunEnded) for record in records)


async def test_what_an_agent_says_while_the_gateway_stops_is_stored_or_not_but_never_half(hubs: House) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt, going = await begin(hub, agent)
    going.say(*say("in time"))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "message_ended")
    going.say("on the edge")
    await hubs.stop(hub)
    hub = await hubs.start(registered("a", agent, idempotent=True))
    await finish(hub, await agent.called(), receipt)
    assert "in time" in str(await log(hub, receipt))
