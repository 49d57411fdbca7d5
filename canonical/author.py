"""What the author of an in-process agent yields, beside strings, `Message`, `Part`, `Artifact` and canonical events."""

from dataclasses import dataclass, field
from typing import Any, Literal

from babelgate.canonical.message import Message, TextPart
from babelgate.canonical.value import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Ask:
    """A question: `answer = yield Ask("Your name?")` stops the run until somebody answers, and
    `a, b = yield [Ask(…), Ask(…)]` asks two at once. The answer is the caller's text, or JSON where the caller sent
    data. Where the caller declines, the `yield` raises `Declined`."""

    question: str | Message
    schema: JsonObject | None = None
    """JSON Schema of the answer."""
    kind: Literal["input", "approval", "auth"] = "input"
    value: Json = None
    """Data that goes with the question, for programs that answer it."""

    @property
    def message(self) -> Message:
        if isinstance(self.question, Message):
            return self.question
        return Message(parts=(TextPart(text=self.question),))


@dataclass(frozen=True, slots=True)
class UseTool:
    """A call of a tool that the caller has: `result = yield UseTool("weather", {"city": "Paris"})` stops the run until
    the caller gives the result, as its text, or as JSON where it sent data. `yield [UseTool(…), UseTool(…)]` calls two
    at once. Which tools a caller declares is in the configuration of its call."""

    name: str
    arguments: JsonObject = field(default_factory=dict[str, Any])


class Declined(Exception):
    """The caller declined to answer.

    An agent that can go on without the answer catches it at its `yield`; otherwise the run ends as failed. `answers`
    holds what was said to all questions of that `yield`, in order, None for those declined.
    """

    def __init__(self, answers: tuple[Json, ...] = ()) -> None:
        super().__init__("The caller declined to answer.")
        self.answers = answers


@dataclass(frozen=True, slots=True)
class Step:
    """A named stage of the work. It ends where the next one begins, or with the run."""

    name: str
    input: Json = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the agent's own tools, made and answered: `yield ToolCall("add", [1, 2], output=3)`."""

    name: str
    input: Json = field(default=None)
    output: Json = field(default=None)
