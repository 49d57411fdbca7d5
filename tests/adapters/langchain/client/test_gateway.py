"""This gateway's own agents as upstreams, over real sockets: as those of LangGraph's server, and as those of one that
speaks the Agent Protocol."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from babelgate.adapters.langchain.agents import upstream_name
from babelgate.adapters.langchain.client import Client, discover
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.canonical import Event, FilePart, Message, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    PartAdded,
    PartDelta,
    StateSaved,
    StepEnded,
    ToolEnded,
    ToolStarted,
    UpstreamBound,
)
from babelgate.canonical.json import to_json
from babelgate.conformance.contract import check_agent
from babelgate.gateway import demo
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import DEMO
from tests.adapters.a2a.talk import Reminded, Talk
from tests.gateway.hubs import Scripted, say, within
from tests.interop.proxy import CUT, cutting
from tests.running import Running, running

PATHS: dict[Dialect, str] = {"langgraph": "", "agent-protocol": "/agent-protocol"}


class Memory:
    """Says what it was told on the thread so far."""

    async def run(self, call: Any) -> AsyncIterator[Event]:
        for event in say(" | ".join(message.text for message in (*call.history, *call.messages))):
            yield event


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncGenerator[Running]:
    folder = tmp_path / "upstream"
    folder.mkdir()
    agents: dict[str, object] = {name: getattr(demo, name) for name in DEMO}
    async with running(folder, {**agents, "memory": Memory(), "scripted": Scripted()}) as made:
        yield made


@pytest.fixture(params=list(PATHS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest.fixture
async def make(upstream: Running, dialect: Dialect) -> AsyncGenerator[Any]:
    made: list[Client] = []

    def client(agent: str, **options: Any) -> Client:
        made.append(Client(upstream.url + PATHS[dialect], agent, **options))
        return made[-1]

    yield client
    for each in made:
        await each.aclose()


def of(kind: type, events: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def events_of(talk: Talk) -> list[Event]:
    return [record.event for record in talk.records]


# Every agent


async def test_its_agents_are_found_by_their_names(upstream: Running, dialect: Dialect) -> None:
    infos = {info.name: info for info in await discover(upstream.url + PATHS[dialect], upstream.http)}
    assert {"echo", "ask", "slow"} <= infos.keys()
    echo = infos["echo"]
    assert (upstream_name(echo), echo.stateful, echo.remembers) == ("echo", dialect == "langgraph", True)


async def test_a_text_is_answered(make: Any) -> None:
    heard = await Talk(make("echo")).say("Hello")
    assert [message.text for message in heard.messages] == ["Hello"]


async def test_tokens_come_as_they_are_said(make: Any, upstream: Running) -> None:
    scripted = cast("Scripted", upstream.hub.registry.get("scripted").agent)
    events = make("scripted").run(Talk(make("scripted")).call("Hello"))
    async with aclosing(events):
        waiting = asyncio.ensure_future(_until(events, PartAdded | PartDelta))
        activation = await within(scripted.called(), "the activation")
        activation.open("first")
        added = await within(waiting, "the first token")
        assert isinstance(added, PartAdded) and isinstance(added.part, TextPart) and added.part.text == "first"


async def _until(events: AsyncGenerator[Event], kind: Any) -> Event:
    while not isinstance(found := await anext(events), kind):
        pass
    return found


async def test_a_question_is_asked_and_answered(make: Any) -> None:
    talk = Talk(make("ask"))
    await talk.say("Hi")
    assert [question.message.text for question in talk.questions] == ["What is your name?"]
    assert [m.text for m in (await talk.answer("Ada")).messages] == ["Hello, Ada."]


async def test_two_questions_at_once_are_answered_each(make: Any) -> None:
    talk = Talk(make("approve"))
    await talk.say("Hi")
    assert [question.value for question in talk.questions] == [{"action": "write"}, {"action": "send"}]
    assert all(question.answer_schema for question in talk.questions)
    heard = await talk.answer({"approved": True}, {"approved": False})
    assert [m.text for m in heard.messages] == ["write: approved\nsend: not approved\n"]


async def test_a_failure_says_what_the_agent_said(make: Any) -> None:
    heard = await Talk(make("fail")).say("Boom")
    assert heard.fault is not None and heard.fault.message == "RuntimeError: Boom"
    assert heard.fault.details["langchain"] == {"error": "AgentFailedError"}
    assert [message.text for message in heard.messages] == ["Failing."]


async def test_structured_output_is_that_on_both_sides(make: Any) -> None:
    talk = Talk(make("json"))
    heard = await talk.say("one two")
    wanted = {"text": "one two", "words": 2, "length": 7}
    assert heard.ended is not None and heard.ended.output == wanted
    assert [to_json(part)["data"] for m in heard.messages for part in m.parts] == [wanted]


async def test_files_go_there_and_come_back(make: Any) -> None:
    file = FilePart(name="a.bin", media_type="image/png", inline=b"\0\1")
    agent = make("files")
    call = Talk(agent).call(Message(role="user", parts=(TextPart(text="Note"), file)))
    events = [event async for event in agent.run(call)]
    added = {event.name: event.part.inline for event in of(ArtifactAdded, events)}
    assert added == {"a.bin": b"\0\1", "report.txt": b"Note"}


async def test_steps_and_tools_are_told_as_far_as_the_dialect_can(make: Any, dialect: Dialect) -> None:
    steps, tools = Talk(make("steps", extension="off")), Talk(make("tools", extension="off"))
    await steps.say("x")
    await tools.say("one two")
    assert len(of(StepEnded, events_of(steps))) == (4 if dialect == "langgraph" else 3)
    started, ended = of(ToolStarted, events_of(tools)), of(ToolEnded, events_of(tools))
    assert [(tool.name, tool.input) for tool in started] == [("word_count", {"text": "one two"})]
    assert [(tool.name, tool.output) for tool in ended] == [("word_count", 2)]


async def test_a_thread_remembers_what_was_said_before(make: Any) -> None:
    talk = Talk(make("memory"))
    await talk.say("one")
    heard = await talk.say("two")
    assert [m.text for m in heard.messages] == ["one | one | two"]


async def test_states_are_told_under_the_servers_ids(make: Any, upstream: Running, dialect: Dialect) -> None:
    talk = Talk(make("echo"))
    await talk.say("Hello")
    saved = of(StateSaved, events_of(talk))
    if dialect == "agent-protocol":
        assert saved == []
        return
    [bound] = of(UpstreamBound, events_of(talk))
    history = (await upstream.http.get(f"/threads/{bound.ids['thread']}/history?limit=10")).json()
    assert [state["checkpoint"]["checkpoint_id"] for state in reversed(history)] == [s.checkpoint_id for s in saved]


async def test_whoever_leaves_ends_the_run_there(make: Any, upstream: Running) -> None:
    talk = Talk(make("slow"))
    events = cast("AsyncGenerator[Event]", talk.agent.run(talk.call("600")))
    bound = cast("UpstreamBound", await within(_until(events, UpstreamBound), "the run's id"))
    await events.aclose()
    path = f"/threads/{bound.ids['thread']}/runs/{bound.ids['run']}"
    await within(upstream.http.get(f"{path}/join"), "the end of the run")
    assert (await upstream.http.get(path)).json()["status"] == "interrupted"


async def test_a_second_task_does_not_take_the_first_ones_question_away(make: Any) -> None:
    first = Talk(make("ask"))
    await first.say("Hi")
    second = Talk(first.agent)
    call = second.call("Hi again")
    ids = next(event.ids for event in events_of(first) if isinstance(event, UpstreamBound))
    heard = await second.play(replace(call, upstream={"thread": ids["thread"]}))
    assert heard.questions
    assert [m.text for m in (await first.answer("Ada")).messages] == ["Hello, Ada."]


# Streams that are cut


async def test_cut_streams_lose_and_double_nothing(upstream: Running, dialect: Dialect) -> None:
    text = " ".join(str(n) for n in range(60))
    # The first requests are none for a stream: they ask what the agent takes, or what the server is and for a thread.
    whole = [10**9] * (1 if dialect == "langgraph" else 2)
    async with cutting(upstream.url, {"cut": [*whole, 3000, 1, 2000, 6000]}) as proxy:
        client = Client(proxy.url + PATHS[dialect], "stream", headers={CUT: "cut"}, dialect=dialect)
        talk = Talk(client, bound=20)
        heard = await talk.say(text)
        await client.aclose()
        assert len(proxy.resumed["cut"]) == 4
    assert [message.text for message in heard.messages] == [text]


# Behind a gateway of its own


@asynccontextmanager
async def front(tmp_path: Path, upstream: Running, dialect: Dialect) -> AsyncGenerator[Running]:
    folder = tmp_path / "front"
    folder.mkdir(exist_ok=True)
    url = upstream.url + PATHS[dialect]
    infos = await discover(url, upstream.http)
    clients = {info.name: Client(url, upstream_name(info)) for info in infos}
    registered = {info.name: RegisteredAgent(info, clients[info.name]) for info in infos}
    async with running(folder, registered=registered) as made:
        try:
            yield made
        finally:
            for client in clients.values():
                await client.aclose()


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def wait(gateway: Running, thread_id: str, agent: str, **asked: Any) -> Any:
    answer = await gateway.http.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": agent, **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_thread_has_the_same_values_on_both_sides(tmp_path: Path, upstream: Running, dialect: Dialect) -> None:
    async with front(tmp_path, upstream, dialect) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        for text in ("one", "two"):
            values = await wait(gateway, thread_id, "echo", input=said(text))
        spoken = [(message["type"], message["content"]) for message in values["messages"]]
        assert spoken == [("human", "one"), ("ai", "one"), ("human", "two"), ("ai", "two")]
        state = (await gateway.http.get(f"/threads/{thread_id}/state")).json()
        assert state["values"]["messages"] == values["messages"]


async def test_a_question_is_answered_through_both(tmp_path: Path, upstream: Running, dialect: Dialect) -> None:
    async with front(tmp_path, upstream, dialect) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        values = await wait(gateway, thread_id, "ask", input=said("Hi"))
        assert [asked["value"] for asked in values["__interrupt__"]] == ["What is your name?"]
        thread = (await gateway.http.get(f"/threads/{thread_id}")).json()
        assert thread["status"] == "interrupted"
        assert [asked["value"] for each in thread["interrupts"].values() for asked in each] == ["What is your name?"]
        values = await wait(gateway, thread_id, "ask", command={"resume": "Ada"})
        assert values["messages"][-1]["content"] == "Hello, Ada."


async def test_a_run_goes_on_where_a_gateway_that_stopped_left_it(
    tmp_path: Path, upstream: Running, dialect: Dialect
) -> None:
    """It is attached to again: the agent is called once."""
    scripted = cast("Scripted", upstream.hub.registry.get("scripted").agent)
    async with front(tmp_path, upstream, dialect) as gateway:
        made = await gateway.http.post("/threads", json={})
        thread_id = made.json()["thread_id"]
        body = {"assistant_id": "scripted", "input": said("Hi"), "stream_mode": "messages-tuple"}
        run = (await gateway.http.post(f"/threads/{thread_id}/runs", json=body)).json()
        activation = await within(scripted.called(), "the activation")
        activation.open("first")
        path = f"/threads/{thread_id}/runs/{run['run_id']}"
        async with gateway.http.stream("GET", f"{path}/stream", headers={"Last-Event-ID": "-1"}) as stream:
            await within(_holds(stream, "first"), "the first token")
    async with front(tmp_path, upstream, dialect) as gateway:
        activation.more(" second").end()
        ended = (await within(gateway.http.get(f"{path}/join"), "the end of the run")).json()
        assert ended["messages"][-1]["content"] == "first second"
        assert len(scripted.calls) == 1


async def _holds(stream: httpx.Response, text: str) -> None:
    heard = ""
    async for chunk in stream.aiter_text():
        heard += chunk
        if text in heard:
            return
    raise AssertionError("the stream ended")


# The contract


@pytest.mark.parametrize("agent", ["echo", "stream", "approve", "json"])
async def test_an_upstream_is_an_agent_like_any_other(make: Any, agent: str, dialect: Dialect) -> None:
    # Its states hold ids, and those differ each time.
    same = dialect == "agent-protocol"
    await check_agent(lambda: cast("Any", Reminded(make(agent))), answer={"approved": True}, same=same, bound=30)
