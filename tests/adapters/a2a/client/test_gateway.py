"""Agents of another gateway behind this one, in the versions and bindings of A2A that `tests/pairs` does not have."""

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
from babelgate.adapters.kit.client.calls import open_http
from babelgate.adapters.kit.client.tls import ClientTls
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
from tests.adapters.a2a.talk import Reminded, Talk
from tests.authority import Authority
from tests.running import Running, running
from tests.submissions import make

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = "default"
BOUND = 30.0
STOPS = TERMINAL | WAITING
WAYS = {
    "1.0-rest": Interface("", "1.0", rest=True),
    "0.3-rest": Interface("", "0.3", rest=True),
    "1.0-grpc": Interface("", "1.0", grpc=True),
    "1.0-grpc-unary": Interface("", "1.0", grpc=True, streams=False),
    "1.0-jsonrpc-unary": Interface("", "1.0", streams=False),
    "0.3-rest-unary": Interface("", "0.3", rest=True, streams=False),
    "1.0-rest-extended": Interface("", "1.0", rest=True, extended=True),
    "1.0-grpc-extended": Interface("", "1.0", grpc=True, extended=True),
    "0.3-jsonrpc-extended": Interface("", "0.3", extended=True),
    "0.3-rest-extended": Interface("", "0.3", rest=True, extended=True),
}
"""Interfaces by name. `tests/pairs` has JSON-RPC of each version, and extended 1.0."""
CLOSED = asyncio.Event()
"""Event that is set when the agent `slow` has been closed."""


async def login(text: str) -> AsyncGenerator[Any, Any]:
    """Ask for a login."""
    answer = yield Ask("Who are you?", kind="auth")
    yield f"In as {answer}."


async def progress(text: str) -> AsyncGenerator[Any]:
    """Report progress before the answer."""
    yield Message.of("Half way.", phase="progress")
    yield "Done."


async def refuse(text: str) -> AsyncGenerator[Any]:
    """Refuse to answer."""
    yield RefusalPart(text="No.")


async def give(text: str) -> AsyncGenerator[Any]:
    """Yield a file by its URL, and a text with a file name."""
    yield Artifact(name="far.txt", parts=(FilePart(name="far.txt", url="https://example.com/far.txt"),))
    yield Artifact(name="notes.md", description="Some notes", parts=(TextPart(text="a note"),), metadata={"n": 1})


async def slow(text: str) -> AsyncGenerator[str]:
    """Yield a token, then wait until it is cancelled."""
    try:
        yield "first"
        await asyncio.Event().wait()
    finally:
        CLOSED.set()


@dataclass(frozen=True)
class Way:
    """Two gateways in a row: the agents of `front` are agents of `back`, called by one interface of A2A."""

    back: Running
    front: Running
    extended: bool

    async def submit(self, agent: str, words: str | Message = "Hello", **more: Any) -> Receipt:
        message = Message.of(words, "user") if isinstance(words, str) else words
        return await self.front.hub.submit(OWNER, make(Submission, agent=agent, messages=(message,), **more))

    async def stopped(self, receipt: Receipt) -> Fold:
        """Return the fold of the thread once its task has stopped after a submission."""
        fold = Fold(receipt.thread_id, OWNER)
        async for record in self.records(receipt):
            fold.apply(record)
            event = record.event
            is_later = record.seq > receipt.seq and record.task_id == receipt.task_id
            if is_later and isinstance(event, TaskChanged) and event.state in STOPS:
                return fold
        return fold

    async def records(self, receipt: Receipt) -> AsyncIterator[Record]:
        scope = Scope(receipt.thread_id)
        async with asyncio.timeout(BOUND), aclosing(self.front.hub.reads.follow(OWNER, scope)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    async def play(self, agent: str, words: str | Message = "Hello") -> tuple[Receipt, Fold]:
        receipt = await self.submit(agent, words)
        return receipt, await self.stopped(receipt)


def agent_parts(fold: Fold, receipt: Receipt) -> list[tuple[str, Part]]:
    """Return the parts of the agent's messages, each with the phase of its message, sorted by phase. Without the sort,
    the order would depend on the server: one without streams reports progress after the answer."""
    messages = [message for message in fold.messages(task_id=receipt.task_id) if message.role == "agent"]
    return [
        (message.phase, part) for message in sorted(messages, key=lambda each: each.phase) for part in message.parts
    ]


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
    async with running(folder / "back", agents, serves_grpc=request.param.grpc) as back, loopback.client() as http:
        registered: dict[str, RegisteredAgent] = {}
        for name in agents:
            url = f"{back.url}/a2a/{name}"
            [info] = await discover(url, http)
            # As if this interface were the only one on its card.
            interface = replace(request.param, url=url)
            if interface.grpc:
                interface = replace(interface, url=f"grpc://{back.settings.grpc.listen}", tenant=name, files_url=url)
            client = Client(url, info.name, interface=interface)
            registered[name] = RegisteredAgent(info, client)
        async with running(folder, registered=registered) as front:
            yield Way(back, front, request.param.extended)
        for each in registered.values():
            await cast("Client", each.agent).aclose()


@pytest.mark.parametrize(("agent", "words", "answer"), ANSWERS)
async def test_answer_arrives_unchanged(way: Way, agent: str, words: str, answer: Any) -> None:
    receipt, fold = await way.play(agent, words)
    assert (fold.tasks[receipt.task_id].state, agent_parts(fold, receipt)) == (TaskState.COMPLETED, answer)
    assert set(fold.runs[receipt.run_id].upstream) == {"task", "context", *(["run"] if way.extended else [])}


async def test_next_turn_uses_the_same_upstream_thread(way: Way) -> None:
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
async def test_question_is_answered(way: Way, agent: str, state: TaskState, question: str, answer: str) -> None:
    receipt, fold = await way.play(agent, "go")
    [interrupt] = fold.open_interrupts(receipt.task_id)
    assert (fold.tasks[receipt.task_id].state, interrupt.message.text) == (state, question)
    words = RunInput(messages=(Message.of("Ada", "user"),))
    answered = await way.front.hub.answer(OWNER, Answers(task_id=receipt.task_id, bare="Ada", input=words))
    done = await way.stopped(answered)
    assert agent_parts(done, answered) == [("answer", text(answer))]
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
    upstream_events = [record.event for record in await way.back.hub.reads.records(OWNER, Scope(upstream["context"]))]
    assert done.tasks[receipt.task_id].state is TaskState.COMPLETED
    raised = [event for event in upstream_events if isinstance(event, InterruptRaised)]
    assert {event.interrupt_id for event in raised} == set(values)


async def test_files_are_sent_and_returned_unchanged(way: Way) -> None:
    content = bytes(range(256))
    file = FilePart(name="every byte.bin", media_type="application/octet-stream", inline=content)
    receipt = await way.submit("files", Message(role="user", parts=(file, TextPart(text="text"))))
    await way.stopped(receipt)
    task = await way.front.hub.reads.task(OWNER, receipt.task_id)
    records = await way.front.hub.reads.records(OWNER, Scope.task(task), inline=True)
    fold = Fold(receipt.thread_id, OWNER, records)
    files = {
        artifact.name: part.inline
        for artifact in fold.artifacts.values()
        for part in artifact.parts
        if isinstance(part, FilePart)
    }
    assert files == {"every byte.bin": content, "report.txt": b"text"}
    assert all(artifact.complete for artifact in fold.artifacts.values())


async def test_file_urls_and_named_texts_are_unchanged(way: Way) -> None:
    _, fold = await way.play("give")
    by_name = {artifact.name: artifact for artifact in fold.artifacts.values()}
    [far] = by_name["far.txt"].parts
    assert isinstance(far, FilePart)
    assert (far.url, far.name) == ("https://example.com/far.txt", "far.txt")
    notes = by_name["notes.md"]
    assert (notes.parts, notes.description, notes.metadata) == ((TextPart(text="a note"),), "Some notes", {"n": 1})


async def test_losses_and_usage_of_the_upstream_are_reported(way: Way) -> None:
    receipt, fold = await way.play("rich")
    run = fold.runs[receipt.run_id]
    assert {loss.feature for loss in run.loss} == {"history"}, "a mark carries the refusal"
    assert run.usage == ({} if way.extended else {"input_tokens": 3})  # with records it is in the message


async def test_failure_has_the_agents_message(way: Way) -> None:
    receipt, fold = await way.play("fail", "on purpose")
    fault = fold.tasks[receipt.task_id].fault
    assert fault is not None and "on purpose" in fault.message
    assert fold.tasks[receipt.task_id].state is TaskState.FAILED


@pytest.mark.parametrize("is_upstream", [False, True])
async def test_cancel_on_either_gateway_ends_the_run(way: Way, is_upstream: bool) -> None:
    CLOSED.clear()
    receipt = await way.submit("slow")
    upstream: dict[str, str] = {}
    async for record in way.records(receipt):
        if record.event.kind == "part_added":
            break
        if record.event.kind == "upstream_bound":
            upstream = record.event.ids
    hub, task_id = (way.back.hub, upstream["task"]) if is_upstream else (way.front.hub, receipt.task_id)
    await hub.cancel(OWNER, task_id)
    async with asyncio.timeout(BOUND):
        await CLOSED.wait()
    fold = await way.stopped(receipt)
    assert fold.runs[receipt.run_id].status is RunStatus.CANCELLED
    assert fold.tasks[receipt.task_id].state is TaskState.CANCELLED


@pytest.mark.parametrize("name", ["echo", "ask"])
async def test_client_meets_the_contract_of_agents(name: str, tmp_path: Path) -> None:
    clients: list[Client] = []

    async with running(tmp_path, {name: AGENTS[name]}) as back:

        def make_agent() -> Any:
            clients.append(Client(f"{back.url}/a2a/{name}"))
            return Reminded(clients[-1])

        await check_agent(make_agent, bound=BOUND)
        for client in clients:
            await client.aclose()


@pytest.mark.parametrize("trusts", [True, False])
async def test_grpc_with_tls_needs_the_ca_of_the_server(tmp_path: Path, trusts: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", "127.0.0.1")
    async with (
        running(tmp_path, AGENTS, tls=pair._asdict(), serves_grpc=True) as back,
        open_http(tls=ClientTls(authority.path) if trusts else None) as http,
    ):
        interface = Interface(f"grpcs://{back.settings.grpc.listen}", "1.0", grpc=True, tenant="echo")
        agent = Client("https://127.0.0.1/echo", interface=interface, http=http)
        transcript = await Talk(agent).say("Hello")
        await agent.aclose()
    assert (transcript.text, transcript.fault is None) == ("Hello" if trusts else "", trusts)
