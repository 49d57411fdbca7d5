"""The agents, one for each thing that a run can do. Where the official SDKs' programs have such an agent too
(`tests/interop/programs`), this one says the same words."""

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
"""By feature, words of what the agent `varied` says, which has nothing else of it."""
WHOLE = {
    Feature.FILE_URL: [("https://example.com/far-away.html", "text/html")],
    Feature.REFUSAL: ["cannot-say-that"],
    Feature.STEP: ["step-by-step"],
    Feature.ARTIFACT_APPEND: ["first-piece ", "last-piece"],
    Feature.USAGE: [(11037, 2, 11039)],
}
"""The same, as values: what arrives whole arrives as that (`tests/pairs/values.py`), and nothing else of its kind."""
STEP = "step"
"""Begins the names of steps, which some protocols tell where others tell thoughts. The one step of an agent that has
none itself is called like the agent."""


class Cast:
    """Agents that wait for their test, and tell it what it cannot see from outside."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.gate = asyncio.Semaphore(0)
        """Whoever waits in the middle of an answer goes on with one pass."""
        self.closed = asyncio.Event()
        """The `finally` of an agent that was cancelled has run."""

    def agents(self) -> dict[str, Callable[..., Any]]:
        named = (self.echo, self.stream, self.ask, self.files, self.fail, self.slow, self.history, self.metadata)
        more = (self.approve, self.data, self.count, self.progress, self.login, self.recall, self.varied)
        given = (self.noted, self.outside)
        return {agent.__name__: agent for agent in (*named, *more, *given)}

    async def echo(self, text: str) -> str:
        """Gives the caller's text back."""
        return text

    async def stream(self, text: str) -> AsyncGenerator[str]:
        """One token for each word; from the second on, each waits for its test."""
        for index, word in enumerate(text.split()):
            if index:
                await self.gate.acquire()
            yield word if index == 0 else f" {word}"

    async def ask(self, text: str) -> AsyncGenerator[Ask | str, Any]:
        """Asks for a name, then greets it."""
        answer = yield Ask("What is your name?")
        yield f"Hello, {answer}."

    async def login(self, text: str) -> AsyncGenerator[Ask | str, Any]:
        """Asks to be let in."""
        answer = yield Ask("Who are you?", kind="auth")
        yield f"In as {answer}."

    async def approve(self, text: str) -> AsyncGenerator[list[Ask] | str, Any]:
        """Asks for a name and an approval at once."""
        yield "Two questions. "
        name, approval = yield [Ask("What is your name?"), Ask("May I write?", schema=APPROVAL, kind="approval")]
        yield f"{name} said {'yes' if approval['approved'] else 'no'}."

    async def files(self, call: Invocation) -> AsyncGenerator[Artifact]:
        """Gives each file back, and a report.txt that holds the text."""
        for file in call.files:
            yield Artifact(name=file.name, parts=(file,))
        yield Artifact.of("report.txt", call.text)

    async def data(self, call: Invocation) -> AsyncGenerator[Part | str]:
        """Gives data back, whether it was said or came beside what was said."""
        said = [part.data for message in call.messages for part in message.parts if isinstance(part, DataPart)]
        for given in said or [call.data]:
            yield DataPart(data={"given": given})

    def count(self, text: str) -> dict[str, Any]:
        """Counts words: its answer is data."""
        return {"text": text, "words": len(text.split())}

    async def fail(self, text: str) -> AsyncGenerator[str]:
        """One token, then it raises with the caller's text."""
        yield "Before the fault."
        raise RuntimeError(text)

    async def slow(self, text: str) -> AsyncGenerator[str]:
        """A first token, then silence until its test lets it go on or it is cancelled."""
        try:
            yield "first"
            await self.gate.acquire()
            yield " last"
        finally:
            self.closed.set()

    async def history(self, call: Invocation) -> str:
        """How many messages were said before this one, and the caller's text."""
        return f"{len(call.history)} before: {call.text}"

    async def recall(self, call: Invocation) -> str:
        """All that it knows of the conversation."""
        return " ".join(message.text for message in (*call.history, *call.messages))

    async def progress(self, text: str) -> AsyncGenerator[Message | str]:
        """Tells how far it is before it answers."""
        yield Message.of("Half way.", phase="progress")
        yield "Done."

    async def varied(self, text: str) -> AsyncGenerator[Any]:
        """What `VARIED` has a word of each of."""
        yield StepStarted(step_id="s", name="step-by-step", node="step-by-step")
        yield StepEnded(step_id="s", name="step-by-step", node="step-by-step")
        yield ArtifactAdded(artifact_id="a", name="pieces.txt", part=TextPart(text="first-piece "), last=False)
        yield ArtifactAdded(artifact_id="a", name="pieces.txt", part=TextPart(text="last-piece"), append=True)
        page = FilePart(name="page.html", media_type="text/html", url="https://example.com/far-away.html")
        yield Message(parts=(TextPart(text="Said."), page))
        yield Message(parts=(RefusalPart(text="cannot-say-that"),))
        yield RunEnded(usage={"input_tokens": 11037, "output_tokens": 2, "total_tokens": 11039})

    async def noted(self, call: Invocation) -> str:
        """What the caller's metadata say under `ticket`."""
        return str(call.metadata.get("ticket", "nothing"))

    async def outside(self, call: Invocation) -> AsyncGenerator[UseTool | str, Any]:
        """Has the caller execute a tool, and tells which ones it was offered."""
        result = yield UseTool("weather", {"city": "Paris"})
        yield f"{[tool.name for tool in call.tools]}: {result}"

    async def metadata(self, text: str) -> AsyncGenerator[Any]:
        """A thought, a tool call, a cited sentence, and an event of no fixed kind."""
        yield Custom(value={"progress": 0.5})
        yield ReasoningPart(text="Thinking about it.")
        yield ToolCall("word_count", {"text": text}, output={"words": 2})
        cited = AnnotationPart(url="https://example.com/source", title="A source", start=0, end=8)
        yield Message(parts=(TextPart(text="As cited."), cited))
