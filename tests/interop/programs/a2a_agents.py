"""Agents of both A2A servers. Each server passes them a `Turn` that emits events of its SDK.

This module runs in the environments of both SDKs, so it imports neither.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from serving import Gate


class Turn(Protocol):
    """One message of the caller, and the actions with which an agent may respond."""

    text: str
    files: list[Any]
    """The caller's file parts, as the SDK's own objects."""
    is_answer: bool
    """True if the message answers a question of its task."""

    async def reply(self, text: str) -> None:
        """Answer with one message and no task."""

    async def chunk(self, text: str, *, first: bool, last: bool) -> None:
        """Send a piece of the answer's text artifact. `first` and `last` say whether it is the first and the last
        piece."""

    async def give_file(self, part: Any) -> None:
        """Return one of the caller's file parts as an artifact."""

    async def make_file(self, name: str, content: bytes) -> None: ...

    async def make_data(self, value: Any) -> None: ...

    async def progress(self, text: str) -> None: ...

    async def ask(self, question: str) -> None: ...

    async def ask_auth(self, question: str) -> None: ...

    async def complete(self) -> None: ...

    async def fail(self, text: str) -> None: ...

    async def reject(self, text: str) -> None: ...


async def echo(turn: Turn, gate: Gate) -> None:
    await turn.chunk(turn.text, first=True, last=True)
    await turn.complete()


async def message(turn: Turn, gate: Gate) -> None:
    await turn.reply(turn.text)


async def stream(turn: Turn, gate: Gate) -> None:
    """Send one chunk for each word. Each one after the first waits for a release."""
    words = turn.text.split()
    for index, word in enumerate(words):
        if index:
            await gate.wait()
        last = index == len(words) - 1
        await turn.chunk(word if index == 0 else f" {word}", first=index == 0, last=last)
    await turn.complete()


async def ask(turn: Turn, gate: Gate) -> None:
    if not turn.is_answer:
        await turn.ask("What is your name?")
        return
    await turn.chunk(f"Hello, {turn.text}.", first=True, last=True)
    await turn.complete()


async def auth(turn: Turn, gate: Gate) -> None:
    if not turn.is_answer:
        await turn.ask_auth("Sign in, please.")
        return
    await turn.chunk("Signed in.", first=True, last=True)
    await turn.complete()


async def files(turn: Turn, gate: Gate) -> None:
    """Return each file of the caller, and a report.txt with the text."""
    for part in turn.files:
        await turn.give_file(part)
    await turn.make_file("report.txt", turn.text.encode())
    await turn.complete()


async def data(turn: Turn, gate: Gate) -> None:
    words = turn.text.split()
    await turn.make_data({"text": turn.text, "words": len(words)})
    await turn.complete()


async def steps(turn: Turn, gate: Gate) -> None:
    await turn.progress("Planning.")
    await turn.progress("Working.")
    await turn.chunk(turn.text, first=True, last=True)
    await turn.complete()


async def fail(turn: Turn, gate: Gate) -> None:
    await turn.chunk("Before the fault.", first=True, last=True)
    await turn.fail(turn.text)


async def reject(turn: Turn, gate: Gate) -> None:
    await turn.reject(turn.text)


async def slow(turn: Turn, gate: Gate) -> None:
    """Send a first token, then wait for a release or a cancel."""
    await turn.chunk("first", first=True, last=False)
    await gate.wait()
    await turn.chunk(" last", first=False, last=True)
    await turn.complete()


AGENTS: dict[str, Callable[[Turn, Gate], Awaitable[None]]] = {
    "echo": echo,
    "message": message,
    "stream": stream,
    "ask": ask,
    "auth": auth,
    "files": files,
    "data": data,
    "steps": steps,
    "fail": fail,
    "reject": reject,
    "slow": slow,
}
