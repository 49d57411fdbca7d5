"""Tools over a whole gateway: what is called, what is told, who is asked and how, in both eras of the protocol."""

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
    async for said in WAITING.run(text):
        yield said


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
    """Waits in the middle."""
    yield "one "
    await SPEAKING.wait()
    yield "two "
    yield "three"


async def weather(call: Invocation) -> dict[str, Any]:
    return {"given": call.data}


async def count_words(text: str) -> dict[str, Any]:
    return {"words": len(text.split()) if text != "wrong" else "many"}


AGENTS: Final = (echo, history, ask, approve, files, fail, progress, waiting, speaking)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    registered = {agent.__name__: RegisteredAgent(*wrap(agent, agent.__name__)) for agent in AGENTS}
    for agent, schemas in ((weather, {"input": CITY}), (count_words, {"output": COUNT})):
        info, made = wrap(agent, agent.__name__)
        registered[agent.__name__] = RegisteredAgent(info.replace(schemas=schemas), made)
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
    """A client that knows tasks."""
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


async def test_there_is_one_page_of_tools(client: Client) -> None:
    assert (await client.ask("tools/list", {"cursor": "x"}))["error"]["code"] == -32602


async def test_an_agent_alone_behind_its_path_is_the_only_tool(client: Client) -> None:
    client.path = "/agent/echo/mcp"
    tools = (await client.ask("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["echo", "resume_run"]
    assert text_of(await client.call("echo", {"message": "hi"})) == "hi"
    assert (await client.ask("tools/call", {"name": "ask", "arguments": {}}))["error"]["code"] == -32602


async def test_a_call_is_a_run_that_its_result_names(gateway: Running, client: Client) -> None:
    result = await client.call("echo", {"message": "hi"})
    assert text_of(result) == "hi"
    assert "isError" not in result or result["isError"] is False
    ids = result["_meta"]["babelgate"]
    run = await gateway.hub.reads.run(OWNER, ids["run_id"])
    assert (run.task_id, run.thread_id) == (ids["task_id"], ids["thread_id"])
    task = await gateway.hub.reads.task(OWNER, run.task_id)
    assert (task.protocol, task.version) == ("mcp", "2026-07-28" if isinstance(client, Modern) else "2025-03-26")


@pytest.mark.parametrize("name", ["a name", "5f0c1d0e-8a4b-4c2f-9d3e-7b6a1c2d3e4f"])
async def test_calls_of_one_thread_are_one_conversation(client: Client, name: str) -> None:
    name = name if len(name) == 36 else f"{name} {type(client).__name__}"
    thread = name if len(name) != 36 else str(uuid4())
    await client.call("history", {"message": "one", "thread_id": thread})
    result = await client.call("history", {"message": "two", "thread_id": thread})
    assert text_of(result) == "user: one | agent: user: one | user: two"
    assert text_of(await client.call("history", {"message": "two"})) == "user: two"


async def test_an_agents_own_arguments_are_its_input(client: Client) -> None:
    result = await client.call("weather", {"city": "Oslo", "thread_id": "w"})
    assert result["structuredContent"] == {"given": {"city": "Oslo"}}
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
async def test_wrong_arguments_are_a_result_from_which_a_model_can_learn(client: Client, arguments: Wire) -> None:
    result = await client.call("echo", arguments)
    assert result["isError"] is True
    assert text_of(result)


async def test_a_tool_that_there_is_not_is_an_error_of_the_protocol(client: Client) -> None:
    error = (await client.ask("tools/call", {"name": "nobody", "arguments": {}}))["error"]
    assert (error["code"], error["message"]) == (-32602, "Unknown tool: nobody")


async def test_structured_output_is_told_twice_and_keeps_its_schema(client: Client) -> None:
    result = await client.call("count_words", {"message": "two words"})
    assert result["structuredContent"] == {"words": 2}
    assert text_of(result) == '{"words":2}'
    wrong = await client.call("count_words", {"message": "wrong"})
    assert wrong["isError"] is True
    assert "schema" in text_of(wrong)


async def test_files_go_in_and_come_out(client: Client) -> None:
    given = {"name": "a b.txt", "mime_type": "text/plain", "data": "aGk="}
    text, picture = (await client.call("files", {"message": "", "files": [given]}))["content"]
    assert text["resource"] == {"uri": "file:///a%20b.txt", "mimeType": "text/plain", "blob": "aGk="}
    assert (picture["type"], picture["mimeType"], picture["data"]) == ("image", "image/png", "iVBORw==")
    assert picture["_meta"]["babelgate"]["name"] == "a picture.png"


# Progress and cancel


async def test_progress_is_told_to_who_asks_for_it(gateway: Running, client: Client) -> None:
    params = {"name": "progress", "arguments": {"message": "go"}}
    request = client.request("tools/call", {**params, "_meta": {"progressToken": "t"}})
    *told, answer = messages_of(await gateway.http.request(**request))
    asides = [each["params"] for each in told if "_meta" not in each["params"]]
    assert asides == [{"progressToken": "t", "progress": 1, "message": "Half way."}]
    assert text_of(answer["result"]) == "Done."
    (alone,) = messages_of(await gateway.http.request(**client.request("tools/call", params)))
    assert text_of(alone["result"]) == "Done."


async def test_text_is_told_while_the_agent_speaks_to_who_asks_for_progress(client: Client) -> None:
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


async def ended() -> None:
    async with asyncio.timeout(BOUND):
        await WAITING.ended.wait()


@pytest.mark.parametrize("kind", ["2025-11-25", "2026-07-28", "session", "json", "tasks"])
async def test_a_client_that_hangs_up_cancels_the_run(gateway: Running, polling: Client, kind: str) -> None:
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
    await ended()


async def test_a_request_that_is_cancelled_in_a_session_cancels_the_run(gateway: Running) -> None:
    WAITING.__init__()
    client, _ = await enter(gateway.http, elicitation={})
    async with calling(client, "waiting", 5, _meta={"progressToken": "t"}) as stream:
        await stream.next()
        assert await say(client, {"method": "notifications/cancelled", "params": {"requestId": 5}}) == 202
        await ended()


async def test_a_request_that_is_cancelled_in_a_session_that_holds_nothing_cancels_the_run(gateway: Running) -> None:
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
        await ended()


async def test_a_call_that_is_cancelled_before_its_run_is_accepted_has_none_that_goes_on(gateway: Running) -> None:
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


async def test_a_session_that_holds_nothing_has_no_stream_and_no_end(gateway: Running) -> None:
    client, _ = await enter(gateway.http)
    for method in ("GET", "DELETE"):
        response = await gateway.http.request(method, "/mcp", headers={**ACCEPT, **client.headers})
        assert (response.status_code, response.headers["allow"]) == (405, "OPTIONS, POST")


async def test_a_cancel_outside_of_a_session_does_nothing(gateway: Running) -> None:
    client = Client(gateway.http)
    assert await say(client, {"method": "notifications/cancelled", "params": {"requestId": 5}}) == 202


# Questions


async def test_who_cannot_be_asked_resumes_the_run(client: Client) -> None:
    result = await client.call("ask")
    asked = result["structuredContent"]
    assert asked["status"] == "input_required"
    (interrupt,) = asked["interrupts"]
    assert interrupt["message"] == "What is your name?"
    answers = {interrupt["id"]: "Ada"}
    assert text_of(await client.call("resume_run", {"run_id": asked["run_id"], "answers": answers})) == "Hello, Ada."
    again = await client.call("resume_run", {"run_id": asked["run_id"], "answers": answers})
    assert again["isError"] is True


async def test_a_run_that_asks_can_be_ended(gateway: Running, client: Client) -> None:
    result = await client.call("ask")
    run_id = result["structuredContent"]["run_id"]
    ended = await client.call("resume_run", {"run_id": run_id, "action": "cancel"})
    assert (ended["isError"], text_of(ended)) == (True, "The run was cancelled.")
    task = await gateway.hub.reads.task(OWNER, result["_meta"]["babelgate"]["task_id"])
    assert task.state is TaskState.CANCELLED


async def test_a_question_can_be_declined(client: Client) -> None:
    asked = (await client.call("ask"))["structuredContent"]
    done = await client.call("resume_run", {"run_id": asked["run_id"], "action": "decline"})
    assert "structuredContent" not in done


@pytest.mark.parametrize("answers", [{}, {"nobody": 1}])
async def test_answers_to_other_questions_are_refused(client: Client, answers: Wire) -> None:
    asked = (await client.call("ask"))["structuredContent"]
    refused = await client.call("resume_run", {"run_id": asked["run_id"], "answers": answers})
    assert refused["isError"] is True
    assert asked["interrupts"][0]["id"] in text_of(refused)


async def test_a_client_with_a_session_is_asked_while_its_call_goes_on(gateway: Running) -> None:
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


async def test_a_question_that_the_caller_cancels_ends_the_run(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={"form": {}})
    async with calling(client, "ask") as stream:
        asked = await stream.next() or {}
        await say(client, {"id": asked["id"], "result": {"action": "cancel"}})
        done = (await stream.next() or {})["result"]
    assert (done["isError"], text_of(done)) == (True, "The run was cancelled.")


async def test_a_client_that_hangs_up_at_a_question_ends_the_run(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={})
    thread_id = str(uuid4())
    arguments = {"message": "go", "thread_id": thread_id}
    made = client.request("tools/call", {"name": "ask", "arguments": arguments})
    async with gateway.http.stream(**made) as response:
        assert "elicitation/create" in await anext(line async for line in response.aiter_lines() if "data" in line)
    async with asyncio.timeout(BOUND):
        async for batch in gateway.hub.reads.follow(OWNER, Scope(thread_id)):
            if any(getattr(record.event, "state", None) is TaskState.CANCELLED for record in batch):
                return


async def test_a_client_that_says_no_form_can_be_shown_is_not_asked(gateway: Running) -> None:
    several: tuple[tuple[Wire, int], ...] = (
        ({}, 64),
        ({"elicitation": {"url": {}}}, 64),
        ({"roots": {}}, 64),
        ({"sampling": {}}, 32),
    )
    for capabilities, length in several:
        client, hello = await enter(gateway.http, **capabilities)
        assert len(hello.headers["mcp-session-id"]) == length
        assert (await client.call("ask"))["structuredContent"]["status"] == "input_required"


async def test_a_client_of_2026_calls_again_with_its_answers(modern: Client) -> None:
    asked = await modern.call("approve")
    assert asked["resultType"] == "input_required"
    forms = asked["inputRequests"]
    messages = {each["params"]["message"]: name for name, each in forms.items()}
    name: Wire = {messages["What is your name?"]: {"action": "accept", "content": {"answer": "Ada"}}}
    rest = await modern.call("approve", inputResponses=name, requestState=asked["requestState"])
    assert list(rest["inputRequests"]) == [messages["May I write?"]]
    answer = {messages["May I write?"]: {"action": "accept", "content": {"approved": True}}}
    done = await modern.call("approve", inputResponses=answer, requestState=rest["requestState"])
    assert [each["text"] for each in done["content"]] == ["Two questions.", "Ada said {'approved': True}."]
    again = await modern.call("approve", inputResponses=answer, requestState=rest["requestState"])
    assert again["content"] == done["content"], "a call that is repeated tells the same, and starts nothing"


async def test_a_client_of_2026_cancels_a_question(modern: Client) -> None:
    asked = await modern.call("ask")
    cancelled = {name: {"action": "cancel"} for name in asked["inputRequests"]}
    done = await modern.call("ask", inputResponses=cancelled, requestState=asked["requestState"])
    assert (done["isError"], text_of(done)) == (True, "The run was cancelled.")


async def test_without_answers_it_is_asked_again(modern: Client) -> None:
    asked = await modern.call("ask")
    again = await modern.call("ask", requestState=asked["requestState"])
    assert again["inputRequests"] == asked["inputRequests"]


async def test_a_state_that_was_changed_or_is_of_another_tool_is_refused(modern: Client) -> None:
    state = (await modern.call("ask"))["requestState"]
    for tool, told in (("ask", state[:-2] + "AA"), ("echo", state), ("ask", "nope")):
        params = {"name": tool, "arguments": {"message": "go"}, "requestState": told}
        assert (await modern.ask("tools/call", params))["error"]["code"] == -32602


# Tasks


async def test_a_client_that_knows_tasks_is_given_one_and_asks_for_its_result(polling: Client) -> None:
    task = await polling.call("approve")
    assert (task["resultType"], task["status"]) == ("task", "input_required")
    assert not {"inputRequests", "result", "requestState"} & task.keys()
    asked = (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]
    assert (asked["resultType"], asked["status"]) == ("complete", "input_required")
    forms = asked["inputRequests"]
    contents = {"What is your name?": {"answer": "Ada"}, "May I write?": {"approved": True}}
    responses = {
        name: {"action": "accept", "content": contents[each["params"]["message"]]} for name, each in forms.items()
    }
    update = {"taskId": task["taskId"], "inputResponses": responses}
    assert (await polling.ask("tasks/update", update))["result"]["resultType"] == "complete"
    done = (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]
    assert done["status"] == "completed"
    assert text_of(done["result"]) == "Two questions.Ada said {'approved': True}."


async def test_a_task_is_cancelled(polling: Client) -> None:
    task_id = (await polling.call("ask"))["taskId"]
    assert (await polling.ask("tasks/get", {"taskId": task_id}))["result"]["status"] == "input_required"
    for _ in range(2):
        assert "result" in await polling.ask("tasks/cancel", {"taskId": task_id})
    assert (await polling.ask("tasks/get", {"taskId": task_id}))["result"]["status"] == "cancelled"


async def test_a_failed_run_is_a_completed_task_whose_result_is_an_error(polling: Client) -> None:
    task_id = (await polling.call("fail"))["_meta"]["babelgate"]["task_id"]
    done = (await polling.ask("tasks/get", {"taskId": task_id}))["result"]
    assert (done["status"], done["result"]["isError"]) == ("completed", True)


async def test_a_call_that_ends_at_once_is_answered_without_a_task(polling: Client) -> None:
    done = await polling.call("echo", {"message": "hi"})
    assert (done["resultType"], text_of(done), "taskId" in done) == ("complete", "hi", False)


async def test_a_call_that_takes_a_while_is_a_task_that_goes_on_without_its_caller(polling: Client) -> None:
    WAITING.__init__()
    task = await polling.call("waiting")
    assert (task["resultType"], task["status"]) == ("task", "working")
    assert not WAITING.ended.is_set()
    assert (await polling.ask("tasks/get", {"taskId": task["taskId"]}))["result"]["status"] == "working"
    await polling.ask("tasks/cancel", {"taskId": task["taskId"]})
    await ended()


async def test_who_can_answer_forms_is_asked_before_the_call_is_a_task(gateway: Running) -> None:
    client = Modern(gateway.http, capabilities={"elicitation": {}, "extensions": {TASKS: {}}})
    asked = await client.call("ask")
    assert (asked["resultType"], "taskId" in asked) == ("input_required", False)
    answers = {name: {"action": "accept", "content": {"answer": "Ada"}} for name in asked["inputRequests"]}
    done = await client.call("ask", inputResponses=answers, requestState=asked["requestState"])
    assert text_of(done) == "Hello, Ada."


async def test_tasks_are_for_clients_that_declare_them(gateway: Running) -> None:
    client = Modern(gateway.http)
    error = (await client.ask("tasks/get", {"taskId": str(uuid4())}))["error"]
    assert error["code"] == -32021
    assert error["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    assert (await Client(gateway.http).ask("tasks/get", {"taskId": str(uuid4())}))["error"]["code"] == -32601


async def test_a_task_that_there_is_not_is_no_task(polling: Client) -> None:
    for task_id in (str(uuid4()), "nope"):
        for method in ("tasks/get", "tasks/cancel"):
            assert (await polling.ask(method, {"taskId": task_id}))["error"]["code"] == -32602


async def test_the_header_of_a_task_must_name_it(gateway: Running, polling: Client) -> None:
    made = polling.request("tasks/get", {"taskId": str(uuid4())})
    made["headers"]["Mcp-Name"] = "another"
    response = await gateway.http.request(**made)
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
async def test_what_is_no_message_is_refused(gateway: Running, body: bytes, code: int) -> None:
    headers = {**ACCEPT, "Content-Type": "application/json"}
    response = await gateway.http.post("/mcp", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code


async def test_who_takes_no_stream_is_answered_with_json(gateway: Running, client: Client) -> None:
    client.headers = {"Accept": "application/json"}
    response = await gateway.http.request(
        **client.request("tools/call", {"name": "echo", "arguments": {"message": "hi"}})
    )
    assert response.headers["content-type"] == "application/json"
    assert text_of(response.json()["result"]) == "hi"


async def test_white_space_around_a_header_is_no_part_of_it(gateway: Running) -> None:
    made = Modern(gateway.http).request("tools/call", {"name": "echo", "arguments": {"message": "hi"}})
    body = json.dumps(made["json"]).encode()
    sent = {**made["headers"], "Mcp-Name": " echo ", "Content-Type": "application/json", "Connection": "close"}
    lines = [
        f"{name}: {value}" for name, value in {**sent, "Content-Length": str(len(body)), "Host": "localhost"}.items()
    ]
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write("\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body)
    async with asyncio.timeout(BOUND):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"text":"hi"' in answer.replace(b" ", b"")


async def test_the_sdk_is_loaded_by_the_first_request_and_not_before() -> None:
    source = (
        "import sys, babelgate.gateway.cli.serve, babelgate.gateway.http.app; "
        "sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source)
    async with asyncio.timeout(BOUND):
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("MCP-Protocol-Version", "1999-01-01", 400), ("Origin", "https://evil.example", 403)],
)
async def test_an_unknown_version_and_another_origin_are_refused(
    gateway: Running, header: str, value: str, status: int
) -> None:
    client = Client(gateway.http, headers={header: value})
    assert (await gateway.http.request(**client.request("ping", {}))).status_code == status


async def test_a_session_that_there_is_not_is_404_and_one_that_was_ended_too(gateway: Running) -> None:
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
            made = client.request("ping", {})
            made["headers"]["X-Api-Key"] = keys["bob"]
            assert (await gateway.http.request(**made)).status_code == 404
            made["headers"]["X-Api-Key"] = "nobody"
            response = await gateway.http.request(**made)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


async def test_a_gateway_that_stops_ends_its_sessions(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running(tmp_path_factory.mktemp("stops"), {"ask": ask}) as gateway:
        client, _ = await enter(gateway.http, elicitation={})
        assert "result" in await client.ask("ping")
