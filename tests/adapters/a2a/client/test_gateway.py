"""Agents of another gateway like this one, behind this one, in the forms of A2A that `tests/pairs` does not have."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client import Client, discover
from babelgate.canonical import (
    Answers,
    Artifact,
    Ask,
    DataPart,
    FilePart,
    Message,
    Part,
    Receipt,
    Record,
    RefusalPart,
    RunInput,
    RunStatus,
    Scope,
    Submission,
    TaskState,
    TextPart,
)
from babelgate.canonical.event import InterruptRaised, TaskChanged
from babelgate.canonical.fold import Fold
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.conformance.contract import check_agent
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.adapters.a2a.site import AGENTS
from tests.adapters.a2a.talk import Reminded
from tests.running import Running, running
from tests.submissions import make

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = "default"
BOUND = 30.0
STOPS = TERMINAL | WAITING
WAYS = {
    "1.0-rest": Interface("", "1.0", rest=True),
    "0.3-rest": Interface("", "0.3", rest=True),
    "1.0-jsonrpc-unary": Interface("", "1.0", streams=False),
    "0.3-rest-unary": Interface("", "0.3", rest=True, streams=False),
    "1.0-rest-extended": Interface("", "1.0", rest=True, extended=True),
    "0.3-jsonrpc-extended": Interface("", "0.3", extended=True),
    "0.3-rest-extended": Interface("", "0.3", rest=True, extended=True),
}
"""`tests/pairs` has JSON-RPC of each version, and extended 1.0."""
CLOSED = asyncio.Event()
"""The `finally` of the agent `slow` has run."""


async def login(text: str) -> AsyncGenerator[Any, Any]:
    """Needs a login."""
    answer = yield Ask("Who are you?", kind="auth")
    yield f"In as {answer}."


async def progress(text: str) -> AsyncGenerator[Any]:
    """Tells how far it is."""
    yield Message.of("Half way.", phase="progress")
    yield "Done."


async def refuse(text: str) -> AsyncGenerator[Any]:
    """Does not want to."""
    yield RefusalPart(text="No.")


async def give(text: str) -> AsyncGenerator[Any]:
    """Gives a file by its address and a text with the name of one."""
    yield Artifact(name="far.txt", parts=(FilePart(name="far.txt", url="https://example.com/far.txt"),))
    yield Artifact(name="notes.md", description="Some notes", parts=(TextPart(text="a note"),), metadata={"n": 1})


async def slow(text: str) -> AsyncGenerator[str]:
    """Says a token, then waits until it is cancelled."""
    try:
        yield "first"
        await asyncio.Event().wait()
    finally:
        CLOSED.set()


@dataclass(frozen=True)
class Way:
    """A gateway, and one in front of it that calls its agents in one way."""

    back: Running
    front: Running
    extended: bool

    async def submit(self, agent: str, said: str | Message = "Hello", **more: Any) -> Receipt:
        message = Message.of(said, "user") if isinstance(said, str) else said
        return await self.front.hub.submit(OWNER, make(Submission, agent=agent, messages=(message,), **more))

    async def stopped(self, receipt: Receipt) -> Fold:
        """The task when it has stopped after a submission."""
        fold = Fold(receipt.thread_id, OWNER)
        async for record in self.records(receipt):
            fold.apply(record)
            event = record.event
            mine = record.seq > receipt.seq and record.task_id == receipt.task_id
            if mine and isinstance(event, TaskChanged) and event.state in STOPS:
                return fold
        return fold

    async def records(self, receipt: Receipt) -> AsyncIterator[Record]:
        scope = Scope(receipt.thread_id)
        async with asyncio.timeout(BOUND), aclosing(self.front.hub.reads.follow(OWNER, scope)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    async def play(self, agent: str, said: str | Message = "Hello") -> tuple[Receipt, Fold]:
        receipt = await self.submit(agent, said)
        return receipt, await self.stopped(receipt)


def said_of(fold: Fold, receipt: Receipt) -> list[tuple[str, Part]]:
    """The parts that the agent said, by phase: a server without streams tells progress after the answer."""
    said = [message for message in fold.messages(task_id=receipt.task_id) if message.role == "agent"]
    return [(message.phase, part) for message in sorted(said, key=lambda each: each.phase) for part in message.parts]


def text(words: str) -> TextPart:
    return TextPart(text=words)


ANSWERS: list[tuple[str, str, list[tuple[str, Part]]]] = [
    ("echo", "Hello", [("answer", text("Hello"))]),
    ("echo", "", [("answer", text(""))]),
    ("progress", "Hello", [("answer", text("Done.")), ("progress", text("Half way."))]),
    ("refuse", "Hello", [("answer", RefusalPart(text="No."))]),
    ("number", "Hello", [("answer", DataPart(data=[1, 2, 3]))]),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WAYS.values(), ids=WAYS)
async def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Way]:
    folder: Path = tmp_path_factory.mktemp("a2a")
    (folder / "back").mkdir()
    agents = {**AGENTS, **{agent.__name__: agent for agent in (login, progress, refuse, give, slow)}}
    async with running(folder / "back", agents) as back, loopback.client() as http:
        found: dict[str, RegisteredAgent] = {}
        for name in agents:
            url = f"{back.url}/a2a/{name}"
            [info] = await discover(url, http)
            # What its card would say if it offered nothing else.
            client = Client(url, info.name, interface=replace(request.param, url=url))
            found[name] = RegisteredAgent(info, client)
        async with running(folder, registered=found) as front:
            yield Way(back, front, request.param.extended)
        for each in found.values():
            await cast("Client", each.agent).aclose()


@pytest.mark.parametrize(("agent", "words", "answer"), ANSWERS)
async def test_an_answer_arrives_as_it_was_said(way: Way, agent: str, words: str, answer: Any) -> None:
    receipt, fold = await way.play(agent, words)
    assert (fold.tasks[receipt.task_id].state, said_of(fold, receipt)) == (TaskState.COMPLETED, answer)
    assert set(fold.runs[receipt.run_id].upstream) == {"task", "context", *(["run"] if way.extended else [])}


async def test_the_next_turn_is_on_the_same_thread_there(way: Way) -> None:
    receipt, fold = await way.play("echo", "one")
    again = await way.submit("echo", "two", thread_id=receipt.thread_id)
    more = await way.stopped(again)
    first, second = fold.runs[receipt.run_id].upstream, more.runs[again.run_id].upstream
    assert first["context"] == second["context"]
    assert first["task"] != second["task"]
    thread = await way.back.hub.reads.thread_view(OWNER, first["context"])
    assert thread.status == "idle"


@pytest.mark.parametrize(
    ("agent", "state", "question", "answer"),
    [
        ("ask", TaskState.INPUT_REQUIRED, "What is your name?", "Hello, Ada."),
        ("login", TaskState.AUTH_REQUIRED, "Who are you?", "In as Ada."),
    ],
)
async def test_a_question_can_be_answered(way: Way, agent: str, state: TaskState, question: str, answer: str) -> None:
    receipt, fold = await way.play(agent, "go")
    [asked] = fold.open_interrupts(receipt.task_id)
    assert (fold.tasks[receipt.task_id].state, asked.message.text) == (state, question)
    words = RunInput(messages=(Message.of("Ada", "user"),))
    answered = await way.front.hub.answer(OWNER, Answers(task_id=receipt.task_id, bare="Ada", input=words))
    done = await way.stopped(answered)
    assert said_of(done, answered) == [("answer", text(answer))]
    before, after = (done.runs[run_id].upstream for run_id in (receipt.run_id, answered.run_id))
    assert (after["task"], after["context"]) == (before["task"], before["context"])
    assert ("run" in after) == way.extended
    assert not way.extended or after["run"] != before["run"]


async def test_two_questions_at_once_are_answered_each_by_its_id(way: Way) -> None:
    receipt, fold = await way.play("approve", "go")
    first, second = fold.open_interrupts(receipt.task_id)
    assert first.answer_schema is not None
    values: dict[str, Any] = {second.interrupt_id: {"approved": False}, first.interrupt_id: {"approved": True}}
    answered = await way.front.hub.answer(OWNER, Answers(task_id=receipt.task_id, values=values))
    done = await way.stopped(answered)
    upstream = done.runs[answered.run_id].upstream
    there = [record.event for record in await way.back.hub.reads.records(OWNER, Scope(upstream["context"]))]
    assert done.tasks[receipt.task_id].state is TaskState.COMPLETED
    asked = [event for event in there if isinstance(event, InterruptRaised)]
    assert {event.interrupt_id for event in asked} == set(values)


async def test_files_go_there_and_come_back_byte_by_byte(way: Way) -> None:
    content = bytes(range(256))
    file = FilePart(name="every byte.bin", media_type="application/octet-stream", inline=content)
    receipt = await way.submit("files", Message(role="user", parts=(file, TextPart(text="text"))))
    await way.stopped(receipt)
    task = await way.front.hub.reads.task(OWNER, receipt.task_id)
    records = await way.front.hub.reads.records(OWNER, Scope.task(task), inline=True)
    fold = Fold(receipt.thread_id, OWNER, records)
    given = {
        artifact.name: part.inline
        for artifact in fold.artifacts.values()
        for part in artifact.parts
        if isinstance(part, FilePart)
    }
    assert given == {"every byte.bin": content, "report.txt": b"text"}
    assert all(artifact.complete for artifact in fold.artifacts.values())


async def test_a_file_by_its_address_and_a_named_text_stay_what_they_are(way: Way) -> None:
    _, fold = await way.play("give")
    by_name = {artifact.name: artifact for artifact in fold.artifacts.values()}
    [far] = by_name["far.txt"].parts
    assert isinstance(far, FilePart)
    assert (far.url, far.name) == ("https://example.com/far.txt", "far.txt")
    notes = by_name["notes.md"]
    assert (notes.parts, notes.description, notes.metadata) == ((TextPart(text="a note"),), "Some notes", {"n": 1})


async def test_what_got_lost_on_the_way_and_the_usage_are_told_here_too(way: Way) -> None:
    receipt, fold = await way.play("rich")
    run = fold.runs[receipt.run_id]
    assert {loss.feature for loss in run.loss} == {"history"}, "a mark carries the refusal"
    assert run.usage == ({} if way.extended else {"input_tokens": 3})  # it was said of a message, and is with records


async def test_a_failure_is_told_in_the_agents_words(way: Way) -> None:
    receipt, fold = await way.play("fail", "on purpose")
    fault = fold.tasks[receipt.task_id].fault
    assert fault is not None and "on purpose" in fault.message
    assert fold.tasks[receipt.task_id].state is TaskState.FAILED


@pytest.mark.parametrize("there", [False, True])
async def test_a_cancel_here_or_there_ends_the_run(way: Way, there: bool) -> None:
    CLOSED.clear()
    receipt = await way.submit("slow")
    upstream: dict[str, str] = {}
    async for record in way.records(receipt):
        if record.event.kind == "part_added":
            break
        if record.event.kind == "upstream_bound":
            upstream = record.event.ids
    hub, task_id = (way.back.hub, upstream["task"]) if there else (way.front.hub, receipt.task_id)
    await hub.cancel(OWNER, task_id)
    async with asyncio.timeout(BOUND):
        await CLOSED.wait()
    fold = await way.stopped(receipt)
    assert fold.runs[receipt.run_id].status is RunStatus.CANCELLED
    assert fold.tasks[receipt.task_id].state is TaskState.CANCELLED


@pytest.mark.parametrize("name", ["echo", "ask"])
async def test_the_contract_of_agents_is_kept(name: str, tmp_path: Path) -> None:
    clients: list[Client] = []

    async with running(tmp_path, {name: AGENTS[name]}) as back:

        def make_agent() -> Any:
            clients.append(Client(f"{back.url}/a2a/{name}"))
            return Reminded(clients[-1])

        await check_agent(make_agent, bound=BOUND)
        for client in clients:
            await client.aclose()
