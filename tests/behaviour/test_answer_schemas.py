"""Answers and the schemas of their questions: every protocol refuses an answer that violates its schema, commits
nothing, and keeps the question open."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from babelgate.adapters.kit.extension import URI
from babelgate.canonical import Answers, Ask, FaultCode, FaultError, Scope, TaskFilter
from tests.adapters.mcp.site import Modern, calling, enter, say, text_of
from tests.pairs.acp import Acp
from tests.pairs.aief import Aief
from tests.pairs.caller import Caller, Content, Data
from tests.pairs.house import CALLERS
from tests.pairs.runtime import Runtime
from tests.running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
OWNER: Final = "default"

SCHEMAS: Final[Mapping[str, Any]] = {
    "form": {
        "type": "object",
        "properties": {"approved": {"type": "boolean"}, "note": {"type": "string", "maxLength": 20}},
        "required": ["approved"],
    },
    "flag": {"type": "boolean"},
    "count": {"type": "integer", "minimum": 1},
    "text": {"type": "string", "maxLength": 9},
    "choice": {"enum": ["red", "green"]},
    "broken": {"type": "no such type"},
    "elsewhere": {"$ref": "http://127.0.0.1:9/schema.json"},
    "costly": {"type": "string", "pattern": "^(a+)+$"},
}


async def typed(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for a value of the schema that the text names, and return the type and the value of the answer."""
    answer = yield Ask("What shall I do?", schema=SCHEMAS[text])
    yield f"{type(answer).__name__} {answer}"


async def two(text: str) -> AsyncGenerator[list[Ask] | str, Any]:
    answers = yield [Ask("First?", schema=SCHEMAS["flag"]), Ask("Second?", schema=SCHEMAS["count"])]
    yield f"{answers}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Running]:
    async with running(tmp_path_factory.mktemp("schemas"), {"typed": typed, "two": two}) as gateway:
        yield gateway


ERRORS: Final[Mapping[str, tuple[int, str]]] = {
    "acp": (422, '"code":"invalid_input"'),
    "a2a-0.3": (200, '"code":-32602'),
    "a2a-1.0": (200, '"code":-32602'),
    "a2a-0.3-rest": (422, '"code":-32602'),
    "a2a-1.0-rest": (400, '"status":"INVALID_ARGUMENT"'),
    "aief": (422, '"message":"The answer'),
    "langgraph": (422, '"detail":"The answer'),
    "agent-protocol": (422, '"code":"invalid"'),
    "runtime": (422, '"code":"invalid"'),
    "chat-completions": (400, '"type":"invalid_request_error"'),
    "responses": (400, '"type":"invalid_request_error"'),
    "mcp": (200, '"isError":true'),
    "ag-ui": (422, '"code":"invalid"'),
    "anthropic": (400, '"type":"invalid_request_error"'),
}
"""Status of the response to an answer that violates its schema, and a part of its body, by caller."""
TEXT_ONLY: Final = ("acp", "a2a-0.3", "a2a-1.0", "aief", "openai-chat-completions", "openai-responses", "anthropic")
"""Protocols whose messages may hold only text."""


async def ask(gateway: Running, caller: type[Caller], name: str) -> tuple[Caller, Any]:
    """Start a task that stops with a question whose schema has this name. Return the caller, and its view of the
    task."""
    conversation = caller(gateway.http, "typed")
    paused = await conversation.run_to_end(name)
    assert len(await gateway.hub.reads.open_interrupts(OWNER, paused.task_id)) == 1
    return conversation, paused


async def refused(gateway: Running, caller: Caller, paused: Any, *answers: Content) -> httpx.Response:
    """Send answers that the gateway must refuse, and return the response."""
    responses: list[httpx.Response] = []

    async def record(response: httpx.Response) -> None:
        await response.aread()
        responses.append(response)

    before = caller.http.event_hooks
    caller.http.event_hooks = {"response": [record]}
    try:
        with pytest.raises(Exception) as caught:
            await caller.answer(paused, *answers)
    finally:
        caller.http.event_hooks = before
    posted = (response for response in reversed(responses) if response.request.method == "POST")
    return next(posted, httpx.Response(200, text=str(caught.value)))  # a WebSocket has no response


async def log_of(gateway: Running, task_id: str) -> Any:
    task = await gateway.hub.reads.task(OWNER, task_id)
    return await gateway.hub.reads.records(OWNER, Scope(task.thread_id))


async def is_open(gateway: Running, task_id: str) -> bool:
    return len(await gateway.hub.reads.open_interrupts(OWNER, task_id)) > 0


each_caller = pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)


@each_caller
async def test_an_answer_that_violates_its_schema_is_refused(gateway: Running, caller: type[Caller]) -> None:
    conversation, paused = await ask(gateway, caller, "form")
    before = await log_of(gateway, paused.task_id)
    for answer in (Data({"approved": "perhaps"}), Data({"approved": True, "note": "x" * 21})):
        response = await refused(gateway, conversation, paused, answer)
        if caller.name in ERRORS:
            status, part = ERRORS[caller.name]
            assert response.status_code == status
            assert part in response.text
        assert "does not fit the schema of its question at $." in response.text
        assert await log_of(gateway, paused.task_id) == before
        assert await is_open(gateway, paused.task_id)
    answered = await conversation.answer(paused, Data({"approved": True}))
    assert "dict {'approved': True}" in answered.text


TEXTS: Final = (
    ("flag", "yes", "bool True"),
    ("flag", "False", "bool False"),
    ("count", "3", "int 3"),
    ("text", "5", "str 5"),
    ("text", '{"a":1}', 'str {"a":1}'),
    ("choice", "red", "str red"),
    ("form", '{"approved": true}', "dict {'approved': True}"),
)


@pytest.mark.parametrize("caller", [each for each in CALLERS if each.speaks in TEXT_ONLY], ids=lambda each: each.name)
async def test_a_text_is_converted_to_what_its_schema_requires(gateway: Running, caller: type[Caller]) -> None:
    for name, text, expected in TEXTS:
        conversation, paused = await ask(gateway, caller, name)
        assert expected in (await conversation.answer(paused, text)).text, (name, text)
    conversation, paused = await ask(gateway, caller, "flag")
    assert "is not of type 'boolean'" in (await refused(gateway, conversation, paused, "perhaps")).text
    assert await is_open(gateway, paused.task_id)


@pytest.mark.parametrize(
    "caller", [each for each in CALLERS if each.speaks not in TEXT_ONLY], ids=lambda each: each.name
)
async def test_a_protocol_with_typed_answers_converts_no_text(gateway: Running, caller: type[Caller]) -> None:
    conversation, paused = await ask(gateway, caller, "flag")
    assert "is not of type 'boolean'" in (await refused(gateway, conversation, paused, "true")).text
    assert "bool True" in (await conversation.answer(paused, Data(True))).text


@pytest.mark.parametrize("name", ["broken", "elsewhere"])
async def test_an_unusable_schema_accepts_every_answer(gateway: Running, name: str) -> None:
    conversation, paused = await ask(gateway, Runtime, name)
    assert "int 7" in (await conversation.answer(paused, Data(7))).text


async def test_a_pattern_is_checked_outside_of_the_gateway(gateway: Running) -> None:
    """Check a pattern, which may take years: `tests/gateway/runs/test_output_schema.py` tests the bound."""
    conversation, paused = await ask(gateway, Runtime, "costly")
    assert "does not match" in (await refused(gateway, conversation, paused, "b")).text
    assert "str aa" in (await conversation.answer(paused, "aa")).text


async def test_a_refusal_is_not_validated(gateway: Running) -> None:
    _, paused = await ask(gateway, Runtime, "form")
    body = {"task_id": paused.task_id, "decline": True}
    response = await gateway.http.post(f"/v1/threads/{paused.context_id}/resume", json=body)
    assert response.status_code == 200, response.text
    assert not await is_open(gateway, paused.task_id)


async def test_one_invalid_answer_rejects_all_answers(gateway: Running) -> None:
    caller = Runtime(gateway.http, "two")
    paused = await caller.run_to_end("go")
    before = await log_of(gateway, paused.task_id)
    await refused(gateway, caller, paused, Data(True), Data(0))
    assert await log_of(gateway, paused.task_id) == before
    assert "[True, 2]" in (await caller.answer(paused, Data(True), Data(2))).text


async def test_answers_to_several_tasks_are_committed_together(gateway: Running) -> None:
    """Answer the questions of two tasks of a thread at once, in LangGraph's form: the second answer is invalid."""
    thread_id = (await gateway.http.post("/v1/threads", json={})).json()["thread_id"]
    ids = dict[str, str]()
    for name in ("flag", "count"):
        body = {"assistant_id": "typed", "input": name}
        response = await gateway.http.post(f"/v1/threads/{thread_id}/runs", json=body)
        questions = await gateway.hub.reads.open_interrupts(OWNER, response.headers["babelgate-task"])
        ids[name] = questions[0].interrupt_id
    before = await gateway.hub.reads.records(OWNER, Scope(thread_id))
    answers = {ids["flag"]: True, ids["count"]: "three"}
    body = {"assistant_id": "typed", "command": {"resume": answers}}
    response = await gateway.http.post(f"/threads/{thread_id}/runs/wait", json=body)
    assert response.status_code == 422, response.text
    assert await gateway.hub.reads.records(OWNER, Scope(thread_id)) == before


@pytest.mark.parametrize("caller", [Acp, Aief], ids=lambda caller: caller.name)
async def test_a_refusal_next_to_an_invalid_answer_is_not_committed(gateway: Running, caller: type[Caller]) -> None:
    conversation = caller(gateway.http, "two")
    paused = await conversation.run_to_end("go")
    questions = await gateway.hub.reads.open_interrupts(OWNER, paused.task_id)
    answers = [
        {"interrupt_id": questions[0].interrupt_id, "action": "decline"},
        {"interrupt_id": questions[1].interrupt_id, "value": "three"},
    ]
    before = await log_of(gateway, paused.task_id)
    if caller is Acp:
        message = {"role": "user", "parts": [{"content": "no"}]}
        body = {"run_id": paused.task_id, "mode": "sync", "await_resume": {"type": "message", "message": message}}
        response = await gateway.http.post(
            f"/acp/runs/{paused.task_id}", json={**body, "babelgate": {"answers": answers}}
        )
    else:
        path = f"/agent/two/ap/v1/agent/tasks/{paused.context_id}/steps"
        response = await gateway.http.post(path, json={"input": "no", "additional_input": {URI: {"answers": answers}}})
    assert response.status_code == 422, response.text
    assert await log_of(gateway, paused.task_id) == before


async def test_the_hub_names_the_question_of_a_refused_answer(gateway: Running) -> None:
    _, paused = await ask(gateway, Runtime, "count")
    with pytest.raises(FaultError) as refused:
        await gateway.hub.check_answers(OWNER, Answers(task_id=paused.task_id, bare=0))
    (question,) = await gateway.hub.reads.open_interrupts(OWNER, paused.task_id)
    assert refused.value.fault.code is FaultCode.INVALID
    assert refused.value.fault.details["interrupts"] == [question.interrupt_id]
    await gateway.hub.check_answers(OWNER, Answers(task_id=paused.task_id, bare=1))
    assert await is_open(gateway, paused.task_id)


INVALID_FORM: Final = {"action": "accept", "content": {"answer": "perhaps"}}


async def test_an_invalid_form_of_a_session_is_an_error(gateway: Running) -> None:
    client, _ = await enter(gateway.http, elicitation={})
    async with calling(client, "typed", arguments={"message": "flag"}) as stream:
        question = await stream.next() or {}
        await say(client, {"id": question["id"], "result": INVALID_FORM})
        done = (await stream.next() or {})["result"]
    assert done["isError"] and "is not of type 'boolean'" in text_of(done)
    page = await gateway.hub.reads.tasks(OWNER, TaskFilter(agent="typed"), limit=1)
    assert await is_open(gateway, (await page.tasks.all())[0].task_id)


async def test_an_invalid_form_of_a_repeated_call_is_an_error(gateway: Running) -> None:
    client = Modern(gateway.http, capabilities={"elicitation": {}})
    call = {"arguments": {"message": "flag"}}
    pending = await client.call("typed", **call)
    (name,) = pending["inputRequests"]
    again = {**call, "requestState": pending["requestState"]}
    refused = await client.call("typed", inputResponses={name: INVALID_FORM}, **again)
    assert refused["isError"] and "is not of type 'boolean'" in text_of(refused)
    valid = {"action": "accept", "content": {"answer": True}}
    assert "bool True" in text_of(await client.call("typed", inputResponses={name: valid}, **again))
