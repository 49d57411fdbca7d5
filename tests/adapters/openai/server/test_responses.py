"""Responses over a whole gateway: requests, answers, stored responses, and requests that continue a response."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.gateway import demo
from tests.adapters.openai.server.agents import ASK_TOOL, ASKS, ENDED, GATE, STARTED, rich
from tests.running import Running, running

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("closed")]

BOUND: Final = 60
AT: Final = "/v1/responses"
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def body(model: str, request_input: Any, **more: Any) -> dict[str, Any]:
    return {"model": model, "input": request_input, **({"tools": [ASK_TOOL]} if model in ASKS else {}), **more}


async def ask(gateway: Running, model: str, request_input: Any = "hi", **more: Any) -> Any:
    answer = await gateway.http.post(AT, json=body(model, request_input, **more))
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(response: Any) -> str:
    messages = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part.get("text", "") for item in messages for part in item["content"])


def calls_of(response: Any) -> list[Any]:
    return [item for item in response["output"] if item["type"] == "function_call"]


def output(call: Any, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": text}


async def refused(gateway: Running, status: int, model: str, request_input: Any = "hi", **more: Any) -> Any:
    answer = await gateway.http.post(AT, json=body(model, request_input, **more))
    assert answer.status_code == status, answer.text
    assert answer.headers["x-should-retry"] == "false"
    return answer.json()["error"]


def events_of(raw: str) -> list[Any]:
    *frames, last = raw.strip().split("\n\n")
    assert last == "data: [DONE]"
    events: list[Any] = []
    for frame in frames:
        kind, _, data = frame.partition("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {events[-1]['type']}"
    return events


async def streamed(gateway: Running, model: str, request_input: Any = "hi", **more: Any) -> list[Any]:
    answer = await gateway.http.post(AT, json=body(model, request_input, stream=True, **more))
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    events = events_of(answer.text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


async def replayed(gateway: Running, response_id: str, after: int | None = None) -> list[Any]:
    query = "?stream=true" + ("" if after is None else f"&starting_after={after}")
    return events_of((await gateway.http.get(f"{AT}/{response_id}{query}")).text)


def kinds(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


# Answers


async def test_response_has_all_members(gateway: Running) -> None:
    response = await ask(gateway, "echo", "Hello", metadata={"of": "ada"}, temperature=0.5)
    assert (response["object"], response["status"], response["model"], response["error"]) == (
        "response",
        "completed",
        "echo",
        None,
    )
    (item,) = response["output"]
    part: dict[str, Any] = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
    assert (item["role"], item["status"], item["content"]) == ("assistant", "completed", [part])
    assert (response["temperature"], response["metadata"]) == (0.5, {"of": "ada"})
    assert response["usage"]["total_tokens"] == 0
    assert response["completed_at"] >= response["created_at"]
    assert (await gateway.http.get(f"{AT}/{response['id']}")).json() == response


async def test_stream_is_replayed_from_any_event(gateway: Running) -> None:
    events = await streamed(gateway, "echo", "Hello")
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["output"] == []
    last = events[-1]["response"]
    assert last == (await gateway.http.get(f"{AT}/{last['id']}")).json()
    assert await replayed(gateway, last["id"]) == events
    for number in range(len(events)):
        assert await replayed(gateway, last["id"], number) == events[number + 1 :]


async def test_everything_an_agent_emits_becomes_an_item(gateway: Running) -> None:
    events = await streamed(gateway, "rich", "two words")
    response = events[-1]["response"]
    progress, thought, tool, message = response["output"]
    assert (progress["phase"], progress["content"][0]["text"]) == ("commentary", "Half way.")
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm. "}]
    assert (tool["type"], tool["name"], tool["server_label"]) == ("mcp_call", "word_count", "rich")
    assert (json.loads(tool["arguments"]), json.loads(tool["output"])) == ({"text": "two words"}, {"words": 2})
    assert (message["phase"], [part["text"] for part in message["content"]]) == ("final_answer", ["Two.", '{"a":1}'])
    (cited,) = message["content"][0]["annotations"]
    assert (cited["type"], cited["start_index"], cited["end_index"]) == ("url_citation", 0, 4)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert sorted(done, key=str) == sorted(response["output"], key=str)
    assert {"reasoning_summary_text.delta", "mcp_call.completed", "output_text.annotation.added"} <= set(kinds(events))


async def test_refusal_is_a_separate_part(gateway: Running) -> None:
    response = await ask(gateway, "refusing")
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


async def test_usage_and_token_limit_are_reported(gateway: Running) -> None:
    response = await ask(gateway, "counted")
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    details = {"cached_tokens": 0, "cache_write_tokens": 0}, {"reasoning_tokens": 1}
    assert (response["usage"]["input_tokens_details"], response["usage"]["output_tokens_details"]) == details
    assert response["usage"]["total_tokens"] == 5
    assert kinds(await streamed(gateway, "counted"))[-1] == "incomplete"


async def test_failure_is_an_error_and_a_stored_failed_response(gateway: Running) -> None:
    error = await refused(gateway, 500, "fail", "boom")
    assert "boom" in error["message"]
    assert (error["type"], error["code"]) == ("server_error", "agent_failed")
    failed = error["response"]
    assert (failed["status"], failed["error"]) == ("failed", {"code": "server_error", "message": error["message"]})
    assert text_of(failed) == "Failing."
    assert (await gateway.http.get(f"{AT}/{failed['id']}")).json() == failed
    events = await streamed(gateway, "fail", "boom")
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"] == failed["error"]


# Requests


async def test_configuration_reaches_the_agent_and_is_repeated(gateway: Running) -> None:
    tools = [{"type": "function", "name": "f", "strict": True}]
    more: dict[str, Any] = {"temperature": 0.5, "tools": tools, "tool_choice": "auto", "instructions": "Be kind."}
    response = await ask(gateway, "settings", **more, metadata={"of": "ada"})
    assert json.loads(text_of(response)) == {"config": more, "metadata": {"of": "ada"}}
    assert response["tools"] == [
        {"type": "function", "name": "f", "strict": True, "description": None, "parameters": None}
    ]
    assert (response["instructions"], response["tool_choice"]) == ("Be kind.", "auto")


async def test_tools_unknown_to_the_agent_are_a_declared_loss(gateway: Running) -> None:
    tools = [{"type": "function", "name": "f"}]
    answer = await gateway.http.post(AT, json={"model": "echo", "input": "hi", "tools": tools})
    assert "caller-tools=" in answer.headers["babelgate-loss"]
    assert "babelgate-loss" not in (await gateway.http.post(AT, json={"model": "echo", "input": "hi"})).headers


PIXEL: Final = "data:image/png;base64,AAAA"


async def test_files_reach_the_agent_and_are_listed_as_input(gateway: Running) -> None:
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]
    response = await ask(gateway, "shapes", [{"role": "user", "content": parts}])
    assert text_of(response) == "None image/png 3, a.txt text/plain 2"
    (item,) = (await gateway.http.get(f"{AT}/{response['id']}/input_items")).json()["data"]
    assert item["role"] == "user"
    assert [part["type"] for part in item["content"]] == ["input_text", "input_image", "input_file"]
    assert item["content"][1]["image_url"] == PIXEL
    again = await ask(gateway, "shapes", [item])
    assert text_of(again) == text_of(response), "what was shown is understood"


async def test_history_in_the_input_reaches_the_agent(gateway: Running) -> None:
    items: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "one"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1", "annotations": []}]},
        {"role": "user", "content": "two"},
    ]
    assert (
        text_of(await ask(gateway, "history", items)) == "system: Be kind. | user: one | agent:  | agent: 1 | user: two"
    )


USER: Final = {"role": "user", "content": "And now?"}
ASSISTANT: Final = {"role": "assistant", "content": "One, two,"}


@pytest.mark.parametrize("items", [[USER, ASSISTANT], [ASSISTANT], [USER, ASSISTANT, {"type": "compaction_trigger"}]])
async def test_assistant_continues_its_last_message(gateway: Running, items: list[Any]) -> None:
    expected = " | ".join(
        f"{'agent' if item is ASSISTANT else 'user'}: {item['content']}" for item in items if "role" in item
    )
    assert text_of(await ask(gateway, "history", items)) == expected


@pytest.mark.parametrize(
    "items",
    [
        [{"type": "additional_tools", "role": "developer", "tools": []}, USER],
        [USER, {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}, ASSISTANT, USER],
        [USER, {"type": "local_shell_call", "call_id": "c"}, {"type": "local_shell_call_output", "id": "c"}, USER],
    ],
    ids=lambda items: next(item["type"] for item in items if "type" in item),
)
async def test_items_the_agent_cannot_use_are_a_declared_loss(gateway: Running, items: list[Any]) -> None:
    answer = await gateway.http.post(AT, json={"model": "echo", "input": items})
    kinds = {item["type"] for item in items if "type" in item}
    assert (answer.status_code, text_of(answer.json())) == (200, "And now?")
    assert all(kind in answer.headers["babelgate-loss"] for kind in kinds)


async def test_item_reference_is_replaced_by_its_item(gateway: Running) -> None:
    one = await ask(gateway, "history", "My name is Ann.")
    other = await ask(gateway, "echo", "Else.")
    item, text = one["output"][0]["id"], one["output"][0]["content"][0]["text"]
    whole = f"user: Hi | agent: {text} | user: And now?"
    for reference in ({"type": "item_reference", "id": item}, {"id": item}, {"type": None, "id": item}):
        items = [{"role": "user", "content": "Hi"}, reference, USER]
        assert text_of(await ask(gateway, "history", items)) == whole
        assert (await ask(gateway, "history", items, stream=False))["status"] == "completed"
    items = [{"type": "item_reference", "id": other["output"][0]["id"]}, USER]
    assert text_of(await ask(gateway, "history", items)) == "agent: Else. | user: And now?"


async def test_reference_to_an_unstored_item_is_not_found(gateway: Running) -> None:
    one = await ask(gateway, "echo", "Secret.", store=False)
    for item in (one["output"][0]["id"], "msg_00000000000000000000000000000000", "x"):
        error = await refused(gateway, 404, "echo", [{"type": "item_reference", "id": item}, USER])
        assert (error["type"], error["param"]) == ("invalid_request_error", "input.0.id")


async def test_input_that_ends_with_a_call_is_rejected(gateway: Running) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    assert (await refused(gateway, 400, "echo", [USER, call]))["param"] == "input"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "nonsense"}]}, "input.0"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "nonsense"}]}]}, "input.0.content.0"),
        ({"input": [{"type": "function_call_output", "call_id": "call_1", "output": "x"}]}, "input.0.call_id"),
        ({"temperature": 3}, "temperature"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": 5}}}}, "text.format.schema"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ],
    ids=str,
)
async def test_invalid_request_is_rejected_with_the_field_name(
    gateway: Running, more: dict[str, Any], param: str
) -> None:
    answer = await gateway.http.post(AT, json={"model": "echo", "input": "hi", **more})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith(param), answer.text


async def test_request_without_a_valid_model_is_rejected(gateway: Running) -> None:
    answer = await gateway.http.post(AT, json={"input": "hi"})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "model", "missing_required_parameter")
    error = await refused(gateway, 404, "nobody")
    assert (error["param"], error["code"]) == ("model", "model_not_found")


# Structured answers


FORMAT: Final = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}


async def test_answer_that_matches_its_schema_is_returned(gateway: Running) -> None:
    assert text_of(await ask(gateway, "saying", '{"a": 1}', text=FORMAT)) == '{"a": 1}'
    assert text_of(await ask(gateway, "saying", "{}", text={"format": {"type": "json_object"}})) == "{}"
    assert (await ask(gateway, "ask", text=FORMAT))["status"] == "completed", "a question need not fit"


@pytest.mark.parametrize("text", ['{"a": "x"}', "no JSON"])
async def test_answer_that_violates_its_schema_fails_for_every_reader(gateway: Running, text: str) -> None:
    error = await refused(gateway, 502, "saying", text, text=FORMAT)
    assert error["code"] == "invalid_output"
    events = await streamed(gateway, "saying", text, text=FORMAT)
    failed = events[-1]["response"]
    assert (events[-1]["type"], failed["status"], text_of(failed)) == ("response.failed", "failed", text)
    assert await replayed(gateway, failed["id"]) == events
    assert (await gateway.http.get(f"{AT}/{failed['id']}")).json() == failed


# Responses that continue others


async def test_continuations_of_one_response_do_not_see_each_other(gateway: Running) -> None:
    one = await ask(gateway, "history", "one")
    two = await ask(gateway, "history", "two", previous_response_id=one["id"])
    assert two["previous_response_id"] == one["id"]
    assert text_of(two) == "user: one | agent: user: one | user: two"
    other = await ask(gateway, "history", "other", previous_response_id=one["id"])
    assert text_of(other) == "user: one | agent: user: one | user: other"
    after = await ask(gateway, "history", "after", previous_response_id=two["id"])
    assert "other" not in text_of(after) and text_of(after).endswith("user: after")


async def test_concurrent_continuations_do_not_see_each_other(gateway: Running) -> None:
    one = await ask(gateway, "history", "one")
    texts = ("left", "right")
    both = await asyncio.gather(*(ask(gateway, "history", text, previous_response_id=one["id"]) for text in texts))
    assert [text_of(each).count("user:") for each in both] == [3, 3]


async def test_unstored_response_is_not_found_and_not_continued(gateway: Running) -> None:
    response = await ask(gateway, "echo", store=False)
    assert response["store"] is False
    assert (await gateway.http.get(f"{AT}/{response['id']}")).status_code == 404
    error = await refused(gateway, 400, "echo", previous_response_id=response["id"])
    assert error["code"] == "previous_response_not_found"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_disconnect_cancels_a_run_that_is_not_stored(gateway: Running, stream: bool) -> None:
    request_body = {"model": "waiting", "input": "hi", "stream": stream, "store": False}
    calling = asyncio.ensure_future(gateway.http.post(AT, json=request_body))
    async with asyncio.timeout(BOUND):
        await STARTED.wait()
        calling.cancel()
        await ENDED.wait()


# Background, replay, cancel, delete


async def test_stream_is_resumed_after_a_disconnect(gateway: Running) -> None:
    request_body = {"model": "gated", "input": "hi", "stream": True}
    events: list[Any] = []
    async with asyncio.timeout(BOUND), gateway.http.stream("POST", AT, json=request_body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
            if events and events[-1].get("delta") == "first":
                break
    response_id = events[0]["response"]["id"]
    now = (await gateway.http.get(f"{AT}/{response_id}")).json()
    assert (now["status"], text_of(now), now["usage"]) == ("in_progress", "first", None)
    rest = asyncio.ensure_future(replayed(gateway, response_id, events[-1]["sequence_number"]))
    GATE.set()
    async with asyncio.timeout(BOUND):
        whole = [*events, *await rest]
    assert [event["sequence_number"] for event in whole] == list(range(len(whole)))
    assert text_of(whole[-1]["response"]) == "first last"
    assert await replayed(gateway, response_id) == whole


async def test_replay_after_a_restart_has_the_same_numbers(tmp_path: Path) -> None:
    agents = {"rich": rich, "ask": demo.ask}
    async with running(tmp_path, agents) as before:
        streams = [await streamed(before, model, "two words") for model in agents]
    async with running(tmp_path, agents) as after:
        for events in streams:
            response_id = events[-1]["response"]["id"]
            assert await replayed(after, response_id) == events
            assert await replayed(after, response_id, 4) == events[5:]
        (call,) = calls_of(streams[1][-1]["response"])
        assert text_of(await ask(after, "ask", [output(call, "Ada")])) == "Hello, Ada."


async def test_background_response_is_answered_at_once_and_read_later(gateway: Running) -> None:
    response = await ask(gateway, "gated", background=True)
    assert (response["background"], response["status"] in ("queued", "in_progress")) == (True, True)
    GATE.set()
    async with asyncio.timeout(BOUND):
        events = await replayed(gateway, response["id"])
    assert text_of(events[-1]["response"]) == "first last"
    assert events[0]["response"]["status"] == "queued"


async def test_only_background_responses_can_be_cancelled(gateway: Running) -> None:
    response = await ask(gateway, "waiting", background=True)
    at = f"{AT}/{response['id']}/cancel"
    done = await gateway.http.post(at)
    assert (done.status_code, done.json()["status"]) == (200, "cancelled")
    assert (await gateway.http.post(at)).json() == done.json()
    events = await replayed(gateway, response["id"])
    assert (events[-1]["type"], events[-1]["response"]["status"]) == ("response.incomplete", "cancelled")
    plain = await ask(gateway, "echo")
    assert (await gateway.http.post(f"{AT}/{plain['id']}/cancel")).status_code == 400


@pytest.mark.parametrize("model", ["echo", "ask", "waiting"])
async def test_deleted_response_is_not_found(gateway: Running, model: str) -> None:
    at = f"{AT}/{(await ask(gateway, model, background=True))['id']}"
    deleted = await gateway.http.delete(at)
    assert (deleted.status_code, deleted.json()["deleted"]) == (200, True), deleted.text
    assert [(await gateway.http.request(how, at)).status_code for how in ("GET", "DELETE")] == [404, 404]


# Questions


async def test_cancel_withdraws_a_question_for_every_reader(gateway: Running) -> None:
    events = await streamed(gateway, "ask")
    response = events[-1]["response"]
    done = await gateway.http.post(f"{AT}/{response['id']}/cancel")
    assert (done.status_code, done.json()["status"]) == (200, "cancelled")
    assert (await gateway.http.get(f"{AT}/{response['id']}")).json() == done.json()
    assert await replayed(gateway, response["id"]) == events
    assert (await gateway.http.post(f"{AT}/{response['id']}/cancel")).json() == done.json()
    error = await refused(gateway, 400, "ask", [output(calls_of(response)[0], "Ada")])
    assert error["code"] in ("already_answered", "run_ended")


async def test_question_is_a_function_call_and_its_output_the_answer(gateway: Running) -> None:
    events = await streamed(gateway, "ask")
    response = events[-1]["response"]
    (call,) = calls_of(response)
    assert (call["name"], call["arguments"]) == ("ask_caller", '{"question": "What is your name?"}')
    assert kinds(events)[-5:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    error = await refused(gateway, 400, "ask", "something else", previous_response_id=response["id"])
    assert error["param"] == "input"
    done = await ask(gateway, "ask", [output(call, "Ada")], previous_response_id=response["id"])
    assert text_of(done) == "Hello, Ada."
    assert (await gateway.http.get(f"{AT}/{response['id']}")).json() == response, "it is what it was"
    (item,) = (await gateway.http.get(f"{AT}/{done['id']}/input_items")).json()["data"]
    assert (item["type"], item["call_id"], item["output"]) == ("function_call_output", call["call_id"], "Ada")


async def test_whole_conversation_can_be_sent_with_the_answer(gateway: Running) -> None:
    response = await ask(gateway, "ask", store=False)
    (call,) = calls_of(response)
    items = [{"role": "user", "content": "hi"}, *response["output"], output(call, "Ada")]
    assert text_of(await ask(gateway, "ask", items, store=False)) == "Hello, Ada."
    assert (await refused(gateway, 400, "ask", items))["code"] in ("already_answered", "not_found", "run_ended")


async def test_two_questions_can_be_answered_separately(gateway: Running) -> None:
    first, second = calls_of(await ask(gateway, "twice"))
    arguments = json.loads(second["arguments"])
    assert arguments == {"question": "Second?", "kind": "approval", "schema": {"type": "object"}}
    left = calls_of(await ask(gateway, "twice", [output(first, "one")]))
    assert left == [second]
    assert text_of(await ask(gateway, "twice", [output(second, '{"b": 2}')])) == "one and {'b': 2}"


async def test_changed_call_id_and_another_models_call_are_rejected(gateway: Running) -> None:
    (call,) = calls_of(await ask(gateway, "ask"))
    last = call["call_id"][-5]
    changed = call["call_id"][:-5] + ("A" if last != "A" else "B") + call["call_id"][-4:]
    error = await refused(gateway, 400, "ask", [output({"call_id": changed}, "Ada")])
    assert error["param"] == "input"
    assert (await refused(gateway, 400, "echo", [output(call, "Ada")]))["param"] == "model"
    other = await ask(gateway, "ask")
    error = await refused(gateway, 400, "ask", [output(call, "Ada")], previous_response_id=other["id"])
    assert error["param"] == "previous_response_id"
    assert text_of(await ask(gateway, "ask", [output(call, "Ada")])) == "Hello, Ada.", "and nothing happened to it"


# Conversations


CONVERSATIONS: Final = "/v1/conversations"


def said_in(page: Any) -> list[tuple[str, str]]:
    return [(item["role"], "".join(part["text"] for part in item["content"])) for item in page["data"]]


async def test_conversation_stores_its_items_and_the_agent_receives_them(gateway: Running) -> None:
    request_body = {"items": [{"role": "user", "content": "zero"}], "metadata": {"of": "ada"}}
    conversation = (await gateway.http.post(CONVERSATIONS, json=request_body)).json()
    assert (conversation["object"], conversation["metadata"]) == ("conversation", {"of": "ada"})
    one = await ask(gateway, "history", "one", conversation=conversation["id"])
    assert (one["conversation"], text_of(one)) == ({"id": conversation["id"]}, "user: zero | user: one")
    two = await ask(gateway, "saying", "two", conversation={"id": conversation["id"]})
    page = (await gateway.http.get(f"{CONVERSATIONS}/{conversation['id']}/items?order=asc")).json()
    expected = [("user", "zero"), ("user", "one"), ("assistant", text_of(one)), ("user", "two"), ("assistant", "two")]
    assert said_in(page) == expected
    newest = (await gateway.http.get(f"{CONVERSATIONS}/{conversation['id']}/items?limit=1")).json()
    assert (newest["data"], newest["has_more"]) == (two["output"], True)
    rest = (await gateway.http.get(f"{CONVERSATIONS}/{conversation['id']}/items?after={newest['last_id']}")).json()
    assert said_in(rest) == expected[-2::-1]


async def test_items_of_a_conversation_are_added_read_and_deleted(gateway: Running) -> None:
    at = f"{CONVERSATIONS}/{(await gateway.http.post(CONVERSATIONS)).json()['id']}"
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "1"}]
    added = (await gateway.http.post(f"{at}/items", json={"items": items})).json()
    assert said_in(added) == [("user", "one"), ("assistant", "1")]
    first = added["data"][0]
    assert (await gateway.http.get(f"{at}/items/{first['id']}")).json() == first
    assert (await gateway.http.delete(f"{at}/items/{first['id']}")).json()["object"] == "conversation"
    assert (await gateway.http.get(f"{at}/items/{first['id']}")).status_code == 404
    text = text_of(await ask(gateway, "history", "two", conversation=at.rpartition("/")[2]))
    assert text == "agent: 1 | user: two"


async def test_conversation_is_changed_and_deleted(gateway: Running) -> None:
    conversation = (await gateway.http.post(CONVERSATIONS, json={"metadata": {"a": "1", "b": "2"}})).json()
    at = f"{CONVERSATIONS}/{conversation['id']}"
    assert (await gateway.http.post(at, json={"metadata": {"a": "3"}})).json()["metadata"] == {"a": "3"}
    assert (await gateway.http.get(at)).json() == {**conversation, "metadata": {"a": "3"}}
    deleted = (await gateway.http.delete(at)).json()
    assert deleted == {"id": conversation["id"], "object": "conversation.deleted", "deleted": True}
    assert (await gateway.http.get(at)).status_code == 404
    assert (await refused(gateway, 404, "echo", conversation=conversation["id"]))["param"] == "conversation"


async def test_unstored_response_is_part_of_its_conversation(gateway: Running) -> None:
    conversation = (await gateway.http.post(CONVERSATIONS)).json()
    one = await ask(gateway, "echo", "one", conversation=conversation["id"], store=False)
    assert (await gateway.http.get(f"{AT}/{one['id']}")).status_code == 404
    text = text_of(await ask(gateway, "history", "two", conversation=conversation["id"]))
    assert text == "user: one | agent: one | user: two"


async def test_conversation_shows_calls_and_answers(gateway: Running) -> None:
    conversation = (await gateway.http.post(CONVERSATIONS)).json()
    (call,) = calls_of(await ask(gateway, "ask", conversation=conversation["id"]))
    await ask(gateway, "ask", [output(call, "Ada")], conversation=conversation["id"])
    items = (await gateway.http.get(f"{CONVERSATIONS}/{conversation['id']}/items?order=asc")).json()["data"]
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]


# Questions of agents to callers that do not declare `ask_caller`


@pytest.mark.parametrize("how", ["previous", "conversation", "history", "not stored"])
async def test_question_is_a_message_that_the_next_user_message_answers(gateway: Running, how: str) -> None:
    more: dict[str, Any] = {"tools": []}
    if how == "conversation":
        more["conversation"] = (await gateway.http.post("/v1/conversations", json={})).json()["id"]
    if how == "not stored":
        more["store"] = False
    response = await ask(gateway, "ask", "hi in words", **more)
    assert (text_of(response), calls_of(response), response["status"]) == ("What is your name?", [], "completed")
    request_input: Any = "Ada"
    if how == "previous":
        more["previous_response_id"] = response["id"]
    elif how != "conversation":
        request_input = [
            {"role": "user", "content": "hi in words"},
            *response["output"],
            {"role": "user", "content": "Ada"},
        ]
    assert text_of(await ask(gateway, "ask", request_input, **more)) == "Hello, Ada."
