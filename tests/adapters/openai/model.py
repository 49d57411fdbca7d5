"""A model behind OpenAI's API, on a loopback socket: both APIs, streamed and whole, in the shapes of the official SDK.
The test decides what the model answers."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from babelgate.adapters.kit.server.sse import frame
from tests.serving import serving

BOUND = 30
KEY = "sk-very-secret-key-0123456789"
USAGE = (7, 5)
"""Number of input and output tokens of every answer."""

Said = dict[str, Any]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str = "{}"
    call_id: str = "call_1"
    kind: str = "function"


@dataclass(frozen=True)
class Answer:
    """Answer of the model."""

    text: str = ""
    """Text, streamed word by word."""
    thought: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    citations: tuple[tuple[int, int, str], ...] = ()
    finish: str | None = None
    """Reason why the answer is incomplete: `length` or `content_filter`. None for a complete answer."""
    items: tuple[Said, ...] = ()
    """Further output items of a response, whole, ahead of the message."""


def echo(messages: Sequence[Said]) -> Answer:
    """Return an answer that repeats the last message."""
    last = messages[-1]
    content: Any = last.get("content", last.get("output", ""))
    if isinstance(content, list):
        parts = cast("list[Said]", content)
        content = " ".join(str(part.get("text", part["type"])) for part in parts)
    return Answer(text=content)


@dataclass
class Server:
    url: str = ""
    model: Callable[[Sequence[Said]], Answer] = echo
    """Function that answers a conversation: chat messages, or input items including those of earlier responses."""
    has_responses: bool = True
    keeps: bool = True
    """True if responses are stored."""
    echoes_previous: bool = True
    streams: bool = True
    counts: bool = True
    """True if `stream_options` are accepted."""
    refusals: dict[str, tuple[int, Any, dict[str, str]]] = field(
        default_factory=dict[str, tuple[int, Any, dict[str, str]]]
    )
    """Status, body and headers to send instead of an answer, by path."""
    raw: list[bytes] | None = None
    """Bytes to stream instead of an answer."""
    cut: int | None = None
    """Number of frames after which the connection breaks."""
    holds: bool = False
    """True if streams stay open after their last frame."""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    """Requests so far: method and path, headers, and body."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set if a caller disconnects from a stream that is held open."""
    stored: dict[str, list[Said]] = field(default_factory=dict[str, list[Said]])

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.requests]

    def body(self, number: int = -1) -> Any:
        return self.requests[number][2]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        path = scope["path"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        body: Any = json.loads(raw) if raw else None
        self.requests.append((f"{scope['method']} {path}", headers, body))
        out = _Out(receive, send, self)
        if path in self.refusals:
            status, refusal, more = self.refusals[path]
            await out.whole(refusal, status, more)
        elif path == "/v1/models":
            models = [{"id": name, "object": "model", "created": 1, "owned_by": "us"} for name in ("Org/One", "two")]
            await out.whole({"object": "list", "data": models})
        elif path == "/v1/chat/completions":
            await self._chat(body, out)
        elif path == "/v1/responses" and self.has_responses:
            await self._response(body, out)
        else:
            await out.whole({"detail": "Not Found"}, 404)

    async def _chat(self, body: Said, out: "_Out") -> None:
        if not self.counts and "stream_options" in body:
            await out.whole(_error("Extra inputs are not permitted", param="stream_options"), 422)
            return
        answer = self.model(body["messages"])
        if not self.streams:
            await out.whole(completion(body["model"], answer))
            return
        frames = [json.dumps(chunk).encode() for chunk in chunks(body["model"], answer, "stream_options" in body)]
        await out.stream([frame(each) for each in (*frames, b"[DONE]")])

    async def _response(self, body: Said, out: "_Out") -> None:
        previous = body.get("previous_response_id")
        if previous is not None and self.echoes_previous and previous not in self.stored:
            message = f"Previous response with id '{previous}' not found."
            refusal = _error(message, param="previous_response_id", code="previous_response_not_found")
            await out.whole(refusal, 400)
            return
        items = [*self.stored.get(previous or "", ()), *body["input"]]
        response_id = f"resp_{len(self.stored) + 1}"
        answer = self.model(items)
        response = Response(response_id, body, answer, previous if self.echoes_previous else None)
        self.stored[response_id] = [*items, *response.output()] if self.keeps else []
        if not self.keeps:
            del self.stored[response_id]
        if not self.streams:
            await out.whole(response.whole())
            return
        await out.stream([frame(json.dumps(event).encode(), event=event["type"]) for event in response.events()])


class _Out:
    def __init__(self, receive: Callable[[], Any], send: Callable[[Any], Any], server: Server) -> None:
        self._receive = receive
        self._send = send
        self._server = server

    async def whole(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self._start(status, "application/json", headers or {})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def stream(self, frames: list[bytes]) -> None:
        server = self._server
        await self._start(200, "text/event-stream; charset=utf-8", {})
        frames = frames if server.raw is None else server.raw
        for each in frames[: server.cut]:
            await self._send({"type": "http.response.body", "body": each, "more_body": True})
        if server.cut is not None:
            raise ConnectionResetError("the test cut it")
        if server.holds:
            await self._receive()
            server.left.set()
            return
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, status: int, kind: str, headers: dict[str, str]) -> None:
        all_headers = {"content-type": kind, **headers}
        encoded = [(name.encode(), value.encode()) for name, value in all_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


def _error(message: str, *, kind: str = "invalid_request_error", param: Any = None, code: Any = None) -> Said:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def words(text: str) -> list[str]:
    """Split a text after each space."""
    return [word for word in text.replace(" ", " \0").split("\0") if word]


# Chat completions


def _citation(start: int, end: int, url: str) -> Said:
    about = {"start_index": start, "end_index": end, "url": url, "title": "A page"}
    return {"type": "url_citation", "url_citation": about}


def _tool(call: Call) -> Said:
    if call.kind == "custom":
        return {"id": call.call_id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _chat_usage() -> Said:
    into, out = USAGE
    return {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}


def completion(model: str, answer: Answer) -> Said:
    message: Said = {"role": "assistant", "content": answer.text or None, "refusal": answer.refusal or None}
    if answer.thought:
        message["reasoning_content"] = answer.thought
    if answer.calls:
        message["tool_calls"] = [_tool(call) for call in answer.calls]
    message["annotations"] = [_citation(*citation) for citation in answer.citations]
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}
    head: Said = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _chat_usage()}


def chunks(model: str, answer: Answer, counts: bool = True) -> Iterator[Said]:
    def chunk(delta: Said, finish: str | None = None) -> Said:
        head: Said = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**head, "choices": [choice], **({"usage": None} if counts else {})}

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for word in words(answer.thought):
        yield chunk({"reasoning_content": word})
    for word in words(answer.text):
        yield chunk({"content": word})
    for word in words(answer.refusal):
        yield chunk({"refusal": word})
    if answer.citations:
        yield chunk({"annotations": [_citation(*citation) for citation in answer.citations]})
    for index, call in enumerate(answer.calls):
        tool_call = _tool(call)
        if call.kind == "custom":
            yield chunk({"tool_calls": [{"index": index, **tool_call}]})
            continue
        yield chunk({"tool_calls": [{"index": index, **tool_call, "function": {"name": call.name, "arguments": ""}}]})
        half = len(call.arguments) // 2
        for piece in (call.arguments[:half], call.arguments[half:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(answer))
    if counts:
        yield {**chunk({}), "choices": [], "usage": _chat_usage()}


# Responses


@dataclass
class Response:
    response_id: str
    body: Said
    answer: Answer
    previous: str | None = None

    def snapshot(self, status: str, output: list[Said] | None = None) -> Said:
        reason = {"length": "max_output_tokens"}.get(self.answer.finish or "", self.answer.finish)
        into, out = USAGE
        usage = {
            "input_tokens": into,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": into + out,
        }
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": 1.0,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if status == "incomplete" else None,
            "instructions": self.body.get("instructions"),
            "metadata": {},
            "model": self.body["model"],
            "output": output or [],
            "parallel_tool_calls": True,
            "previous_response_id": self.previous,
            "store": self.body.get("store", True),
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage if output is not None else None,
        }

    def parts(self) -> list[Said]:
        answer = self.answer
        parts: list[Said] = []
        if answer.text:
            annotations = [self.citation(*citation) for citation in answer.citations]
            parts.append({"type": "output_text", "text": answer.text, "annotations": annotations, "logprobs": []})
        if answer.refusal:
            parts.append({"type": "refusal", "refusal": answer.refusal})
        return parts

    def citation(self, start: int, end: int, url: str) -> Said:
        return {"type": "url_citation", "start_index": start, "end_index": end, "url": url, "title": "A page"}

    def message(self, status: str, content: list[Said]) -> Said:
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content}

    def thought(self, text: str) -> Said:
        summary = [{"type": "summary_text", "text": text}] if text else []
        return {"type": "reasoning", "id": "rs_1", "summary": summary}

    def call(self, call: Call, arguments: str, status: str) -> Said:
        if call.kind == "mcp_approval_request":
            head: Said = {"type": call.kind, "id": call.call_id, "server_label": "files"}
            return {**head, "name": call.name, "arguments": call.arguments}
        if call.kind == "custom":
            head = {"type": "custom_tool_call", "id": f"ctc_{call.call_id}", "call_id": call.call_id}
            return {**head, "name": call.name, "input": arguments}
        head = {"type": "function_call", "id": f"fc_{call.call_id}", "call_id": call.call_id}
        return {**head, "name": call.name, "arguments": arguments, "status": status}

    def output(self) -> list[Said]:
        answer = self.answer
        output: list[Said] = [self.thought(answer.thought)] if answer.thought else []
        output += answer.items
        if parts := self.parts():
            output.append(self.message("completed", parts))
        return output + [self.call(call, call.arguments, "completed") for call in answer.calls]

    @property
    def status(self) -> str:
        return "incomplete" if self.answer.finish else "completed"

    def whole(self) -> Said:
        return self.snapshot(self.status, self.output())

    def events(self) -> list[Said]:
        events = [
            {"type": "response.created", "response": self.snapshot("in_progress")},
            {"type": "response.in_progress", "response": self.snapshot("in_progress")},
        ]
        for index, item in enumerate(self.output()):
            events += self._of_item(index, item)
        events.append({"type": f"response.{self.status}", "response": self.whole()})
        return [{**event, "sequence_number": number} for number, event in enumerate(events)]

    def _of_item(self, index: int, item: Said) -> Iterator[Said]:
        at = {"output_index": index, "item_id": item.get("id")}
        match item["type"]:
            case "message":
                started: Said = {**item, "content": [], "status": "in_progress"}
                yield {
                    "type": "response.output_item.added",
                    "output_index": index,
                    "item": {**started, "id": item["id"]},
                }
                for number, part in enumerate(item["content"]):
                    yield from self._of_part({**at, "content_index": number}, part)
            case "reasoning":
                yield {"type": "response.output_item.added", "output_index": index, "item": self.thought("")}
                text = item["summary"][0]["text"]
                on = {**at, "summary_index": 0}
                empty = {"type": "summary_text", "text": ""}
                yield {"type": "response.reasoning_summary_part.added", **on, "part": empty}
                for word in words(text):
                    yield {"type": "response.reasoning_summary_text.delta", **on, "delta": word}
                yield {"type": "response.reasoning_summary_text.done", **on, "text": text}
                yield {"type": "response.reasoning_summary_part.done", **on, "part": item["summary"][0]}
            case "function_call":
                started = {**item, "arguments": "", "status": "in_progress"}
                yield {"type": "response.output_item.added", "output_index": index, "item": started}
                yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
                done = {"arguments": item["arguments"], "name": item["name"]}
                yield {"type": "response.function_call_arguments.done", **at, **done}
            case _:
                yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}

    def _of_part(self, at: Said, part: Said) -> Iterator[Said]:
        if part["type"] == "refusal":
            yield {"type": "response.content_part.added", **at, "part": {"type": "refusal", "refusal": ""}}
            for word in words(part["refusal"]):
                yield {"type": "response.refusal.delta", **at, "delta": word}
            yield {"type": "response.refusal.done", **at, "refusal": part["refusal"]}
        else:
            empty: Said = {**part, "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **at, "part": empty}
            for word in words(part["text"]):
                yield {"type": "response.output_text.delta", **at, "delta": word, "logprobs": []}
            for number, annotation in enumerate(part["annotations"]):
                added = {"annotation_index": number, "annotation": annotation}
                yield {"type": "response.output_text.annotation.added", **at, **added}
            yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}


@asynccontextmanager
async def serve(**options: Any) -> AsyncGenerator[Server]:
    server = Server(**options)
    async with serving(server) as url:
        server.url = url
        yield server
