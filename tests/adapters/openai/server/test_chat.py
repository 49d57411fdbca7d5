"""Chat completions over a whole gateway: requests, answers, and who can read a stored completion."""

import asyncio
import json
from typing import Any, Final
from uuid import uuid4

import pytest

from babelgate.canonical import RunStatus, Scope
from babelgate.canonical.event import RunEnded
from tests.adapters.openai.server.agents import ASKS, CHAT_ASK_TOOL, ENDED, GATE, STARTED
from tests.running import Running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("closed")]

BOUND: Final = 30
OWNER: Final = "default"
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def body(model: str, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    tools = {"tools": [CHAT_ASK_TOOL]} if model in ASKS else {}
    return {"model": model, "messages": messages or [user("hi")], **tools, **more}


async def ask(gateway: Running, model: str, *messages: dict[str, Any], **more: Any) -> Any:
    answer = await gateway.http.post("/v1/chat/completions", json=body(model, *messages, **more))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def text_of(gateway: Running, model: str, *messages: dict[str, Any], **more: Any) -> str:
    return (await ask(gateway, model, *messages, **more))["choices"][0]["message"]["content"]


async def refused(gateway: Running, status: int, model: str, *messages: dict[str, Any], **more: Any) -> Any:
    answer = await gateway.http.post("/v1/chat/completions", json=body(model, *messages, **more))
    assert answer.status_code == status, answer.text
    assert answer.headers["x-should-retry"] == "false"
    return answer.json()["error"]


async def streamed(gateway: Running, model: str, *messages: dict[str, Any], **more: Any) -> list[Any]:
    request_body = body(model, *messages, stream=True, **more)
    async with gateway.http.stream("POST", "/v1/chat/completions", json=request_body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        raw = (await response.aread()).decode()
    *frames, last = raw.strip().split("\n\n")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    return chunks if last == "data: [DONE]" else [*chunks, json.loads(last.removeprefix("data: "))]


# Answers


async def test_texts_reasoning_and_citations_form_one_message(gateway: Running) -> None:
    message = (await ask(gateway, "cited"))["choices"][0]["message"]
    assert message["content"] == "One.\nTwo."
    assert message["reasoning_content"] == "Hm. "
    (cited,) = message["annotations"]
    citation = cited["url_citation"]
    assert message["content"][citation["start_index"] : citation["end_index"]] == "Two."
    chunks = await streamed(gateway, "cited")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert deltas[-1]["annotations"] == message["annotations"]


async def test_refusal_is_not_content(gateway: Running) -> None:
    message = (await ask(gateway, "refusing"))["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "I will not.")


async def test_usage_and_token_limit_are_reported(gateway: Running) -> None:
    completion = await ask(gateway, "counted")
    assert completion["choices"][0]["finish_reason"] == "length"
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert completion["usage"] == {**usage, "completion_tokens_details": {"reasoning_tokens": 1}}
    *chunks, last = await streamed(gateway, "counted", stream_options={"include_usage": True})
    assert (last["choices"], last["usage"]) == ([], completion["usage"])
    assert all(chunk["usage"] is None for chunk in chunks)
    assert all("usage" not in chunk for chunk in await streamed(gateway, "counted"))


async def test_failure_includes_partial_output_and_forbids_retry(gateway: Running) -> None:
    error = await refused(gateway, 500, "fail", user("boom"))
    assert "boom" in error["message"]
    assert (error["type"], error["code"]) == ("server_error", "agent_failed")
    assert error["completion"]["choices"][0]["message"]["content"] == "Failing."
    *_, last = await streamed(gateway, "fail", user("boom"))
    assert last == {"error": {name: error[name] for name in ("message", "type", "param", "code")}}


# Requests


async def test_configuration_of_a_request_reaches_the_agent(gateway: Running) -> None:
    tools = [{"type": "function", "function": {"name": "f", "strict": True}}]
    more: dict[str, Any] = {"temperature": 0.5, "tools": tools, "tool_choice": "auto", "stop": ["x"]}
    received = json.loads(await text_of(gateway, "settings", **more, metadata={"of": "ada"}, n=1, store=False))
    assert received == {"config": more, "metadata": {"of": "ada"}}


async def test_tools_unknown_to_the_agent_are_a_declared_loss(gateway: Running) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    answer = await gateway.http.post("/v1/chat/completions", json=body("echo", tools=tools))
    assert "caller-tools=" in answer.headers["babelgate-loss"]
    assert "babelgate-loss" not in (await gateway.http.post("/v1/chat/completions", json=body("echo"))).headers


USER: Final = {"role": "user", "content": "Count."}
ASSISTANT: Final = {"role": "assistant", "content": "One, two,"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, ASSISTANT], "user: Count. | agent: One, two,"),
        ([ASSISTANT], "agent: One, two,"),
        ([USER, ASSISTANT, ASSISTANT], "user: Count. | agent: One, two, | agent: One, two,"),
    ],
)
async def test_assistant_continues_its_last_message(gateway: Running, messages: list[Any], expected: str) -> None:
    answer = await gateway.http.post("/v1/chat/completions", json={"model": "history", "messages": messages})
    assert answer.json()["choices"][0]["message"]["content"] == expected


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"messages": []}, "messages"),
        ({"metadata": {"thread_id": ""}}, "metadata.thread_id"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 5}}}},
            "response_format.json_schema.schema",
        ),
    ],
    ids=str,
)
async def test_invalid_request_is_rejected_with_the_field_name(
    gateway: Running, more: dict[str, Any], param: str
) -> None:
    answer = await gateway.http.post("/v1/chat/completions", json={**body("echo"), **more})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_request_without_a_valid_model_is_rejected(gateway: Running) -> None:
    answer = await gateway.http.post("/v1/chat/completions", json={"messages": [user("hi")]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    error = await refused(gateway, 404, "nobody")
    assert (error["param"], error["code"]) == ("model", "model_not_found")


# Structured answers


FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


async def test_answer_that_matches_its_schema_is_returned(gateway: Running) -> None:
    assert await text_of(gateway, "saying", user('{"a": 1}'), response_format=FORMAT) == '{"a": 1}'
    assert await text_of(gateway, "saying", user("{}"), response_format={"type": "json_object"}) == "{}"


@pytest.mark.parametrize("text", ['{"a": "x"}', "{}", "no JSON", "[1"])
async def test_answer_that_violates_its_schema_is_an_error(gateway: Running, text: str) -> None:
    error = await refused(gateway, 502, "saying", user(text), response_format=FORMAT)
    assert error["code"] == "invalid_output"
    assert error["completion"]["choices"][0]["message"]["content"] == text
    *_, last = await streamed(gateway, "saying", user(text), response_format=FORMAT)
    assert last["error"]["code"] == "invalid_output"


async def test_refusal_and_question_need_not_match_the_schema(gateway: Running) -> None:
    for model, finish in (("refusing", "stop"), ("ask", "tool_calls"), ("counted", "length")):
        completion = await ask(gateway, model, response_format=FORMAT)
        assert completion["choices"][0]["finish_reason"] == finish


# Threads


CONVERSATION: Final = (
    {"role": "system", "content": "Be kind."},
    user("one"),
    {"role": "assistant", "content": "1"},
    user("two"),
)


async def test_request_without_a_thread_sends_the_whole_conversation(gateway: Running) -> None:
    expected = "system: Be kind. | user: one | agent: 1 | user: two"
    assert await text_of(gateway, "history", *CONVERSATION) == expected
    assert await text_of(gateway, "history", *CONVERSATION) == expected


@pytest.mark.parametrize("named", ["uuid", "a name of my own"])
async def test_existing_thread_receives_only_new_messages(gateway: Running, named: str) -> None:
    metadata = {"thread_id": str(uuid4()) if named == "uuid" else f"{named} {uuid4()}"}
    first = await text_of(gateway, "history", *CONVERSATION, metadata=metadata)
    assert first == "system: Be kind. | user: one | agent: 1 | user: two"
    again = (*CONVERSATION, {"role": "assistant", "content": "changed"}, user("three"))
    assert await text_of(gateway, "history", *again, metadata=metadata) == f"{first} | agent: {first} | user: three"


async def test_only_stored_threads_are_visible_in_other_protocols(gateway: Running) -> None:
    for more, is_kept in (({}, False), ({"store": True}, True), ({"metadata": {"thread_id": str(uuid4())}}, True)):
        answer = await gateway.http.post("/v1/chat/completions", json=body("echo", **more))
        listed = await gateway.http.post("/threads/search", json={"ids": [answer.headers["babelgate-thread"]]})
        assert len(listed.json()) == is_kept


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_disconnect_cancels_a_run_that_is_not_stored(gateway: Running, stream: bool) -> None:
    request_body = body("waiting", stream=stream)
    calling = asyncio.ensure_future(gateway.http.post("/v1/chat/completions", json=request_body))
    async with asyncio.timeout(BOUND):
        await STARTED.wait()
        calling.cancel()
        await ENDED.wait()


async def test_stored_run_can_be_read_after_a_disconnect(gateway: Running) -> None:
    for more in ({"store": True}, {"metadata": {"thread_id": str(uuid4())}}):
        GATE.clear()
        request_body = body("gated", stream=True, **more)
        async with gateway.http.stream("POST", "/v1/chat/completions", json=request_body) as response:
            run_id, thread_id = response.headers["babelgate-run"], response.headers["babelgate-thread"]
        early = await gateway.http.get(f"/v1/chat/completions/chatcmpl-{run_id}")
        assert early.status_code == 404, "it is not complete yet"
        GATE.set()
        assert (await _ended(gateway, thread_id)).status is RunStatus.SUCCESS
        later = await gateway.http.get(f"/v1/chat/completions/chatcmpl-{run_id}")
        assert later.json()["choices"][0]["message"]["content"] == "first last"


async def _ended(gateway: Running, thread_id: str) -> Any:
    """Wait until the run of a thread ends, and return it."""
    run_id: str | None = None
    async with asyncio.timeout(BOUND):
        async for batch in gateway.hub.reads.follow(OWNER, Scope(thread_id)):
            for record in batch:
                run_id = record.run_id or run_id
                if isinstance(record.event, RunEnded):
                    assert run_id is not None
                    return await gateway.hub.reads.run(OWNER, run_id)
    raise AssertionError("it did not end")


# Questions


def calls_of(completion: Any) -> list[Any]:
    assert completion["choices"][0]["finish_reason"] == "tool_calls"
    return completion["choices"][0]["message"]["tool_calls"]


def result(call: Any, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def test_streamed_question_has_the_same_call(gateway: Running) -> None:
    chunks = await streamed(gateway, "ask", store=True)
    delta = next(chunk["choices"][0]["delta"] for chunk in chunks if "tool_calls" in chunk["choices"][0]["delta"])
    stored = (await gateway.http.get(f"/v1/chat/completions/{chunks[0]['id']}")).json()
    assert delta["tool_calls"] == [{"index": 0, **calls_of(stored)[0]}]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_two_questions_can_be_answered_separately(gateway: Running) -> None:
    first, second = calls_of(await ask(gateway, "twice"))
    arguments = json.loads(second["function"]["arguments"])
    assert arguments == {"question": "Second?", "kind": "approval", "schema": {"type": "object"}}
    left = calls_of(await ask(gateway, "twice", result(first, "one")))
    assert left == [second]
    assert await text_of(gateway, "twice", result(second, '{"b": 2}')) == "one and {'b': 2}"


async def test_changed_call_id_and_another_models_call_are_rejected(gateway: Running) -> None:
    (call,) = calls_of(await ask(gateway, "ask", store=True))
    last = call["id"][-5]
    changed = call["id"][:-5] + ("A" if last != "A" else "B") + call["id"][-4:]
    error = await refused(gateway, 400, "ask", result({"id": changed}, "Ada"))
    assert error["param"] == "messages"
    assert (await refused(gateway, 400, "echo", result(call, "Ada")))["param"] == "model"
    assert (await refused(gateway, 400, "ask", result({"id": "call_bgt_nothing"}, "Ada")))["param"] == "messages"
    assert await text_of(gateway, "ask", result(call, "Ada")) == "Hello, Ada.", "and nothing happened to it"
    assert (await refused(gateway, 400, "ask", result(call, "Ada")))["code"] in ("already_answered", "run_ended")


# Stored completions


async def test_stored_completions_are_listed_with_pages_and_filters(gateway: Running) -> None:
    mark = {"of": f"{uuid4()}"}
    completions = [await ask(gateway, "echo", user(text), store=True, metadata=mark) for text in ("1", "2", "3")]
    await ask(gateway, "echo", user("not kept"), metadata=mark)
    at = f"/v1/chat/completions?metadata[of]={mark['of']}"
    page = (await gateway.http.get(f"{at}&limit=2")).json()
    assert [each["choices"][0]["message"]["content"] for each in page["data"]] == ["3", "2"]
    assert page["has_more"] and page["last_id"] == completions[1]["id"]
    assert page["data"][0]["metadata"] == mark
    rest = (await gateway.http.get(f"{at}&after={page['last_id']}")).json()
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == ([completions[0]["id"]], False)
    assert (await gateway.http.get(f"{at}&model=ask")).json()["data"] == []
    assert (await gateway.http.get(f"{at}&order=asc")).status_code == 400


async def test_deleted_completion_is_not_found(gateway: Running) -> None:
    completion = await ask(gateway, "echo", store=True)
    path = f"/v1/chat/completions/{completion['id']}"
    stored = {**(await gateway.http.get(path)).json(), "metadata": None}
    assert stored == {**completion, "metadata": None}
    deleted = (await gateway.http.delete(path)).json()
    assert deleted == {"id": completion["id"], "object": "chat.completion.deleted", "deleted": True}
    assert (await gateway.http.get(path)).status_code == 404
    assert (await gateway.http.delete(path)).status_code == 404


async def test_metadata_of_a_stored_completion_is_replaced_everywhere(gateway: Running) -> None:
    created = await gateway.http.post(
        "/v1/chat/completions", json=body("echo", store=True, metadata={"a": "1", "b": "2"})
    )
    path = f"/v1/chat/completions/{created.json()['id']}"
    now = f"{uuid4()}"
    changed = await gateway.http.post(path, json={"metadata": {"a": now}})
    assert (changed.status_code, changed.json()["metadata"]) == (200, {"a": now})
    assert changed.json() == (await gateway.http.get(path)).json()
    listed = (await gateway.http.get(f"/v1/chat/completions?metadata[a]={now}")).json()
    assert listed["data"] == [changed.json()]
    run_id, thread_id = created.headers["babelgate-run"], created.headers["babelgate-thread"]
    response = (await gateway.http.get(f"/v1/responses/resp_{run_id.replace('-', '')}")).json()
    run = (await gateway.http.get(f"/threads/{thread_id}/runs/{run_id}")).json()
    assert (response["metadata"], run["metadata"]["a"]) == ({"a": now}, now)
    refused = await gateway.http.post(path, json={"metadata": {"a": 1}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata.a")


async def test_input_messages_of_a_stored_completion_are_listed(gateway: Running) -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    completion = await ask(gateway, "saying", {"role": "system", "content": "Be kind."}, user("hi"), store=True)
    listed = (await gateway.http.get(f"/v1/chat/completions/{completion['id']}/messages")).json()
    assert [(each["role"], each["content"]) for each in listed["data"]] == [("system", "Be kind."), ("user", "hi")]
    with_parts = await ask(gateway, "saying", {"role": "user", "content": parts}, store=True)
    (one,) = (await gateway.http.get(f"/v1/chat/completions/{with_parts['id']}/messages")).json()["data"]
    assert (one["content"], one["content_parts"]) == ("look", parts)


async def test_completion_without_store_is_not_stored(gateway: Running) -> None:
    completion = await ask(gateway, "ask")
    assert (await gateway.http.get(f"/v1/chat/completions/{completion['id']}")).status_code == 404


async def test_run_of_another_protocol_can_be_read_as_completion(gateway: Running) -> None:
    run = {"agent_name": "fail", "input": [{"role": "user", "parts": [{"content": "boom"}]}]}
    failed = await gateway.http.post("/acp/runs", json=run)
    answer = await gateway.http.get(f"/v1/chat/completions/chatcmpl-{failed.headers['babelgate-run']}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "agent_failed")


# Models


async def test_agents_are_listed_as_models(gateway: Running) -> None:
    listed = (await gateway.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    assert {"echo", "ask", "gated"} <= {each["id"] for each in listed["data"]}
    one = (await gateway.http.get("/v1/models/echo")).json()
    assert one in listed["data"]
    shared = {"type": "model", "display_name": "echo", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}
    assert one == {"id": "echo", "object": "model", "created": 0, "owned_by": "babelgate", **shared}
    alone = (await gateway.http.get("/agent/echo/v1/models")).json()["data"]
    assert [each["id"] for each in alone] == ["echo"]


async def test_unknown_path_is_answered_with_the_served_paths(gateway: Running) -> None:
    answer = await gateway.http.post("/v1/embeddings", json={"model": "echo", "input": "hi"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "POST /v1/embeddings is not served: /v1/models, /v1/chat/completions, /v1/responses and /v1/conversations are."
    )


@pytest.mark.parametrize("root", ["", "/agent/echo"])
@pytest.mark.parametrize(("path", "why"), [("input_tokens", "tokenizer")])
async def test_unsupported_responses_path_is_answered_with_the_reason(
    gateway: Running, root: str, path: str, why: str
) -> None:
    answer = await gateway.http.post(f"{root}/v1/responses/{path}", json={"model": "echo", "input": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert why in answer.json()["error"]["message"]
    other = await gateway.http.post(f"{root}/v1/responses/resp_x", json={})
    assert other.status_code == 405


# Questions of agents to callers that do not declare `ask_caller`


OTHER_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("tools", [[], [OTHER_TOOL]], ids=["no tools", "another tool"])
async def test_question_is_text_that_the_next_user_message_answers(gateway: Running, tools: list[Any]) -> None:
    messages = [{"role": "system", "content": "first"}, user("hi")]
    completion = await ask(gateway, "ask", *messages, tools=tools)
    choice = completion["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("What is your name?", "stop")
    assert "tool_calls" not in choice["message"]
    messages = [{"role": "system", "content": "second"}, user("hi"), choice["message"], user("Ada")]
    assert await text_of(gateway, "ask", *messages, tools=tools) == "Hello, Ada."
    again = await ask(gateway, "ask", *messages, tools=tools)
    assert again["choices"][0]["message"]["content"] == "What is your name?", "a question has one answer"


async def test_header_turns_questions_into_calls_without_a_tool(gateway: Running) -> None:
    headers = {"Babelgate-Questions": "calls"}
    answer = await gateway.http.post("/v1/chat/completions", json=body("ask", tools=[]), headers=headers)
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"


async def test_streamed_question_is_text(gateway: Running) -> None:
    chunks = await streamed(gateway, "ask", tools=[])
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == "What is your name?"
    assert choices[-1]["finish_reason"] == "stop"


async def test_next_user_message_answers_a_question_on_a_thread(gateway: Running) -> None:
    thread: dict[str, Any] = {"metadata": {"thread_id": "asked in words"}, "tools": []}
    assert await text_of(gateway, "ask", user("hi"), **thread) == "What is your name?"
    assert await text_of(gateway, "ask", user("Ada"), **thread) == "Hello, Ada."


async def test_questions_in_text_form_are_answered_in_order(gateway: Running) -> None:
    messages = [user("hi")]
    first = await text_of(gateway, "twice", *messages, tools=[])
    messages += [{"role": "assistant", "content": first}, user("one")]
    second = await text_of(gateway, "twice", *messages, tools=[])
    messages += [{"role": "assistant", "content": second}, user('{"b": 2}')]
    last = await text_of(gateway, "twice", *messages, tools=[])
    assert last == "one and {'b': 2}", (first, second)


async def test_message_of_another_conversation_answers_no_question(gateway: Running) -> None:
    question = await text_of(gateway, "ask", user("hello there"), tools=[])
    messages = [user("something else"), {"role": "assistant", "content": question}, user("Ada")]
    assert await text_of(gateway, "ask", *messages, tools=[]) == question


async def test_question_in_text_form_ignores_schema_and_reports_loss(gateway: Running) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    request_body = body("approve", tools=[], response_format=form)
    answer = await gateway.http.post("/v1/chat/completions", json=request_body)
    assert answer.json()["choices"][0]["finish_reason"] == "stop"
    assert "answer-schema" in answer.headers["Babelgate-Loss"]


@pytest.mark.parametrize(("agent", "is_lost"), [("ask", False), ("twice", False), ("pays", True)])
async def test_data_of_a_question_in_text_form_is_lost(gateway: Running, agent: str, is_lost: bool) -> None:
    answer = await gateway.http.post("/v1/chat/completions", json=body(agent, tools=[]))
    lost_features = [each.partition("=")[0].strip() for each in answer.headers.get("Babelgate-Loss", "").split(",")]
    assert ("question" in lost_features) is is_lost
