"""Scripted upstream server, and messages and events as LangGraph's own server sends them."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import Invocation, Message
from tests.submissions import make

RUN = "22222222-2222-4222-8222-222222222222"
THREAD = "11111111-1111-4111-8111-111111111111"
CHECKPOINT = "1f1e5f99-cac5-6e13-bfff-fd44593b193b"

_IDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


# Messages and events


def human(text: str) -> dict[str, Any]:
    return {"type": "human", "content": text, "id": f"h-{text}"}


def ai(text: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "ai", "content": text, "id": message_id, "tool_calls": [], **more}


def chunk(text: Any, message_id: str = "m1", *, node: str = "model", **more: Any) -> tuple[str, Any]:
    message = {"content": text, "type": "AIMessageChunk", "id": message_id, "chunk_position": None, **more}
    return "messages", [message, {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:t1"}]


def checkpoint(
    values: Any, checkpoint_id: str = CHECKPOINT, *, parent: str | None = None, next: Sequence[str] = (), **more: Any
) -> tuple[str, Any]:
    config = {"configurable": {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""}}
    parent_config = None if parent is None else {"configurable": {"checkpoint_id": parent}}
    metadata = {"source": "loop", "step": 1, **more}
    return "checkpoints", {
        "config": config,
        "parent_config": parent_config,
        "values": values,
        "metadata": metadata,
        "next": list(next),
        "tasks": [],
    }


def task(name: str = "model", task_id: str = "t1") -> tuple[str, Any]:
    return "tasks", {"id": task_id, "name": name, "input": {}, "triggers": [f"branch:to:{name}"], "metadata": {}}


def task_result(name: str = "model", task_id: str = "t1", **more: Any) -> tuple[str, Any]:
    return "tasks", {"id": task_id, "name": name, "error": None, "result": {}, "interrupts": [], **more}


def interrupts(*values: Any) -> dict[str, Any]:
    return {"__interrupt__": [{"value": value, "id": f"{n}" * 32} for n, value in enumerate(values)]}


def metadata(run_id: str = RUN) -> tuple[str, Any]:
    return "metadata", {"run_id": run_id, "attempt": 1}


STREAM: list[tuple[str, Any]] = [
    metadata(),
    ("values", {"messages": [human("Hello")]}),
    chunk("one "),
    chunk("two ", chunk_position=None),
    chunk("three", chunk_position="last"),
    ("values", {"messages": [human("Hello"), ai("one two three")]}),
]
"""Stream of a run that answers with three words, from a server without checkpoints."""


def numbered(frames: Sequence[tuple[str, Any]], *numbers: int) -> "list[tuple[str, Any, str]]":
    """Return the frames with ids in LangGraph's form.

    `numbers` has the number in the id of each frame, if ids repeat.
    """
    all_numbers = numbers or range(1, len(frames) + 1)
    return [(event, data, f"{1795299566000 + n}-0") for (event, data), n in zip(frames, all_numbers, strict=True)]


def call(**fields: Any) -> Invocation:
    fields.setdefault("messages", (Message.of("Hello", "user"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", **fields)


# The server


@dataclass
class Frames:
    """Response that is a stream."""

    frames: Sequence[Any]
    """Pairs of event and data, triples of event, data and id, or bytes."""
    cut: bool = False
    """True if the connection breaks after the frames."""
    stays_open: bool = False
    """True if the connection stays open after the frames."""
    located: bool = True
    """True if the header Content-Location names the run."""

    def bodies(self) -> list[bytes]:
        encoded: list[bytes] = []
        for each in self.frames:
            if isinstance(each, bytes):
                encoded.append(each)
            else:
                event, data, *rest = each
                encoded.append(frame(json.dumps(data).encode(), event=event, id=rest[0] if rest else None))
        return encoded


@dataclass
class Resumable:
    """Stream that can be resumed: it sends the frames whose number is greater than that in Last-Event-ID."""

    frames: Sequence[tuple[str, Any, str]]

    def after(self, last: str | None) -> Frames:
        if last is None:
            return Frames([])
        if last == "-1":
            return Frames(self.frames)
        return Frames([each for each in self.frames if int(each[2].partition("-")[0]) > int(last.partition("-")[0])])


@dataclass
class Far:
    """Scripted upstream server.

    It answers each call with the next answer that is set for it, and repeats the last one. In the names of calls, `T`
    is a thread id, and `R` a run id.
    """

    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict[str, list[tuple[int, Any]]])
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, call: str, *bodies: Any, status: int = 200) -> None:
        self.answers[call] = [(status, body) for body in bodies]

    def then(self, call: str, body: Any, status: int = 200) -> None:
        self.answers.setdefault(call, []).append((status, body))

    def calls(self) -> list[str]:
        return [call for call, _, _ in self.requests]

    def bodies(self, call: str) -> list[Any]:
        return [body for name, _, body in self.requests if name == call]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message.get("body", b"")
        path = _IDS.sub(lambda match: "R" if match[0] == RUN else "T", scope["path"])
        call = f"{scope['method']} {path}"
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((call, headers, json.loads(body) if body else None))
        if call.endswith("/cancel"):
            self.cancelled.set()
        answers = self.answers.get(call) or [(404, {"detail": "Not Found"})]
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Resumable):
            answer = answer.after(headers.get("last-event-id"))
        is_stream = isinstance(answer, Frames)
        response_headers = [(b"content-type", b"text/event-stream" if is_stream else b"application/json")]
        if is_stream and answer.located:
            response_headers.append((b"content-location", f"/threads/{THREAD}/runs/{RUN}".encode()))
        if status in (301, 307):
            response_headers.append((b"location", b"http://elsewhere/"))
        await send({"type": "http.response.start", "status": status, "headers": response_headers})
        if isinstance(answer, Frames):
            for raw in answer.bodies():
                await send({"type": "http.response.body", "body": raw, "more_body": True})
            if answer.stays_open:
                await receive()
                return
            if answer.cut:
                return
        else:
            raw = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
            await send({"type": "http.response.body", "body": raw, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
