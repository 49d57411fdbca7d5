"""Demo agents. Each shows one capability of agents in a few lines: copy the one that is like yours."""

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any, TypedDict

from babelgate.canonical import Artifact, Ask, Declined, Invocation, Step, ToolCall

__all__ = ("approve", "ask", "echo", "fail", "files", "json", "slow", "steps", "stream", "tools")


async def echo(text: str) -> str:
    """Return the caller's text."""
    return text


async def stream(text: str) -> AsyncGenerator[str]:
    """Return the caller's text, one token for each word."""
    # Without the lookbehind, the regex would try a match from each of many spaces.
    for word in re.findall(r"(?<!\s)\s*\S+(?:\s+$)?", text):
        yield word


async def ask(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask for a name, and greet."""
    name = yield Ask("What is your name?")
    yield f"Hello, {name}."


APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


async def approve(text: str) -> AsyncGenerator[list[Ask] | str, Any]:
    """Ask for two approvals at once."""
    try:
        answers = yield [
            Ask("May I write the file?", schema=APPROVAL, kind="approval", value={"action": "write"}),
            Ask("May I send the message?", schema=APPROVAL, kind="approval", value={"action": "send"}),
        ]
    except Declined as declined:
        answers = declined.answers
    for action, answer in zip(("write", "send"), answers, strict=True):
        approved = isinstance(answer, dict) and answer.get("approved") is True
        yield f"{action}: {'approved' if approved else 'not approved'}\n"


async def files(call: Invocation) -> AsyncGenerator[Artifact]:
    """Return each file of the input, and report.txt with the text."""
    for number, file in enumerate(call.files, start=1):
        yield Artifact(name=file.name or f"file-{number}", parts=(file,))
    yield Artifact.of("report.txt", call.text)


async def steps(text: str) -> AsyncGenerator[Step | str]:
    """Perform three steps: plan, work, review."""
    yield Step("plan", input=text)
    yield "Planned. "
    yield Step("work")
    yield "Worked. "
    yield Step("review")
    yield "Reviewed."


class WordCount(TypedDict):
    text: str
    words: int
    length: int


def json(text: str) -> WordCount:
    """Count the words and characters of a text, as JSON."""
    return {"text": text, "words": len(text.split()), "length": len(text)}


async def tools(text: str) -> AsyncGenerator[ToolCall | str]:
    """Count words with a tool that the agent calls itself."""
    words = len(text.split())
    yield ToolCall("word_count", {"text": text}, output=words)
    yield f"{words} words"


async def slow(text: str) -> AsyncGenerator[str]:
    """Send a token at once, wait for the first number of seconds in the text (5 without one), and end."""
    number = re.search(r"\d+(?:\.\d+)?", text)
    yield "Waiting."
    await asyncio.sleep(float(number[0]) if number else 5)


async def fail(text: str) -> AsyncGenerator[str]:
    """Send one token, then raise an error with the caller's text."""
    yield "Failing."
    raise RuntimeError(text)
