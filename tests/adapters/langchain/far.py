"""Another server, which says what the test tells it to, and the words that LangGraph's own server says."""

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


# Words


def human(text: str) -> dict[str, Any]:
    return {"type": "human", "content": text, "id": f"h-{text}"}


def ai(text: str, message_id: str = "m1", **more: Any) -> dict[str, Any]:
    return {"type": "ai", "content": text, "id": message_id, "tool_calls": [], **more}


def chunk(text: Any, message_id: str = "m1", *, node: str = "model", **more: Any) -> tuple[str, Any]:
    made = {"content": text, "type": "AIMessageChunk", "id": message_id, "chunk_position": None, **more}
    return "messages", [made, {"langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:t1"}]


def checkpoint(
    values: Any, checkpoint_id: str = CHECKPOINT, *, parent: str | None = None, next: Sequence[str] = (), **more: Any
) -> tuple[str, Any]:
    config = {"configurable": {"checkpoint_id": checkpoint_id, "checkpoint_ns": ""}}
    above = None if parent is None else {"configurable": {"checkpoint_id": parent}}
    about = {"source": "loop", "step": 1, **more}
    return "checkpoints", {
        "config": config,
        "parent_config": above,
        "values": values,
        "metadata": about,
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
"""A run that says three words, of a server without checkpoints."""


def numbered(frames: Sequence[tuple[str, Any]], *numbers: int) -> "list[tuple[str, Any, str]]":
    """With ids of LangGraph's form, one for each event; `numbers` = those of each, where they repeat."""
    given = numbers or range(1, len(frames) + 1)
    return [(event, data, f"{1795299566000 + n}-0") for (event, data), n in zip(frames, given, strict=True)]


def call(**given: Any) -> Invocation:
    given.setdefault("messages", (Message.of("Hello", "user"),))
    return make(Invocation, agent="near", thread_id="t", task_id="k", run_id="x", **given)


# The server


@dataclass
class Frames:
    """The answer of a stream."""

    frames: Sequence[Any]
    """(event, data), with an id perhaps; or bytes."""
    cut: bool = False
    """The connection breaks after them."""
    holds: bool = False
    """It stays open after them."""
    located: bool = True
    """Content-Location names the run."""

    def bodies(self) -> list[bytes]:
        made: list[bytes] = []
        for each in self.frames:
            if isinstance(each, bytes):
                made.append(each)
            else:
                event, data, *rest = each
                made.append(frame(json.dumps(data).encode(), event=event, id=rest[0] if rest else None))
        return made


@dataclass
class Kept:
    """A stream that is read again: what is strictly later than Last-Event-ID, in the order of the numbers in the
    ids."""

    frames: Sequence[tuple[str, Any, str]]

    def after(self, last: str | None) -> Frames:
        if last is None:
            return Frames([])
        if last == "-1":
            return Frames(self.frames)
        return Frames([each for each in self.frames if int(each[2].partition("-")[0]) > int(last.partition("-")[0])])


@dataclass
class Far:
    """It answers each call with the next answer that is set for it, and the last one for ever. In calls, ids of threads
    and runs are T and R."""

    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict[str, list[tuple[int, Any]]])
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, call: str, *bodies: Any, status: int = 200) -> None:
        self.answers[call] = [(status, body) for body in bodies]

    def then(self, call: str, body: Any, status: int = 200) -> None:
        self.answers.setdefault(call, []).append((status, body))

    def calls(self) -> list[str]:
        return [call for call, _, _ in self.asked]

    def bodies(self, call: str) -> list[Any]:
        return [body for asked, _, body in self.asked if asked == call]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message.get("body", b"")
        path = _IDS.sub(lambda match: "R" if match[0] == RUN else "T", scope["path"])
        call = f"{scope['method']} {path}"
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.asked.append((call, headers, json.loads(body) if body else None))
        if call.endswith("/cancel"):
            self.cancelled.set()
        answers = self.answers.get(call) or [(404, {"detail": "Not Found"})]
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Kept):
            answer = answer.after(headers.get("last-event-id"))
        streams = isinstance(answer, Frames)
        sent = [(b"content-type", b"text/event-stream" if streams else b"application/json")]
        if streams and answer.located:
            sent.append((b"content-location", f"/threads/{THREAD}/runs/{RUN}".encode()))
        if status in (301, 307):
            sent.append((b"location", b"http://elsewhere/"))
        await send({"type": "http.response.start", "status": status, "headers": sent})
        if isinstance(answer, Frames):
            for raw in answer.bodies():
                await send({"type": "http.response.body", "body": raw, "more_body": True})
            if answer.holds:
                await receive()
                return
            if answer.cut:
                return
        else:
            raw = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
            await send({"type": "http.response.body", "body": raw, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
