"""Graphs on LangGraph's own development server, unchanged, behind the gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.kit.client.sse import Frames
from babelgate.adapters.langchain import upstream
from babelgate.adapters.langchain.client import Client
from babelgate.canonical import Record, Scope
from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import Custom, UpstreamBound, encode_event
from babelgate.conformance.contract import check_agent
from babelgate.gateway.registered_agent import RegisteredAgent
from tests import loopback
from tests.adapters.a2a.talk import Reminded, Talk
from tests.interop.frameworks import CALLERS, Agent, check
from tests.interop.langgraph_dev import langgraph_dev
from tests.interop.proxy import CUT, cutting
from tests.pairs.caller import Caller
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[str]:
    async with langgraph_dev(tmp_path_factory.mktemp("langgraph_dev")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def far(server: str) -> AsyncGenerator[httpx.AsyncClient]:
    async with loopback.client(base_url=server, timeout=30) as http:
        yield http


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    tmp_path_factory: pytest.TempPathFactory, server: str, far: httpx.AsyncClient
) -> AsyncGenerator[Running]:
    infos = await upstream.discover(server, far, {})
    registered = {info.name: RegisteredAgent(info, upstream.client(server, upstream.name_of(info))) for info in infos}
    async with running(tmp_path_factory.mktemp("gateway"), registered=registered) as made:
        yield made
    for each in registered.values():
        assert isinstance(each.agent, Client)
        await each.agent.aclose()


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def new_thread(http: httpx.AsyncClient) -> str:
    return (await http.post("/threads", json={})).json()["thread_id"]


async def streamed(
    http: httpx.AsyncClient, thread_id: str, agent: str, *modes: str, **asked: Any
) -> list[tuple[str, Any]]:
    """The events of a run, and their data."""
    body = {"assistant_id": agent, "stream_mode": list(modes), "stream_subgraphs": True, **asked}
    answer = await http.post(f"/threads/{thread_id}/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    return [(found.event, json.loads(found.data)) for found in Frames().all([answer.content])]


async def said_by(http: httpx.AsyncClient, thread_id: str, agent: str, **asked: Any) -> list[str]:
    """What is in the state at the end, as type and content."""
    answer = await http.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": agent, **asked})
    assert answer.status_code == 200, answer.text
    return [f"{message['type']}: {message['content']}" for message in answer.json().get("messages", ())]


async def interrupts(http: httpx.AsyncClient, thread_id: str) -> list[dict[str, Any]]:
    thread = (await http.get(f"/threads/{thread_id}")).json()
    return [asked for each in thread["interrupts"].values() for asked in each]


async def bound(gateway: Running, thread_id: str) -> dict[str, str]:
    [newest, *_] = (await gateway.http.get(f"/threads/{thread_id}/runs")).json()
    return (await gateway.hub.reads.run("default", newest["run_id"])).upstream


async def test_its_graphs_are_there_with_their_schemas(gateway: Running) -> None:
    infos = {info.name: info for info in gateway.hub.agents()}
    assert {"echo", "ask", "nested", "joke"} <= infos.keys()
    assert infos["echo"].stateful and infos["echo"].remembers
    assert "topic" in infos["joke"].schemas["input"]["properties"]


@pytest.mark.parametrize("agent", ["echo", "stream", "nested"])
@pytest.mark.parametrize("mode", ["messages-tuple", "custom", "tasks", "checkpoints", "updates", "values"])
async def test_a_stream_is_the_servers_own(gateway: Running, far: httpx.AsyncClient, agent: str, mode: str) -> None:
    async def events(http: httpx.AsyncClient) -> list[tuple[str, Any]]:
        return await streamed(http, await new_thread(http), agent, mode, input=said("one two"))

    # At the same time: that server looks for new runs twice a second.
    ours, theirs = await asyncio.gather(events(gateway.http), events(far))
    assert shapes(ours) == shapes(theirs)


def shapes(events: list[tuple[str, Any]]) -> list[Any]:
    # Here, the end of a message is told in a piece of its own, which is empty.
    told = [(event, data) for event, data in events[1:] if not event.startswith("messages") or data[0]["content"]]
    return [shape(event, data) for event, data in told]


def shape(event: str, data: Any) -> Any:
    """An event without what differs each time: ids, times, and where it was made."""
    name, *ns = [part.partition(":")[0] for part in event.split("|")]
    match name:
        case "messages":
            return (name, ns, data[0]["content"], data[1]["langgraph_node"])
        case "updates":
            return (name, ns, list(data))
        case "values":
            return (name, ns, [message["content"] for message in data["messages"]], data.get("note"))
        case "tasks":
            return (name, ns, data["name"], "result" in data)
        case "checkpoints":
            values = [message["content"] for message in data["values"].get("messages", ())]
            return (name, ns, data["metadata"]["source"], data["metadata"]["step"], data["next"], values)
        case _:
            return (name, ns, data)


async def test_tokens_add_up_to_the_message_of_the_state(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    frames = await streamed(gateway.http, thread_id, "stream", "messages-tuple", "values", input=said("one two three"))
    pieces = [data[0]["content"] for event, data in frames if event == "messages"]
    last = [data for event, data in frames if event == "values"][-1]["messages"][-1]
    assert len(pieces) > 3 and "".join(pieces) == last["content"] == "one two three"


async def test_a_thread_goes_on_in_the_servers_own(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    await said_by(gateway.http, thread_id, "history", input=said("one"))
    spoken = await said_by(gateway.http, thread_id, "history", input=said("two"))
    assert spoken[-1] == "ai: human: one | ai: human: one | human: two"
    there = (await far.get(f"/threads/{(await bound(gateway, thread_id))['thread']}/state")).json()
    here = (await gateway.http.get(f"/threads/{thread_id}/state")).json()
    assert here["values"] == there["values"]
    assert here["checkpoint"]["checkpoint_id"] == there["checkpoint"]["checkpoint_id"]


async def test_the_history_is_the_servers_own(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    await said_by(gateway.http, thread_id, "nested", input=said("one"))
    upstream_id = (await bound(gateway, thread_id))["thread"]
    here, there = [
        (await http.post(f"/threads/{each}/history", json={"limit": 50})).json()
        for http, each in ((gateway.http, thread_id), (far, upstream_id))
    ]
    assert [each["checkpoint"]["checkpoint_id"] for each in here] == [
        each["checkpoint"]["checkpoint_id"] for each in there
    ]
    assert [each["next"] for each in here] == [each["next"] for each in there]
    assert [each["values"] for each in here] == [each["values"] for each in there]


async def test_two_questions_at_once_are_answered_each_by_its_id(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    await said_by(gateway.http, thread_id, "approve", input=said("Hi"))
    ids = {asked["value"]["action"]: asked["id"] for asked in await interrupts(gateway.http, thread_id)}
    resume = {ids["write"]: {"approved": True}, ids["send"]: {"approved": False}}
    spoken = await said_by(gateway.http, thread_id, "approve", command={"resume": resume})
    assert sorted(spoken[-2:]) == ["ai: send: False", "ai: write: True"]


async def test_questions_one_after_the_other_in_one_node_have_the_same_id_there(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    await said_by(gateway.http, thread_id, "twice", input=said("Hi"))
    await said_by(gateway.http, thread_id, "twice", command={"resume": "Ada"})
    spoken = await said_by(gateway.http, thread_id, "twice", command={"resume": "Lovelace"})
    assert spoken[-1] == "ai: Hello, Ada Lovelace."


async def test_a_failure_keeps_its_name_and_words(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    answer = await gateway.http.post(
        f"/threads/{thread_id}/runs/wait", json={"assistant_id": "fail", "input": said("Boom")}
    )
    assert answer.json() == {"__error__": {"error": "ValueError", "message": "Boom"}}


async def test_a_cancel_reaches_the_server(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    body = {"assistant_id": "slow", "input": said("Hi"), "stream_mode": "custom"}
    async with gateway.http.stream("POST", f"/threads/{thread_id}/runs/stream", json=body) as stream:
        async for chunk in stream.aiter_text():
            if "begun" in chunk:
                break
        ids = await bound(gateway, thread_id)
        [run, *_] = (await gateway.http.get(f"/threads/{thread_id}/runs")).json()
        await gateway.http.post(f"/threads/{thread_id}/runs/{run['run_id']}/cancel")
    path = f"/threads/{ids['thread']}/runs/{ids['run']}"
    async with asyncio.timeout(30):
        await far.get(f"{path}/join")
    assert (await far.get(path)).json()["status"] == "interrupted"


@pytest.mark.parametrize("who", ["gateway", "server"])
async def test_whoever_waits_for_a_run_that_is_cancelled_before_it_begins_is_told_its_end(
    gateway: Running, far: httpx.AsyncClient, who: str
) -> None:
    """The run waits on the server, behind one that the gateway does not know. That server ends no stream of such a
    run."""
    thread_id = await new_thread(gateway.http)
    await said_by(gateway.http, thread_id, "echo", input=said("Hi"))
    ids = await bound(gateway, thread_id)
    theirs = f"/threads/{ids['thread']}/runs"
    busy = (await far.post(theirs, json={"assistant_id": "slow", "input": said("Hi")})).json()
    body = {"assistant_id": "echo", "input": said("Bob")}
    run = (await gateway.http.post(f"/threads/{thread_id}/runs", json=body)).json()
    ours = f"/threads/{thread_id}/runs/{run['run_id']}"
    waiting = asyncio.ensure_future(gateway.http.get(f"{ours}/join"))
    async with asyncio.timeout(60):
        while len(listed := (await far.get(theirs)).json()) < 3:  # noqa: ASYNC110 - it tells of it in no other way
            await asyncio.sleep(0)
        [pending] = [each for each in listed if each["run_id"] not in (busy["run_id"], ids["run"])]
        assert pending["status"] == "pending"
        if who == "gateway":
            await gateway.http.post(f"{ours}/cancel")
        else:
            await far.post(f"{theirs}/{pending['run_id']}/cancel")
        assert (await waiting).status_code == 200
        assert (await gateway.http.get(ours)).json()["status"] == "interrupted"
        assert (await far.get(f"{theirs}/{pending['run_id']}")).json()["status"] == "interrupted"
    await far.post(f"{theirs}/{busy['run_id']}/cancel")


async def test_a_graph_that_does_not_converse_takes_a_text_and_gives_its_output(gateway: Running) -> None:
    body = {"agent_name": "joke", "input": [{"role": "user", "parts": [{"content": "cats"}]}]}
    run = (await gateway.http.post("/acp/runs", json=body)).json()
    # As words and as structured output; the nodes are told beside it, as metadata of parts.
    parts = [part for message in run["output"] for part in message["parts"] if part.get("metadata") is None]
    assert [part["content"] for part in parts] == ["Why cats?", '{"joke":"Why cats?"}']


async def test_a_breakpoint_is_a_question_that_anything_answers(server: str) -> None:
    client = Client(server, "echo")
    talk = Talk(client, bound=30)
    call = talk.call("Hi")
    configured = call.input.replace(config={"interrupt_before": "*"})
    await talk.play(replace(call, input=configured))
    assert [question.value for question in talk.questions] == [{"next": ["echo"]}]
    heard = await talk.answer("go on")
    assert [message.text for message in heard.messages] == ["Hi"]
    await client.aclose()


async def test_cut_streams_lose_and_double_nothing(server: str) -> None:
    """Its ids repeat within a millisecond."""
    text = " ".join(str(n) for n in range(40))
    whole = Client(server, "stream")
    expected = await Talk(whole, bound=30).say(text)
    await whole.aclose()
    async with cutting(server, {"cut": [10**9, 3000, 1, 9000, 20000, 5000]}) as proxy:
        client = Client(proxy.url, "stream", headers={CUT: "cut"}, dialect="langgraph")
        heard = await Talk(client, bound=30).say(text)
        await client.aclose()
        assert len(proxy.resumed["cut"]) >= 2
    assert [message.text for message in heard.messages] == [text]
    assert [event.kind for event in heard.events] == [event.kind for event in expected.events]


async def test_a_run_is_attached_to_again_and_told_from_its_start(server: str, far: httpx.AsyncClient) -> None:
    client = Client(server, "slow")
    talk = Talk(client, bound=30)
    call = talk.call("Hi")
    events = client.run(call)
    heard = [await anext(events)]
    while not isinstance(heard[-1], Custom):
        heard.append(await anext(events))
    left = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    left.cancel(DETACH)
    with pytest.raises(asyncio.CancelledError):
        await left
    assert isinstance(heard[0], UpstreamBound)
    records = [Record(n, n, talk.task_id, call.run_id, 1, event) for n, event in enumerate(heard, 1)]

    async def past() -> list[Record]:
        return records

    again = client.reattach(replace(call, upstream=heard[0].ids, past=past))
    assert [await anext(again) for _ in heard] == heard
    await again.aclose()
    path = f"/threads/{heard[0].ids['thread']}/runs/{heard[0].ids['run']}"
    async with asyncio.timeout(30):
        await far.get(f"{path}/join")
    assert (await far.get(path)).json()["status"] == "interrupted"
    await client.aclose()


@pytest.mark.slow
async def test_a_graph_there_is_an_agent_like_any_other(server: str) -> None:
    client = Client(server, "ask")
    await check_agent(lambda: cast("Any", Reminded(client)), same=False, strange=("", "\0", {}), bound=60)
    await client.aclose()


@pytest.mark.parametrize("below", ["graph", "graph?xray=true", "graph?xray=1", "subgraphs", "subgraphs?recurse=true"])
async def test_a_graph_there_is_drawn_as_its_own_server_draws_it(
    gateway: Running, far: httpx.AsyncClient, below: str
) -> None:
    for assistant in (await far.post("/assistants/search", json={"limit": 100})).json():
        path = f"/assistants/{assistant['assistant_id']}/{below}"
        own, ours = await far.get(path), await gateway.http.get(path)
        assert own.status_code == ours.status_code == 200
        assert own.json() == ours.json(), assistant["graph_id"]


async def test_the_log_of_a_conversation_there_grows_with_what_is_said(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    sizes = [0]
    for turn in range(8):
        await said_by(gateway.http, thread_id, "echo", input=said(f"{turn}: {'What is there to be said? ' * 40}"))
        if turn in (3, 7):
            records = await gateway.hub.reads.records("default", Scope(thread_id))
            sizes.append(sum(len(encode_event(record.event)) for record in records))
    first, second = (after - before for before, after in pairwise(sizes))
    assert second < 1.35 * first  # where each turn tells all that was said before, it is 2.6 times as much


# Its own A2A endpoint, which tells neither thoughts nor calls of tools, but what these gave; nor usage. With
# each token it says all of its answer again.

BY_A2A = (
    Agent("lg-stream", "stream", word="one two", answer="one two"),
    Agent("lg-tools", "tools", calls=("weather", "sunny")),
    Agent("lg-ask", "ask", asks="What is your name?", gets="Ada", answer="Hello, Ada."),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def by_a2a(
    tmp_path_factory: pytest.TempPathFactory, server: str, far: httpx.AsyncClient
) -> AsyncGenerator[Running]:
    found = (await far.post("/assistants/search", json={"limit": 100})).json()
    ids = {each["graph_id"]: each["assistant_id"] for each in found}
    configured = {each.name: {**each.configured, "url": f"{server}/a2a/{ids[each.path]}"} for each in BY_A2A}
    async with running(tmp_path_factory.mktemp("by_a2a"), configured=configured) as made:
        yield made


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.name)
@pytest.mark.parametrize("agent", BY_A2A, ids=lambda each: each.name)
async def test_a_graph_behind_its_servers_a2a_endpoint_arrives_as_what_it_is(
    by_a2a: Running, agent: Agent, caller: type[Caller]
) -> None:
    await check(agent, caller(by_a2a.http, agent.name))
