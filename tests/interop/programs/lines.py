"""JSON lines between a client program and the test that started it: calls in, results and events out.

In:  {"id": 1, "call": "run_stream", "args": {…}}, and {"abort": 1} to cancel that call.
Out: {"ready": …} once, then {"id": 1, "event": …} for each event. A call ends with {"id": 1, "done": true}, which has a
     "result" if the call returned one, or with {"id": 1, "error": {"type", "message", "data"}}.

This module runs in the environment of an SDK, so it imports only the standard library.
"""

import asyncio
import inspect
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

Call = Callable[..., Awaitable[Any] | AsyncIterator[Any]]
"""A coroutine function for a call with one result, or an async generator function for a call with events."""

MAX_LINE = 256 * 1024 * 1024

# Output that an SDK prints goes to stderr. Only the JSON lines go to the real stdout.
_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def options() -> dict[str, Any]:
    """Return the options with which the test started this program: one JSON object as its argument."""
    return json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def verification() -> "ssl.SSLContext | bool":
    """Return what HTTPX gets as `verify`: the CA in the option `ca`, or else True."""
    path = options().get("ca")
    return True if path is None else ssl.create_default_context(cafile=path)


def say(line: Mapping[str, Any]) -> None:
    _out.write(json.dumps(line, separators=(",", ":")) + "\n")
    _out.flush()


async def input_lines() -> AsyncIterator[str]:
    """Yield the lines of stdin until the test closes it or ends."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode()


async def answer_calls(calls: Mapping[str, Call], fault_data: Callable[[Exception], Any]) -> None:
    """Answer calls concurrently, so that a test can cancel a run while it streams the run."""
    running: dict[int, asyncio.Task[None]] = {}
    say({"ready": True})
    async with asyncio.TaskGroup() as group:
        async for line in input_lines():
            request = json.loads(line)
            if "abort" in request:
                if task := running.get(request["abort"]):
                    task.cancel()
                continue
            number = request["id"]
            task = group.create_task(_answer(number, calls[request["call"]], request.get("args", {}), fault_data))
            running[number] = task
            task.add_done_callback(lambda _, number=number: running.pop(number))
        for task in running.values():
            task.cancel()


async def _answer(number: int, call: Call, args: dict[str, Any], fault_data: Callable[[Exception], Any]) -> None:
    try:
        if inspect.isasyncgenfunction(call):
            async with aclosing(call(**args)) as events:
                async for event in events:
                    say({"id": number, "event": event})
            say({"id": number, "done": True})
        else:
            say({"id": number, "done": True, "result": await call(**args)})
    except Exception as error:
        fault = {"type": type(error).__name__, "message": str(error), "data": fault_data(error)}
        say({"id": number, "error": fault})
