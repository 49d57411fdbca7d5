"""Responses in front of a server of responses: the official client sees no difference between the gateway and the
server, except those in `DIFFERENCES`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from babelgate.gateway import demo
from tests.adapters.openai.scripted import Said, Scripted, frames_of, through, unknown
from tests.bridge import client as bridge
from tests.difference import differences
from tests.opened import opened

ASK: Said = {"model": "far", "input": "Hi"}


def token(text: str) -> Said:
    return {"token": text, "logprob": -0.1, "bytes": [1], "top_logprobs": [{"token": "b", "logprob": -2.5}]}


PAGE: Said = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 3,
    "url": "http://a.b",
    "title": "T",
    **unknown("a"),
}
FILE: Said = {"type": "file_citation", "index": 3, "file_id": "file_1", "filename": "a.txt"}
REASONED: Said = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm"}],
    "encrypted_content": "gAAA",
    "status": "completed",
    **unknown("reasoning"),
}
SEALED: Said = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAB", "status": None}
OPEN: Said = {
    "type": "reasoning",
    "id": "rs_3",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Well"}],
    "status": "completed",
}
MESSAGE: Said = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "phase": "final_answer",
    "content": [
        {
            "type": "output_text",
            "text": "one two",
            "annotations": [PAGE, FILE],
            "logprobs": [token("one "), token("two")],
            **unknown("content"),
        }
    ],
    **unknown("message"),
}
TOOLS: list[Said] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"], "results": None},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1",
        "container_id": "c",
        "outputs": [{"type": "logs", "logs": "1"}],
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAE=", "output_format": "png"},
    {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "theirs",
        "name": "f",
        "arguments": "{}",
        "output": "1",
        "error": None,
        "approval_request_id": None,
    },
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "theirs", "tools": [{"name": "f", "input_schema": {}}]},
    {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "wait"}, "pending_safety_checks": []},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
]
OUTPUT = [REASONED, SEALED, OPEN, *TOOLS, MESSAGE]
USAGE: Said = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1, **unknown("input")},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 12,
    **unknown("usage"),
}


def response(status: str = "completed", **more: Any) -> Said:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "completed_at": 1700000001,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief",
        "max_output_tokens": 99,
        "max_tool_calls": None,
        "metadata": {},
        "model": "far",
        "output": OUTPUT,
        "parallel_tool_calls": False,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "prompt_cache_retention": "in_memory",
        "reasoning": {"effort": "low", "summary": "auto", **unknown("effort")},
        "safety_identifier": None,
        "service_tier": "flex",
        "store": True,
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "auto",
        "tools": [{"type": "web_search", "search_context_size": "low", "user_location": None}],
        "top_logprobs": 2,
        "top_p": 0.9,
        "truncation": "auto",
        "usage": USAGE,
        "user": None,
        "billing": {"payer": "developer"},
        **unknown("response"),
        **more,
    }


def of_item(index: int, item: Said) -> Iterator[Said]:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"} if "status" in item else item
    if item in (REASONED, OPEN):
        kind, member = ("summary", "summary") if item is REASONED else ("content", "content")
        yield {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {"type": "reasoning", "id": item["id"], "summary": [], "status": "in_progress"},
        }
        [part] = item[member]
        name = "reasoning_summary_text" if item is REASONED else "reasoning_text"
        around = "reasoning_summary_part" if item is REASONED else "content_part"
        on = {**at, f"{kind}_index": 0}
        yield {"type": f"response.{around}.added", **on, "part": {**part, "text": ""}}
        yield {"type": f"response.{name}.delta", **on, "delta": part["text"]}
        yield {"type": f"response.{name}.done", **on, "text": part["text"]}
        yield {"type": f"response.{around}.done", **on, "part": part}
    elif item is MESSAGE:
        yield {"type": "response.output_item.added", "output_index": index, "item": {**begun, "content": []}}
        on = {**at, "content_index": 0}
        [part] = item["content"]
        empty: Said = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield {"type": "response.content_part.added", **on, "part": empty}
        for word in ("one ", "two"):
            yield {"type": "response.output_text.delta", **on, "delta": word, "logprobs": [token(word)]}
        for number, annotation in enumerate(part["annotations"]):
            added = {"annotation_index": number, "annotation": annotation}
            yield {"type": "response.output_text.annotation.added", **on, **added}
        yield {"type": "response.output_text.done", **on, "text": part["text"], "logprobs": part["logprobs"]}
        yield {"type": "response.content_part.done", **on, "part": part}
    else:
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item is not SEALED:
            yield {"type": f"response.{item['type']}.in_progress", **at}
            yield {"type": f"response.{item['type']}.some_progress", **at, "delta": "x", **unknown("event")}
            yield {"type": f"response.{item['type']}.completed", **at}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def stream() -> list[Said]:
    events: list[Said] = [
        {"type": "response.created", "response": response("in_progress", output=[], usage=None, completed_at=None)},
        {"type": "response.in_progress", "response": response("in_progress", output=[], usage=None, completed_at=None)},
    ]
    for index, item in enumerate(OUTPUT):
        events += of_item(index, item)
    events.append({"type": "response.unheard_of", "words": ["x"], **unknown("event")})
    events.append({"type": "response.completed", "response": response()})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


DIFFERENCES = {
    "id": "by which it is found here",
    "response.id": "by which it is found here",
    "created_at": "the gateway's clock",
    "response.created_at": "the gateway's clock",
    "completed_at": "the gateway's clock",
    "response.completed_at": "the gateway's clock",
    "sequence_number": "the gateway counts",
}
"""Reason why a member differs from that of the upstream, by path of the member."""
PIECES = {"item.x_message", "part.x_content"}
"""Unknown members that the gateway sends only with whole items and parts."""


def unexplained(expected: Any, actual: Any) -> list[str]:
    return [each for each in differences(expected, actual) if each.lstrip("!") not in DIFFERENCES]


async def test_response_equals_the_upstream_one(tmp_path: Path) -> None:
    async with through(tmp_path, Scripted(response()), "responses") as caller:
        answer = await caller.post("/v1/responses", json=ASK)
        assert unexplained(response(), answer.json()) == []
        again = await caller.get(f"/v1/responses/{answer.json()['id']}")
        assert list(differences(answer.json(), again.json())) == []
        assert "Babelgate-Loss" not in answer.headers


async def test_stream_equals_the_upstream_one(tmp_path: Path) -> None:
    upstream_events = stream()
    async with through(tmp_path, Scripted(upstream_events), "responses") as caller:
        events = frames_of(await caller.post("/v1/responses", json={**ASK, "stream": True}))
        assert [event["type"] for event in events] == [event["type"] for event in upstream_events]
        # The gateway sends the first two events before the server sends anything.
        for expected, actual in zip(upstream_events[2:], events[2:], strict=True):
            found = [each for each in unexplained(expected, actual) if each[1:] not in PIECES]
            assert found == [], (expected, actual)


async def test_streamed_answer_is_merged_into_the_response(tmp_path: Path) -> None:
    async with through(tmp_path, Scripted(stream()), "responses") as caller:
        assert unexplained(response(), (await caller.post("/v1/responses", json=ASK)).json()) == []


@pytest.mark.parametrize("reason", ["max_output_tokens", "content_filter", "another"])
async def test_incomplete_reason_is_passed_on_unchanged(tmp_path: Path, reason: str) -> None:
    upstream_response = response("incomplete", incomplete_details={"reason": reason}, completed_at=None)
    async with through(tmp_path, Scripted(upstream_response), "responses") as caller:
        actual = (await caller.post("/v1/responses", json=ASK)).json()
        assert unexplained(upstream_response, actual) == []


async def test_unknown_members_of_a_response_are_limited(tmp_path: Path) -> None:
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AAAA" * 100_000}
    upstream_response = response(output=[image, MESSAGE], x_large="x" * 300_000)
    async with through(tmp_path, Scripted(upstream_response), "responses") as caller:
        answer = await caller.post("/v1/responses", json=ASK)
        body = answer.json()
        assert "x_large" not in body
        assert body["output"][0] == {**image, "result": None}
        assert "too large" in answer.headers["Babelgate-Loss"]


async def test_unknown_members_of_a_call_are_preserved(tmp_path: Path) -> None:
    calls: list[Said] = [
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "f",
            "arguments": "{}",
            "status": "completed",
            **unknown("call"),
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "x", "status": "completed"},
    ]
    async with through(tmp_path, Scripted(response(output=calls)), "responses") as caller:
        output = (await caller.post("/v1/responses", json=ASK)).json()["output"]
        # The gateway's own id of the call, by which callers answer it.
        assert list(differences(calls, output)) == ["![0].call_id", "![1].call_id"]


# Requests

INPUT: list[Said] = [
    {"type": "message", "role": "developer", "content": "Be brief", **unknown("message")},
    {
        "type": "message",
        "role": "user",
        "id": "msg_0",
        "content": [
            {"type": "input_text", "text": "a", **unknown("part")},
            {"type": "input_image", "image_url": "http://a.b/c.png", "detail": "low"},
            {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AAE="},
        ],
    },
    REASONED,
    SEALED,
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "42", **unknown("output")},
    *[each for each in TOOLS if each["type"] != "image_generation_call"],
    {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": "http://x"},
    },
    {**MESSAGE, "content": [{**MESSAGE["content"][0]}]},
    {"type": "message", "role": "user", "content": "Go on"},
]
REQUEST: Said = {
    "model": "far",
    "input": INPUT,
    "instructions": "Be brief",
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "truncation": "auto",
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}},
    "reasoning": {"effort": "low", "summary": "auto"},
    "max_output_tokens": 99,
    "max_tool_calls": 3,
    "top_logprobs": 2,
    "top_p": 0.5,
    "temperature": 0,
    "tools": [
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False, **unknown("tool")},
        {"type": "web_search", "search_context_size": "low"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []},
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "safety_identifier": "u",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "seed": 3,
    **unknown("request"),
}


async def test_request_reaches_the_upstream_unchanged(tmp_path: Path) -> None:
    far = Scripted(response(output=[{**MESSAGE, "content": [{"type": "output_text", "text": "{}"}]}]))
    async with through(tmp_path, far, "responses") as caller:
        answer = await caller.post("/v1/responses", json=REQUEST)
        assert answer.status_code == 200, answer.text
        # The gateway requests a stream, and continues from the stored response later.
        assert list(differences(REQUEST, far.requests[-1])) == ["+stream", "+store"]


async def test_items_only_the_upstream_knows_are_rejected_for_others(tmp_path: Path) -> None:
    async with opened(tmp_path, {"echo": demo.echo}) as gateway, bridge(gateway.app) as caller:
        for item, status in (({"type": "item_reference", "id": "x"}, 404), ({"type": "no"}, 400)):
            body = {"model": "echo", "input": [item, {"role": "user", "content": "Hi"}]}
            assert (await caller.post("/v1/responses", json=body)).status_code == status


# Errors


async def test_response_failed_upstream_is_a_failed_response(tmp_path: Path) -> None:
    error = {"code": "image_parse_error", "message": "Not so", **unknown("error")}
    failed = response("failed", error=error, output=[], usage=None, completed_at=None)
    async with through(tmp_path, Scripted(failed), "responses") as caller:
        answer = await caller.post("/v1/responses", json=ASK)
        assert (answer.status_code, answer.json()["status"], answer.json()["error"]) == (200, "failed", error)


@pytest.mark.parametrize("status", [400, 422, 429])
async def test_upstream_error_is_passed_on_unchanged(tmp_path: Path, status: int) -> None:
    error = {"message": "Not so", "type": "some_error", "param": "input.0", "code": "some_code", **unknown("error")}
    far = Scripted({"error": error})
    far.status = status
    async with through(tmp_path, far, "responses") as caller:
        answer = await caller.post("/v1/responses", json=ASK)
        error_body = answer.json()["error"]
        error_body.pop("response")
        assert (answer.status_code, error_body) == (status, error)
