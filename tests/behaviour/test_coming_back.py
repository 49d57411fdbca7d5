"""Effects of a stop and a new start on runs that are running, queued or paused."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from babelgate.canonical import (
    Event,
    FaultCode,
    Fold,
    Invocation,
    Receipt,
    Record,
    RunReason,
    RunStatus,
    Scope,
    Task,
    TaskState,
    TextPart,
)
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    UpstreamBound,
)
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Limits
from tests.gateway.hubs import (
    OWNER,
    Activation,
    HubFactory,
    answer,
    ends,
    finish,
    follow,
    kinds,
    log,
    open_questions,
    reaches,
    registered,
    run_is,
    states,
    submit,
    submit_and_ask,
    within,
)


async def restarted(hubs: HubFactory, hub: GatewayHub, agent: Any, **options: Any) -> GatewayHub:
    """Stop the hub, and start another one on its database, with the same agent."""
    await hubs.stop(hub)
    return await hubs.start(registered("a", agent, **options))


async def test_a_graceful_stop_ends_readers_but_not_the_run(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt = await submit(hub, "a", "work")
    activation = (await agent.called()).open("half")
    reading = asyncio.ensure_future(follow(hub, Scope.task(receipt.task)))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_added")
    await hubs.stop(hub)
    before = await within(reading)
    assert activation.cancelled.is_set()
    assert not any(isinstance(r.event, RunEnded) or r.event.kind == "part_ended" for r in before)
    hub = await hubs.start(registered("a", agent, idempotent=True))
    activation = await agent.called()
    assert (activation.call.attempt, activation.call.text) == (2, "work")
    activation.say("all of it").end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    records = await log(hub, receipt, "task")
    assert records[: len(before)] == before
    starts = [record.event for record in records if isinstance(record.event, RunStarted)]
    assert [(start.attempt, start.resumed) for start in starts] == [(1, False), (2, True), (2, False)]


async def test_a_stop_detaches_an_agent_instead_of_cancelling_it(hubs: HubFactory) -> None:
    reasons: list[tuple[object, ...]] = []

    class Asking:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            yield Custom(name="here")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                reasons.append(error.args)
                raise

    hub = await hubs.start(registered("a", Asking()))
    receipt = await submit(hub, "a")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "custom")
    await hubs.stop(hub)
    assert reasons == [(DETACH,)]


async def test_a_stop_detaches_an_agent_that_waits_for_the_journal(hubs: HubFactory) -> None:
    reasons: list[object] = []

    class Talkative:
        """An agent that never awaits anything, so that it can only be suspended at a yield."""

        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            while True:
                try:
                    yield Custom(name="more")
                except BaseException as error:
                    reasons.append(error.args)
                    raise

    hub = await hubs.start(registered("a", Talkative()))
    receipt = await submit(hub, "a")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "custom")
    await hubs.stop(hub)
    assert reasons == [(DETACH,)]


async def test_a_restart_fails_runs_that_cannot_be_repeated(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted()
    receipt = await submit(hub, "a")
    (await agent.called()).open("half").ask("a question that nobody will answer")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "interrupt_raised")
    behind = await submit(hub, "a", thread_id=receipt.thread_id)
    hub = await restarted(hubs, hub, agent)
    task = await hub.reads.task(OWNER, receipt.task_id)
    assert task.state is TaskState.FAILED
    assert task.fault is not None and task.fault.code is FaultCode.GATEWAY_RESTARTED
    assert "idempotent" in task.fault.message
    assert kinds(await log(hub, receipt, "task"))[-5:] == [
        "part_ended",
        "message_ended",
        "run_ended",
        "interrupt_answered",
        "task_changed",
    ]
    await finish(hub, await agent.called(), behind)


@dataclass
class Cut:
    """A run of an idempotent agent that a restart has cut off, and the agent's next start."""

    hub: GatewayHub
    receipt: Receipt
    before: list[Record]
    again: Activation

    async def ends(self) -> Task:
        return await ends(self.hub, self.receipt)

    async def after(self) -> list[Record]:
        """Return the records that the restart added to the log."""
        records = await log(self.hub, self.receipt, "task")
        assert records[: len(self.before)] == self.before
        return records[len(self.before) :]

    async def texts(self) -> list[str]:
        fold = Fold(self.receipt.thread_id, OWNER, await log(self.hub, self.receipt))
        return [message.text for message in fold.messages(run_id=self.receipt.run_id) if message.role == "agent"]


async def cut_off(hubs: HubFactory, *events: Event) -> Cut:
    """Restart the hub after the agent has emitted the events, and return the run with the agent's next start."""
    hub, agent = await hubs.scripted(idempotent=True)
    receipt = await submit(hub, "a", "work")
    (await agent.called()).say(*events, Custom(name="cut"))
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event == Custom(name="cut"))
    hub = await restarted(hubs, hub, agent, idempotent=True)
    again = await agent.called()
    return Cut(hub, receipt, await log(hub, receipt, "task"), again)


def opened(text: str, *more: str, message_id: str | None = None) -> list[Event]:
    deltas = [PartDelta(message_id=message_id, text=piece) for piece in more]
    part = PartAdded(message_id=message_id, part=TextPart(text=text), open=True)
    return [MessageStarted(message_id=message_id), part, *deltas]


def is_last(text: str) -> Callable[[Record], bool]:
    return lambda record: isinstance(record.event, PartDelta) and record.event.text == text


async def test_a_restarted_agent_continues_after_the_repeated_events(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, StepStarted(name="plan"), *opened("one ", "two ", "thr"))
    cut.again.say(StepStarted(name="plan"), *opened("", "on", "e two t", "hr"), Custom(name="cut"))
    cut.again.say(PartDelta(text="ee"), PartEnded(), MessageEnded(), StepEnded(name="plan")).end()
    assert (await cut.ends()).state is TaskState.COMPLETED
    assert await cut.texts() == ["one two three"]
    after = [record.event for record in await cut.after()]
    assert [event.kind for event in after] == [
        "part_delta",
        "part_ended",
        "message_ended",
        "step_ended",
        "run_ended",
        "task_changed",
    ]
    started = next(record.event for record in cut.before if isinstance(record.event, MessageStarted))
    assert after[0] == PartDelta(message_id=started.message_id, index=0, text="ee")


async def test_repeated_messages_match_even_with_new_ids(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, *opened("half", message_id="first"))
    cut.again.say(*opened("ha", "lf", message_id="second"), Custom(name="cut"))
    cut.again.say(PartDelta(message_id="second", text=" and whole"), PartEnded(message_id="second"))
    cut.again.say(MessageEnded(message_id="second"), *opened("more", message_id="first")).end()
    assert (await cut.ends()).state is TaskState.COMPLETED
    assert await cut.texts() == ["half and whole", "more"]


async def test_a_diverging_agent_starts_over_and_its_last_attempt_counts(hubs: HubFactory) -> None:
    artifact = ArtifactAdded(artifact_id="a", name="a.txt", part=TextPart(text="old"))
    cut = await cut_off(hubs, *opened("one ", "two ", message_id="m"), artifact)
    cut.again.say(*opened("one ", "t", message_id="m"))
    cut.again.say(PartDelta(text="hree", message_id="m"), PartEnded(message_id="m"), MessageEnded(message_id="m")).end()
    assert (await cut.ends()).state is TaskState.COMPLETED
    assert await cut.texts() == ["one three"]
    after = await cut.after()
    assert [record.event.kind for record in after][:3] == ["part_ended", "message_ended", "run_started"]
    start = after[2].event
    assert isinstance(start, RunStarted) and start.is_restart
    fold = Fold(cut.receipt.thread_id, OWNER, await log(cut.hub, cut.receipt))
    assert not fold.artifacts
    names = {record.event.message_id for record in [*cut.before, *after] if isinstance(record.event, MessageStarted)}
    assert len(names) == 2, "a void part must not share its id with a valid one"


async def test_an_agent_that_emits_less_starts_over_at_its_end(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, *opened("one two three"))
    cut.again.say(*opened("one two "), PartEnded(), MessageEnded()).end()
    assert (await cut.ends()).state is TaskState.COMPLETED
    assert await cut.texts() == ["one two "]


async def test_a_failure_during_the_repetition_keeps_earlier_messages(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, *opened("one ", "two "))
    cut.again.say(*opened("one ")).fail(RuntimeError("no more"))
    task = await cut.ends()
    assert task.state is TaskState.FAILED
    assert await cut.texts() == ["one two "]
    assert not any(isinstance(record.event, RunStarted) for record in await cut.after())


async def test_a_cancel_during_the_repetition_keeps_earlier_messages(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, *opened("one ", "two "))
    cut.again.say(*opened("one "))
    await cut.hub.cancel(OWNER, cut.receipt.task_id)
    assert (await cut.ends()).state is TaskState.CANCELLED
    assert await cut.texts() == ["one two "]


async def test_a_run_restarted_many_times_emits_everything_once(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt = await submit(hub, "a", "work")
    words = [f"{number} " for number in range(8)]
    for attempt in range(1, 5):
        activation = await agent.called()
        assert activation.call.attempt == attempt
        activation.say(*opened("", *words[: 2 * attempt]))
        await follow(hub, Scope.task(receipt.task), until=is_last(words[2 * attempt - 1]))
        hub = await restarted(hubs, hub, agent, idempotent=True)
    activation = await agent.called()
    activation.say(*opened("".join(words)), PartEnded(), MessageEnded()).end()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    events = [record.event for record in await log(hub, receipt)]
    assert [event.text for event in events if isinstance(event, PartDelta)] == words
    assert sum(isinstance(event, MessageStarted) for event in events) == 1


async def test_past_events_of_a_call_exclude_void_ones(hubs: HubFactory) -> None:
    cut = await cut_off(hubs, *opened("void"))
    cut.again.say(*opened("holds", "!"))
    await follow(cut.hub, Scope.task(cut.receipt.task), until=is_last("!"))
    past = [record.event for record in await cut.again.call.past()]
    assert [event.part for event in past if isinstance(event, PartAdded)] == [TextPart(text="holds")]
    cut.again.end()
    await cut.ends()


async def test_a_restarted_idempotent_agent_asks_its_questions_again(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt = await submit(hub, "a")
    (await agent.called()).ask("name")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "interrupt_raised")
    hub = await restarted(hubs, hub, agent, idempotent=True)
    (await agent.called()).ask("name").end()
    await reaches(hub, receipt, TaskState.INPUT_REQUIRED)
    (question,) = await open_questions(hub, receipt)
    await answer(hub, receipt.task_id, values={question.interrupt_id: "Bob"})
    activation = await agent.called()
    assert [value.value for value in activation.call.answers] == ["Bob"]
    await finish(hub, activation, receipt)


async def test_queued_and_paused_runs_survive_a_restart(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    paused = await submit_and_ask(hub, agent, "name", words="paused")
    lost = await submit(hub, "a", "lost")
    await agent.called()
    queued = [await submit(hub, "a", str(number), thread_id=lost.thread_id) for number in range(2)]
    other = await submit(hub, "a", "2")
    before = await log(hub, paused)
    hub = await restarted(hubs, hub, agent, concurrency=1)
    assert await log(hub, paused) == before
    for number in (0, 1, 2):
        activation = await agent.called()
        assert activation.call.text == str(number)
        assert not agent.waiting
        activation.end()
    for receipt in (*queued, other):
        assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    await answer(hub, paused.task_id, "Bob")
    await finish(hub, await agent.called(), paused)


async def test_a_run_of_a_removed_agent_ends_with_a_fault(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(concurrency=1)
    running = await submit(hub, "a")
    await agent.called()
    waiting = await submit(hub, "a")
    await hubs.stop(hub)
    hub = await hubs.start(registered("b", agent))
    for receipt, code in ((running, FaultCode.GATEWAY_RESTARTED), (waiting, FaultCode.AGENT_UNREACHABLE)):
        task = await ends(hub, receipt)
        assert task.fault is not None and task.fault.code is code


async def test_an_interrupted_cancel_or_rollback_completes_at_the_next_start(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(stubborn=True, idempotent=True, limits=Limits(cancel_grace=0.2))
    cancelled = await submit(hub, "a")
    one = await agent.called()
    old = await submit(hub, "a", "old")
    two = (await agent.called()).say("rolled back")
    await follow(hub, Scope.task(old.task), until=lambda record: record.event.kind == "message_ended")
    await asyncio.gather(
        hub.cancel(OWNER, cancelled.task_id),
        submit(hub, "a", "new", thread_id=old.thread_id, strategy="rollback"),
    )
    await hubs.stop(hub)
    for activation in (one, two):
        activation.end()
        await within(activation.closed.wait())
    hub = await hubs.start(registered("a", agent, idempotent=True))
    assert (await hub.reads.task(OWNER, cancelled.task_id)).state is TaskState.CANCELLED
    run = await hub.reads.run(OWNER, old.run_id)
    assert (run.reason, run.removed) == (RunReason.ROLLED_BACK, True)
    activation = await agent.called()
    assert activation.call.text == "new"
    activation.end()


class Remote:
    """An upstream whose run outlives the gateway, and that replays all of it from the start."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.more = asyncio.Event()
        self.reattached = 0

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield UpstreamBound(protocol="test", ids={"run": "r1"})
        for event in self.events[:4]:
            yield event
        await asyncio.Event().wait()

    async def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        assert call.upstream["run"] == "r1"
        self.reattached += 1
        yield UpstreamBound(protocol="test", ids={"run": "r1"})
        for event in self.events:
            yield event
        await self.more.wait()


async def test_a_run_that_outlives_the_gateway_is_reattached(hubs: HubFactory) -> None:
    pieces: list[Event] = [PartDelta(text=f"{number} ") for number in range(6)]
    agent = Remote([MessageStarted(), PartAdded(part=TextPart(text=""), open=True), *pieces])
    hub = await hubs.start(registered("a", agent))
    receipt = await submit(hub, "a")
    await follow(hub, Scope.task(receipt.task), until=lambda record: "1 " in str(record.event))
    for attempt in (2, 3):
        hub = await restarted(hubs, hub, agent)
        await follow(hub, Scope.task(receipt.task), until=lambda record: "5 " in str(record.event))
        assert (await hub.reads.run(OWNER, receipt.run_id)).attempt == attempt
    agent.more.set()
    assert (await ends(hub, receipt)).state is TaskState.COMPLETED
    events = [record.event for record in await log(hub, receipt)]
    assert "".join(event.text for event in events if isinstance(event, PartDelta)) == "0 1 2 3 4 5 "
    assert sum(isinstance(event, MessageStarted) for event in events) == 1


async def test_an_upstream_that_replays_differently_fails_the_run(hubs: HubFactory) -> None:
    agent = Remote([MessageStarted(), PartAdded(part=TextPart(text=""), open=True), PartDelta(text="a")])
    hub = await hubs.start(registered("a", agent))
    receipt = await submit(hub, "a")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "part_delta")
    await hubs.stop(hub)
    agent.events[2] = PartDelta(text="b")
    agent.more.set()
    hub = await hubs.start(registered("a", agent))
    task = await ends(hub, receipt)
    assert task.fault is not None and task.fault.code is FaultCode.AGENT_NOT_REPLAYABLE


class Deaf:
    """An upstream that has not received the cancel when the gateway ends."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.cancel_received = asyncio.Event()

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield UpstreamBound(protocol="test", ids={"run": "r1"})
        while not self.free.is_set():
            with suppress(asyncio.CancelledError):
                await self.free.wait()

    async def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        assert call.upstream["run"] == "r1"
        try:
            yield UpstreamBound(protocol="test", ids={"run": "r1"})
        finally:
            self.cancel_received.set()


async def test_a_cancel_is_sent_again_to_the_upstream_after_restart(hubs: HubFactory) -> None:
    agent = Deaf()
    hub = await hubs.start(registered("a", agent), limits=Limits(cancel_grace=0.3))
    receipt = await submit(hub, "a")
    await follow(hub, Scope.task(receipt.task), until=lambda record: record.event.kind == "upstream_bound")
    assert (await hub.cancel(OWNER, receipt.task_id)).state is TaskState.CANCELLING
    await hubs.stop(hub)
    agent.free.set()
    hub = await hubs.start(registered("a", agent))
    assert (await ends(hub, receipt)).state is TaskState.CANCELLED
    await within(agent.cancel_received.wait(), "word of the cancel")
    assert [record.event.kind for record in await log(hub, receipt)].count("upstream_bound") == 1


async def test_a_stop_while_agents_finish_loses_nothing(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipts = [await submit(hub, "a", str(number)) for number in range(8)]
    for number in range(8):
        (await agent.called()).say(f"answer {number}").end()
    hub = await restarted(hubs, hub, agent, idempotent=True)
    for activation in agent.calls[8:]:
        activation.say("again").end()
    for receipt in receipts:
        activation = next((each for each in agent.calls[8:] if each.call.run_id == receipt.run_id), None)
        if activation is None and not (await hub.reads.task(OWNER, receipt.task_id)).is_terminal:
            (await agent.called()).say("again").end()
    for receipt in receipts:
        assert (await ends(hub, receipt)).state is TaskState.COMPLETED


async def test_the_working_state_is_published_once_despite_restarts(hubs: HubFactory) -> None:
    hub, agent = await hubs.scripted(idempotent=True)
    receipt = await submit(hub, "a")
    await agent.called()
    hub = await restarted(hubs, hub, agent, idempotent=True)
    await finish(hub, await agent.called(), receipt)
    changes = [record for record in await log(hub, receipt) if isinstance(record.event, TaskChanged)]
    assert states(changes) == ["working", "completed"]
    run = await run_is(hub, receipt.run_id, receipt.thread_id, RunStatus.SUCCESS)
    assert run.attempt == 2
    assert not math.isnan(run.created_at)
