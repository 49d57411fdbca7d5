"""Scripted servers for tests that all clients share.

Each starts a run, sends its id, and then does what the test wants.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import uuid4

from babelgate.adapters.kit.server.sse import frame
from babelgate.canonical import Invocation, Message, RunInput

RUN: Final = "22222222-2222-4222-8222-222222222222"
_THREAD: Final = "11111111-1111-4111-8111-111111111111"
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Then = Literal["hold", "end", "end and hold", "break", "garbage"]
"""Continuation after the start of a stream: silence, its end, its end on a connection that stays open, the end of the
connection, or an invalid event."""


def _data(*values: Any) -> list[bytes]:
    return [frame(json.dumps(value).encode()) for value in values]


def _events(*events: tuple[str, Any]) -> list[bytes]:
    return [frame(json.dumps(data).encode(), event=event) for event, data in events]


def _rpc(*results: Any) -> list[bytes]:
    return _data(*({"jsonrpc": "2.0", "id": 1, "result": result} for result in results))


@dataclass(frozen=True, kw_only=True)
class Script:
    """Calls and answers of the server of one protocol. In the names of calls, `ID` replaces each id."""

    start: str
    """Call that starts the agent. An AIEF server answers it with a finished step, and not with a stream."""
    begin: Sequence[bytes] = ()
    end: Sequence[bytes] = ()
    garbage: bytes = b"data: [1, 2\n\n"
    cancel: str | None = None
    """Call that cancels a run; None if the server stops when its caller disconnects."""
    look: str | None = None
    """Call that reads a run whose stream broke; None if the protocol has no such call."""
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Answers to other calls; calls that are in none of the fields are answered with 404."""


_ACP_RUN: Final = {"agent_name": "far", "run_id": RUN, "session_id": _THREAD, "created_at": "2026-01-01T00:00:00Z"}
_ACP_MESSAGE: Final = {"role": "agent/far", "parts": [{"content_type": "text/plain", "content": "a"}]}
_A2A_TASK: Final = {"id": RUN, "contextId": _THREAD, "status": {"state": "TASK_STATE_WORKING"}}
_DONE: Final = {"taskId": RUN, "contextId": _THREAD, "status": {"state": "TASK_STATE_COMPLETED"}}
_RESPONSE: Final[dict[str, Any]] = {"id": RUN, "object": "response", "created_at": 1, "model": "far", "output": []}
_USAGE: Final = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE: Final[dict[str, Any]] = {
    **{"id": RUN, "type": "message", "role": "assistant", "model": "far", "content": []},
    **{"stop_reason": None, "usage": _USAGE},
}
_LANGGRAPH: Final[dict[str, Any]] = {
    "start": "POST /threads/ID/runs/stream",
    "begin": _events(("metadata", {"run_id": RUN, "attempt": 1}), ("values", {"messages": []})),
    "end": _events(("end", {"status": "success"})),
    "cancel": "POST /threads/ID/runs/ID/cancel",
    "look": "GET /threads/ID/runs/ID",
}

SCRIPTS: Final[Mapping[str, Script]] = {
    "acp": Script(
        start="POST /runs",
        begin=_data(
            {"type": "run.created", "run": {**_ACP_RUN, "status": "created", "output": []}},
            {"type": "message.created", "message": {**_ACP_MESSAGE, "parts": []}},
            {"type": "message.part", "part": _ACP_MESSAGE["parts"][0]},
        ),
        end=_data(
            {"type": "message.completed", "message": _ACP_MESSAGE},
            {"type": "run.completed", "run": {**_ACP_RUN, "status": "completed", "output": [_ACP_MESSAGE]}},
        ),
        cancel="POST /runs/ID/cancel",
        look="GET /runs/ID",
    ),
    "a2a": Script(
        start="SendStreamingMessage",
        begin=_rpc({"task": _A2A_TASK}),
        end=_rpc({"statusUpdate": _DONE}),
        cancel="CancelTask",
        look="GetTask",
    ),
    "langgraph": Script(**_LANGGRAPH, answers={"POST /assistants/search": []}),
    "agent-protocol": Script(**_LANGGRAPH, answers={"POST /threads": {"thread_id": _THREAD, "status": "idle"}}),
    "ag-ui": Script(
        start="POST /",
        begin=_data({"type": "RUN_STARTED", "threadId": _THREAD, "runId": RUN}),
        end=_data({"type": "RUN_FINISHED", "threadId": _THREAD, "runId": RUN}),
    ),
    "aief": Script(
        start="POST /ap/v1/agent/tasks/ID/steps",
        end=[
            json.dumps(
                {"task_id": RUN, "step_id": _THREAD, "status": "completed", "output": "a", "is_last": True}
            ).encode()
        ],
        garbage=b"[1, 2",
        answers={"POST /ap/v1/agent/tasks": {"task_id": RUN, "input": "hello", "artifacts": []}},
    ),
    "anthropic": Script(
        start="POST /v1/messages",
        begin=_events(
            ("message_start", {"type": "message_start", "message": _MESSAGE}),
            (
                "content_block_start",
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
            ),
        ),
        end=_events(
            ("content_block_stop", {"type": "content_block_stop", "index": 0}),
            ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": _USAGE}),
            ("message_stop", {"type": "message_stop"}),
        ),
    ),
    "openai": Script(
        start="POST /v1/responses",
        begin=_events(
            ("response.created", {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}})
        ),
        end=_events(
            ("response.completed", {"type": "response.completed", "response": {**_RESPONSE, "status": "completed"}})
        ),
    ),
}


@dataclass
class ScriptedServer:
    """ASGI app that follows a script."""

    script: Script
    then: Then
    fails: bool = False
    """True if all calls after the first start are answered with 503."""
    refusal: bytes = b""
    """Body of the response 400 to the start. If empty, the start succeeds."""
    calls: list[str] = field(default_factory=list[str])
    ports: list[int] = field(default_factory=list[int])
    """Port of the caller for each call of `start`: equal ports are one connection."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the start of the stream was sent."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a caller has disconnected."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        raw = b""
        while (message := await receive()).get("more_body"):
            raw += message["body"]
        raw += message.get("body", b"")
        body: dict[str, Any] = json.loads(raw) if raw.startswith(b"{") else {}
        call: str = body["method"] if "jsonrpc" in body else f"{scope['method']} {_ID.sub('ID', scope['path'])}"
        self.calls.append(call)
        if call == self.script.start and self.refusal:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": self.refusal})
            return
        if call == self.script.start and not (self.fails and self.begun.is_set()):
            self.ports.append(scope["client"][1])
            await self._stream(receive, send)
            return
        if call == self.script.cancel:
            self.cancelled.set()
        answer: Any = {} if call == self.script.cancel else self.script.answers.get(call)
        status = 503 if self.fails and self.begun.is_set() else 404 if answer is None else 200
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": json.dumps(answer or {}).encode()})

    async def _stream(self, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        kind = b"text/event-stream" if self.script.begin else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        pieces = [*self.script.begin]
        pieces += (
            self.script.end if self.then.startswith("end") else [self.script.garbage] if self.then == "garbage" else []
        )
        for each in pieces:
            await send({"type": "http.response.body", "body": each, "more_body": True})
        self.begun.set()
        if self.then.endswith("hold"):
            await receive()
            self.left.set()
        elif self.then != "break":  # a break is a return before the end of the body
            await send({"type": "http.response.body", "body": b""})


def call() -> Invocation:
    return Invocation(
        agent="far",
        thread_id=str(uuid4()),
        task_id=str(uuid4()),
        run_id=str(uuid4()),
        input=RunInput(messages=(Message.of("hello", "user"),)),
    )
