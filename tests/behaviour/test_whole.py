"""Between two gateways nothing is lost where a protocol carries the extension: what an agent says behind the first one
is what the second one has of it, and what its caller says reaches it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import (
    AgentInfo,
    AnnotationPart,
    Answers,
    Event,
    FilePart,
    Invocation,
    Message,
    ReasoningPart,
    Receipt,
    RefusalPart,
    Scope,
    Submission,
    TextPart,
    ThreadChange,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.given import make
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER: Final = "default"
BOUND: Final = 30.0
"""Seconds."""

WIRES: Final[Mapping[str, str]] = {"acp": "/acp", "aief": "/agent/all"}
"""Where a gateway has its agents, by protocol."""

FILE: Final = FilePart(name="every byte.bin", media_type="application/x-all", inline=bytes(range(256)) * 2048)
"""More than `limits.inline`."""
SAID: Final[Sequence[Event]] = (
    StepStarted(step_id="s1", name="plan", input={"goal": "x"}),
    MessageStarted(message_id="m1", metadata={"label": "x"}),
    PartAdded(message_id="m1", index=0, part=ReasoningPart(text="Think.")),
    PartAdded(message_id="m1", index=1, part=TextPart(text=""), open=True),
    PartDelta(message_id="m1", index=1, text="It is "),
    PartDelta(message_id="m1", index=1, text="sunny."),
    PartEnded(message_id="m1", index=1),
    PartAdded(message_id="m1", index=2, part=AnnotationPart(url="https://example.com/a", title="A", start=0, end=5)),
    PartAdded(message_id="m1", index=3, part=RefusalPart(text="No more.")),
    PartAdded(message_id="m1", index=4, part=FILE),
    MessageEnded(message_id="m1", usage={"input_tokens": 3}),
    StepEnded(step_id="s1", name="plan", update={"plan": ["y"]}),
    ToolStarted(call_id="c1", name="count", input={"text": "two words"}),
    ToolEnded(call_id="c1", name="count", output={"words": 2}),
    Custom(name="dance", value={"steps": 2}),
    StateSaved(values={"note": {"read": True}}),
    ArtifactAdded(artifact_id="a1", name="a.txt", description="All.", part=TextPart(text="One. "), last=False),
    ArtifactAdded(artifact_id="a1", name="a.txt", part=TextPart(text="Two."), append=True),
    InterruptRaised(interrupt_id="i1", message=Message.of("Which?"), answer_schema={"type": "object"}),
    InterruptRaised(interrupt_id="i2", message=Message.of("And which?"), value={"of": 2}),
)
DONE: Final[Sequence[Event]] = (
    MessageStarted(message_id="m2"),
    PartAdded(message_id="m2", index=0, part=TextPart(text="Done.")),
    MessageEnded(message_id="m2"),
    RunEnded(output={"words": [2]}, usage={"total_tokens": 18}),
)
TOOLS: Final = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
INPUT: Final = Message(role="user", parts=(TextPart(text="Hi"), RefusalPart(text="Not that.")), metadata={"m": 1})


@dataclass
class Speaker:
    """Says all there is, asks, and says what is left."""

    calls: list[Invocation] = field(default_factory=list[Invocation])

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        self.calls.append(call)
        for event in DONE if call.answers else SAID:
            yield event


@dataclass
class Chain:
    speaker: Speaker
    far: Running
    near: Running

    async def ended(self, receipt: Receipt) -> None:
        scope = Scope(receipt.thread_id, "run", receipt.run_id)
        async with asyncio.timeout(BOUND), aclosing(self.near.hub.reads.follow(OWNER, scope)) as batches:
            async for _ in batches:
                pass

    async def submit(self, wire: str, **given: Any) -> Receipt:
        self.speaker.calls.clear()
        receipt = await self.near.hub.submit(OWNER, make(Submission, agent=wire, **given))
        await self.ended(receipt)
        return receipt

    async def answer(self, asked: Receipt, values: Mapping[str, Any], **more: Any) -> Receipt:
        receipt = await self.near.hub.answer(OWNER, Answers(task_id=asked.task_id, values=values, **more))
        await self.ended(receipt)
        return receipt


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chain]:
    speaker = Speaker()
    info = AgentInfo(name="all", input_types=("*/*",), output_types=("*/*",), stateful=True)
    registered = {"all": RegisteredAgent(info, speaker)}
    async with running(tmp_path_factory.mktemp("far"), registered=registered, default_agent="all") as far:
        agents = {wire: {"url": far.url + path, "protocol": wire, "agent": "all"} for wire, path in WIRES.items()}
        registry = await connect(Settings.model_validate({"agents": agents}))
        outer = {each.info.name: each for each in registry.all()}
        async with running(tmp_path_factory.mktemp("near"), registered=outer) as near:
            yield Chain(speaker, far, near)


_TOLD: Final = (
    *(MessageStarted, PartAdded, PartDelta, PartEnded, MessageEnded, ToolStarted, ToolEnded, StepStarted, StepEnded),
    *(ArtifactAdded, InterruptRaised, InterruptAnswered, StateSaved, Custom, LossNoted, RunEnded),
)


async def told(gateway: Running, thread_id: str) -> list[Event]:
    records = await gateway.hub.reads.records(OWNER, Scope(thread_id))
    events = [record.event for record in records if isinstance(record.event, _TOLD)]
    return [event.replace(extra={}) if isinstance(event, InterruptRaised) else event for event in events]


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_said_asked_and_answered_is_the_same_behind_both(chain: Chain, wire: str) -> None:
    asked = await chain.submit(wire, messages=(INPUT,), config={"tools": TOOLS}, metadata={"customer": 7})
    await chain.answer(asked, {"i1": {"a": [1]}, "i2": "two"})
    first, second = chain.speaker.calls
    assert [message.replace(message_id=None) for message in first.messages] == [INPUT]
    assert [tool.name for tool in first.tools] == ["weather"]
    assert first.metadata == {"customer": 7}
    assert {each.interrupt_id: each.value for each in second.answers} == {"i1": {"a": [1]}, "i2": "two"}
    near = await told(chain.near, asked.thread_id)
    assert near == await told(chain.far, first.thread_id)
    assert [type(event) for event in near if isinstance(event, LossNoted)] == []
    assert {type(event) for event in SAID} <= {type(event) for event in near}


@pytest.mark.parametrize("wire", WIRES)
async def test_the_next_turn_is_told_alone_to_who_knows_the_one_before(chain: Chain, wire: str) -> None:
    asked = await chain.submit(wire, messages=(Message.of("One", "user"),))
    await chain.answer(asked, {"i1": "one", "i2": "two"})
    before = chain.speaker.calls[-1].thread_id
    await chain.submit(wire, messages=(INPUT,), thread_id=asked.thread_id)
    (last,) = chain.speaker.calls
    assert last.thread_id == before
    assert [message.replace(message_id=None) for message in last.messages] == [INPUT]


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_uploaded_here_is_an_upload_there_and_of_one_input(chain: Chain, wire: str) -> None:
    file = FilePart(name="given.bin", media_type="application/x-all", inline=bytes(range(256)))
    thread = await chain.near.hub.create_thread(OWNER, ThreadChange())
    await chain.near.hub.upload(OWNER, thread.thread_id, file)
    asked = await chain.submit(wire, messages=(Message.of("Look.", "user"),), thread_id=thread.thread_id)
    (first,) = chain.speaker.calls
    assert [(each.name, each.media_type, each.inline) for each in first.files] == [
        (file.name, file.media_type, file.inline)
    ]
    assert (first.input.uploaded, first.text) == (1, "Look.")
    uploads = [e for e in await told(chain.far, first.thread_id) if isinstance(e, ArtifactAdded)]
    assert [(e.name, e.part) for e in uploads if e.origin == "caller"] == [
        (file.name, first.files[0].replace(inline=None))
    ]
    await chain.answer(asked, {"i1": "one", "i2": "two"})
    await chain.submit(wire, messages=(INPUT,), thread_id=thread.thread_id)
    assert chain.speaker.calls[-1].files == ()


@pytest.mark.parametrize("wire", WIRES)
async def test_of_two_questions_one_is_declined(chain: Chain, wire: str) -> None:
    asked = await chain.submit(wire, messages=(INPUT,))
    await chain.answer(asked, {"i2": None}, action="decline")
    await chain.answer(asked, {"i1": "one"})
    answers = chain.speaker.calls[1].answers
    assert [(each.interrupt_id, each.action, each.value) for each in answers] == [
        ("i1", "answer", "one"),
        ("i2", "decline", None),
    ]
