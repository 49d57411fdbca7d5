"""Tests of the pump, which stores an agent's events promptly and keeps the agent from running far ahead of the log."""

from collections.abc import AsyncIterator

from babelgate.canonical import Event, FilePart, Invocation, Message, RunInput, Scope, Submission, TaskState, TextPart
from babelgate.canonical.event import ArtifactAdded, InterruptRaised, MessageStarted, PartAdded, PartDelta
from tests.gateway.hubs import (
    OWNER,
    HubFactory,
    Scripted,
    begin,
    ends,
    finish,
    log,
    open_questions,
    reaches,
    registered,
    say,
    submit,
    within,
)


class Plain:
    """Iterator that is not a generator, and so cannot be closed."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if not self.events:
            raise StopAsyncIteration
        return self.events.pop(0)


async def test_an_agent_may_be_any_iterator(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("a", Plain(say("hello"))))
    receipt = await submit(hub, "a")
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED


class Flood:
    """Agent that yields a thousand tokens without waiting."""

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield MessageStarted()
        yield PartAdded(part=TextPart(text=""), open=True)
        for number in range(1000):
            yield PartDelta(text=f"{number} ")


async def test_an_agent_that_never_awaits_does_not_block_others(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("flood", Flood()), registered("a", agent))
    other, activation = await begin(hub, agent)
    flood = await submit(hub, "flood")
    await finish(hub, activation, other)
    await ends(hub, flood)
    records = await log(hub, flood)
    assert sum(record.event.kind == "part_delta" for record in records) == 1000
    assert [record.event.text for record in records if isinstance(record.event, PartDelta)] == [
        f"{number} " for number in range(1000)
    ]


async def test_files_reach_the_agent_with_bytes_and_return_by_hash(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    sent = Message(role="user", parts=(FilePart(name="a.txt", media_type="text/plain", inline=b"abc"),))
    receipt = await within(hub.submit(OWNER, Submission(agent="a", input=RunInput(messages=(sent,)))))
    activation = await agent.called()
    (file,) = activation.call.files
    assert (file.name, file.inline, file.size) == ("a.txt", b"abc", 3)
    question = InterruptRaised(message=Message(parts=(FilePart(name="q", inline=b"question"),)))
    activation.say(ArtifactAdded(name="copy", part=file), ArtifactAdded(name="by hash", part=FilePart(blob=file.blob)))
    activation.say(question).end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    artifacts = [r.event.part for r in await log(hub, receipt) if isinstance(r.event, ArtifactAdded)]
    assert [part.blob for part in artifacts if isinstance(part, FilePart)] == [file.blob, file.blob]
    (question,) = await open_questions(hub, receipt)
    (part,) = question.message.parts
    assert isinstance(part, FilePart) and part.blob is not None
    assert (await hub.reads.file(OWNER, part.blob)).inline == b"question"
    inlined = await hub.reads.records(OWNER, Scope(receipt.thread_id), inline=True)
    raised = next(record.event for record in inlined if isinstance(record.event, InterruptRaised))
    assert isinstance(raised.message.parts[0], FilePart) and raised.message.parts[0].inline == b"question"
