"""The agents of the campaign. What each says follows from its input, so that everybody can tell what is missing, or is
there twice."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from random import Random
from typing import Any, Final

from babelgate.canonical import Artifact, Ask, FilePart, Invocation

NAME: Final = "Ada"
"""The answer to every question."""
PACE: Final = 0.004
"""Seconds from word to word: kills are to find agents in the middle of what they say."""
SLOW: Final = "slow"
"""What stands in the text of runs whose agents take ten times as long."""


def words(text: str) -> list[str]:
    """Some, each with its number."""
    return [f"{text}/{number} " for number in range(Random(text).randrange(4, 25))]


def expected(agent: str, text: str, attempt: int = 1, *, answered: bool = True) -> str:
    """All that it says. `attempt` = which of its starts said so, `answered` = it has had its answer."""
    if agent == "fickle":
        return "".join(words(f"{text}@{attempt}"))
    said = "".join(words(text))
    return f"{said}Hello, {NAME}. " if agent.endswith("ask") and answered else said


def file_of(text: str) -> tuple[str, bytes]:
    """Name and content of what `files` puts out."""
    return f"{text}.txt", f"the file of {text}".encode()


async def _pause(text: str) -> None:
    await asyncio.sleep(PACE * 10 if SLOW in text else PACE)


async def plain(text: str) -> AsyncGenerator[str]:
    """May not be started again."""
    for word in words(text):
        yield word
        await _pause(text)


async def again(call: Invocation) -> AsyncGenerator[str]:
    """May be started again, and says the same in other pieces then."""
    for piece in _cut("".join(words(call.text)), Random(f"{call.text} {call.attempt}")):
        yield piece
        await _pause(call.text)


async def fickle(call: Invocation) -> AsyncGenerator[str]:
    """May be started again, and says something else then."""
    for word in words(f"{call.text}@{call.attempt}"):
        yield word
        await _pause(call.text)


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Says everything but its greeting before it asks."""
    for word in words(text):
        yield word
        await _pause(text)
    name = yield Ask("Name?")
    yield f"Hello, {name}. "


async def again_and_ask(call: Invocation) -> AsyncGenerator[Ask | str, Any]:
    """The same, and may be started again."""
    for piece in _cut("".join(words(call.text)), Random(f"{call.text} {call.attempt}")):
        yield piece
        await _pause(call.text)
    name = yield Ask("Name?")
    await _pause(call.text)
    yield f"Hello, {name}. "


async def files(text: str) -> AsyncGenerator[Artifact | str]:
    """Puts out a file, and may be started again."""
    said = words(text)
    for word in said[:2]:
        yield word
        await _pause(text)
    name, content = file_of(text)
    yield Artifact(name=name, parts=(FilePart(name=name, media_type="text/plain", inline=content),))
    for word in said[2:]:
        yield word
        await _pause(text)


def _cut(text: str, random: Random) -> Iterator[str]:
    while text:
        length = random.randrange(1, 30)
        yield text[:length]
        text = text[length:]
