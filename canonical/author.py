"""Values that the author of an in-process agent can yield, in addition to strings, `Message`, `Part`, `Artifact` and
canonical events."""

from dataclasses import dataclass, field
from typing import Any, Literal

from babelgate.canonical.message import Message, TextPart
from babelgate.canonical.value import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Ask:
    """Question to the caller.

    `answer = yield Ask("Your name?")` stops the run until the caller answers, and `a, b = yield [Ask(…), Ask(…)]` asks
    two questions at once. The answer is the caller's text, or JSON if the caller sent data. If the caller declines, the
    `yield` raises `Declined`.
    """

    question: str | Message
    schema: JsonObject | None = None
    """JSON Schema of the answer."""
    kind: Literal["input", "approval", "auth"] = "input"
    value: Json = None
    """Data sent with the question, for programs that answer it."""

    @property
    def message(self) -> Message:
        if isinstance(self.question, Message):
            return self.question
        return Message(parts=(TextPart(text=self.question),))


@dataclass(frozen=True, slots=True)
class UseTool:
    """Call of a tool that the caller has.

    `result = yield UseTool("weather", {"city": "Paris"})` stops the run until the caller returns the result: its text,
    or JSON if the caller sent data. `yield [UseTool(…), UseTool(…)]` calls two tools at once. The configuration of the
    caller's request declares its tools.
    """

    name: str
    arguments: JsonObject = field(default_factory=dict[str, Any])


class Declined(Exception):
    """Raised in an agent if the caller declines to answer.

    An agent that can continue without the answer catches it at its `yield`; otherwise the run fails. `answers` holds
    the answers to all questions of that `yield`, in order, with None for declined ones.
    """

    def __init__(self, answers: tuple[Json, ...] = ()) -> None:
        super().__init__("The caller declined to answer.")
        self.answers = answers


@dataclass(frozen=True, slots=True)
class Step:
    """Start of a named stage of the agent's work. The stage ends when the next one begins, or with the run."""

    name: str
    input: Json = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A completed call to one of the agent's own tools: `yield ToolCall("add", [1, 2], output=3)`."""

    name: str
    input: Json = field(default=None)
    output: Json = field(default=None)
