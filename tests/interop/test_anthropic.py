"""The official Anthropic clients for Python and TypeScript call agents of the gateway over real sockets.

The client for Python also validates each answer against its own types.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

import pytest
import pytest_asyncio

from babelgate.canonical import Invocation, ReasoningPart, UseTool
from babelgate.gateway import demo
from tests.interop.driver import BOUND, ClientError, OfficialClient, start_client
from tests.interop.peers import peer_python
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUNS: Final[list[str]] = []
WEATHER: Final[dict[str, Any]] = {
    "name": "weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK: Final[dict[str, Any]] = {"name": "ask_caller", "input_schema": {"type": "object"}}


async def counting(text: str) -> str:
    """Record the call, then fail."""
    RUNS.append(text)
    raise RuntimeError("on purpose")


async def weather(call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
    """Call the caller's first tool, if it has any, and report its result."""
    if not call.tools:
        yield call.text
        return
    result = yield UseTool(call.tools[0].name, {"city": "Paris"})
    yield f"In Paris: {result}"


async def thinking(text: str) -> AsyncGenerator[ReasoningPart | str]:
    yield ReasoningPart(text="Let me see.")
    yield "Seen."


async def recall(call: Invocation) -> str:
    """Return the roles and texts of the conversation."""
    return " | ".join(f"{each.role}: {each.text}" for each in (*call.history, *call.messages))


async def sizes(call: Invocation) -> str:
    """Return the media types and sizes of the caller's files."""
    return ", ".join(f"{file.media_type} {file.size}" for file in call.files)


AGENTS: Final[dict[str, Any]] = {
    **{name: getattr(demo, name) for name in demo.__all__},
    **{each.__name__: each for each in (counting, recall, sizes, thinking, weather)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("anthropic"), AGENTS) as gateway:
        yield gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python(gateway: Running) -> AsyncGenerator[OfficialClient]:
    async with start_client("anthropic", base_url=gateway.url) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def typescript(gateway: Running) -> AsyncGenerator[OfficialClient]:
    program = "anthropic_js_client.py"
    async with start_client("anthropic", program=program, base_url=f"{gateway.url}/anthropic") as client:
        yield client


@pytest.fixture(params=["python", "typescript"])
def client(request: pytest.FixtureRequest) -> OfficialClient:
    return request.getfixturevalue(request.param)


def body_of(model: str, *contents: Any, **more: Any) -> dict[str, Any]:
    """Return a request whose messages are by the user and the assistant in turn."""
    roles = ("user", "assistant") * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"model": model, "max_tokens": 1024, "messages": messages, **more}


def text_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


async def test_client_gets_a_whole_message(client: OfficialClient) -> None:
    message = await client.call("create", **body_of("echo", "hello"))
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "echo")
    assert (text_of(message), message["stop_reason"]) == ("hello", "end_turn")


async def test_client_builds_the_streamed_message(client: OfficialClient) -> None:
    *events, message = await client.call("events", **body_of("stream", "one two"))
    assert text_of(message).split() == ["one", "two"]
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert kinds.count("content_block_delta") >= 2


async def test_thinking_precedes_the_text(client: OfficialClient) -> None:
    message = await client.call("create", **body_of("thinking", "go"))
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    *_, streamed = await client.call("events", **body_of("thinking", "go"))
    assert streamed["content"] == message["content"]


async def test_history_and_system_reach_the_agent(client: OfficialClient) -> None:
    system = [{"type": "text", "text": "x-anthropic-billing-header: v=1"}, {"type": "text", "text": "Be brief."}]
    message = await client.call("create", **body_of("recall", "one", "two", "three", system=system))
    assert text_of(message) == "system: Be brief. | user: one | agent: two | user: three"


async def test_files_reach_the_agent(client: OfficialClient) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    text = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abc"}}
    message = await client.call("create", **body_of("sizes", [image, text]))
    assert text_of(message) == "image/png 5, text/plain 3"


async def test_agent_calls_a_tool_of_the_client(client: OfficialClient) -> None:
    tools = [WEATHER, ASK]
    called = await client.call("create", **body_of("weather", "go", tools=tools))
    assert called["stop_reason"] == "tool_use"
    (call,) = called["content"]
    assert (call["type"], call["name"], call["input"]) == ("tool_use", "weather", {"city": "Paris"})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
    sent_back = [{name: call[name] for name in ("type", "id", "name", "input")}]
    message = await client.call("create", **body_of("weather", "go", sent_back, [result], tools=tools))
    assert text_of(message) == "In Paris: sunny"


@pytest.mark.parametrize("declares", [True, False])
async def test_question_of_an_agent_is_answered(client: OfficialClient, declares: bool) -> None:
    tools = {"tools": [ASK]} if declares else {}
    question = await client.call("create", **body_of("ask", "go", **tools))
    assert question["stop_reason"] == ("tool_use" if declares else "end_turn")
    if declares:
        (call,) = question["content"]
        answer: Any = [{"type": "tool_result", "tool_use_id": call["id"], "content": "Ada"}]
        before: Any = [{name: call[name] for name in ("type", "id", "name", "input")}]
    else:
        before, answer = text_of(question), "Ada"
    message = await client.call("create", **body_of("ask", "go", before, answer, **tools))
    assert "Ada" in text_of(message)


async def test_answer_matches_the_demanded_schema(python: OfficialClient) -> None:
    schema = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}
    demanded = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    message = await python.call("create", **body_of("json", "two words", **demanded))
    assert json.loads(text_of(message))["words"] == 2
    with pytest.raises(ClientError) as failed:
        await python.call("create", **body_of("echo", "two words", **demanded))
    assert failed.value.data["status"] == 502


async def test_failed_run_is_not_repeated(client: OfficialClient) -> None:
    RUNS.clear()
    with pytest.raises(ClientError) as failed:
        await client.call("create", **body_of("counting", "once"))
    assert (failed.value.data["status"], RUNS) == (500, ["once"])
    assert failed.value.data["body"]["error"]["type"] == "api_error"
    assert failed.value.data["request_id"].startswith("req_")
    with pytest.raises(ClientError, match="on purpose"):
        await client.call("events", **body_of("counting", "streamed"))
    assert RUNS == ["once", "streamed"]


async def test_unknown_model_is_not_found(client: OfficialClient) -> None:
    with pytest.raises(ClientError) as failed:
        await client.call("create", **body_of("nobody", "hello"))
    assert (failed.value.type, failed.value.data["status"]) == ("NotFoundError", 404)
    with pytest.raises(ClientError) as failed:
        await client.call("count", model="echo", messages=[{"role": "user", "content": "hello"}])
    assert failed.value.data["status"] == 404


async def test_agents_are_listed_as_models(client: OfficialClient) -> None:
    models = {model["id"]: model for model in await client.call("models")}
    assert {"echo", "weather"} <= models.keys()
    assert await client.call("model", name="echo") == models["echo"]


async def test_any_model_works_below_the_url_of_an_agent(gateway: Running) -> None:
    async with start_client("anthropic", base_url=f"{gateway.url}/agent/echo", key="secret") as client:
        assert text_of(await client.call("create", **body_of("claude-opus", "hello"))) == "hello"
        assert [model["id"] for model in await client.call("models")] == ["echo"]


async def test_raw_events_are_valid_for_the_client(python: OfficialClient) -> None:
    events = await python.call("raw", **body_of("steps", "hello there"))
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]


@pytest.mark.slow
async def test_llm_comply_accepts_the_gateway(gateway: Running) -> None:
    comply = peer_python("open-responses").parent / "llm-comply"
    arguments = ("--format", "anthropic", "-u", f"{gateway.url}/v1", "-k", "K", "-m", "weather")
    process = await asyncio.create_subprocess_exec(
        *(str(comply), *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(4 * BOUND):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
