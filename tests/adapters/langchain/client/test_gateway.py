"""This gateway's own agents as upstreams, over real sockets: as those of LangGraph's server, and as those of one that
speaks the Agent Protocol. What each of them carries is in `tests/pairs`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.langchain.agents import upstream_name
from babelgate.adapters.langchain.client import Client, discover
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.canonical.event import StateSaved, UpstreamBound
from babelgate.conformance.contract import check_agent
from babelgate.gateway import demo
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.settings.model import DEMO
from tests.adapters.a2a.talk import Reminded, Talk
from tests.adapters.langchain.site import said
from tests.gateway.hubs import Scripted, within
from tests.interop.proxy import CUT, cutting
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS: dict[Dialect, str] = {"langgraph": "", "agent-protocol": "/agent-protocol"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents: dict[str, object] = {name: getattr(demo, name) for name in DEMO}
    async with running(tmp_path_factory.mktemp("upstream"), {**agents, "scripted": Scripted()}) as made:
        yield made


@pytest.fixture(params=list(PATHS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest_asyncio.fixture(loop_scope="module")
async def make(upstream: Running, dialect: Dialect) -> AsyncGenerator[Any]:
    made: list[Client] = []

    def client(agent: str, **options: Any) -> Client:
        made.append(Client(upstream.url + PATHS[dialect], agent, **options))
        return made[-1]

    yield client
    for each in made:
        await each.aclose()


def bound(talk: Talk) -> UpstreamBound:
    return next(record.event for record in talk.records if isinstance(record.event, UpstreamBound))


async def test_its_agents_are_found_by_their_names(upstream: Running, dialect: Dialect) -> None:
    infos = {info.name: info for info in await discover(upstream.url + PATHS[dialect], upstream.http)}
    assert {"echo", "ask", "slow"} <= infos.keys()
    echo = infos["echo"]
    assert (upstream_name(echo), echo.stateful, echo.remembers) == ("echo", dialect == "langgraph", True)


@pytest.mark.parametrize("dialect", ["langgraph"], indirect=True)
async def test_states_are_told_under_the_servers_ids(make: Any, upstream: Running) -> None:
    talk = Talk(make("echo"))
    await talk.say("Hello")
    saved = [record.event.checkpoint_id for record in talk.records if isinstance(record.event, StateSaved)]
    history = (await upstream.http.get(f"/threads/{bound(talk).ids['thread']}/history?limit=10")).json()
    assert [state["checkpoint"]["checkpoint_id"] for state in reversed(history)] == saved


async def test_a_second_task_does_not_take_the_first_ones_question_away(make: Any) -> None:
    first = Talk(make("ask"))
    await first.say("Hi")
    second = Talk(first.agent)
    call = second.call("Hi again")
    heard = await second.play(replace(call, upstream={"thread": bound(first).ids["thread"]}))
    assert heard.questions
    assert [m.text for m in (await first.answer("Ada")).messages] == ["Hello, Ada."]


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


async def test_a_thread_has_the_same_values_on_both_sides(tmp_path: Path, upstream: Running, dialect: Dialect) -> None:
    async with front(tmp_path, upstream, dialect) as gateway:
        thread = f"/threads/{(await gateway.http.post('/threads', json={})).json()['thread_id']}"
        for text in ("one", "two"):
            body = {"assistant_id": "echo", "input": said(text)}
            values = (await gateway.http.post(f"{thread}/runs/wait", json=body)).json()
        spoken = [(message["type"], message["content"]) for message in values["messages"]]
        assert spoken == [("human", "one"), ("ai", "one"), ("human", "two"), ("ai", "two")]
        state = (await gateway.http.get(f"{thread}/state")).json()
        assert state["values"]["messages"] == values["messages"]


async def test_a_run_goes_on_where_a_gateway_that_stopped_left_it(
    tmp_path: Path, upstream: Running, dialect: Dialect
) -> None:
    """It is attached to again: the agent is called once."""
    scripted = cast("Scripted", upstream.hub.registry.get("scripted").agent)
    called_before = len(scripted.calls)
    async with front(tmp_path, upstream, dialect) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
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
        assert len(scripted.calls) == called_before + 1


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
