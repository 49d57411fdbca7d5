"""Agents of another gateway as upstreams, over real sockets, in LangGraph's dialect and in the Agent Protocol.

`tests/pairs` tests what each of them carries.
"""

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
from tests.adapters.langchain.site import user_input
from tests.gateway.hubs import Scripted, within
from tests.interop.proxy import CUT, cutting
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS: dict[Dialect, str] = {"langgraph": "", "agent-protocol": "/agent-protocol"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    agents: dict[str, object] = {name: getattr(demo, name) for name in DEMO}
    async with running(tmp_path_factory.mktemp("upstream"), {**agents, "scripted": Scripted()}) as gateway:
        yield gateway


@pytest.fixture(params=list(PATHS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param


@pytest_asyncio.fixture(loop_scope="module")
async def make(upstream: Running, dialect: Dialect) -> AsyncGenerator[Any]:
    clients: list[Client] = []

    def client(agent: str, **options: Any) -> Client:
        clients.append(Client(upstream.url + PATHS[dialect], agent, **options))
        return clients[-1]

    yield client
    for each in clients:
        await each.aclose()


def bound(talk: Talk) -> UpstreamBound:
    return next(record.event for record in talk.records if isinstance(record.event, UpstreamBound))


async def test_agents_are_discovered_by_their_names(upstream: Running, dialect: Dialect) -> None:
    infos = {info.name: info for info in await discover(upstream.url + PATHS[dialect], upstream.http)}
    assert {"echo", "ask", "slow"} <= infos.keys()
    echo = infos["echo"]
    assert (upstream_name(echo), echo.stateful, echo.remembers) == ("echo", dialect == "langgraph", True)


@pytest.mark.parametrize("dialect", ["langgraph"], indirect=True)
async def test_states_have_the_checkpoint_ids_of_the_upstream(make: Any, upstream: Running) -> None:
    talk = Talk(make("echo"))
    await talk.say("Hello")
    saved = [record.event.checkpoint_id for record in talk.records if isinstance(record.event, StateSaved)]
    history = (await upstream.http.get(f"/threads/{bound(talk).ids['thread']}/history?limit=10")).json()
    assert [state["checkpoint"]["checkpoint_id"] for state in reversed(history)] == saved


async def test_a_second_task_keeps_the_question_of_the_first(make: Any) -> None:
    first = Talk(make("ask"))
    await first.say("Hi")
    second = Talk(first.agent)
    call = second.call("Hi again")
    turn = await second.play(replace(call, upstream={"thread": bound(first).ids["thread"]}))
    assert turn.questions
    assert [m.text for m in (await first.answer("Ada")).messages] == ["Hello, Ada."]


async def test_cut_streams_neither_lose_nor_repeat_events(upstream: Running, dialect: Dialect) -> None:
    text = " ".join(str(n) for n in range(60))
    # The first requests are not streams: they read the schemas, or detect the server and create a thread.
    whole = [10**9] * (1 if dialect == "langgraph" else 2)
    async with cutting(upstream.url, {"cut": [*whole, 3000, 1, 2000, 6000]}) as proxy:
        client = Client(proxy.url + PATHS[dialect], "stream", headers={CUT: "cut"}, dialect=dialect)
        talk = Talk(client, bound=20)
        turn = await talk.say(text)
        await client.aclose()
        assert len(proxy.resumed["cut"]) == 4
    assert [message.text for message in turn.messages] == [text]


# Behind a second gateway


@asynccontextmanager
async def front(tmp_path: Path, upstream: Running, dialect: Dialect) -> AsyncGenerator[Running]:
    folder = tmp_path / "front"
    folder.mkdir(exist_ok=True)
    url = upstream.url + PATHS[dialect]
    infos = await discover(url, upstream.http)
    clients = {info.name: Client(url, upstream_name(info)) for info in infos}
    registered = {info.name: RegisteredAgent(info, clients[info.name]) for info in infos}
    async with running(folder, registered=registered) as gateway:
        try:
            yield gateway
        finally:
            for client in clients.values():
                await client.aclose()


async def test_a_thread_has_the_same_values_on_both_sides(tmp_path: Path, upstream: Running, dialect: Dialect) -> None:
    async with front(tmp_path, upstream, dialect) as gateway:
        thread = f"/threads/{(await gateway.http.post('/threads', json={})).json()['thread_id']}"
        for text in ("one", "two"):
            body = {"assistant_id": "echo", "input": user_input(text)}
            values = (await gateway.http.post(f"{thread}/runs/wait", json=body)).json()
        messages = [(message["type"], message["content"]) for message in values["messages"]]
        assert messages == [("human", "one"), ("ai", "one"), ("human", "two"), ("ai", "two")]
        state = (await gateway.http.get(f"{thread}/state")).json()
        assert state["values"]["messages"] == values["messages"]


async def test_a_restarted_gateway_continues_the_active_run(
    tmp_path: Path, upstream: Running, dialect: Dialect
) -> None:
    scripted = cast("Scripted", upstream.hub.registry.get("scripted").agent)
    called_before = len(scripted.calls)
    async with front(tmp_path, upstream, dialect) as gateway:
        thread_id = (await gateway.http.post("/threads", json={})).json()["thread_id"]
        body = {"assistant_id": "scripted", "input": user_input("Hi"), "stream_mode": "messages-tuple"}
        run = (await gateway.http.post(f"/threads/{thread_id}/runs", json=body)).json()
        activation = await within(scripted.called(), "the activation")
        activation.open("first")
        path = f"/threads/{thread_id}/runs/{run['run_id']}"
        async with gateway.http.stream("GET", f"{path}/stream", headers={"Last-Event-ID": "-1"}) as stream:
            await within(_wait_for(stream, "first"), "the first token")
    async with front(tmp_path, upstream, dialect) as gateway:
        activation.more(" second").end()
        ended = (await within(gateway.http.get(f"{path}/join"), "the end of the run")).json()
        assert ended["messages"][-1]["content"] == "first second"
        assert len(scripted.calls) == called_before + 1


async def _wait_for(stream: httpx.Response, text: str) -> None:
    received = ""
    async for chunk in stream.aiter_text():
        received += chunk
        if text in received:
            return
    raise AssertionError("the stream ended")


# The contract


@pytest.mark.parametrize("agent", ["echo", "stream", "approve", "json"])
async def test_an_upstream_fulfills_the_contract_of_agents(make: Any, agent: str, dialect: Dialect) -> None:
    # The states of LangGraph's dialect contain ids, which differ each time.
    same = dialect == "agent-protocol"
    await check_agent(lambda: cast("Any", Reminded(make(agent))), answer={"approved": True}, same=same, bound=30)
