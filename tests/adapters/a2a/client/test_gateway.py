"""Agents of another gateway like this one, behind this one, by both versions and both bindings of A2A."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from babelgate.adapters.a2a.agents.interface import Interface
from babelgate.adapters.a2a.client import Client, discover
from babelgate.canonical import (
    AgentInfo,
    Answers,
    Artifact,
    Ask,
    DataPart,
    FilePart,
    Message,
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
from tests.given import make
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = "default"
BOUND = 30.0
STOPS = TERMINAL | WAITING
WAYS: list[tuple[Any, bool, bool, bool]] = [
    ("1.0", False, True, False),
    ("1.0", True, True, False),
    ("0.3", False, True, False),
    ("0.3", True, True, False),
    ("1.0", False, False, False),
    ("0.3", True, False, False),
    ("1.0", False, True, True),
    ("1.0", True, True, True),
    ("0.3", False, True, True),
    ("0.3", True, True, True),
]


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


@dataclass
class Slow:
    """Says a token, then waits for its test."""

    gate: asyncio.Event
    closed: asyncio.Event

    async def slow(self, text: str) -> AsyncGenerator[str]:
        try:
            yield "first"
            await self.gate.wait()
            yield " last"
        finally:
            self.closed.set()


@dataclass(frozen=True)
class Way:
    """A gateway, and one in front of it that calls its agents in one way."""

    back: Running
    front: Running
    slow: Slow
    version: str
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


def answer_of(fold: Fold, task_id: str) -> str:
    said = fold.messages(task_id=task_id)
    return "".join(message.text for message in said if message.role == "agent" and message.phase == "answer")


def way_name(way: tuple[str, bool, bool, bool]) -> str:
    version, rest, streams, extended = way
    return f"{version}-{'rest' if rest else 'jsonrpc'}{'' if streams else '-unary'}{'-extended' if extended else ''}"


def registered(url: str, info: AgentInfo, way: tuple[Any, bool, bool, bool]) -> RegisteredAgent:
    version, rest, streams, extended = way
    # What its card would say if it offered nothing else.
    interface = Interface(url, version, rest=rest, streams=streams, extended=extended)
    return RegisteredAgent(info, Client(url, info.name, interface=interface))


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WAYS, ids=way_name)
async def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Way]:
    folder: Path = tmp_path_factory.mktemp("a2a")
    (folder / "back").mkdir()
    slow = Slow(asyncio.Event(), asyncio.Event())
    more = {each.__name__: each for each in (login, progress, refuse, give)}
    agents = {**AGENTS, **more, "slow": slow.slow}
    async with running(folder / "back", agents) as back, loopback.client() as http:
        found: dict[str, RegisteredAgent] = {}
        for name in agents:
            [info] = await discover(f"{back.url}/a2a/{name}", http)
            found[name] = registered(f"{back.url}/a2a/{name}", info, request.param)
        async with running(folder, registered=found) as front:
            yield Way(back, front, slow, request.param[0], request.param[3])
        for each in found.values():
            await cast("Client", each.agent).aclose()


@pytest.fixture(autouse=True)
def opened(way: Way) -> None:
    way.slow.gate.clear()
    way.slow.closed.clear()


async def test_an_answer_arrives(way: Way) -> None:
    receipt, fold = await way.play("echo", "Hello")
    assert (fold.tasks[receipt.task_id].state, answer_of(fold, receipt.task_id)) == (TaskState.COMPLETED, "Hello")
    assert set(fold.runs[receipt.run_id].upstream) == {"task", "context", *(["run"] if way.extended else [])}


async def test_an_empty_answer_is_an_answer(way: Way) -> None:
    receipt, fold = await way.play("echo", "")
    said = [message for message in fold.messages(task_id=receipt.task_id) if message.role == "agent"]
    assert [message.parts for message in said] == [(TextPart(text=""),)]


async def test_the_next_turn_is_on_the_same_thread_there(way: Way) -> None:
    receipt, fold = await way.play("echo", "one")
    again = await way.submit("echo", "two", thread_id=receipt.thread_id)
    more = await way.stopped(again)
    first, second = fold.runs[receipt.run_id].upstream, more.runs[again.run_id].upstream
    assert first["context"] == second["context"]
    assert first["task"] != second["task"]
    thread = await way.back.hub.reads.thread_view(OWNER, first["context"])
    assert thread.status == "idle"


async def test_progress_is_told_and_is_no_part_of_the_answer(way: Way) -> None:
    receipt, fold = await way.play("progress")
    assert answer_of(fold, receipt.task_id) == "Done."
    told = [message.text for message in fold.messages(task_id=receipt.task_id) if message.phase == "progress"]
    assert told == ["Half way."]


async def test_a_refusal_stays_a_refusal(way: Way) -> None:
    receipt, fold = await way.play("refuse")
    [message] = [message for message in fold.messages(task_id=receipt.task_id) if message.role == "agent"]
    assert message.parts == (RefusalPart(text="No."),)


async def test_a_question_is_asked_and_answered(way: Way) -> None:
    receipt, fold = await way.play("ask", "go")
    [asked] = fold.open_interrupts(receipt.task_id)
    assert asked.message.text == "What is your name?"
    words = (Message.of("Ada", "user"),)
    answered = await way.front.hub.answer(
        OWNER, Answers(task_id=receipt.task_id, bare="Ada", input=RunInput(messages=words))
    )
    done = await way.stopped(answered)
    assert answer_of(done, receipt.task_id) == "Hello, Ada."
    before, after = (done.runs[run_id].upstream for run_id in (receipt.run_id, answered.run_id))
    assert (after["task"], after["context"]) == (before["task"], before["context"])
    assert ("run" in after) == way.extended
    assert not way.extended or after["run"] != before["run"]


async def test_a_question_for_credentials_stays_one(way: Way) -> None:
    receipt, fold = await way.play("login")
    assert fold.tasks[receipt.task_id].state is TaskState.AUTH_REQUIRED
    answered = await way.front.hub.answer(OWNER, Answers(task_id=receipt.task_id, bare="Ada"))
    assert answer_of(await way.stopped(answered), receipt.task_id) == "In as Ada."


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


async def test_data_is_the_same_value_whatever_it_is(way: Way) -> None:
    receipt, fold = await way.play("number")
    [message] = [message for message in fold.messages(task_id=receipt.task_id) if message.role == "agent"]
    assert message.parts == (DataPart(data=[1, 2, 3]),)


async def test_what_got_lost_on_the_way_and_the_usage_are_told_here_too(way: Way) -> None:
    receipt, fold = await way.play("rich")
    run = fold.runs[receipt.run_id]
    lost = {loss.feature for loss in run.loss}
    assert lost == (set() if way.extended else {"refusal"})
    assert run.usage == ({} if way.extended else {"input_tokens": 3})  # it was said of a message, and is with records


async def test_a_failure_is_told_in_the_agents_words(way: Way) -> None:
    receipt, fold = await way.play("fail", "on purpose")
    fault = fold.tasks[receipt.task_id].fault
    assert fault is not None and "on purpose" in fault.message
    assert fold.tasks[receipt.task_id].state is TaskState.FAILED


async def test_a_cancel_reaches_the_agent(way: Way) -> None:
    receipt = await way.submit("slow")
    async for record in way.records(receipt):
        if record.event.kind == "part_added":
            break
    await way.front.hub.cancel(OWNER, receipt.task_id)
    async with asyncio.timeout(BOUND):
        await way.slow.closed.wait()
    fold = await way.stopped(receipt)
    assert fold.tasks[receipt.task_id].state is TaskState.CANCELLED


async def test_a_cancel_there_ends_the_run_here(way: Way) -> None:
    receipt = await way.submit("slow")
    upstream: dict[str, str] = {}
    async for record in way.records(receipt):
        if record.event.kind == "part_added":
            break
        if record.event.kind == "upstream_bound":
            upstream = record.event.ids
    await way.back.hub.cancel(OWNER, upstream["task"])
    fold = await way.stopped(receipt)
    assert fold.runs[receipt.run_id].status is RunStatus.CANCELLED


async def test_the_contract_of_agents_is_kept(way: Way) -> None:
    for name in ("echo", "ask"):
        made: list[Client] = []

        def make(name: str = name, made: list[Client] = made) -> Any:
            made.append(Client(f"{way.back.url}/a2a/{name}"))
            return Reminded(made[-1])

        await check_agent(make, bound=BOUND)
        for client in made:
            await client.aclose()
