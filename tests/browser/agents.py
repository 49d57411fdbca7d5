"""Agents of the gateways that the browser opens."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

from babelgate.canonical import Artifact, Ask, Declined, FilePart, Invocation, Message, Step, TextPart, ToolCall
from babelgate.canonical.author import UseTool

QUESTIONS: Final[dict[str, Ask]] = {
    "text": Ask("What is your name?"),
    "approval": Ask(
        "May I send it?",
        kind="approval",
        schema={
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "note": {"type": "string", "maxLength": 20}},
            "required": ["approved"],
        },
        value={"to": "alice@example.com"},
    ),
    "choice": Ask("Which color?", schema={"type": "string", "enum": ["red", "green", "blue"]}),
    "number": Ask("How many?", schema={"type": "integer", "minimum": 1, "maximum": 9}),
    "object": Ask(
        "Where to?",
        schema={
            "type": "object",
            "title": "Address",
            "properties": {
                "street": {"type": "string", "title": "Street"},
                "country": {
                    "title": "Country",
                    "oneOf": [{"const": "de", "title": "Germany"}, {"const": "fr", "title": "France"}],
                },
                "lines": {"type": "array", "title": "Lines", "items": {"type": "string", "title": "Line"}},
            },
            "required": ["street", "country"],
        },
    ),
    "json": Ask("Anything?", schema={"type": "object", "patternProperties": {"^x-": {"type": "number"}}}),
}
"""A question of each kind, by the input that asks for it."""

MARKUP: Final = """<script>document.title = "executed"</script>
<img src="http://tracker.invalid/html.png" onerror="document.title='executed'">
![image](http://tracker.invalid/markdown.png) [script](javascript:document.title='executed')
[data](data:text/html,<script>document.title='executed'</script>) <iframe src="http://tracker.invalid/frame"></iframe>
<style>body { background: url(http://tracker.invalid/style.png) }</style> [link](http://tracker.invalid/page "title")
<svg onload="document.title='executed'"></svg> <a href="javascript:document.title='executed'">click</a>
"""
"""Markup that a page must show as text, or as a link that the reader follows."""
BAD_NAME: Final = "<img src=x onerror=\"document.title='executed'\">.html"
DEEP: Final = ">" * 3000 + " deep"
LARGE: Final = 8_000_000
"""Size of a large JSON value, in bytes."""


async def question(text: str) -> AsyncGenerator[Ask | str, Any]:
    """Ask the question that the input names, and return the answer as JSON."""
    try:
        answer = yield QUESTIONS[text]
    except Declined:
        answer = "declined"
    yield f"Answer: {json.dumps(answer, sort_keys=True)}"


async def tool(text: str) -> AsyncGenerator[UseTool | str, Any]:
    """Call a tool of the caller, and return its result."""
    result = yield UseTool("weather", {"city": text})
    yield f"It is {result}."


async def halting(text: str) -> AsyncGenerator[str]:
    """Send the words `w0` to `w39`. After half of them, wait until the file that the input names exists."""
    for number in range(40):
        if number == 20:
            while not Path(text).exists():  # noqa: ASYNC110, ASYNC240 - the file outlives a gateway that is killed
                await asyncio.sleep(0.01)
        yield f"w{number} "


async def tokens(text: str) -> AsyncGenerator[str]:
    """Send as many tokens as the input says."""
    for number in range(int(text)):
        yield f"t{number} "
        if number % 500 == 0:
            await asyncio.sleep(0)


async def work(text: str) -> AsyncGenerator[Step | ToolCall | Artifact | str]:
    """Do some of everything: a step, a tool, a message, a file."""
    yield Step("plan", input=text)
    yield ToolCall("word_count", {"text": text}, output=len(text.split()))
    yield f"# Result\n\nThe text has **{len(text.split())}** words:\n\n- {text}\n"
    yield Artifact.of("report.txt", text)


async def trip(text: str) -> AsyncGenerator[Step | ToolCall | Ask | Artifact | str, Any]:
    """Find a train, ask for an approval, and book it. Screenshots show this agent."""
    yield Step("plan", input=text)
    yield ToolCall("find_trains", {"to": "Paris", "day": "Friday"}, output=["9:12", "13:40"])
    for words in ("The first train ", "leaves at **9:12** ", "and arrives ", "at **12:27**."):
        yield words
        await asyncio.sleep(0.05)
    answer = yield Ask("May I book it?", kind="approval", schema=QUESTIONS["approval"].schema, value={"price": 49})
    yield Step("book")
    await asyncio.sleep(0.2)
    yield ToolCall("book_train", {"train": "9:12", "note": answer["note"]}, output={"seat": "14A", "class": 2})
    for words in ("Your seat ", "is **14A**, ", "at the window. ", "The ticket ", "is attached."):
        yield words
        await asyncio.sleep(0.05)
    yield Artifact.of("ticket.txt", "Paris, Friday 9:12, seat 14A")


async def hostile(call: Invocation) -> AsyncGenerator[Artifact | Message | Step | ToolCall | Ask | str, Any]:
    """Return what would execute, load or confuse if a page interpreted it."""
    yield Step(BAD_NAME, input={MARKUP: MARKUP})
    yield ToolCall(BAD_NAME, {"html": MARKUP}, output=MARKUP)
    yield MARKUP
    yield DEEP
    yield Artifact(
        name=BAD_NAME,
        description=MARKUP,
        parts=(FilePart(name=BAD_NAME, media_type="text/html", inline=MARKUP.encode()),),
    )
    yield Message(parts=(TextPart(text="\u202eevil\u0000\u001b[31m\ud7ff \u2028 line"),))
    yield Ask(MARKUP, schema={"type": "object", "title": MARKUP, "properties": {BAD_NAME: {"description": MARKUP}}})


def large(text: str) -> dict[str, Any]:
    """Return eight megabytes of JSON."""
    return {"items": ["x" * 80] * (LARGE // 83)}
