"""Program that runs one gateway after the other, for tests that kill them.

Each line of its input names the folder of the next gateway. A gateway is a fork of this process, which has imported
everything, so a restart takes 0.1 s. Each activation of an agent opens a connection to the test, which sends its words.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from babelgate.canonical import Ask, Invocation
from babelgate.gateway.cli import main

CONTROL: Final = "VICTIM_CONTROL"
"""Environment variable with the port on which the test listens."""
READY: Final = "ready"
"""Line that this program prints when it has imported everything."""


@asynccontextmanager
async def held(call: Invocation) -> AsyncGenerator[asyncio.StreamReader]:
    """Connect to the test, and yield its orders. Each line is a JSON string to send, or null for the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ[CONTROL]))
    try:
        hello = {"text": call.text, "attempt": call.attempt, "task_id": call.task_id}
        writer.write(json.dumps(hello).encode() + b"\n")
        yield reader
    finally:
        writer.close()


async def paced(call: Invocation) -> AsyncGenerator[str]:
    """Send each word that the test sends."""
    async with held(call) as orders:
        while line := await orders.readline():
            word = json.loads(line)
            if word is None:
                return
            yield word
        raise RuntimeError("The test has hung up")


async def stubborn(call: Invocation) -> AsyncGenerator[str]:
    """Ignore cancellation."""
    async with held(call) as orders:
        yield "On it."
        is_open = True
        while is_open:
            try:
                is_open = bool(await orders.readline())
            except asyncio.CancelledError:
                continue


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    name = yield Ask("What is your name?")
    yield f"Hello, {name}."


async def approve(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask two questions, one after the other."""
    yield "Two questions. "
    first = yield Ask("First?")
    second = yield Ask("Second?")
    yield f"{first} and {second}."


def serve() -> None:
    for module in ("babelgate.gateway.cli.serve", "babelgate.gateway.demo"):
        import_module(module)
    print(READY, flush=True)
    for line in sys.stdin:
        folder = Path(line.strip())
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(folder / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
            port = folder / "port"
            chosen = port.read_text() if port.exists() else "0"
            main(["serve", "--port", chosen, "--config", str(folder / "babelgate.yaml")])
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None}), flush=True)


if __name__ == "__main__":
    serve()
