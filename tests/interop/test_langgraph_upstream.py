"""Graphs on LangGraph's unmodified development server, behind the gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Final, cast

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
    async with running(tmp_path_factory.mktemp("gateway"), registered=registered) as gateway:
        yield gateway
    for each in registered.values():
        assert isinstance(each.agent, Client)
        await each.agent.aclose()


def user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def new_thread(http: httpx.AsyncClient) -> str:
    return (await http.post("/threads", json={})).json()["thread_id"]


async def streamed(
    http: httpx.AsyncClient, thread_id: str, agent: str, *modes: str, **options: Any
) -> list[tuple[str, Any]]:
    """Run an agent and return the events of its stream, with their data."""
    body = {"assistant_id": agent, "stream_mode": list(modes), "stream_subgraphs": True, **options}
    answer = await http.post(f"/threads/{thread_id}/runs/stream", json=body)
    assert answer.status_code == 200, answer.text
    return [(frame.event, json.loads(frame.data)) for frame in Frames().all([answer.content])]


async def run_messages(http: httpx.AsyncClient, thread_id: str, agent: str, **options: Any) -> list[str]:
    """Run an agent and return type and content of each message in its final state."""
    answer = await http.post(f"/threads/{thread_id}/runs/wait", json={"assistant_id": agent, **options})
    assert answer.status_code == 200, answer.text
    return [f"{message['type']}: {message['content']}" for message in answer.json().get("messages", ())]


async def interrupts(http: httpx.AsyncClient, thread_id: str) -> list[dict[str, Any]]:
    thread = (await http.get(f"/threads/{thread_id}")).json()
    return [question for each in thread["interrupts"].values() for question in each]


async def bound(gateway: Running, thread_id: str) -> dict[str, str]:
    [newest, *_] = (await gateway.http.get(f"/threads/{thread_id}/runs")).json()
    return (await gateway.hub.reads.run("default", newest["run_id"])).upstream


async def test_graphs_are_listed_with_their_schemas(gateway: Running) -> None:
    infos = {info.name: info for info in gateway.hub.agents()}
    assert {"echo", "ask", "nested", "joke"} <= infos.keys()
    assert infos["echo"].stateful and infos["echo"].remembers
    assert "topic" in infos["joke"].schemas["input"]["properties"]


STREAMS: Final = list(
    product(["echo", "stream", "nested"], ["messages-tuple", "custom", "tasks", "checkpoints", "updates", "values"])
)
"""Agent and mode of each stream that is compared."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streams(gateway: Running, far: httpx.AsyncClient) -> Mapping[tuple[str, str], Sequence[Any]]:
    """Return the events of each stream: those of the gateway, then those of the server.

    All streams run concurrently, because the server polls for new runs only twice a second.
    """

    async def events(http: httpx.AsyncClient, agent: str, mode: str) -> list[tuple[str, Any]]:
        return await streamed(http, await new_thread(http), agent, mode, input=user("one two"))

    async def both(agent: str, mode: str) -> Sequence[Any]:
        return await asyncio.gather(events(gateway.http, agent, mode), events(far, agent, mode), return_exceptions=True)

    return dict(zip(STREAMS, await asyncio.gather(*(both(*stream) for stream in STREAMS)), strict=True))


@pytest.mark.parametrize("stream", STREAMS, ids="-".join)
async def test_a_stream_equals_that_of_the_server(
    streams: Mapping[tuple[str, str], Sequence[Any]], stream: tuple[str, str]
) -> None:
    forwarded, direct = map(result, streams[stream])
    assert shapes(forwarded) == shapes(direct)


def result(outcome: Any) -> Any:
    """Return the outcome of a coroutine that was gathered, or raise its exception."""
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def shapes(events: list[tuple[str, Any]]) -> list[Any]:
    # The gateway sends the end of a message as a separate, empty chunk.
    chunks = [(event, data) for event, data in events[1:] if not event.startswith("messages") or data[0]["content"]]
    return [shape(event, data) for event, data in chunks]


def shape(event: str, data: Any) -> Any:
    """Return an event without the members that differ between runs: ids, times and origin."""
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


async def test_tokens_form_the_message_in_the_state(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    frames = await streamed(gateway.http, thread_id, "stream", "messages-tuple", "values", input=user("one two three"))
    pieces = [data[0]["content"] for event, data in frames if event == "messages"]
    last = [data for event, data in frames if event == "values"][-1]["messages"][-1]
    assert len(pieces) > 3 and "".join(pieces) == last["content"] == "one two three"


async def test_a_thread_continues_in_a_thread_of_the_server(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    await run_messages(gateway.http, thread_id, "history", input=user("one"))
    spoken = await run_messages(gateway.http, thread_id, "history", input=user("two"))
    assert spoken[-1] == "ai: human: one | ai: human: one | human: two"
    there = (await far.get(f"/threads/{(await bound(gateway, thread_id))['thread']}/state")).json()
    here = (await gateway.http.get(f"/threads/{thread_id}/state")).json()
    assert here["values"] == there["values"]
    assert here["checkpoint"]["checkpoint_id"] == there["checkpoint"]["checkpoint_id"]


async def test_the_history_equals_that_of_the_server(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    await run_messages(gateway.http, thread_id, "nested", input=user("one"))
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


async def test_two_questions_at_once_are_answered_by_their_ids(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    await run_messages(gateway.http, thread_id, "approve", input=user("Hi"))
    ids = {question["value"]["action"]: question["id"] for question in await interrupts(gateway.http, thread_id)}
    resume = {ids["write"]: {"approved": True}, ids["send"]: {"approved": False}}
    spoken = await run_messages(gateway.http, thread_id, "approve", command={"resume": resume})
    assert sorted(spoken[-2:]) == ["ai: send: False", "ai: write: True"]


async def test_two_questions_of_one_node_are_answered_in_turn(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    await run_messages(gateway.http, thread_id, "twice", input=user("Hi"))
    await run_messages(gateway.http, thread_id, "twice", command={"resume": "Ada"})
    spoken = await run_messages(gateway.http, thread_id, "twice", command={"resume": "Lovelace"})
    assert spoken[-1] == "ai: Hello, Ada Lovelace."


async def test_a_failure_keeps_its_class_and_message(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    answer = await gateway.http.post(
        f"/threads/{thread_id}/runs/wait", json={"assistant_id": "fail", "input": user("Boom")}
    )
    assert answer.json() == {"__error__": {"error": "ValueError", "message": "Boom"}}


async def test_a_cancel_reaches_the_server(gateway: Running, far: httpx.AsyncClient) -> None:
    thread_id = await new_thread(gateway.http)
    body = {"assistant_id": "slow", "input": user("Hi"), "stream_mode": "custom"}
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


@pytest.mark.parametrize("canceller", ["gateway", "server"])
async def test_cancelling_a_pending_run_ends_the_wait_for_it(
    gateway: Running, far: httpx.AsyncClient, canceller: str
) -> None:
    """Cancel a run that is queued on the server behind a run that the gateway does not know.

    The server never ends the stream of such a run.
    """
    thread_id = await new_thread(gateway.http)
    await run_messages(gateway.http, thread_id, "echo", input=user("Hi"))
    ids = await bound(gateway, thread_id)
    upstream_runs = f"/threads/{ids['thread']}/runs"
    busy = (await far.post(upstream_runs, json={"assistant_id": "slow", "input": user("Hi")})).json()
    body = {"assistant_id": "echo", "input": user("Bob")}
    run = (await gateway.http.post(f"/threads/{thread_id}/runs", json=body)).json()
    run_path = f"/threads/{thread_id}/runs/{run['run_id']}"
    waiting = asyncio.ensure_future(gateway.http.get(f"{run_path}/join"))
    async with asyncio.timeout(60):
        while len(listed := (await far.get(upstream_runs)).json()) < 3:  # noqa: ASYNC110 - the server has no other signal
            await asyncio.sleep(0)
        [pending] = [each for each in listed if each["run_id"] not in (busy["run_id"], ids["run"])]
        assert pending["status"] == "pending"
        if canceller == "gateway":
            await gateway.http.post(f"{run_path}/cancel")
        else:
            await far.post(f"{upstream_runs}/{pending['run_id']}/cancel")
        assert (await waiting).status_code == 200
        assert (await gateway.http.get(run_path)).json()["status"] == "interrupted"
        assert (await far.get(f"{upstream_runs}/{pending['run_id']}")).json()["status"] == "interrupted"
    await far.post(f"{upstream_runs}/{busy['run_id']}/cancel")


async def test_a_graph_without_messages_takes_text_and_returns_output(gateway: Running) -> None:
    body = {"agent_name": "joke", "input": [{"role": "user", "parts": [{"content": "cats"}]}]}
    run = (await gateway.http.post("/acp/runs", json=body)).json()
    # The output arrives as text and as structured data. Parts with metadata report the nodes.
    parts = [part for message in run["output"] for part in message["parts"] if part.get("metadata") is None]
    assert [part["content"] for part in parts] == ["Why cats?", '{"joke":"Why cats?"}']


async def test_a_breakpoint_is_a_question_with_any_answer(server: str) -> None:
    client = Client(server, "echo")
    talk = Talk(client, bound=30)
    call = talk.call("Hi")
    configured = call.input.replace(config={"interrupt_before": "*"})
    await talk.play(replace(call, input=configured))
    assert [question.value for question in talk.questions] == [{"next": ["echo"]}]
    transcript = await talk.answer("go on")
    assert [message.text for message in transcript.messages] == ["Hi"]
    await client.aclose()


async def test_cut_streams_deliver_each_event_once(server: str) -> None:
    """Cut a stream several times. The server's event ids repeat within a millisecond."""
    text = " ".join(str(n) for n in range(40))
    whole = Client(server, "stream")
    expected = await Talk(whole, bound=30).say(text)
    await whole.aclose()
    async with cutting(server, {"cut": [10**9, 3000, 1, 9000, 20000, 5000]}) as proxy:
        client = Client(proxy.url, "stream", headers={CUT: "cut"}, dialect="langgraph")
        transcript = await Talk(client, bound=30).say(text)
        await client.aclose()
        assert len(proxy.resumed["cut"]) >= 2
    assert [message.text for message in transcript.messages] == [text]
    assert [event.kind for event in transcript.events] == [event.kind for event in expected.events]


async def test_a_detached_run_is_replayed_from_its_start(server: str, far: httpx.AsyncClient) -> None:
    client = Client(server, "slow")
    talk = Talk(client, bound=30)
    call = talk.call("Hi")
    events = client.run(call)
    received = [await anext(events)]
    while not isinstance(received[-1], Custom):
        received.append(await anext(events))
    reading = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    reading.cancel(DETACH)
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert isinstance(received[0], UpstreamBound)
    records = [Record(n, n, talk.task_id, call.run_id, 1, event) for n, event in enumerate(received, 1)]

    async def past() -> list[Record]:
        return records

    again = client.reattach(replace(call, upstream=received[0].ids, past=past))
    assert [await anext(again) for _ in received] == received
    await again.aclose()
    path = f"/threads/{received[0].ids['thread']}/runs/{received[0].ids['run']}"
    async with asyncio.timeout(30):
        await far.get(f"{path}/join")
    assert (await far.get(path)).json()["status"] == "interrupted"
    await client.aclose()


@pytest.mark.slow
async def test_the_client_meets_the_contract_of_agents(server: str) -> None:
    client = Client(server, "ask")
    await check_agent(lambda: cast("Any", Reminded(client)), same=False, strange=("", "\0", {}), bound=60)
    await client.aclose()


@pytest.mark.parametrize("below", ["graph", "graph?xray=true", "graph?xray=1", "subgraphs", "subgraphs?recurse=true"])
async def test_a_graph_is_drawn_as_the_server_draws_it(gateway: Running, far: httpx.AsyncClient, below: str) -> None:
    for assistant in (await far.post("/assistants/search", json={"limit": 100})).json():
        path = f"/assistants/{assistant['assistant_id']}/{below}"
        direct, forwarded = await far.get(path), await gateway.http.get(path)
        assert direct.status_code == forwarded.status_code == 200
        assert direct.json() == forwarded.json(), assistant["graph_id"]


async def test_the_log_of_a_conversation_grows_linearly(gateway: Running) -> None:
    thread_id = await new_thread(gateway.http)
    sizes = [0]
    for turn in range(8):
        await run_messages(gateway.http, thread_id, "echo", input=user(f"{turn}: {'What is there to be said? ' * 40}"))
        if turn in (3, 7):
            records = await gateway.hub.reads.records("default", Scope(thread_id))
            sizes.append(sum(len(encode_event(record.event)) for record in records))
    first, second = (after - before for before, after in pairwise(sizes))
    assert second < 1.35 * first  # 2.6 times as much if each turn repeated the history


# The server's A2A endpoint reports tool results, but no thoughts, tool calls or usage. Each token repeats the answer so
# far.

BY_A2A = (
    Agent("lg-stream", "stream", word="one two", answer="one two"),
    Agent("lg-tools", "tools", calls=("weather", "sunny")),
    Agent("lg-ask", "ask", question="What is your name?", reply="Ada", answer="Hello, Ada."),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def by_a2a(
    tmp_path_factory: pytest.TempPathFactory, server: str, far: httpx.AsyncClient
) -> AsyncGenerator[Running]:
    found = (await far.post("/assistants/search", json={"limit": 100})).json()
    ids = {each["graph_id"]: each["assistant_id"] for each in found}
    configured = {each.name: {**each.configured, "url": f"{server}/a2a/{ids[each.path]}"} for each in BY_A2A}
    async with running(tmp_path_factory.mktemp("by_a2a"), configured=configured) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def checks(by_a2a: Running) -> Mapping[tuple[str, str], Any]:
    """Return the outcome of each check, by agent and caller. They run concurrently, as the streams above."""

    async def cell(agent: Agent, caller: type[Caller]) -> None:
        async with loopback.client(base_url=by_a2a.url, timeout=60) as http:  # one for each, because it is recorded
            await check(agent, caller(http, agent.name))

    cells = list(product(BY_A2A, CALLERS))
    outcomes = await asyncio.gather(*(cell(*each) for each in cells), return_exceptions=True)
    return {(agent.name, caller.name): outcome for (agent, caller), outcome in zip(cells, outcomes, strict=True)}


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.name)
@pytest.mark.parametrize("agent", BY_A2A, ids=lambda each: each.name)
async def test_output_of_the_a2a_endpoint_arrives_complete(
    checks: Mapping[tuple[str, str], Any], agent: Agent, caller: type[Caller]
) -> None:
    result(checks[agent.name, caller.name])
