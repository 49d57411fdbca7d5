"""Client methods that agents call, log notifications, and the capabilities that a client must declare."""

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


async def report(text: str) -> AsyncGenerator[Message | str]:
    yield Message.of("Half way.", phase="progress")
    yield "Done."


async def broken(text: str) -> AsyncGenerator[UseTool | str, Any]:
    yield UseTool("roots/list")
    raise FaultError(FaultCode.INTERNAL, "It went wrong.")


async def long(text: str) -> str:
    return "Done."


long.info = AgentInfo(name="long", metadata={"mcp": {"tasks": "required"}})  # pyright: ignore[reportFunctionMemberAccess]

AGENTS: Final = {each.__name__: each for each in (sample, roots, report, broken, long)}


class Method(NamedTuple):
    """Client method that an agent calls: its tool, capability and parameters, the reply, and the text of the result."""

    tool: str
    capability: str
    method: str
    params: Wire
    reply: Wire
    text: str


METHODS: Final = [
    Method("sample", "sampling", "sampling/createMessage", PARAMS, PARIS, "Paris"),
    Method("roots", "roots", "roots/list", {}, ROOTS, "file:///a"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("mcp"), AGENTS) as gateway:
        yield gateway


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.tool)
async def test_an_agent_calls_a_method_of_its_client(gateway: Running, method: Method) -> None:
    modern = Modern(gateway.http, capabilities={method.capability: {}})
    pending = await modern.call(method.tool)
    ((key, request),) = pending["inputRequests"].items()
    assert request == {"method": method.method, "params": method.params}
    state = pending["requestState"]
    again = await modern.call(method.tool, inputResponses={key: {"action": "accept"}}, requestState=state)
    assert again["inputRequests"] == pending["inputRequests"], "an invalid answer is asked for again"
    done = await modern.call(method.tool, inputResponses={key: method.reply}, requestState=state)
    assert text_of(done) == method.text


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.tool)
async def test_a_client_with_a_session_answers_during_its_call(gateway: Running, method: Method) -> None:
    client, _ = await enter(gateway.http, **{"sampling": {}, method.capability: {}})
    async with calling(client, method.tool) as stream:
        request = await stream.next() or {}
        assert (request["method"], request.get("params") or {}) == (method.method, method.params)
        assert await say(client, {"id": request["id"], "result": method.reply}) == 202
        assert text_of((await stream.next() or {})["result"]) == method.text


async def test_a_run_that_needs_an_undeclared_capability_is_cancelled(gateway: Running) -> None:
    modern = Modern(gateway.http, capabilities={"elicitation": {}})
    thread_id = str(uuid4())
    params = {"name": "sample", "arguments": {"message": "go", "thread_id": thread_id}}
    error = (await modern.ask("tools/call", params))["error"]
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"sampling": {}}})
    async with asyncio.timeout(BOUND):
        async for batch in gateway.hub.reads.follow("default", Scope(thread_id)):
            if any(getattr(record.event, "state", None) is TaskState.CANCELLED for record in batch):
                return


async def test_an_older_client_answers_a_method_with_resume_run(gateway: Running) -> None:
    pending = (await Client(gateway.http).call("roots"))["structuredContent"]
    answers = {pending["interrupts"][0]["id"]: ROOTS}
    done = await Client(gateway.http).call("resume_run", {"run_id": pending["run_id"], "answers": answers})
    assert text_of(done) == "file:///a"


async def test_an_agent_that_requires_tasks_rejects_other_clients(gateway: Running) -> None:
    for client in (Client(gateway.http), Modern(gateway.http)):
        error = (await client.ask("tools/call", {"name": "long", "arguments": {"message": "go"}}))["error"]
        assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    client = Modern(gateway.http, capabilities={"extensions": {TASKS: {}}})
    assert text_of(await client.call("long")) == "Done."


async def test_a_task_with_an_internal_fault_has_failed(gateway: Running) -> None:
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


async def test_a_session_receives_logs_from_its_level_up(gateway: Running) -> None:
    client, _ = await enter(gateway.http)
    other, _ = await enter(gateway.http)
    request = client.request("tools/call", {"name": "report", "arguments": {"message": "go"}})
    line = {"level": "info", "logger": "report", "data": "Half way."}
    for level, lines in ((None, []), ("debug", [line]), ("warning", []), ("info", [line])):
        if level is not None:
            assert (await client.ask("logging/setLevel", {"level": level}))["result"] == {}
        assert logged(await gateway.http.request(**request)) == lines
    elsewhere: Wire = {**request, "headers": {**request["headers"], **other.headers}}
    assert logged(await gateway.http.request(**elsewhere)) == []


async def test_a_log_level_without_a_session_is_rejected(gateway: Running) -> None:
    assert (await Client(gateway.http).ask("logging/setLevel", {"level": "info"}))["error"]["code"] == -32602


@pytest.mark.parametrize(("level", "count"), [(None, 0), ("debug", 1), ("info", 1), ("error", 0)])
async def test_a_request_of_2026_sets_its_log_level(gateway: Running, level: str | None, count: int) -> None:
    meta = {} if level is None else {"io.modelcontextprotocol/logLevel": level}
    params = {"name": "report", "arguments": {"message": "go"}, "_meta": meta}
    assert len(logged(await gateway.http.request(**Modern(gateway.http).request("tools/call", params)))) == count
