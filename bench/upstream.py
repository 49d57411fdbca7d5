"""An echo agent on an ACP server, as thin as Litestar lets it be: what the gateway is put in front of."""

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
_AT = "2026-01-01T00:00:00Z"


@get("/agents")
async def agents() -> Response[bytes]:
    return Response(to_json({"agents": [{"name": "echo", "description": "Echo."}]}), media_type="application/json")


@post("/runs", status_code=200)
async def create(request: Request[Any, Any, Any]) -> Response[bytes]:
    asked = from_json(await request.body())
    text = asked["input"][-1]["parts"][0]["content"]
    message = {"role": "agent/echo", "parts": [{"content_type": "text/plain", "content": text}]}
    run = {"agent_name": "echo", "run_id": str(uuid4()), "session_id": str(uuid4()), "created_at": _AT, "output": []}
    done = {**run, "status": "completed", "output": [message], "finished_at": _AT}
    if asked.get("mode") != "stream":
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
    """The words, one event each, every few milliseconds, as a model says them."""
    said: list[str] = []
    message: dict[str, Any] = {"role": "agent/echo", "parts": []}
    yield _frame({"type": "run.created", "run": {**run, "status": "created"}})
    yield _frame({"type": "run.in-progress", "run": {**run, "status": "in-progress"}})
    yield _frame({"type": "message.created", "message": message})
    for word in text.split(" "):
        await asyncio.sleep(DELAY)
        said.append(f" {word}")
        yield _frame({"type": "message.part", "part": {"content_type": "text/plain", "content": said[-1]}})
    message["parts"] = [{"content_type": "text/plain", "content": "".join(said)}]
    yield _frame({"type": "message.completed", "message": message})
    yield _frame({"type": "run.completed", "run": {**run, "status": "completed", "output": [message]}})


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + to_json(event) + b"\n\n"


app = Litestar([agents, create], openapi_config=None, logging_config=None)
