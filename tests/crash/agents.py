"""Agents of the campaign.

Their output is derived from their input, so that missing or repeated parts can be detected.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from random import Random
from typing import Any, Final

from babelgate.canonical import Artifact, Ask, FilePart, Invocation

NAME: Final = "Ada"
"""The answer to every question."""
PACE: Final = 0.004
"""Pause between words, in seconds, so that kills happen in the middle of an agent's output."""
SLOW: Final = "slow"
"""Mark in the text of runs whose agents take ten times as long."""


def words(text: str) -> list[str]:
    """Return numbered words that are derived from the text."""
    return [f"{text}/{number} " for number in range(Random(text).randrange(4, 25))]


def expected(agent: str, text: str, attempt: int = 1, *, answered: bool = True) -> str:
    """Return the whole output of an agent for the input `text`, in its start number `attempt`. If the agent asks,
    `answered` says whether the output after the answer is included."""
    if agent == "fickle":
        return "".join(words(f"{text}@{attempt}"))
    output = "".join(words(text))
    return f"{output}Hello, {NAME}. " if agent.endswith("ask") and answered else output


def file_of(text: str) -> tuple[str, bytes]:
    """Return the name and content of the file that `files` emits."""
    return f"{text}.txt", f"the file of {text}".encode()


async def _pause(text: str) -> None:
    await asyncio.sleep(PACE * 10 if SLOW in text else PACE)


async def plain(text: str) -> AsyncGenerator[str]:
    """Emit the words. This agent cannot be started again."""
    for word in words(text):
        yield word
        await _pause(text)


async def again(call: Invocation) -> AsyncGenerator[str]:
    """Emit the words. This agent can be started again, and then emits them in other pieces."""
    for piece in _cut("".join(words(call.text)), Random(f"{call.text} {call.attempt}")):
        yield piece
        await _pause(call.text)


async def fickle(call: Invocation) -> AsyncGenerator[str]:
    """Emit words that depend on the attempt. This agent can be started again."""
    for word in words(f"{call.text}@{call.attempt}"):
        yield word
        await _pause(call.text)


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Emit the words, ask for a name, and greet it."""
    for word in words(text):
        yield word
        await _pause(text)
    name = yield Ask("Name?")
    yield f"Hello, {name}. "


async def again_and_ask(call: Invocation) -> AsyncGenerator[Ask | str, Any]:
    """Emit the words, ask for a name, and greet it. This agent can be started again."""
    for piece in _cut("".join(words(call.text)), Random(f"{call.text} {call.attempt}")):
        yield piece
        await _pause(call.text)
    name = yield Ask("Name?")
    await _pause(call.text)
    yield f"Hello, {name}. "


async def files(text: str) -> AsyncGenerator[Artifact | str]:
    """Emit words and a file. This agent can be started again."""
    pieces = words(text)
    for word in pieces[:2]:
        yield word
        await _pause(text)
    name, content = file_of(text)
    yield Artifact(name=name, parts=(FilePart(name=name, media_type="text/plain", inline=content),))
    for word in pieces[2:]:
        yield word
        await _pause(text)


def _cut(text: str, random: Random) -> Iterator[str]:
    while text:
        length = random.randrange(1, 30)
        yield text[:length]
        text = text[length:]
