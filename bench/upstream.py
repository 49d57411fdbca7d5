"""Echo agent on an ACP server and on an A2A server, as thin as Litestar allows: the servers behind the measured
gateway.

A2A is served in both generations. A stream sends each word of the text as an event. For the text `WAITS` it sends one
word, and stays open.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

from litestar import Litestar, Request, Response, get, post
from litestar.response import Stream
from pydantic_core import from_json, to_json

DELAY = float(os.environ.get("BENCH_DELAY", "0.005"))
"""Seconds between two tokens."""
WAITS = "wait"
"""Text after which an A2A stream stays idle."""
_waiting: dict[str, dict[str, str]] = {}
"""Ids of the tasks whose streams stay idle, by the id of the task."""
_AT = "2026-01-01T00:00:00Z"


@get("/agents")
async def agents() -> Response[bytes]:
    return Response(to_json({"agents": [{"name": "echo", "description": "Echo."}]}), media_type="application/json")


@post("/runs", status_code=200)
async def create(request: Request[Any, Any, Any]) -> Response[bytes]:
    request_body = from_json(await request.body())
    text = request_body["input"][-1]["parts"][0]["content"]
    message = {"role": "agent/echo", "parts": [{"content_type": "text/plain", "content": text}]}
    run = {"agent_name": "echo", "run_id": str(uuid4()), "session_id": str(uuid4()), "created_at": _AT, "output": []}
    done = {**run, "status": "completed", "output": [message], "finished_at": _AT}
    if request_body.get("mode") != "stream":
        return Response(to_json(done), media_type="application/json", headers={"Run-ID": run["run_id"]})
    if " " in text:
        return Stream(_tokens(run, text), media_type="text/event-stream", headers={"Run-ID": str(run["run_id"])})
    events = (
        {"type": "run.created", "run": {**run, "status": "created"}},
        {"type": "run.in-progress", "run": {**run, "status": "in-progress"}},
        {"type": "message.created", "message": {**message, "parts": []}},
        {"type": "message.part", "part": message["parts"][0]},
        {"type": "message.completed", "message": message},
        {"type": "run.completed", "run": done},
    )
    body = b"".join(b"data: " + to_json(event) + b"\n\n" for event in events)
    return Response(body, media_type="text/event-stream", headers={"Run-ID": run["run_id"]})


async def _tokens(run: dict[str, Any], text: str) -> AsyncGenerator[bytes]:
    """Yield the words, one event each, every few milliseconds, as a model does."""
    words: list[str] = []
    message: dict[str, Any] = {"role": "agent/echo", "parts": []}
    yield _frame({"type": "run.created", "run": {**run, "status": "created"}})
    yield _frame({"type": "run.in-progress", "run": {**run, "status": "in-progress"}})
    yield _frame({"type": "message.created", "message": message})
    for word in text.split(" "):
        await asyncio.sleep(DELAY)
        words.append(f" {word}")
        yield _frame({"type": "message.part", "part": {"content_type": "text/plain", "content": words[-1]}})
    message["parts"] = [{"content_type": "text/plain", "content": "".join(words)}]
    yield _frame({"type": "message.completed", "message": message})
    yield _frame({"type": "run.completed", "run": {**run, "status": "completed", "output": [message]}})


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + to_json(event) + b"\n\n"


@get(["/.well-known/agent-card.json", "/a2a/.well-known/agent-card.json"])
async def card(request: Request[Any, Any, Any]) -> Response[bytes]:
    url = f"{str(request.base_url).rstrip('/')}/a2a"
    agent_card = {
        "name": "echo",
        "description": "Echo.",
        "version": "1",
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "echo", "description": "Echo.", "tags": ["echo"]}],
    }
    return Response(to_json(agent_card), media_type="application/json")


@post("/a2a", status_code=200)
async def call(request: Request[Any, Any, Any]) -> Response[bytes]:
    request_body = from_json(await request.body())
    is_old = "/" in request_body["method"]
    if request_body["method"] in ("GetTask", "tasks/get"):  # the gateway looks after a silent stream
        task = _task(_waiting[request_body["params"]["id"]], "working", is_old=is_old)
        return Response(_answer(request_body["id"], task), media_type="application/json")
    message = request_body["params"]["message"]
    ids = {"taskId": str(uuid4()), "contextId": message.get("contextId") or str(uuid4())}
    text = message["parts"][0]["text"]
    if request_body["method"] in ("message/stream", "SendStreamingMessage"):
        return Stream(_updates(request_body["id"], ids, text, is_old=is_old), media_type="text/event-stream")
    task = _task(ids, "completed", is_old=is_old)
    task["artifacts"] = [{"artifactId": "said", "parts": [_text(text, is_old=is_old)]}]
    return Response(_answer(request_body["id"], task if is_old else {"task": task}), media_type="application/json")


def _answer(reply_id: Any, result: Any) -> bytes:
    return to_json({"jsonrpc": "2.0", "id": reply_id, "result": result})


def _text(text: str, *, is_old: bool) -> dict[str, str]:
    return {"kind": "text", "text": text} if is_old else {"text": text}


def _status(state: str, *, is_old: bool) -> dict[str, str]:
    return {"state": state if is_old else f"TASK_STATE_{state.upper()}", "timestamp": _AT}


def _task(ids: dict[str, str], state: str, *, is_old: bool) -> dict[str, Any]:
    kind = {"kind": "task"} if is_old else {}
    return {**kind, "id": ids["taskId"], "contextId": ids["contextId"], "status": _status(state, is_old=is_old)}


async def _updates(reply_id: Any, ids: dict[str, str], text: str, *, is_old: bool) -> AsyncGenerator[bytes]:
    def event(member: str, kind: str, **more: Any) -> bytes:
        update = {**ids, **more}
        result = {"kind": kind, **update} if is_old else {member: update}
        return b"data: " + _answer(reply_id, result) + b"\n\n"

    task = _task(ids, "working", is_old=is_old)
    yield b"data: " + _answer(reply_id, task if is_old else {"task": task}) + b"\n\n"
    for number, word in enumerate(["Well…"] if text == WAITS else text.split(" ")):
        if DELAY:
            await asyncio.sleep(DELAY)
        artifact = {"artifactId": "said", "parts": [_text(f" {word}" if number else word, is_old=is_old)]}
        yield event("artifactUpdate", "artifact-update", artifact=artifact, append=number > 0)
    if text == WAITS:
        _waiting[ids["taskId"]] = ids
        await asyncio.Event().wait()
    final = {"final": True} if is_old else {}
    yield event("statusUpdate", "status-update", status=_status("completed", is_old=is_old), **final)


app = Litestar([agents, create, card, call], openapi_config=None, logging_config=None)
