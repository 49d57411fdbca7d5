"""The client: requests to a server of the Messages API, and what the gateway reads from its messages."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

from babelgate.adapters.anthropic.agents import assume_model
from babelgate.adapters.anthropic.client import Client, discover
from babelgate.adapters.anthropic.read import AnswerReader
from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import AnnotationPart, Event, FaultCode, FaultError, ReasoningPart, TextPart, ToolCallPart
from babelgate.canonical.event import (
    InterruptRaised,
    LossNoted,
    MessageEnded,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.adapters.anthropic.testing import body_of, text_in
from tests.bridge import client as bridge
from tests.bridge import read_body
from tests.opened import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

Wire = dict[str, Any]

USAGE: Final[Wire] = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 3}
CALL: Final[Wire] = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
SEARCH: Final[Wire] = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND: Final[Wire] = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "https://example.com", "title": "T", "encrypted_content": "e"}],
}
UNKNOWN: Final[Wire] = {"type": "container_upload", "file_id": "f"}
WEATHER: Final[Wire] = {"name": "weather", "input_schema": {"type": "object", "properties": {}}, "cache_control": None}


def text(words: str, **more: Any) -> Wire:
    return {"type": "text", "text": words, **more}


def message(*blocks: Wire, stop: str = "end_turn", **more: Any) -> Wire:
    return {"type": "message", "id": "msg_1", "content": list(blocks), "stop_reason": stop, "usage": USAGE, **more}


def stream(*blocks: Wire, stop: str = "end_turn") -> list[Wire]:
    """Return the events of a stream with these blocks, whose texts and arguments come in two pieces."""
    events: list[Wire] = [{"type": "message_start", "message": message(stop="")}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        kind = block["type"]
        member, delta = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}.get(kind, ("", ""))
        whole, start = str(block.get(member, "")), dict(block)
        if member:
            start[member] = ""
        if kind in ("tool_use", "server_tool_use"):
            start["input"] = {}
            whole, member, delta = json.dumps(block["input"]), "partial_json", "input_json_delta"
        signature = start.pop("signature", None) if kind == "thinking" else None
        deltas = [{"type": delta, member: piece} for piece in (whole[:2], whole[2:]) if piece]
        deltas += [{"type": "signature_delta", "signature": signature}] if signature else []
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": USAGE}
    return [*events, end, {"type": "message_stop"}]


def read(*events: Wire, structured: bool = False) -> list[Event]:
    reader = AnswerReader(structured=structured)
    return [event for wire in events for event in reader.read(wire)]


def of_kind(kind: Any, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def text_of(events: Sequence[Event]) -> str:
    parts = [each.part.text for each in events if isinstance(each, PartAdded) and isinstance(each.part, TextPart)]
    return "".join([*parts, *(each.text for each in events if isinstance(each, PartDelta))])


async def test_text_and_usage_are_read() -> None:
    for events in (read(*stream(text("Hello"))), AnswerReader().whole(message(text("Hello")))):
        assert text_of(events) == "Hello"
        (ended,) = of_kind(RunEnded, events)
        assert ended.usage == {
            "input_tokens": 8,
            "output_tokens": 2,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        }


async def test_call_of_a_callers_tool_is_a_question() -> None:
    events = read(*stream(text("Wait."), CALL, stop="tool_use"))
    (question,) = of_kind(InterruptRaised, events)
    assert question.value == {"name": "weather", "arguments": {"city": "Rome"}, "call_id": "toolu_1"}
    assert of_kind(MessageEnded, events)[0].finish == "tool_calls"


async def test_call_that_was_cut_off_is_a_loss() -> None:
    *before, _, delta, _, end, stop = stream(CALL, stop="max_tokens")
    events = read(*before, delta, {"type": "content_block_stop", "index": 0}, end, stop)
    assert not of_kind(InterruptRaised, events)
    assert [loss.feature for loss in of_kind(LossNoted, events)] == ["caller-tools"]
    assert of_kind(RunEnded, events)[0].status == "success"


async def test_tools_of_the_server_are_activity() -> None:
    events = read(*stream(SEARCH, FOUND, UNKNOWN, text("Found.")))
    (started,), (ended,) = of_kind(ToolStarted, events), of_kind(ToolEnded, events)
    assert (started.name, started.input, ended.name, ended.output) == (
        "web_search",
        {"query": "x"},
        "web_search",
        FOUND["content"],
    )
    assert [event.data for event in of_kind(Native, events)] == [UNKNOWN]
    failed = {**FOUND, "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}}
    assert of_kind(ToolEnded, read(*stream(SEARCH, failed)))[0].fault is not None


async def test_thinking_keeps_its_signature() -> None:
    events = read(*stream({"type": "thinking", "thinking": "Let me", "signature": "sig"}, text("Done")))
    assert isinstance(of_kind(PartAdded, events)[0].part, ReasoningPart)
    assert of_kind(PartEnded, events)[0].extra == {"anthropic": {"signature": "sig"}}


async def test_citations_follow_their_text() -> None:
    page = {"type": "web_search_result_location", "url": "https://example.com", "title": "T", "cited_text": "c"}
    document = {"type": "char_location", "document_title": "D", "cited_text": "d", "document_index": 0}
    events = AnswerReader().whole(message(text("Cited", citations=[page, document])))
    parts = [event.part for event in of_kind(PartAdded, events) if isinstance(event.part, AnnotationPart)]
    assert [(part.url, part.title, part.description) for part in parts] == [
        ("https://example.com", "T", "c"),
        (None, "D", "d"),
    ]


ERRORS: Final[Mapping[str, FaultCode]] = {
    "overloaded_error": FaultCode.AGENT_UNREACHABLE,
    "rate_limit_error": FaultCode.LIMITED,
    "timeout_error": FaultCode.AGENT_TIMEOUT,
    "api_error": FaultCode.AGENT_FAILED,
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_error_in_a_stream_fails_the_run(kind: str) -> None:
    with pytest.raises(FaultError) as failed:
        read(*stream(text("Half"))[:4], {"type": "error", "error": {"type": kind, "message": "No."}})
    assert (failed.value.fault.code, failed.value.fault.message) == (ERRORS[kind], "No.")


BROKEN: Final[Sequence[Wire]] = (
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}},
    {"type": "message_start", "message": {"content": "x"}},
    {"no": "type"},
)


@pytest.mark.parametrize("event", BROKEN)
async def test_malformed_event_is_refused(event: Wire) -> None:
    with pytest.raises(FaultError) as failed:
        read(event)
    assert failed.value.fault.code is FaultCode.INVALID


async def test_unknown_events_and_deltas_are_ignored() -> None:
    unknown: Wire = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}}
    start, ping, begin, *rest = stream(text("Hello"))
    expected = read(start, ping, begin, *rest)
    assert read({"type": "new"}, start, ping, begin, unknown, *rest) == expected


# Whole runs


class Far:
    """Upstream server that answers each request with the next of its prepared messages."""

    def __init__(self, *answers: Wire | list[Wire]) -> None:
        self.answers = list(answers)
        self.status = 200
        self.models: Wire = {"data": [{"type": "model", "id": "claude-x"}], "has_more": False}
        self.requests: list[Wire] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw = await read_body(receive)
        kind, body = "application/json", json.dumps(self.models).encode()
        if scope["method"] == "POST":
            self.requests.append(json.loads(raw))
            answer = self.answers.pop(0)
            body = json.dumps(answer).encode()
            if isinstance(answer, list):
                kind = "text/event-stream"
                body = b"".join(frame(json.dumps(each).encode(), event=each["type"]) for each in answer)
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


@asynccontextmanager
async def through(folder: Path, far: Far) -> AsyncGenerator[httpx.AsyncClient]:
    """Serve a gateway whose agent is a model of the server `far`, and yield an HTTP client of the gateway."""
    async with bridge(cast("Any", far)) as http:
        agent = Client("http://far", "claude-x", http=http, headers={"x-api-key": "sk-secret"})
        async with (
            opened(folder, registered={"far": RegisteredAgent(assume_model("far"), agent)}) as gateway,
            bridge(gateway.app, "http://127.0.0.1:8000") as caller,
        ):
            yield caller


async def send(http: httpx.AsyncClient, body: Wire) -> Wire:
    response = await http.post("/v1/messages", json={**body, "model": "far"}, headers={"Babelgate-Thread": "t"})
    assert response.status_code == 200, response.text
    return response.json()


async def test_thinking_returns_with_the_result_of_a_tool(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
    far = Far(stream(thought, CALL, stop="tool_use"), stream(text("Sunny.")))
    settings: Wire = {"tools": [WEATHER], "thinking": {"type": "adaptive"}, "system": "Be brief."}
    async with through(tmp_path, far) as http:
        first = await send(http, body_of("go", **settings))
        assert first["content"][0] == thought
        call = first["content"][1]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "warm"}
        answered = await send(http, body_of("", **{**settings, "messages": [{"role": "user", "content": [result]}]}))
    assert text_in(answered) == "Sunny."
    opening, second = far.requests
    assert opening == {
        "model": "claude-x",
        "max_tokens": 1024,
        "stream": True,
        "system": [text("Be brief.")],
        "messages": [{"role": "user", "content": [text("go")]}],
        "tools": [WEATHER],
        "thinking": {"type": "adaptive"},
    }
    assert second["messages"][1:] == [
        {"role": "assistant", "content": [thought, CALL]},
        {"role": "user", "content": [{**result, "tool_use_id": "toolu_1"}]},
    ]


async def test_paused_turn_continues_in_the_same_run(tmp_path: Path) -> None:
    far = Far(stream(text("One. "), SEARCH, FOUND, stop="pause_turn"), message(text("Two.")))
    async with through(tmp_path, far) as http:
        answered = await send(http, body_of("go"))
    assert text_in(answered) == "One. Two."
    assert [block["type"] for block in answered["content"]] == ["text", "server_tool_use", FOUND["type"], "text"]
    assert far.requests[1]["messages"][-1] == {"role": "assistant", "content": [text("One. "), SEARCH, FOUND]}


async def test_refusal_of_the_server_reaches_the_caller(tmp_path: Path) -> None:
    far = Far({"type": "error", "error": {"type": "invalid_request_error", "message": "sk-secret is wrong"}})
    far.status = 400
    async with through(tmp_path, far) as http:
        response = await http.post("/v1/messages", json={**body_of("go"), "model": "far"})
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert "is wrong" in error["message"] and "sk-secret" not in response.text


async def test_stream_without_its_end_is_an_error(tmp_path: Path) -> None:
    async with through(tmp_path, Far(stream(text("Half"))[:-2])) as http:
        response = await http.post("/v1/messages", json={**body_of("go"), "model": "far"})
    assert (response.status_code, response.json()["error"]["babelgate"]["code"]) == (502, "agent_unreachable")


async def test_caller_of_another_protocol_gets_the_answer(tmp_path: Path) -> None:
    far = Far(stream(CALL, stop="tool_use"), stream(text('{"a": 1}')))
    schema = {"type": "object"}
    function = {"name": "weather", "parameters": {"type": "object"}}
    body: Wire = {
        "model": "far",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": function}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "o", "schema": schema}},
    }
    async with through(tmp_path, far) as http:
        called = (await http.post("/v1/chat/completions", json=body)).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "warm"}
        body["messages"] += [called, result]
        answered = (await http.post("/v1/chat/completions", json=body)).json()
    assert answered["choices"][0]["message"]["content"] == '{"a": 1}'
    first, second = far.requests
    assert first["max_tokens"] == 32_000 and first["system"] == [text("Be brief.")]
    assert first["tools"] == [{"name": "weather", "input_schema": {"type": "object"}}]
    assert first["output_config"] == {"format": {"type": "json_schema", "schema": schema}}
    assert second["messages"][-1]["content"][0]["content"] == "warm"


async def test_server_is_recognized_by_its_list_of_models() -> None:
    far = Far()
    async with bridge(cast("Any", far)) as http:
        assert [info.name for info in await discover("http://far", http)] == ["claude-x"]
        others: Sequence[Wire] = (
            {"object": "list", "data": [], "has_more": False},
            {"data": []},
            {"data": "x", "has_more": True},
        )
        for models in others:
            far.models = models
            with pytest.raises(FaultError):
                await discover("http://far", http)


async def test_calls_of_a_caller_are_marked() -> None:
    (question,) = of_kind(InterruptRaised, read(*stream(CALL, stop="tool_use")))
    (part,) = (each for each in question.message.parts if isinstance(each, ToolCallPart))
    assert (part.call_id, part.side) == ("toolu_1", "caller")
