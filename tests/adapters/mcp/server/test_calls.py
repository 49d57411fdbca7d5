"""Tools over a whole gateway: calls, progress, questions, tasks and the transport. Both eras of MCP are tested:
versions with a handshake, and the stateless version 2026-07-28."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio

from babelgate.canonical import Ask, Invocation, Message, Scope, TaskState
from babelgate.canonical.thread import Artifact
from babelgate.gateway.agents.python.agent import wrap
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.mcp.site import (
    ACCEPT,
    TASKS,
    Client,
    Modern,
    Wire,
    answer_of,
    calling,
    enter,
    messages_of,
    say,
    text_of,
)
from tests.gateway.hubs import PausedWriter
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUND: Final = 30
OWNER: Final = "default"
CITY: Final = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
COUNT: Final = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}
APPROVAL: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
PNG: Final = b"\x89PNG"


class Waiting:
    """An agent that waits until it is cancelled."""

    def __init__(self) -> None:
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    async def run(self, text: str) -> AsyncGenerator[Message | str]:
        self.started.set()
        try:
            yield Message.of("Half way.", phase="progress")
            yield "first"
            await asyncio.Event().wait()
        finally:
            self.ended.set()


WAITING: Final = Waiting()


async def waiting(text: str) -> AsyncGenerator[Message | str]:
    async for message in WAITING.run(text):
        yield message


async def echo(text: str) -> str:
    return text


async def history(call: Invocation) -> str:
    return " | ".join(f"{message.role}: {message.text}" for message in (*call.history, *call.messages))


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    answer = yield Ask("What is your name?")
    yield f"Hello, {answer}."


async def approve(text: str) -> AsyncGenerator[list[Ask] | str, Any]:
    yield "Two questions."
    name, approval = yield [Ask("What is your name?"), Ask("May I write?", schema=APPROVAL, kind="approval")]
    yield f"{name} said {approval}."


async def files(call: Invocation) -> AsyncGenerator[Artifact]:
    for file in call.files:
        yield Artifact(name=file.name, parts=(file,))
    yield Artifact.of("a picture.png", PNG, "image/png")


async def fail(text: str) -> AsyncGenerator[str]:
    yield "Before the fault."
    raise RuntimeError(text)


async def progress(text: str) -> AsyncGenerator[Message | str]:
    yield Message.of("Half way.", phase="progress")
    yield "Done."


SPEAKING: Final = asyncio.Event()


async def speaking(text: str) -> AsyncGenerator[str]:
    """Yield a piece, wait until the test sets `SPEAKING`, and yield two more."""
    yield "one "
    await SPEAKING.wait()
    yield "two "
    yield "three"


async def weather(call: Invocation) -> dict[str, Any]:
    return {"input": call.data}


async def count_words(text: str) -> dict[str, Any]:
    return {"words": len(text.split()) if text != "many" else "many"}


AGENTS: Final = (echo, history, ask, approve, files, fail, progress, waiting, speaking)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    registered = {agent.__name__: RegisteredAgent(*wrap(agent, agent.__name__)) for agent in AGENTS}
    for agent, schemas in ((weather, {"input": CITY}), (count_words, {"output": COUNT})):
        info, function = wrap(agent, agent.__name__)
        registered[agent.__name__] = RegisteredAgent(info.replace(schemas=schemas), function)
    async with running(tmp_path_factory.mktemp("mcp"), registered=registered) as gateway:
        yield gateway


@pytest.fixture(params=[Client, Modern], ids=["2025-11-25", "2026-07-28"])
def client(request: pytest.FixtureRequest, gateway: Running) -> Client:
    return request.param(gateway.http)


@pytest.fixture
def modern(gateway: Running) -> Client:
    return Modern(gateway.http, capabilities={"elicitation": {}})


@pytest.fixture
def polling(gateway: Running) -> Client:
    """A client that declares tasks."""
    return Modern(gateway.http, capabilities={"extensions": {TASKS: {}}})


# Tools


async def test_every_agent_is_a_tool(client: Client) -> None:
    tools = (await client.ask("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == [
        *(agent.__name__ for agent in AGENTS),
        "weather",
        "count_words",
        "resume_run",
    ]
    assert next(tool for tool in tools if tool["name"] == "weather")["inputSchema"]["required"] == ["city"]
    assert [tool["name"] for tool in tools if "outputSchema" in tool] == ["count_words"]


async def test_a_cursor_of_tools_is_rejected(client: Client) -> None:
    assert (await client.ask("tools/list", {"cursor": "x"}))["error"]["code"] == -32602


async def test_the_path_of_one_agent_has_only_its_tool(client: Client) -> None:
    client.path = "/agent/echo/mcp"
    tools = (await client.ask("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "resume_run"]
    assert text_of(await client.call("echo", {"message": "hi"})) == "hi"
    assert (await client.ask("tools/call", {"name": "ask", "arguments": {}}))["error"]["code"] == -32602


async def test_the_result_of_a_call_has_the_run_id(gateway: Running, client: Client) -> None:
    result = await client.call("echo", {"message": "hi"})
    assert text_of(result) == "hi"
    assert "isError" not in result or result["isError"] is False
    ids = result["_meta"]["babelgate"]
    run = await gateway.hub.reads.run(OWNER, ids["run_id"])
    assert (run.task_id, run.thread_id) == (ids["task_id"], ids["thread_id"])
    task = await gateway.hub.reads.task(OWNER, run.task_id)
    assert (task.protocol, task.version) == ("mcp", "2026-07-28" if isinstance(client, Modern) else "2025-03-26")


@pytest.mark.parametrize("name", ["a name", "5f0c1d0e-8a4b-4c2f-9d3e-7b6a1c2d3e4f"])
async def test_calls_with_one_thread_id_share_a_conversation(client: Client, name: str) -> None:
    name = name if len(name) == 36 else f"{name} {type(client).__name__}"
    thread = name if len(name) != 36 else str(uuid4())
    await client.call("history", {"message": "one", "thread_id": thread})
    result = await client.call("history", {"message": "two", "thread_id": thread})
    assert text_of(result) == "user: one | agent: user: one | user: two"
    assert text_of(await client.call("history", {"message": "two"})) == "user: two"


async def test_arguments_of_a_declared_schema_are_the_input(client: Client) -> None:
    result = await client.call("weather", {"city": "Oslo", "thread_id": "w"})
    assert result["structuredContent"] == {"input": {"city": "Oslo"}}
    wrong = await client.call("weather", {"city": 5})
    assert wrong["isError"] is True
    assert "city" in text_of(wrong)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"message": 5},
        {"message": "", "files": []},
        {"message": "a", "nope": 1},
        {"message": "a", "thread_id": ""},
        {"message": "a", "files": [{"data": "!"}]},
        {"message": "a", "files": [{"name": "without"}]},
        {"message": "a", "files": [{"data": "aGk=", "uri": "https://example.com"}]},
    ],
)
async def test_invalid_arguments_give_an_error_result_with_text(client: Client, arguments: Wire) -> None:
    result = await client.call("echo", arguments)
    assert result["isError"] is True
    assert text_of(result)


async def test_an_unknown_tool_is_an_error_of_the_protocol(client: Client) -> None:
    error = (await client.ask("tools/call", {"name": "nobody", "arguments": {}}))["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: nobody")


async def test_structured_output_is_also_text_and_must_match_its_schema(client: Client) -> None:
    result = await client.call("count_words", {"message": "two words"})
    assert result["structuredContent"] == {"words": 2}
    assert text_of(result) == '{"words":2}'
    wrong = await client.call("count_words", {"message": "many"})
    assert wrong["isError"] is True
    assert "schema" in text_of(wrong)


async def test_files_reach_the_agent_and_the_result(client: Client) -> None:
    file = {"name": "a b.txt", "mime_type": "text/plain", "data": "aGk="}
    text, picture = (await client.call("files", {"message": "", "files": [file]}))["content"]
    resource = text["resource"]
    assert resource.pop("uri").startswith("babelgate://runs/")
    assert resource == {"mimeType": "text/plain", "text": "hi", "_meta": {"babelgate": {"name": "a b.txt"}}}
    assert (picture["type"], picture["mimeType"], picture["data"]) == ("image", "image/png", "iVBORw==")
    assert picture["_meta"]["babelgate"]["name"] == "a picture.png"


# Progress and cancel


async def test_progress_is_reported_if_the_call_has_a_token(gateway: Running, client: Client) -> None:
    params = {"name": "progress", "arguments": {"message": "go"}}
    request = client.request("tools/call", {**params, "_meta": {"progressToken": "t"}})
    *notifications, answer = messages_of(await gateway.http.request(**request))
    updates = [each["params"] for each in notifications if "_meta" not in each["params"]]
    assert updates == [{"progressToken": "t", "progress": 1, "message": "Half way."}]
    assert text_of(answer["result"]) == "Done."
    (alone,) = messages_of(await gateway.http.request(**client.request("tools/call", params)))
    assert text_of(alone["result"]) == "Done."


async def test_text_is_streamed_if_the_call_has_a_progress_token(client: Client) -> None:
    SPEAKING.clear()
    async with calling(client, "speaking", _meta={"progressToken": "t"}) as stream:
        first = (await stream.next() or {})["params"]
        assert (first["message"], first["_meta"]) == ("one ", {"babelgate": {"text": True}})
        SPEAKING.set()
        last, pieces, count = await stream.next() or {}, "one ", first["progress"]
        while "result" not in last:
            assert last["params"]["progress"] > count
            pieces, count = pieces + last["params"]["message"], last["params"]["progress"]
            last = await stream.next() or {}
    assert "one two three".startswith(pieces)
    assert text_of(last["result"]) == "one two three"


async def waiting_has_ended() -> None:
    async with asyncio.timeout(BOUND):
        await WAITING.ended.wait()


@pytest.mark.parametrize("kind", ["2025-11-25", "2026-07-28", "session", "json", "tasks"])
async def test_a_disconnected_client_cancels_the_run(gateway: Running, polling: Client, kind: str) -> None:
    WAITING.__init__()
    clients = {
        "2025-11-25": Client(gateway.http),
        "2026-07-28": Modern(gateway.http),
        "session": (await enter(gateway.http, elicitation={}))[0],
        "json": Client(gateway.http, headers={"Accept": "application/json"}),
        "tasks": polling,
    }
    call = asyncio.ensure_future(clients[kind].call("waiting", _meta={"progressToken": "t"}))
    async with asyncio.timeout(BOUND):
        await WAITING.started.wait()
    call.cancel()
    await waiting_has_ended()


async def test_a_cancelled_request_in_a_session_cancels_the_run(gateway: Running) -> None:
    WAITING.__init__()
    client, _ = await enter(gateway.http, elicitation={})
    async with calling(client, "waiting", 5, _meta={"progressToken": "t"}) as stream:
        await stream.next()
        assert await say(client, {"method": "notifications/cancelled", "params": {"requestId": 5}}) == 202
        await waiting_has_ended()


async def test_a_cancelled_request_in_a_stateless_session_cancels_the_run(gateway: Running) -> None:
    WAITING.__init__()
    client, hello = await enter(gateway.http)
    other, _ = await enter(gateway.http)
    assert hello.headers["mcp-session-id"]
    async with calling(client, "waiting", 5, _meta={"progressToken": "t"}) as stream:
        await stream.next()
        cancel: Wire = {"method": "notifications/cancelled", "params": {"requestId": 5}}
        for elsewhere in (other, Client(gateway.http)):
            assert await say(elsewhere, cancel) == 202
        assert not WAITING.ended.is_set()
        assert await say(client, cancel) == 202
        await waiting_has_ended()


async def test_a_call_cancelled_before_acceptance_leaves_no_active_run(gateway: Running) -> None:
    WAITING.__init__()
    client, _ = await enter(gateway.http)
    async with PausedWriter(gateway.hub) as held:
        request = gateway.http.request(
            **client.request("tools/call", {"name": "waiting", "arguments": {"message": "go"}}, 5)
        )
        call = asyncio.ensure_future(request)
        await held.queued(call)
        assert await say(client, {"method": "notifications/cancelled", "params": {"requestId": 5}}) == 202
    async with asyncio.timeout(BOUND):
        assert answer_of(await call)["result"]["isError"]


async def test_a_stateless_session_rejects_get_and_delete(gateway: Running) -> None:
    client, _ = await enter(gateway.http)
    for method in ("GET", "DELETE"):
        response = await gateway.http.request(method, "/mcp", headers={**ACCEPT, **client.headers})
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")


async def test_a_cancel_without_a_session_is_accepted_and_ignored(gateway: Running) -> None:
    client = Client(gateway.http)
    assert await say(client, {"method": "notifications/cancelled", "params": {"requestId": 5}}) == 202


# Questions


async def test_a_client_without_elicitation_answers_with_resume_run(client: Client) -> None:
    result = await client.call("ask")
    pending = result["structuredContent"]
    assert pending["status"] == "input_required"
    (interrupt,) = pending["interrupts"]
    assert interrupt["message"] == "What is your name?"
    answers = {interrupt["id"]: "Ada"}
    assert text_of(await client.call("resume_run", {"run_id": pending["run_id"], "answers": answers})) == "Hello, Ada."
    again = await client.call("resume_run", {"run_id": pending["run_id"], "answers": answers})
    assert again["isError"] is True


async def test_resume_run_can_cancel_a_waiting_run(gateway: Running, client: Client) -> None:
    result = await client.call("ask")
    run_id = result["structuredContent"]["run_id"]
    cancelled = await client.call("resume_run", {"run_id": run_id, "action": "cancel"})
    assert (cancelled["isError"], text_of(cancelled)) == (True, "The run was cancelled.")
    task = await gateway.hub.reads.task(OWNER, result["_meta"]["babelgate"]["task_id"])
    assert task.state is TaskState.CANCELLED


async def test_a_question_can_be_declined(client: Client) -> None:
    pending = (await client.call("ask"))["structuredContent"]
    done = await client.call("resume_run", {"run_id": pending["run_id"], "action": "decline"})
    assert "structuredContent" not in done


@pytest.mark.parametrize("answers", [{}, {"nobody": 1}])
async def test_answers_to_unknown_questions_are_rejected(client: Client, answers: Wire) -> None:
    pending = (await client.call("ask"))["structuredContent"]
    refused = await client.call("resume_run", {"run_id": pending["run_id"], "answers": answers})
    assert refused["isError"] is True
    assert pending["interrupts"][0]["id"] in text_of(refused)


async def test_a_client_with_a_session_answers_during_its_call(gateway: Running) -> None:
    client, hello = await enter(gateway.http, elicitation={})
    assert hello.headers["mcp-session-id"]
    async with calling(client, "approve") as stream:
        name = await stream.next() or {}
        assert name["method"] == "elicitation/create"
        assert name["params"]["message"] == "What is your name?"
        accepted: Wire = {"action": "accept", "content": {"answer": "Ada"}}
        assert await say(client, {"id": name["id"], "result": accepted}) == 202
        approval = await stream.next() or {}
        assert approval["params"]["requestedSchema"] == APPROVAL
        accepted = {"action": "accept", "content": {"approved": True}}
        assert await say(client, {"id": approval["id"], "result": accepted}) == 202
        done = (await stream.next() or {})["result"]
    assert [each["text"] for each in done["content"]] == ["Two questions.", "Ada said {'approved': True}."]


async def test_a_question_cancelled_by_the_client_cancels_the_run(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={"form": {}})
    async with calling(client, "ask") as stream:
        question = await stream.next() or {}
        await say(client, {"id": question["id"], "result": {"action": "cancel"}})
        done = (await stream.next() or {})["result"]
    assert (done["isError"], text_of(done)) == (True, "The run was cancelled.")


async def test_a_client_that_disconnects_at_a_question_cancels_the_run(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={})
    thread_id = str(uuid4())
    arguments = {"message": "go", "thread_id": thread_id}
    call = client.request("tools/call", {"name": "ask", "arguments": arguments})
    async with gateway.http.stream(**call) as response:
        assert "elicitation/create" in await anext(line async for line in response.aiter_lines() if "data" in line)
    async with asyncio.timeout(BOUND):
        async for batch in gateway.hub.reads.follow(OWNER, Scope(thread_id)):
            if any(getattr(record.event, "state", None) is TaskState.CANCELLED for record in batch):
                return


async def test_a_client_without_forms_gets_the_question_as_result(gateway: Running) -> None:
    several: tuple[tuple[Wire, int], ...] = (
        ({}, 64),
        ({"elicitation": {"url": {}}}, 65),
        ({"roots": {}}, 64),
        ({"sampling": {}}, 32),
    )
    for capabilities, length in several:
        client, hello = await enter(gateway.http, **capabilities)
        assert len(hello.headers["mcp-session-id"]) == length
        assert (await client.call("ask"))["structuredContent"]["status"] == "input_required"


async def test_a_client_of_2026_calls_again_with_its_answers(modern: Client) -> None:
    pending = await modern.call("approve")
    assert pending["resultType"] == "input_required"
    forms = pending["inputRequests"]
    messages = {each["params"]["message"]: name for name, each in forms.items()}
    name: Wire = {messages["What is your name?"]: {"action": "accept", "content": {"answer": "Ada"}}}
    rest = await modern.call("approve", inputResponses=name, requestState=pending["requestState"])
    assert list(rest["inputRequests"]) == [messages["May I write?"]]
    answer = {messages["May I write?"]: {"action": "accept", "content": {"approved": True}}}
    done = await modern.call("approve", inputResponses=answer, requestState=rest["requestState"])
    assert [each["text"] for each in done["content"]] == ["Two questions.", "Ada said {'approved': True}."]
    again = await modern.call("approve", inputResponses=answer, requestState=rest["requestState"])
    assert again["content"] == done["content"], "a repeated call has the same result and starts no run"


async def test_a_client_of_2026_cancels_a_question(modern: Client) -> None:
    pending = await modern.call("ask")
    cancelled = {name: {"action": "cancel"} for name in pending["inputRequests"]}
    done = await modern.call("ask", inputResponses=cancelled, requestState=pending["requestState"])
    assert (done["isError"], text_of(done)) == (True, "The run was cancelled.")


async def test_a_call_without_answers_gets_the_question_again(modern: Client) -> None:
    pending = await modern.call("ask")
    again = await modern.call("ask", requestState=pending["requestState"])
    assert again["inputRequests"] == pending["inputRequests"]


async def test_a_changed_state_or_one_of_another_tool_is_rejected(modern: Client) -> None:
    state = (await modern.call("ask"))["requestState"]
    for tool, invalid in (("ask", state[:-2] + "AA"), ("echo", state), ("ask", "nope")):
        params = {"name": tool, "arguments": {"message": "go"}, "requestState": invalid}
        assert (await modern.ask("tools/call", params))["error"]["code"] == -32602


# Tasks


async def test_a_client_that_declares_tasks_polls_for_the_result(polling: Client) -> None:
    task = await polling.call("approve")
    assert (task["resultType"], task["status"]) == ("task", "input_required")
    assert not {"inputRequests", "result", "requestState"} & task.keys()
    pending = (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]
    assert (pending["resultType"], pending["status"]) == ("complete", "input_required")
    forms = pending["inputRequests"]
    contents = {"What is your name?": {"answer": "Ada"}, "May I write?": {"approved": True}}
    responses = {
        name: {"action": "accept", "content": contents[each["params"]["message"]]} for name, each in forms.items()
    }
    update = {"taskId": task["taskId"], "inputResponses": responses}
    assert (await polling.ask("tasks/update", update))["result"]["resultType"] == "complete"
    done = (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]
    assert done["status"] == "completed"
    assert text_of(done["result"]) == "Two questions.Ada said {'approved': True}."


async def test_a_task_can_be_cancelled_repeatedly(polling: Client) -> None:
    task_id = (await polling.call("ask"))["taskId"]
    assert (await polling.ask("tasks/get", {"taskId": task_id}))["result"]["status"] == "input_required"
    for _ in range(2):
        assert "result" in await polling.ask("tasks/cancel", {"taskId": task_id})
    assert (await polling.ask("tasks/get", {"taskId": task_id}))["result"]["status"] == "cancelled"


async def test_a_failed_run_is_a_completed_task_with_error_result(polling: Client) -> None:
    task_id = (await polling.call("fail"))["_meta"]["babelgate"]["task_id"]
    done = (await polling.ask("tasks/get", {"taskId": task_id}))["result"]
    assert (done["status"], done["result"]["isError"]) == ("completed", True)


async def test_a_short_call_is_answered_without_a_task(polling: Client) -> None:
    done = await polling.call("echo", {"message": "hi"})
    assert (done["resultType"], text_of(done), "taskId" in done) == ("complete", "hi", False)


async def test_a_long_call_is_a_task_that_outlives_its_request(polling: Client) -> None:
    WAITING.__init__()
    task = await polling.call("waiting")
    assert (task["resultType"], task["status"]) == ("task", "working")
    assert not WAITING.ended.is_set()
    assert (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]["status"] == "working"
    await polling.ask("tasks/cancel", {"taskId": task["taskId"]})
    await waiting_has_ended()


async def test_a_client_with_forms_gets_questions_instead_of_a_task(gateway: Running) -> None:
    client = Modern(gateway.http, capabilities={"elicitation": {}, "extensions": {TASKS: {}}})
    pending = await client.call("ask")
    assert (pending["resultType"], "taskId" in pending) == ("input_required", False)
    answers = {name: {"action": "accept", "content": {"answer": "Ada"}} for name in pending["inputRequests"]}
    done = await client.call("ask", inputResponses=answers, requestState=pending["requestState"])
    assert text_of(done) == "Hello, Ada."


async def test_tasks_need_a_client_that_declares_them(gateway: Running) -> None:
    client = Modern(gateway.http)
    error = (await client.ask("tasks/get", {"taskId": str(uuid4())}))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    assert (await Client(gateway.http).ask("tasks/get", {"taskId": str(uuid4())}))["error"]["code"] == -32601


async def test_an_unknown_task_is_rejected(polling: Client) -> None:
    for task_id in (str(uuid4()), "nope"):
        for method in ("tasks/get", "tasks/cancel"):
            assert (await polling.ask(method, {"taskId": task_id}))["error"]["code"] == -32602


async def test_the_name_header_must_match_the_task_id(gateway: Running, polling: Client) -> None:
    request = polling.request("tasks/get", {"taskId": str(uuid4())})
    request["headers"]["Mcp-Name"] = "another"
    response = await gateway.http.request(**request)
    assert (response.status_code, answer_of(response)["error"]["code"]) == (400, -32020)


# The transport


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"a": NaN}', -32700),
        (b"[" * 100 + b"]" * 100, -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {}}', -32600),
    ],
)
async def test_an_invalid_message_is_rejected(gateway: Running, body: bytes, code: int) -> None:
    headers = {**ACCEPT, "Content-Type": "application/json"}
    response = await gateway.http.post("/mcp", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


async def test_a_client_that_accepts_no_stream_gets_json(gateway: Running, client: Client) -> None:
    client.headers = {"Accept": "application/json"}
    response = await gateway.http.request(
        **client.request("tools/call", {"name": "echo", "arguments": {"message": "hi"}})
    )
    assert response.headers["content-type"] == "application/json"
    assert text_of(response.json()["result"]) == "hi"


async def test_white_space_around_a_header_value_is_ignored(gateway: Running) -> None:
    request = Modern(gateway.http).request("tools/call", {"name": "echo", "arguments": {"message": "hi"}})
    body = json.dumps(request["json"]).encode()
    headers = {**request["headers"], "Mcp-Name": " echo ", "Content-Type": "application/json", "Connection": "close"}
    lines = [
        f"{name}: {value}" for name, value in {**headers, "Content-Length": str(len(body)), "Host": "localhost"}.items()
    ]
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
    async with asyncio.timeout(BOUND):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"text":"hi"' in answer.replace(b" ", b"")


async def test_the_sdk_is_imported_only_for_stored_sessions() -> None:
    source = (
        "import sys, babelgate.gateway.cli.serve, babelgate.gateway.http.app; "
        "at_startup = {'mcp', 'mcp_types'} & sys.modules.keys(); import babelgate.adapters.mcp.server.direct; "
        "sys.exit(bool(at_startup) or 'mcp' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
    async with asyncio.timeout(BOUND):
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("MCP-Protocol-Version", "1999-01-01", 400), ("Origin", "https://evil.example", 403)],
)
async def test_an_unknown_version_and_a_foreign_origin_are_rejected(
    gateway: Running, header: str, value: str, status: int
) -> None:
    client = Client(gateway.http, headers={header: value})
    assert (await gateway.http.request(**client.request("ping", {}))).status_code == status


async def test_an_unknown_or_ended_session_is_not_found(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={})
    assert "result" in await client.ask("ping")
    assert (await gateway.http.delete("/mcp", headers={**ACCEPT, **client.headers})).status_code == 200
    assert (await gateway.http.request(**client.request("ping", {}))).status_code == 404
    client.headers = {**client.headers, "Mcp-Session-Id": uuid4().hex}
    assert (await gateway.http.request(**client.request("ping", {}))).status_code == 404


async def test_a_session_of_another_owner_is_not_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = {"alice": "alice-0123456789-key", "bob": "bob-0123456789-key"}
    async with running(tmp_path_factory.mktemp("owners"), {"echo": echo}, keys=keys) as gateway:
        gateway.http.headers["X-Api-Key"] = keys["alice"]
        several: tuple[Wire, ...] = ({"elicitation": {}}, {})
        for capabilities in several:
            client, _ = await enter(gateway.http, **capabilities)
            assert "result" in await client.ask("ping")
            request = client.request("ping", {})
            request["headers"]["X-Api-Key"] = keys["bob"]
            assert (await gateway.http.request(**request)).status_code == 404
            request["headers"]["X-Api-Key"] = "nobody"
            response = await gateway.http.request(**request)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_gateway_that_stops_ends_its_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running(tmp_path_factory.mktemp("stops"), {"ask": ask}) as gateway:
        client, _ = await enter(gateway.http, elicitation={})
        assert "result" in await client.ask("ping")
