"""Agents for the tests of processes. The gateway imports this module in another process."""

import os
import signal
import threading
from collections.abc import AsyncGenerator
from typing import Any

from babelgate import Ask
from babelgate.canonical import FaultCode, FaultError


async def process_id(text: str) -> str:
    """Return the id of the process."""
    return str(os.getpid())


async def crash(text: str) -> AsyncGenerator[str]:
    """Stream a word, then end the process as the text says."""
    yield "begun "
    if text == "exit":
        os._exit(3)
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    yield str(os.getpid())


async def block(text: str) -> str:
    """Block the event loop until the process is killed."""
    if text == "block":
        threading.Event().wait()
    return str(os.getpid())


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for a name, and crash instead of continuing if the answer says so."""
    yield "Who? "
    name = yield Ask("What is your name?")
    yield f"Hello, {name}, from {os.getpid()}."


async def allocate(text: str) -> str:
    """Allocate 4 GiB if there is any text."""
    return str(len(bytearray(2**32 if text else 0)))


async def refuse(text: str) -> str:
    """Refuse every input."""
    raise FaultError(FaultCode.INVALID, "expected another text", field="text")
