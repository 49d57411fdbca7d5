"""Requests of the Messages API: their meaning on a thread and without one, and their responses."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.anthropic.write.message import AnswerWriter
from babelgate.canonical import Ask, Invocation, Message, UseTool
from babelgate.canonical.event import Event, RunStarted
from babelgate.gateway import demo
from tests.adapters.anthropic.testing import body_of, text_in
from tests.adapters.log import RUN, TASK, Log, streamed
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

Wire = dict[str, Any]

GATE: Final = asyncio.Semaphore(0)


async def recall(call: Invocation) -> str:
    """Return the role and the text of each message of the conversation."""
    return " | ".join(f"{each.role}: {each.text}" for each in (*call.history, *call.messages))


async def twice(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask two questions, one after the other."""
    yield "Now. "
    first = yield Ask("First?")
    second = yield Ask("Second?")
    yield f"{first} and {second}"


async def settings(call: Invocation) -> str:
    """Return the configuration of the run."""
    return json.dumps(call.config, sort_keys=True)


async def tool(call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
    yield f"Got {(yield UseTool('weather', {'city': 'Rome'}))}"


async def gated(text: str) -> AsyncGenerator[str]:
    yield "first"
    await GATE.acquire()
    yield " last"


AGENTS: Final[dict[str, Any]] = {
    **{name: getattr(demo, name) for name in demo.__all__},
    **{each.__name__: each for each in (gated, recall, settings, tool, twice)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("messages"), AGENTS) as gateway:
        yield gateway


@pytest.fixture
def http(gateway: Running) -> httpx.AsyncClient:
    return gateway.http


def request_of(model: str, *contents: Any, **more: Any) -> Wire:
    """Return a request to a model. Its messages have these contents; the first is by the user, and then the assistant
    and the user alternate."""
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return body_of("", **{"model": model, "messages": messages, **more})


async def create(http: httpx.AsyncClient, body: Wire, thread: str | None = None) -> Wire:
    headers = {} if thread is None else {"Babelgate-Thread": thread}
    response = await http.post("/v1/messages", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def events_of(body: str) -> list[Wire]:
    """Return the events of a stream that has ended."""
    return [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("name", ["trip", str(uuid4())], ids=["name", "uuid"])
async def test_a_named_thread_keeps_the_conversation(http: httpx.AsyncClient, name: str) -> None:
    await create(http, request_of("recall", "one"), name)
    message = await create(http, request_of("recall", "two", metadata={"thread_id": name}))
    assert text_in(message) == "user: one | agent: user: one | user: two"


async def test_text_answers_continue_a_conversation_without_a_thread(http: httpx.AsyncClient) -> None:
    contents: list[Any] = ["go"]
    for answer in ("A", "B"):
        message = await create(http, request_of("twice", *contents))
        assert message["stop_reason"] == "end_turn"
        contents += [text_in(message), answer]
    assert text_in(await create(http, request_of("twice", *contents))) == "A and B"


async def test_text_of_the_user_answers_on_a_thread(http: httpx.AsyncClient) -> None:
    thread = str(uuid4())
    for text, expected in (("go", "Now. First?"), ("A", "Second?"), ("B", "A and B")):
        reminder = {"role": "system", "content": "A reminder of the client."}
        body = request_of("twice", text)
        body["messages"].append(reminder)
        assert text_in(await create(http, body, thread)) == expected


async def test_result_of_a_text_question_answers_it(http: httpx.AsyncClient) -> None:
    (block,) = (await create(http, request_of("ask", "go"), thread := str(uuid4())))["content"]
    result = {"type": "tool_result", "tool_use_id": block["babelgate"]["question"]["id"], "content": "Ada"}
    assert "Ada" in text_in(await create(http, request_of("ask", [result]), thread))


@pytest.mark.parametrize(
    ("changed", "status"),
    [({"tool_use_id": "toolu_bgt_x"}, 400), ({}, 400)],
    ids=["a changed id", "a second answer"],
)
async def test_wrong_result_is_refused(http: httpx.AsyncClient, changed: Wire, status: int) -> None:
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    (call,) = (await create(http, request_of("tool", "go", tools=tools), str(uuid4())))["content"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
    if not changed:
        await create(http, request_of("tool", [result], tools=tools))
    response = await http.post("/v1/messages", json=request_of("tool", [{**result, **changed}], tools=tools))
    assert response.status_code == status, response.text
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_settings_reach_the_agent_in_a_common_form(http: httpx.AsyncClient) -> None:
    body = request_of(
        "settings",
        "go",
        tools=[{"name": "f", "description": "D", "input_schema": {"type": "object"}}, {"name": "ask_caller"}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        stop_sequences=["X"],
        thinking={"type": "adaptive"},
    )
    assert json.loads(text_in(await create(http, body))) == {
        "max_tokens": 1024,
        "parallel_tool_calls": False,
        "stop": ["X"],
        "thinking": {"type": "adaptive"},
        "tool_choice": "required",
        "tools": [{"type": "function", "name": "f", "description": "D", "parameters": {"type": "object"}}],
    }


BAD: Final[Sequence[tuple[Wire, str]]] = (
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages.0.content.0.source"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ({"metadata": {"thread_id": 1}}, "metadata.thread_id"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]},
        "messages",
    ),
)


@pytest.mark.parametrize(("members", "field"), BAD, ids=[field for _, field in BAD])
async def test_bad_request_names_its_field(http: httpx.AsyncClient, members: Wire, field: str) -> None:
    response = await http.post("/v1/messages", json={**body_of("hello"), **members})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error" and field in error["message"]


async def test_disconnect_cancels_a_run_without_a_thread(gateway: Running, http: httpx.AsyncClient) -> None:
    async with http.stream("POST", "/v1/messages", json=request_of("gated", "go", stream=True)) as response:
        async for line in response.aiter_lines():
            if "first" in line:
                break
        path = f"/v1/messages/msg_{response.headers['babelgate-run'].replace('-', '')}"
    async with asyncio.timeout(20):
        stream = await http.get(f"{path}?stream=true")
    last = events_of(stream.text)[-1]
    assert (last["type"], last["error"]["babelgate"]["code"]) == ("error", "run_cancelled")


async def test_unknown_path_names_the_served_paths(http: httpx.AsyncClient) -> None:
    for path in ("/v1/messages/batches/x/results", "/anthropic/v1/files"):
        response = await http.get(path)
        assert response.status_code == 404
        assert response.json()["error"]["message"].endswith("is not served: /v1/messages and /v1/models are.")


def texts_of(*events: Event) -> tuple[list[str], bool]:
    """Return the texts in the message that shows a run with these events, and whether its stream is broken."""
    writer = AnswerWriter(TASK, RUN, "echo", "http://gateway")
    for record in Log(Message.of("Hello", "user")).start().add(*events).done().records:
        writer.write(record)
    return [block["text"] for block in writer.body()["content"]], writer.is_broken


async def test_restart_voids_earlier_content() -> None:
    whole = (*streamed("m", "Half"), RunStarted(attempt=2), *streamed("n", "Whole"))
    assert texts_of(*whole) == (["Whole"], True)
    rest = RunStarted(attempt=2, void=("n",))
    partly = (*streamed("m", "One"), *streamed("n", "Two"), rest, *streamed("o", "Three"))
    assert texts_of(*partly) == (["One", "Three"], True)
    assert texts_of(RunStarted(attempt=2), *streamed("n", "Whole")) == (["Whole"], False)


async def test_messages_are_stored_under_the_id_of_their_run(http: httpx.AsyncClient) -> None:
    message = await create(http, request_of("echo", "hello"), str(uuid4()))
    again = await http.get(f"/anthropic/v1/messages/{message['id']}")
    assert again.json() == message
    assert (await http.get("/v1/messages/msg_nothing")).status_code == 404
