"""What callers are asked by methods of the protocol, what they are logged, and what they must declare."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.canonical import AgentInfo, FaultCode, FaultError, Message, Scope, TaskState, UseTool
from tests.adapters.mcp.site import TASKS, Client, Modern, Wire, calling, enter, messages_of, say, text_of
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
PARAMS: Final = {"messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}], "maxTokens": 9}
PARIS: Final = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
ROOTS: Final = {"roots": [{"uri": "file:///a"}]}


async def sample(text: str) -> AsyncGenerator[UseTool | str, Any]:
    answer = yield UseTool("sampling/createMessage", PARAMS)
    yield answer["content"]["text"]


async def roots(text: str) -> AsyncGenerator[UseTool | str, Any]:
    answer = yield UseTool("roots/list")
    yield answer["roots"][0]["uri"]


async def told(text: str) -> AsyncGenerator[Message | str]:
    yield Message.of("Half way.", phase="progress")
    yield "Done."


async def broken(text: str) -> AsyncGenerator[UseTool | str, Any]:
    yield UseTool("roots/list")
    raise FaultError(FaultCode.INTERNAL, "It went wrong.")


async def long(text: str) -> str:
    return "Done."


long.info = AgentInfo(name="long", metadata={"mcp": {"tasks": "required"}})  # pyright: ignore[reportFunctionMemberAccess]

AGENTS: Final = {each.__name__: each for each in (sample, roots, told, broken, long)}


class Method(NamedTuple):
    """A method of the protocol by which an agent asks, and its answer."""

    tool: str
    capability: str
    method: str
    params: Wire
    reply: Wire
    said: str


METHODS: Final = [
    Method("sample", "sampling", "sampling/createMessage", PARAMS, PARIS, "Paris"),
    Method("roots", "roots", "roots/list", {}, ROOTS, "file:///a"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("mcp"), AGENTS) as gateway:
        yield gateway


@pytest.mark.parametrize("asks", METHODS, ids=lambda asks: asks.tool)
async def test_an_agent_asks_its_caller_by_a_method_of_the_protocol(gateway: Running, asks: Method) -> None:
    modern = Modern(gateway.http, capabilities={asks.capability: {}})
    asked = await modern.call(asks.tool)
    ((key, request),) = asked["inputRequests"].items()
    assert request == {"method": asks.method, "params": asks.params}
    state = asked["requestState"]
    again = await modern.call(asks.tool, inputResponses={key: {"action": "accept"}}, requestState=state)
    assert again["inputRequests"] == asked["inputRequests"], "what is no answer is asked for again"
    done = await modern.call(asks.tool, inputResponses={key: asks.reply}, requestState=state)
    assert text_of(done) == asks.said


@pytest.mark.parametrize("asks", METHODS, ids=lambda asks: asks.tool)
async def test_a_client_with_a_session_is_asked_while_its_call_goes_on(gateway: Running, asks: Method) -> None:
    client, _ = await enter(gateway.http, **{"sampling": {}, asks.capability: {}})
    async with calling(client, asks.tool) as stream:
        asked = await stream.next() or {}
        assert (asked["method"], asked.get("params") or {}) == (asks.method, asks.params)
        assert await say(client, {"id": asked["id"], "result": asks.reply}) == 202
        assert text_of((await stream.next() or {})["result"]) == asks.said


async def test_a_run_that_asks_what_its_client_does_not_declare_ends(gateway: Running) -> None:
    modern = Modern(gateway.http, capabilities={"elicitation": {}})
    thread_id = str(uuid4())
    params = {"name": "sample", "arguments": {"message": "go", "thread_id": thread_id}}
    error = (await modern.ask("tools/call", params))["error"]
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"sampling": {}}})
    async with asyncio.timeout(BOUND):
        async for batch in gateway.hub.reads.follow("default", Scope(thread_id)):
            if any(getattr(record.event, "state", None) is TaskState.CANCELLED for record in batch):
                return


async def test_who_is_of_the_older_era_and_cannot_be_asked_so_answers_by_the_tool(gateway: Running) -> None:
    asked = (await Client(gateway.http).call("roots"))["structuredContent"]
    answers = {asked["interrupts"][0]["id"]: ROOTS}
    done = await Client(gateway.http).call("resume_run", {"run_id": asked["run_id"], "answers": answers})
    assert text_of(done) == "file:///a"


async def test_an_agent_that_is_only_a_task_is_refused_to_who_knows_none(gateway: Running) -> None:
    for client in (Client(gateway.http), Modern(gateway.http)):
        error = (await client.ask("tools/call", {"name": "long", "arguments": {"message": "go"}}))["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    client = Modern(gateway.http, capabilities={"extensions": {TASKS: {}}})
    assert text_of(await client.call("long")) == "Done."


async def test_a_task_that_went_wrong_in_the_gateway_has_failed(gateway: Running) -> None:
    client = Modern(gateway.http, capabilities={"extensions": {TASKS: {}}})
    task_id = (await client.call("broken"))["taskId"]
    ((key, _),) = (await client.ask("tasks/get", {"taskId": task_id}))["result"]["inputRequests"].items()
    await client.ask("tasks/update", {"taskId": task_id, "inputResponses": {key: ROOTS}})
    done = (await client.ask("tasks/get", {"taskId": task_id}))["result"]
    assert (done["status"], done["error"], "result" in done) == (
        "failed",
        {"code": -32603, "message": "It went wrong."},
        False,
    )


# Logs


def logged(response: Any) -> list[Wire]:
    return [each["params"] for each in messages_of(response) if each.get("method") == "notifications/message"]


async def test_a_session_is_logged_from_the_level_on_that_it_names(gateway: Running) -> None:
    client, _ = await enter(gateway.http)
    other, _ = await enter(gateway.http)
    made = client.request("tools/call", {"name": "told", "arguments": {"message": "go"}})
    line = {"level": "info", "logger": "told", "data": "Half way."}
    for level, lines in ((None, []), ("debug", [line]), ("warning", []), ("info", [line])):
        if level is not None:
            assert (await client.ask("logging/setLevel", {"level": level}))["result"] == {}
        assert logged(await gateway.http.request(**made)) == lines
    elsewhere: Wire = {**made, "headers": {**made["headers"], **other.headers}}
    assert logged(await gateway.http.request(**elsewhere)) == []


async def test_without_a_session_there_is_nothing_to_keep_a_level_for(gateway: Running) -> None:
    assert (await Client(gateway.http).ask("logging/setLevel", {"level": "info"}))["error"]["code"] == -32602


@pytest.mark.parametrize(("level", "count"), [(None, 0), ("debug", 1), ("info", 1), ("error", 0)])
async def test_a_request_of_2026_names_its_level_itself(gateway: Running, level: str | None, count: int) -> None:
    meta = {} if level is None else {"io.modelcontextprotocol/logLevel": level}
    params = {"name": "told", "arguments": {"message": "go"}, "_meta": meta}
    assert len(logged(await gateway.http.request(**Modern(gateway.http).request("tools/call", params)))) == count
