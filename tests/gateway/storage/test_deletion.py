"""Tests of erasure: erased data leaves the database, the memory and the views, and sequence numbers have no gaps."""

import asyncio
import sqlite3
from typing import Any

import pytest

from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    Record,
    RunStatus,
    Scope,
    StateHistory,
    Submission,
    TaskState,
    TextPart,
    Webhook,
)
from babelgate.canonical.agent import AgentInfo
from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    encode_event,
)
from babelgate.canonical.hub import Receipt
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.storage.deletion import empty_event
from babelgate.gateway.storage.short_form import lengthen
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    answer,
    begin,
    ends,
    finish,
    follow,
    log,
    reaches,
    refused,
    registered,
    submit,
    submit_to_end,
    text,
    within,
)
from tests.submissions import make

SECRET = "the words that nobody may find again"


def everywhere(house: HubFactory) -> str:
    """Return the whole content of the database as one text."""
    with sqlite3.connect(house.folder / "hub.db") as connection:
        dump = "\n".join(connection.iterdump())
        bodies = [
            lengthen(body)
            for table in ("event", "thread", "task", "run", "interrupt", "blob_use", "webhook")
            for (body,) in connection.execute(f"SELECT body FROM {table}")
        ]
    connection.close()
    return dump + b"".join(bodies).decode()


# Threads


async def test_a_deleted_thread_is_not_found_and_keeps_its_id(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo", SECRET, alias="name", protocol="p", thread_metadata={"a": SECRET})
    url = "http://127.0.0.1:1/"
    hook = Webhook(webhook_id="w", task_id=receipt.task_id, dialect="d", url=url, config={"t": SECRET})
    await hub.set_webhook(OWNER, hook)
    other_task = await submit_to_end(hub, "echo", "kept")
    await hub.delete_thread(OWNER, receipt.thread_id)
    assert SECRET not in everywhere(hubs)
    for call in (
        hub.reads.thread(OWNER, receipt.thread_id),
        hub.reads.task(OWNER, receipt.task_id),
        hub.reads.run(OWNER, receipt.run_id),
        hub.reads.chain(OWNER, receipt.task_id),
        hub.reads.records(OWNER, Scope(receipt.thread_id)),
        hub.reads.webhooks(OWNER, receipt.task_id),
        hub.cancel(OWNER, receipt.task_id),
        hub.delete_thread(OWNER, receipt.thread_id),
        submit(hub, "echo", thread_id=receipt.thread_id),
        submit(hub, "echo", continues=receipt.task_id),
    ):
        with refused(FaultCode.NOT_FOUND):
            await within(call)
    assert await hub.reads.thread_of(OWNER, "p", "echo", "name") is None
    other = await submit(hub, "echo", thread_id=receipt.thread_id, owner="bob")  # another owner's thread of that id
    await ends(hub, other, owner="bob")
    again = await submit(hub, "echo", alias="name", protocol="p")
    assert again.thread_id != receipt.thread_id
    await ends(hub, again)
    assert (await hub.reads.task(OWNER, other_task.task_id)).state is TaskState.COMPLETED


async def test_a_tombstone_survives_a_restart(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    await hub.delete_thread(OWNER, receipt.thread_id)
    await hubs.stop(hub)
    hub = await hubs.start(registered("echo", Echo()))
    with refused(FaultCode.NOT_FOUND):
        await submit(hub, "echo", thread_id=receipt.thread_id)


async def test_a_deletion_ends_open_readers_and_stops_the_agent(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    receipt = await submit(hub, "a")
    activation = (await agent.called()).open("half")
    waiting = await submit(hub, "a", "waits", thread_id=receipt.thread_id)
    other = await submit(hub, "a", "elsewhere")
    scopes = (
        Scope(receipt.thread_id),
        Scope.task(receipt.task),
        Scope(receipt.thread_id, "run", receipt.run_id),
        Scope.task(waiting.task),
    )
    readers = [asyncio.ensure_future(follow(hub, scope)) for scope in scopes]
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    await hub.delete_thread(OWNER, receipt.thread_id)
    for records in await within(asyncio.gather(*readers)):
        assert not any(isinstance(record.event, RunEnded) for record in records)
    await within(activation.closed.wait())
    following = await agent.called()  # the slot is free, and the run that waited on the thread is gone
    assert following.call.text == "elsewhere"
    await finish(hub, following, other)
    assert not agent.waiting


async def test_a_slow_reader_ends_when_its_thread_is_deleted(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent)
    activation.say(*(Custom(name=str(number)) for number in range(1200)))
    await follow(hub, Scope.task(receipt.task), until=lambda r: isinstance(r.event, Custom) and r.event.name == "1199")
    reading = hub.reads.follow(OWNER, Scope(receipt.thread_id))
    first = await within(anext(reading))
    assert first[-1].seq < 1000  # not in the ring any more
    await hub.delete_thread(OWNER, receipt.thread_id)

    async def rest() -> int:
        return len([batch async for batch in reading])

    assert await within(rest()) == 0


@pytest.mark.parametrize("kind", ["thread", "run"])
async def test_other_readers_continue_past_a_removed_run(hubs: HubFactory, kind: Any) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    first = await submit_to_end(hub, "echo")
    await hub.remove_run(OWNER, first.run_id)
    second = await submit_to_end(hub, "echo", thread_id=first.thread_id)
    scope = Scope(first.thread_id, kind, None if kind == "thread" else second.run_id)
    read = await follow(hub, scope, until=lambda record: record.run_id == second.run_id and is_end(record))
    assert ("run_removed" in [record.event.kind for record in read]) == (kind == "thread")


def private(value: object, name: str) -> Any:
    return getattr(value, name)


def is_end(record: Record) -> bool:
    return isinstance(record.event, RunEnded)


async def test_a_reader_that_begins_during_a_deletion_ends(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    private(hub.reads, "_keys").clear()  # as after a long time without use
    is_queried, go = asyncio.Event(), asyncio.Event()
    query = hub.journal.query

    async def slow(read: Any, *args: Any) -> Any:
        result = await query(read, *args)
        is_queried.set()
        await go.wait()
        return result

    vars(hub.journal)["query"] = slow
    reading = asyncio.ensure_future(follow(hub, Scope(receipt.thread_id)))
    await within(is_queried.wait())
    del vars(hub.journal)["query"]
    await hub.delete_thread(OWNER, receipt.thread_id)
    go.set()
    with refused(FaultCode.NOT_FOUND):
        await within(reading)
    with pytest.raises(FaultError):
        await hub.reads.records(OWNER, Scope(receipt.thread_id))


async def test_a_disconnected_caller_of_a_deletion_leaves_no_reader(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent)
    reader = asyncio.ensure_future(follow(hub, Scope(receipt.thread_id)))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "task_changed")
    caller = asyncio.ensure_future(hub.delete_thread(OWNER, receipt.thread_id))
    await asyncio.sleep(0)
    caller.cancel()
    await within(reader)
    await within(activation.closed.wait())


async def test_files_used_only_by_a_deleted_thread_are_swept(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))

    async def send(*files: bytes, **fields: Any) -> Any:
        parts = (TextPart(text="a"), *(FilePart(inline=data) for data in files))
        ask = make(Submission, agent="echo", messages=(Message(role="user", parts=parts),), **fields)
        receipt = await hub.submit(OWNER, ask)
        await ends(hub, receipt)
        return receipt

    deleted = await send(b"shared", b"only here")
    await send(b"shared")
    blobs = vars(hub)["_parts"].blobs
    shared, only = blobs.put(b"shared"), blobs.put(b"only here")
    assert (await hub.reads.file(OWNER, only)).inline == b"only here"
    await hub.delete_thread(OWNER, deleted.thread_id)
    with pytest.raises(FaultError):
        await hub.reads.file(OWNER, only)
    assert (await hub.reads.file(OWNER, shared)).inline == b"shared"
    from babelgate.gateway.storage import queries

    used = await hub.journal.query(queries.blobs_in_use)
    assert blobs.sweep(used, 10**12) == 1
    assert (await hub.reads.file(OWNER, shared)).inline == b"shared"


# Runs


async def chatty(hub: GatewayHub, agent: Scripted, **fields: Any) -> Any:
    """Run a task with two runs, which emit the secret in every kind of event."""
    receipt = await submit(hub, "a", SECRET, data={"a": SECRET}, config={"c": SECRET}, **fields)
    question = InterruptRaised(interrupt_id="q", message=Message.of(SECRET), value={"v": SECRET})
    (await agent.called()).say(
        SECRET,
        MessageStarted(),
        PartAdded(part=TextPart(text=SECRET), open=True),
        PartDelta(text=SECRET),
        PartAdded(part=FilePart(name=SECRET, inline=SECRET.encode())),
        StepStarted(name="s", input=SECRET),
        ToolStarted(name="t", input=SECRET),
        ToolEnded(name="t", output=SECRET),
        StepEnded(name="s", update=SECRET),
        ArtifactAdded(name=SECRET, description=SECRET, part=DataPart(data=SECRET), folder=SECRET),
        Custom(value=SECRET),
        Native(protocol="p", event="e", data=SECRET),
        StateSaved(values={"a": SECRET}),
        question,
    ).end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    answered = await answer(hub, receipt.task_id, SECRET, messages=text(SECRET))
    (await agent.called()).say(SECRET).end(RunEnded(output={"o": SECRET}))
    await ends(hub, receipt)
    return receipt, answered


async def test_a_removed_run_is_emptied_and_keeps_its_numbers(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, answered = await chatty(hub, agent)
    await hub.change_run(OWNER, receipt.run_id, {"m": SECRET})
    before = await log(hub, receipt)
    assert SECRET in everywhere(hubs)
    for run_id in (receipt.run_id, answered.run_id):
        await hub.remove_run(OWNER, run_id)
    assert SECRET not in everywhere(hubs)
    after = await log(hub, receipt)
    assert [(r.seq, r.at, r.event.kind, r.run_id) for r in after[: len(before)]] == [
        (r.seq, r.at, r.event.kind, r.run_id) for r in before
    ]
    assert [record.event.kind for record in after[len(before) :]] == ["run_removed", "run_removed"]
    history = StateHistory(receipt.thread_id, OWNER, after)
    assert history.fold.messages() == []
    assert history.head is None
    run = await hub.reads.run(OWNER, answered.run_id)
    assert (run.removed, run.output, run.status) == (True, None, RunStatus.SUCCESS)
    assert (await hub.reads.task(OWNER, receipt.task_id)).state is TaskState.COMPLETED


async def submit_states(hub: GatewayHub, agent: Scripted, *states: StateSaved, thread_id: str | None = None) -> Receipt:
    """Run the agent once, so that it saves these states."""
    receipt = await submit(hub, "a", thread_id=thread_id)
    (await agent.called()).say(*states).end()
    await ends(hub, receipt)
    return receipt


async def test_a_removed_runs_states_stay_only_as_later_bases(hubs: HubFactory) -> None:
    """Remove a run whose state a later run continues. That state is deleted only with the later run."""
    agent = Scripted()
    hub = await hubs.start(RegisteredAgent(AgentInfo(name="a", remembers=True, stateful=True), agent))
    one = StateSaved(checkpoint_id="c1", values={"messages": [SECRET]})
    more = StateChange(since="c1", new={"in": {"messages": {"keep": 1, "add": ["more"]}}})
    first = await submit_states(hub, agent, one)
    second = await submit_states(
        hub, agent, StateSaved(checkpoint_id="c2", parent_id="c1", change=more), thread_id=first.thread_id
    )
    third = StateSaved(checkpoint_id="c3", parent_id="c2", values={"messages": ["other"]})
    await submit_states(hub, agent, third, thread_id=first.thread_id)
    await hub.remove_run(OWNER, first.run_id)

    async def states() -> StateHistory:
        return StateHistory(first.thread_id, OWNER, await log(hub, first))

    history = await states()
    assert history.get("c1") is None
    found = history.get("c2")
    assert found is not None
    assert found.values == {"messages": [SECRET, "more"]}
    await hub.remove_run(OWNER, second.run_id)
    assert SECRET not in everywhere(hubs)
    head = (await states()).head
    assert head is not None
    assert head.values == {"messages": ["other"]}


async def test_readers_after_a_removal_ignore_cached_records(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, answered = await chatty(hub, agent)
    for run_id in (receipt.run_id, answered.run_id):
        await hub.remove_run(OWNER, run_id)
    assert SECRET not in str(await follow(hub, Scope.task(receipt.task)))


async def test_a_removal_deletes_files_that_only_the_run_uses(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()

    async def gives(*files: bytes, thread_id: str | None = None) -> Any:
        receipt = await submit(hub, "a", thread_id=thread_id)
        (await agent.called()).say(*(ArtifactAdded(part=FilePart(inline=data)) for data in files)).end()
        await ends(hub, receipt)
        return receipt

    first = await gives(b"shared", b"only here")
    await gives(b"shared", thread_id=first.thread_id)
    blobs = vars(hub)["_parts"].blobs
    shared, only = blobs.put(b"shared"), blobs.put(b"only here")
    await hub.remove_run(OWNER, first.run_id)
    assert (await hub.reads.file(OWNER, shared)).inline == b"shared"
    with refused(FaultCode.NOT_FOUND):
        await hub.reads.file(OWNER, only)


async def test_a_run_of_an_open_task_cannot_be_removed(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt, activation = await begin(hub, agent)
    behind = await submit(hub, "a", thread_id=receipt.thread_id)
    for run_id in (receipt.run_id, behind.run_id):
        with refused(FaultCode.CONFLICT):
            await hub.remove_run(OWNER, run_id)
    activation.ask("name").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    with refused(FaultCode.CONFLICT):
        await hub.remove_run(OWNER, receipt.run_id)
    await finish(hub, await agent.called(), behind)
    await hub.remove_run(OWNER, behind.run_id)
    with refused(FaultCode.NOT_FOUND):
        await hub.remove_run(OWNER, behind.run_id)
    with refused(FaultCode.NOT_FOUND):
        await hub.remove_run("bob", receipt.run_id)


async def test_removals_that_fail_change_nothing(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo", "here")
    before = await log(hub, receipt)
    with pytest.raises(FaultError):
        await hub.remove_run(OWNER, receipt.task_id)
    with pytest.raises(FaultError):
        await hub.delete_thread("bob", receipt.thread_id)
    assert await log(hub, receipt) == before


EVENTS: list[Event] = [
    RunCreated(
        run_id="r",
        messages=text(SECRET),
        data=SECRET,
        config={"a": SECRET},
        metadata={"a": SECRET},
        headers={"a": SECRET},
    ),
    MessageStarted(message_id="m", metadata={"a": SECRET}, name=None),
    PartAdded(message_id="m", index=0, part=AnnotationPart(title=SECRET)),
    PartDelta(message_id="m", index=0, text=SECRET),
    ToolStarted(call_id="c", name="t", input=SECRET),
    ToolEnded(call_id="c", name="t", output=SECRET),
    StepStarted(step_id="s", name="s", input=SECRET),
    StepEnded(step_id="s", name="s", update=SECRET),
    ArtifactAdded(artifact_id="a", name=SECRET, description=SECRET, folder=SECRET, part=TextPart(text=SECRET)),
    InterruptRaised(interrupt_id="i", message=Message.of(SECRET), value=SECRET),
    InterruptAnswered(interrupt_id="i", value=SECRET),
    StateSaved(checkpoint_id="c", values={"a": SECRET}),
    StateSaved(checkpoint_id="c", delta={"a": SECRET}),
    Custom(value=SECRET),
    Native(protocol="p", event="e", data=SECRET),
    RunEnded(output=SECRET),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_emptied_event_keeps_only_its_kind_and_ids(event: Event) -> None:
    empty = empty_event(event.replace(extra={"a2a": {"b": SECRET}}))
    assert SECRET not in encode_event(empty).decode()
    assert empty.kind == event.kind
    for name in ("run_id", "message_id", "index", "call_id", "step_id", "artifact_id", "interrupt_id", "checkpoint_id"):
        assert getattr(empty, name, None) == getattr(event, name, None)
