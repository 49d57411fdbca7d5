"""Agents of servers built with the unmodified official A2A SDKs of both versions, called by the A2A adapter."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import pytest_asyncio

from babelgate.adapters.a2a import client as client_module
from babelgate.adapters.a2a.agents.interface import Interface, find_interface
from babelgate.adapters.a2a.client import Client, discover
from babelgate.adapters.a2a.client.binding import ClientBinding, create_binding
from babelgate.adapters.a2a.client.http import HttpClient
from babelgate.canonical import DataPart, Event, FilePart, Message, Part, Record, RunStatus, TextPart
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import ArtifactAdded, MessageEnded, PartAdded, PartDelta, RunEnded, UpstreamBound
from babelgate.conformance.contract import Transcript, check_agent
from tests import loopback
from tests.adapters.a2a.talk import Reminded, Talk
from tests.interop.driver import BOUND, OfficialServer, start_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = [
    ("a2a-1.0", "1.0", "JSONRPC", True),
    ("a2a-1.0", "1.0", "HTTP+JSON", True),
    ("a2a-1.0", "0.3", "JSONRPC", True),
    ("a2a-1.0", "0.3", "HTTP+JSON", True),
    ("a2a-1.0", "1.0", "JSONRPC", False),
    ("a2a-grpc", "1.0", "GRPC", True),
    ("a2a-grpc", "1.0", "GRPC", False),
    ("a2a-0.3", "0.3", "JSONRPC", True),
    ("a2a-0.3", "0.3", "HTTP+JSON", True),
    ("a2a-0.3", "0.3", "JSONRPC", False),
]


@dataclass(frozen=True)
class Way:
    """A server, and the interface through which its agents are called."""

    server: OfficialServer
    peer: str
    version: Any
    rest: bool
    streams: bool
    rpc_url: str = ""
    """URL of the gRPC server, if the agent is called over gRPC."""

    def interface(self, name: str) -> Interface:
        """Return the only interface through which the agent is called."""
        if self.rpc_url:
            return Interface(self.rpc_url, self.version, grpc=True, tenant=name, streams=self.streams)
        path = f"{name}/rest" if self.rest and self.peer == "a2a-0.3" else name
        slash = "/" if not self.rest and self.peer == "a2a-0.3" else ""
        return Interface(f"{self.server.url}/{path}{slash}", self.version, rest=self.rest, streams=self.streams)

    def agent(self, name: str) -> Client:
        return Client(f"{self.server.url}/{name}", interface=self.interface(name))

    @asynccontextmanager
    async def binding(self, name: str) -> AsyncGenerator[ClientBinding]:
        """Yield the binding to an agent, without a client around it."""
        upstream = HttpClient()
        yield create_binding(upstream, self.interface(name), "")
        await upstream.aclose()

    @asynccontextmanager
    async def talk(self, name: str) -> AsyncGenerator[Talk]:
        agent = self.agent(name)
        yield Talk(agent, bound=BOUND)
        await agent.aclose()


def way_name(way: tuple[str, str, str, bool]) -> str:
    peer, version, binding, streams = way
    return f"{peer}-speaking-{version}-{binding}{'' if streams else '-unary'}"


@pytest_asyncio.fixture(loop_scope="module", params=WAYS, ids=way_name)
async def way(request: pytest.FixtureRequest, servers: dict[str, OfficialServer]) -> Way:
    peer, version, binding, streams = request.param
    server, rpc_url = servers[peer], ""
    if binding == "GRPC":
        async with loopback.client() as http:
            card = (await http.get(f"{server.url}/echo/.well-known/agent-card.json")).json()
        found = find_interface(card, server.url, speaks_grpc=True)
        assert found is not None
        rpc_url = found.url
    return Way(server, peer, version, binding == "HTTP+JSON", streams, rpc_url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers() -> AsyncGenerator[dict[str, OfficialServer]]:
    async with (
        start_server("a2a-1.0") as new,
        start_server("a2a-0.3") as old,
        start_server("a2a-grpc", grpc=True) as rpc,
    ):
        yield {"a2a-1.0": new, "a2a-0.3": old, "a2a-grpc": rpc}


@pytest.mark.parametrize("peer", ["a2a-1.0", "a2a-0.3", "a2a-grpc"])
async def test_agents_are_discovered_by_their_cards_and_answer(servers: dict[str, OfficialServer], peer: str) -> None:
    url = f"{servers[peer].url}/echo"
    async with loopback.client() as http:
        [info] = await discover(url, http)
    assert (info.name, info.description, [skill.id for skill in info.skills]) == ("echo", "The agent echo.", ["echo"])
    agent = Client(url)
    assert (await Talk(agent).say("Hello")).text == "Hello"
    await agent.aclose()


def ids_in(transcript: Transcript) -> list[Mapping[str, str]]:
    return [event.ids for event in transcript.events if isinstance(event, UpstreamBound)]


async def test_the_next_task_is_in_the_same_context(way: Way) -> None:
    async with way.talk("echo") as talk:
        first, second = await talk.say("one"), await talk.say("two")
    assert [(transcript.text, transcript.fault) for transcript in (first, second)] == [("one", None), ("two", None)]
    [one], [two] = ids_in(first), ids_in(second)
    assert set(one) == {"task", "context"}
    assert one["context"] == two["context"]
    assert one["task"] != two["task"]


@pytest.mark.parametrize(
    ("agent", "text", "answer", "progress"),
    [
        ("message", "Hello", TextPart(text="Hello"), []),
        ("data", "two words", DataPart(data={"text": "two words", "words": 2}), []),
        ("steps", "Done.", TextPart(text="Done."), ["Planning.", "Working."]),
    ],
)
async def test_messages_data_and_progress_keep_their_kind(
    way: Way, agent: str, text: str, answer: Part, progress: list[str]
) -> None:
    async with way.talk(agent) as talk:
        transcript = await talk.say(text)
    assert transcript.fault is None
    assert [message.parts for message in transcript.messages if message.phase == "answer"] == [(answer,)]
    assert [message.text for message in transcript.messages if message.phase == "progress"] == progress


@pytest.mark.parametrize(
    ("agent", "text", "words", "details"),
    [("fail", "Before the fault.", "Boom", {}), ("reject", "", "No.", {"rejected": True})],
)
async def test_failures_and_refusals_keep_the_message_of_the_agent(
    way: Way, agent: str, text: str, words: str, details: dict[str, Any]
) -> None:
    async with way.talk(agent) as talk:
        transcript = await talk.say(words)
    assert transcript.fault is not None
    assert (transcript.text, transcript.fault.message, transcript.fault.details) == (text, words, details)


async def test_tokens_arrive_as_they_are_sent(way: Way) -> None:
    agent = way.agent("stream")
    tokens: list[str] = []
    async with asyncio.timeout(BOUND), aclosing(agent.run(Talk(agent).call("one two three"))) as events:
        async for event in events:
            if isinstance(event, PartDelta) or (isinstance(event, PartAdded) and isinstance(event.part, TextPart)):
                tokens.append(event.text if isinstance(event, PartDelta) else event.part.text)  # pyright: ignore
                if len(tokens) < 3:
                    way.server.release()
    assert tokens == ["one", " two", " three"]
    await agent.aclose()


@pytest.mark.parametrize(("name", "ask", "end"), [("ask", "input", "Hello, Ada."), ("auth", "auth", "Signed in.")])
async def test_a_question_is_answered_in_the_same_task(way: Way, name: str, ask: str, end: str) -> None:
    async with way.talk(name) as talk:
        paused = await talk.say("go")
        [question] = paused.questions
        assert (question.ask, question.message.text) == (
            ask,
            {"ask": "What is your name?", "auth": "Sign in, please."}[name],
        )
        answered = await talk.answer("Ada")
    assert (answered.text, answered.fault, answered.questions) == (end, None, [])
    tasks = [ids["task"] for each in (paused, answered) for ids in ids_in(each)]
    assert len(tasks) == 2 and len(set(tasks)) == 1


async def test_files_are_sent_and_returned_unchanged(way: Way) -> None:
    content = bytes(range(256))
    file = FilePart(name="every byte.bin", media_type="application/octet-stream", inline=content)
    agent = way.agent("files")
    call = Talk(agent).call(Message(role="user", parts=(file, TextPart(text="text"))))
    contents: dict[str, Any] = {}
    async with asyncio.timeout(BOUND), aclosing(agent.run(call)) as events:
        async for event in events:
            if isinstance(event, ArtifactAdded):
                assert isinstance(event.part, FilePart)
                contents[event.name or ""] = event.part.inline
    await agent.aclose()
    if way.rest and way.version == "0.3":  # its protocol buffer has no field for names
        assert set(contents.values()) == {content, b"text"}
    else:
        assert contents == {"every byte.bin": content, "report.txt": b"text"}


async def until(events: AsyncIterator[Event], kind: type[Event]) -> Event:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"the run ended without {kind.__name__}")


async def state_of(way: Way, name: str, task_id: str) -> str:
    async with way.binding(name) as binding:
        task = cast("Any", await binding.get(task_id, None))
    return task["status"]["state"].upper().removeprefix("TASK_STATE_")


async def test_closing_a_run_cancels_the_upstream_task(way: Way) -> None:
    agent = way.agent("slow")
    async with asyncio.timeout(BOUND), aclosing(agent.run(Talk(agent).call("go"))) as events:
        ids = cast("UpstreamBound", await until(events, UpstreamBound)).ids
        await until(events, PartAdded)
    assert (await state_of(way, "slow", ids["task"])).startswith("CANCEL")
    await agent.aclose()


async def test_a_detached_run_is_resumed_without_repeated_output(way: Way) -> None:
    agent = way.agent("slow")
    talk = Talk(agent)
    call = talk.call("go")
    before: list[Event] = []

    async def pump() -> None:
        async with aclosing(agent.run(call)) as events:
            async for event in events:
                before.append(event)
                if isinstance(event, PartAdded):
                    first.set()

    first = asyncio.Event()
    pumping = asyncio.ensure_future(pump())
    async with asyncio.timeout(BOUND):
        await first.wait()
        pumping.cancel(DETACH)
        await asyncio.wait((pumping,))
    ids = cast("UpstreamBound", before[0]).ids
    assert (await state_of(way, "slow", ids["task"])) == "WORKING"
    records = [*talk.records, *log_of(before, call.run_id, len(talk.records))]

    async def past() -> Sequence[Any]:
        return records

    again: list[Event] = []
    async with asyncio.timeout(BOUND):
        async for event in agent.reattach(replace(call, upstream=ids, past=past)):
            again.append(event)
            if len(again) == len(before):
                way.server.release()
    assert again[: len(before)] == before
    assert "".join(event.text for event in again if isinstance(event, PartDelta)) == " last"
    assert len([event for event in again if isinstance(event, MessageEnded)]) == 1
    await agent.aclose()


def log_of(events: Sequence[Event], run_id: str, seq: int) -> list[Record]:
    return [Record(seq + i, seq + i, "k", run_id, 1, event) for i, event in enumerate(events, start=1)]


async def test_cancelling_the_upstream_task_ends_the_run(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SILENCE", 0.2)  # the 0.3 SDK does not report it in the stream
    agent = way.agent("slow")
    events = agent.run(Talk(agent).call("go"))
    async with asyncio.timeout(BOUND), aclosing(events):
        ids = cast("UpstreamBound", await until(events, UpstreamBound)).ids
        await until(events, PartAdded)
        async with way.binding("slow") as binding:
            await binding.cancel(ids["task"], ids["context"])
        ended = cast("RunEnded", await until(events, RunEnded))
    assert ended.status is RunStatus.CANCELLED
    await agent.aclose()


@pytest.mark.parametrize("peer", ["a2a-1.0", "a2a-0.3"])
@pytest.mark.parametrize("name", ["echo", "ask"])
async def test_the_client_meets_the_contract_of_agents(
    servers: dict[str, OfficialServer], peer: str, name: str
) -> None:
    clients: list[Client] = []

    def make() -> Any:
        clients.append(Client(f"{servers[peer].url}/{name}"))
        return Reminded(clients[-1])

    await check_agent(make, bound=BOUND)
    for client in clients:
        await client.aclose()
