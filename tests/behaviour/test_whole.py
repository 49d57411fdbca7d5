"""Two gateways with the extension: a caller's input reaches the agent without loss.

The agent's output is compared in `tests/pairs/test_extended.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import (
    AgentInfo,
    Answers,
    Event,
    FilePart,
    Invocation,
    Message,
    Receipt,
    RefusalPart,
    Scope,
    Submission,
    TextPart,
    ThreadChange,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
)
from babelgate.gateway.agents.registry import connect
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import Settings
from tests.running import Running, running
from tests.submissions import make

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER: Final = "default"
BOUND: Final = 30.0
"""Timeout of each wait, in seconds."""

WIRES: Final[Mapping[str, str]] = {"acp": "/acp", "aief": "/agent/all"}
"""Path of the agents' server in a gateway, by protocol."""

QUESTIONS: Final = (
    InterruptRaised(interrupt_id="i1", message=Message.of("Which?")),
    InterruptRaised(interrupt_id="i2", message=Message.of("And which?")),
)
DONE: Final = (
    MessageStarted(message_id="m"),
    PartAdded(message_id="m", part=TextPart(text="Done.")),
    MessageEnded(message_id="m"),
)
INPUT: Final = Message(role="user", parts=(TextPart(text="Hi"), RefusalPart(text="Not that.")), metadata={"m": 1})


@dataclass
class Speaker:
    """An agent that asks two questions at once."""

    calls: list[Invocation] = field(default_factory=list[Invocation])

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        self.calls.append(call)
        for event in DONE if call.answers else QUESTIONS:
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

    async def submit(self, wire: str, **fields: Any) -> Receipt:
        self.speaker.calls.clear()
        receipt = await self.near.hub.submit(OWNER, make(Submission, agent=wire, **fields))
        await self.ended(receipt)
        return receipt

    async def answer(self, paused: Receipt, values: Mapping[str, Any], **more: Any) -> Receipt:
        receipt = await self.near.hub.answer(OWNER, Answers(task_id=paused.task_id, values=values, **more))
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


@pytest.mark.parametrize("wire", WIRES)
async def test_the_next_turn_sends_only_the_new_message(chain: Chain, wire: str) -> None:
    paused = await chain.submit(wire, messages=(Message.of("One", "user"),))
    await chain.answer(paused, {"i1": "one", "i2": "two"})
    before = chain.speaker.calls[-1].thread_id
    await chain.submit(wire, messages=(INPUT,), thread_id=paused.thread_id)
    (last,) = chain.speaker.calls
    assert last.thread_id == before
    assert [message.replace(message_id=None) for message in last.messages] == [INPUT]


@pytest.mark.parametrize("wire", WIRES)
async def test_an_upload_is_forwarded_once(chain: Chain, wire: str) -> None:
    file = FilePart(name="given.bin", media_type="application/x-all", inline=bytes(range(256)))
    thread = await chain.near.hub.create_thread(OWNER, ThreadChange())
    await chain.near.hub.upload(OWNER, thread.thread_id, file)
    paused = await chain.submit(wire, messages=(Message.of("Look.", "user"),), thread_id=thread.thread_id)
    (first,) = chain.speaker.calls
    assert [(each.name, each.media_type, each.inline) for each in first.files] == [
        (file.name, file.media_type, file.inline)
    ]
    assert (first.input.uploaded, first.text) == (1, "Look.")
    records = await chain.far.hub.reads.records(OWNER, Scope(first.thread_id))
    uploads = [record.event for record in records if isinstance(record.event, ArtifactAdded)]
    assert [(e.name, e.part) for e in uploads if e.origin == "caller"] == [
        (file.name, first.files[0].replace(inline=None))
    ]
    await chain.answer(paused, {"i1": "one", "i2": "two"})
    await chain.submit(wire, messages=(INPUT,), thread_id=thread.thread_id)
    assert chain.speaker.calls[-1].files == ()


@pytest.mark.parametrize("wire", WIRES)
async def test_one_question_is_answered_and_another_declined(chain: Chain, wire: str) -> None:
    paused = await chain.submit(wire, messages=(INPUT,))
    await chain.answer(paused, {"i2": None}, action="decline")
    await chain.answer(paused, {"i1": "one"})
    answers = chain.speaker.calls[1].answers
    assert [(each.interrupt_id, each.action, each.value) for each in answers] == [
        ("i1", "answer", "one"),
        ("i2", "decline", None),
    ]
