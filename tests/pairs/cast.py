"""Agents of the pair suite, one for each thing that a run can do.

Where the programs of the official SDKs (`tests/interop/programs`) have such an agent too, both have the same output.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from babelgate.canonical import (
    AnnotationPart,
    Artifact,
    Ask,
    DataPart,
    Feature,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
    UseTool,
)
from babelgate.canonical.event import ArtifactAdded, Custom, RunEnded, StepEnded, StepStarted

APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
VARIED = {
    Feature.FILE_URL: ("far-away",),
    Feature.REFUSAL: ("cannot-say-that",),
    Feature.STEP: ("step-by-step",),
    Feature.ARTIFACT_APPEND: ("first-piece", "last-piece"),
    Feature.USAGE: ("11037",),
}
"""Words of each feature in the output of the agent `varied`, which contains no others of that feature."""
VARIED_VALUES = {
    Feature.FILE_URL: [("https://example.com/far-away.html", "text/html")],
    Feature.REFUSAL: ["cannot-say-that"],
    Feature.STEP: ["step-by-step"],
    Feature.ARTIFACT_APPEND: ["first-piece ", "last-piece"],
    Feature.USAGE: [(11037, 2, 11039)],
}
"""Exact values of each feature in that output, if it arrives without loss (`tests/pairs/values.py`)."""
STEP = "step"
"""Prefix of the names of steps, which some protocols show like thoughts.

The one step of an agent without steps has the agent's name.
"""


class Cast:
    """Agents of the suite. Some of them wait until the test lets them continue, and some record what the test cannot
    see from outside."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.gate = asyncio.Semaphore(0)
        """Semaphore for which agents wait in the middle of their answers. Each `release` by the test lets one of them
        continue."""
        self.started = asyncio.Event()
        """Set when the agent `slow` has started."""
        self.closed = asyncio.Event()
        """Set when the `finally` of a cancelled agent has run."""

    def agents(self) -> dict[str, Callable[..., Any]]:
        named = (self.echo, self.stream, self.ask, self.files, self.fail, self.slow, self.history, self.metadata)
        more = (self.approve, self.data, self.count, self.progress, self.login, self.recall, self.varied)
        inputs = (self.noted, self.outside)
        return {agent.__name__: agent for agent in (*named, *more, *inputs)}

    async def echo(self, text: str) -> str:
        """Return the caller's text."""
        return text

    async def stream(self, text: str) -> AsyncGenerator[str]:
        """Yield one token for each word. Before each but the first, wait for `gate`."""
        for index, word in enumerate(text.split()):
            if index:
                await self.gate.acquire()
            yield word if index == 0 else f" {word}"

    async def ask(self, text: str) -> AsyncGenerator[Ask | str, Any]:
        """Ask for a name, then greet it."""
        answer = yield Ask("What is your name?")
        yield f"Hello, {answer}."

    async def login(self, text: str) -> AsyncGenerator[Ask | str, Any]:
        """Ask for credentials."""
        answer = yield Ask("Who are you?", kind="auth")
        yield f"In as {answer}."

    async def approve(self, text: str) -> AsyncGenerator[list[Ask] | str, Any]:
        """Ask for a name and an approval at once."""
        yield "Two questions. "
        name, approval = yield [Ask("What is your name?"), Ask("May I write?", schema=APPROVAL, kind="approval")]
        yield f"{name} said {'yes' if approval['approved'] else 'no'}."

    async def files(self, call: Invocation) -> AsyncGenerator[Artifact]:
        """Return each file, and a report.txt that holds the text."""
        for file in call.files:
            yield Artifact(name=file.name, parts=(file,))
        yield Artifact.of("report.txt", call.text)

    async def data(self, call: Invocation) -> AsyncGenerator[Part | str]:
        """Return the data of the message or, if it has none, of the input."""
        values = [part.data for message in call.messages for part in message.parts if isinstance(part, DataPart)]
        for value in values or [call.data]:
            yield DataPart(data={"given": value})

    def count(self, text: str) -> dict[str, Any]:
        """Count words. The answer is data."""
        return {"text": text, "words": len(text.split())}

    async def fail(self, text: str) -> AsyncGenerator[str]:
        """Yield one token, then raise an error with the caller's text."""
        yield "Before the fault."
        raise RuntimeError(text)

    async def slow(self, text: str) -> AsyncGenerator[str]:
        """Yield a first token, then wait until the test releases `gate` or cancels the run."""
        try:
            self.started.set()
            yield "first"
            await self.gate.acquire()
            yield " last"
        finally:
            self.closed.set()

    async def history(self, call: Invocation) -> str:
        """Return the number of earlier messages, and the caller's text."""
        return f"{len(call.history)} before: {call.text}"

    async def recall(self, call: Invocation) -> str:
        """Return all messages of the conversation."""
        return " ".join(message.text for message in (*call.history, *call.messages))

    async def progress(self, text: str) -> AsyncGenerator[Message | str]:
        """Report progress before the answer."""
        yield Message.of("Half way.", phase="progress")
        yield "Done."

    async def varied(self, text: str) -> AsyncGenerator[Any]:
        """Emit each value of `VARIED`."""
        yield StepStarted(step_id="s", name="step-by-step", node="step-by-step")
        yield StepEnded(step_id="s", name="step-by-step", node="step-by-step")
        yield ArtifactAdded(artifact_id="a", name="pieces.txt", part=TextPart(text="first-piece "), last=False)
        yield ArtifactAdded(artifact_id="a", name="pieces.txt", part=TextPart(text="last-piece"), append=True)
        page = FilePart(name="page.html", media_type="text/html", url="https://example.com/far-away.html")
        yield Message(parts=(TextPart(text="Content."), page))
        yield Message(parts=(RefusalPart(text="cannot-say-that"),))
        yield RunEnded(usage={"input_tokens": 11037, "output_tokens": 2, "total_tokens": 11039})

    async def noted(self, call: Invocation) -> str:
        """Return the value of `ticket` in the caller's metadata."""
        return str(call.metadata.get("ticket", "nothing"))

    async def outside(self, call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
        """Let the caller execute a tool, and return the names of the offered ones."""
        result = yield UseTool("weather", {"city": "Paris"})
        yield f"{[tool.name for tool in call.tools]}: {result}"

    async def metadata(self, text: str) -> AsyncGenerator[Any]:
        """Emit a thought, a tool call, a cited sentence, and a custom event."""
        yield Custom(value={"progress": 0.5})
        yield ReasoningPart(text="Thinking about it.")
        yield ToolCall("word_count", {"text": text}, output={"words": 2})
        cited = AnnotationPart(url="https://example.com/source", title="A source", start=0, end=8)
        yield Message(parts=(TextPart(text="As cited."), cited))
