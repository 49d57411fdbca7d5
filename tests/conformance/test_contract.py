"""Contract of agents: legal behaviour passes, and every breach is noticed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from babelgate.canonical import (
    Agent,
    Event,
    Fault,
    FaultCode,
    FaultError,
    Invocation,
    Message,
    RunReason,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.conformance.contract import Broken, Dialogue, check_agent

TEXT = TextPart(text="x")


class Scripted:
    """Agent that emits the events it was created with."""

    def __init__(self, *events: Any) -> None:
        self.events = events

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        for event in self.events:
            yield event


async def broken(make: Callable[[], Any]) -> str:
    with pytest.raises(Broken) as raised:
        await asyncio.wait_for(check_agent(make, bound=0.2), 30)
    return raised.value.rule


LEGAL: list[tuple[Event, ...]] = [
    (),
    (RunEnded(),),
    (MessageStarted(), PartAdded(part=TEXT), MessageEnded()),
    (MessageStarted(), PartAdded(part=TEXT, open=True), PartDelta(text="y"), PartEnded(), MessageEnded()),
    (MessageStarted(), PartAdded(part=TEXT, open=True)),
    (
        MessageStarted(message_id="a"),
        MessageStarted(message_id="b"),
        PartAdded(message_id="a", part=TEXT, open=True),
        PartAdded(message_id="b", index=0, part=TEXT),
        PartDelta(message_id="a", index=0, text="z"),
        MessageEnded(message_id="b"),
    ),
    (ToolStarted(name="t"), StepStarted(name="t"), ToolEnded(name="t"), StepEnded(name="t")),
    (StepStarted(name="left open"), ToolStarted(name="left open")),
    (ArtifactAdded(artifact_id="a", part=TEXT, last=False), ArtifactAdded(artifact_id="a", part=TEXT, append=True)),
    (Custom(name="c", value={"a": 1}),),
    (
        RunEnded(
            status=RunStatus.ERROR,
            reason=RunReason.FAULT,
            fault=Fault(code=FaultCode.AGENT_FAILED, message="no"),
        ),
    ),
]


@pytest.mark.parametrize("events", LEGAL)
async def test_legal_events_pass(events: tuple[Event, ...]):
    await check_agent(lambda: Scripted(*events))


async def test_agent_may_fail():
    class Failing:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            yield MessageStarted()
            raise FaultError(FaultCode.AGENT_UNREACHABLE, "gone")

    await check_agent(Failing)


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        (("text",), "events are canonical"),
        ((None,), "events are canonical"),
        ((PartAdded(part=TextPart(text="\ud800")),), "events are canonical"),
        ((Custom(value=cast("Any", object())),), "events are canonical"),
        ((TaskChanged(state="working"),), "only what is an agent's"),  # type: ignore[arg-type]
        ((PartAdded(part=TEXT),), "to an open message"),
        ((MessageEnded(),), "to an open message"),
        ((MessageStarted(), MessageEnded(), PartAdded(part=TEXT)), "to an open message"),
        ((MessageStarted(), PartDelta(text="a")), "belong to an open part"),
        ((MessageStarted(), PartAdded(part=TEXT), PartDelta(text="a")), "belong to an open part"),
        ((MessageStarted(), PartAdded(part=TEXT, open=True), PartEnded(), PartEnded()), "belong to an open part"),
        ((MessageStarted(), PartAdded(part=TEXT, index=1)), "numbered in order"),
        ((MessageStarted(), PartAdded(part=TEXT, open=True), MessageEnded()), "ends after its parts"),
        ((MessageStarted(message_id="a"), MessageStarted(message_id="a")), "used once"),
        ((MessageStarted(message_id=""),), "used once"),
        ((ToolEnded(name="t"),), "what ends has started"),
        ((StepStarted(name="a"), StepEnded(name="b")), "what ends has started"),
        ((ArtifactAdded(part=TEXT, append=True),), "something to append to"),
        ((RunEnded(), Custom()), "nothing follows RunEnded"),
        ((RunEnded(status=RunStatus.RUNNING),), "a status in which a run ends"),
        ((RunEnded(status=RunStatus.ERROR),), "says why"),
        ((InterruptRaised(), RunEnded()), "without an open question"),
        ((InterruptRaised(), MessageStarted()), "stops at its questions"),
    ],
)
async def test_illegal_event_is_noticed(events: tuple[Any, ...], rule: str):
    assert rule in await broken(lambda: Scripted(*events))


class Coroutine:
    async def run(self, call: Invocation) -> list[Event]:
        return []


class Endless:
    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        await asyncio.Event().wait()
        yield Custom()


class Stubborn:
    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        yield Custom()
        for _ in range(5):
            await asyncio.sleep(0)
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
        yield Custom()


class Clinging:
    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        try:
            yield Custom()
        finally:
            yield Custom()


class Mixing:
    def __init__(self) -> None:
        self.text = ""

    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        self.text = call.text
        await asyncio.sleep(0)
        yield Custom(value=self.text)


class Greedy:
    async def run(self, call: Invocation) -> AsyncIterator[Event]:
        call.config.clear()
        yield Custom()


class Undead:
    def __init__(self) -> None:
        self.steps = 0

    def run(self, call: Invocation) -> "Undead":
        return self

    def __aiter__(self) -> "Undead":
        return self

    async def __anext__(self) -> Event:
        self.steps += 1
        if self.steps % 2 == 0:
            raise StopAsyncIteration
        return Custom()

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(
    ("agent", "rule"),
    [
        (Coroutine, "gives an async iterator"),
        (Endless, "ends within its bound"),
        (Stubborn, "cancelled run ends"),
        (Clinging, "closing is clean"),
        (Mixing, "do not mix"),
        (Greedy, "does not change its call"),
        (Undead, "stays ended"),
        (lambda: Scripted(InterruptRaised()), "comes to an end"),
    ],
)
async def test_breach_of_the_contract_is_noticed(agent: Callable[[], Any], rule: str):
    assert rule in await broken(agent)


async def test_task_that_outlives_the_run_is_noticed():
    left: list[asyncio.Task[None]] = []

    class Untidy:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            left.append(asyncio.ensure_future(asyncio.sleep(60)))
            yield Custom()

    assert "nothing running behind" in await broken(Untidy)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def test_varying_events_are_noticed_unless_allowed():
    numbers = iter(range(10_000))

    class Random:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            yield Custom(value=next(numbers))

    assert "say the same" in await broken(Random)
    await check_agent(Random, same=False)


async def test_dialogue_answers_questions_and_keeps_its_history():
    class Asking:
        async def run(self, call: Invocation) -> AsyncIterator[Event]:
            if call.cause != "answer":
                yield InterruptRaised(message=Message.of("Name?"))
                return
            yield MessageStarted()
            yield PartAdded(part=TextPart(text=f"{call.answers[0].value} {len(call.history)} {len(await call.past())}"))

    agent: Agent = Asking()
    dialogue = Dialogue(agent)
    assert [question.message.text for question in (await dialogue.say("hi")).questions] == ["Name?"]
    assert (await dialogue.answer("Ann")).text == "Ann 2 9"
    assert [message.text for message in dialogue.history] == ["hi", "Name?", "Ann", "Ann 2 9"]
