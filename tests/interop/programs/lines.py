"""What a client program and the test that started it say to each other: JSON lines, calls in, results and events out.

In:  {"id": 1, "call": "run_stream", "args": {…}}, and {"abort": 1} to stop listening to it.
Out: {"ready": …} once, then {"id": 1, "event": …} as each one comes, and at the end of a call {"id": 1, "done": true},
     with "result" beside it if it gave one, or {"id": 1, "error": {"type", "message", "data"}}.

Runs in the environment of an SDK, so it may import the standard library only.
"""

import asyncio
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

Call = Callable[..., Awaitable[Any] | AsyncIterator[Any]]
"""A coroutine function gives one result, an async generator function its events."""

MAX_LINE = 256 * 1024 * 1024

# The SDKs may print what they like: it goes to stderr, and only our lines go to the real stdout.
_out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def options() -> dict[str, Any]:
    """What the test started this program with: one JSON object as its argument."""
    return json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def say(line: Mapping[str, Any]) -> None:
    _out.write(json.dumps(line, separators=(",", ":")) + "\n")
    _out.flush()


async def heard() -> AsyncIterator[str]:
    """The lines of stdin; it ends when the test closes it or is gone."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode()


async def answer_calls(calls: Mapping[str, Call], fault_data: Callable[[Exception], Any]) -> None:
    """Answer every call at once, so that a test can cancel a run that it is still streaming."""
    running: dict[int, asyncio.Task[None]] = {}
    say({"ready": True})
    async with asyncio.TaskGroup() as group:
        async for line in heard():
            asked = json.loads(line)
            if "abort" in asked:
                if task := running.get(asked["abort"]):
                    task.cancel()
                continue
            number = asked["id"]
            task = group.create_task(_answer(number, calls[asked["call"]], asked.get("args", {}), fault_data))
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
        said = {"type": type(error).__name__, "message": str(error), "data": fault_data(error)}
        say({"id": number, "error": said})
