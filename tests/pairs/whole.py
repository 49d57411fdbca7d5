"""An agent whose output has parts of all kinds, artifacts, tools, steps, a state and questions. Tests compare its
events with those that arrive at a caller."""

from collections.abc import AsyncGenerator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from babelgate.canonical import (
    AgentInfo,
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import JsonObject
from babelgate.gateway.registered_agent import RegisteredAgent
from tests.pairs.cast import APPROVAL

NAME: Final = "whole"
LABELS: Final = {"label": "x", "nested": {"number": 1}}
OUTPUT: Final[JsonObject] = {"words": 2, "of": ["two", "words"]}
USAGE: Final = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
BYTES: Final = bytes(range(256))
FILE: Final = FilePart(name="every byte.bin", media_type="application/x-all", inline=BYTES)
_PAGE: Final = FilePart(name="page.html", media_type="text/html", url="https://example.com/page.html")
_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="There is no such word.")


def _message(message_id: str, *parts: Part, **begun: Any) -> list[Event]:
    added = [PartAdded(message_id=message_id, part=part) for part in parts]
    return [MessageStarted(message_id=message_id, **begun), *added, MessageEnded(message_id=message_id)]


EVENTS: Final[Sequence[Event]] = (
    *_message("progress", TextPart(text="Half way."), phase="progress"),
    StepStarted(step_id="s1", name="plan", input={"goal": "x"}),
    ToolStarted(call_id="t1", name="count", input={"text": "two words"}),
    ToolEnded(call_id="t1", name="count", output={"words": 2, "of": [1, 2.5, None]}),
    ToolStarted(call_id="t2", name="find", input={"word": "x"}),
    ToolEnded(call_id="t2", name="find", fault=_FAILED),
    StepEnded(step_id="s1", name="plan", update={"plan": ["y"]}),
    StepStarted(step_id="s2", name="act"),
    StepEnded(step_id="s2", name="act", fault=_FAILED),
    MessageStarted(message_id="answer", metadata=LABELS),
    PartAdded(message_id="answer", part=ReasoningPart(text=""), open=True),
    PartDelta(message_id="answer", text="Let me "),
    PartDelta(message_id="answer", text="think."),
    PartEnded(message_id="answer"),
    PartAdded(message_id="answer", part=TextPart(text=""), open=True),
    *(PartDelta(message_id="answer", text=piece) for piece in ("One ", "twö ", "three.")),
    PartEnded(message_id="answer"),
    PartAdded(message_id="answer", part=AnnotationPart(url="https://example.com/a", title="A", start=0, end=3)),
    MessageEnded(message_id="answer"),
    *_message("refusal", RefusalPart(text="I cannot say that.")),
    *_message("files", FILE, _PAGE),
    *_message("data", DataPart(data={"a": [1, 2.5, None, True, "é"]})),
    ArtifactAdded(artifact_id="a1", name="whole.bin", description="All of them.", part=FILE, metadata=LABELS),
    ArtifactAdded(artifact_id="a2", name="pieces.txt", part=TextPart(text="First, "), last=False),
    ArtifactAdded(artifact_id="a2", name="pieces.txt", part=TextPart(text="last."), append=True),
    Custom(name="dance", value={"steps": 2}),
    StateSaved(values={"note": {"read": True}}),
)
QUESTIONS: Final[Sequence[InterruptRaised]] = (
    InterruptRaised(interrupt_id="i1", message=Message.of("What is your name?"), value={"length": 8}),
    InterruptRaised(
        interrupt_id="i2", ask="approval", message=Message.of("May I write?"), answer_schema=APPROVAL, value={"n": 1}
    ),
)
LOGIN: Final = InterruptRaised(interrupt_id="i3", ask="auth", message=Message.of("Who are you?"))


class EveryEventAgent:
    """An agent that emits a summary of its input as data, then all of `EVENTS`, and then asks two questions at once and
    after their answers a third.

    At the end it emits the answer to the third question.
    """

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        if not call.answers:
            for event in (*_message("heard", DataPart(data=input_summary(call))), *EVENTS, *QUESTIONS):
                yield event
        elif len(call.answers) == len(QUESTIONS):
            yield LOGIN
        else:
            for event in ended([[each.action, each.value] for each in call.answers]):
                yield event


def ended(answers: Any) -> Sequence[Event]:
    """Return the last events. Agents that keep a state also have their output in it."""
    saved = StateSaved(values={"note": {"read": True}, **OUTPUT})
    return (*_message("answered", DataPart(data=answers)), saved, RunEnded(output=OUTPUT, usage=USAGE))


def input_summary(call: Invocation) -> Any:
    """Return the part of the input that is the same for every caller that can send it."""
    uploaded = call.messages[-1].parts[-call.input.uploaded :] if call.input.uploaded else ()
    files = [[part.name, part.media_type] for part in uploaded if isinstance(part, FilePart) and part.inline == BYTES]
    return {"tools": [tool.name for tool in call.tools], "metadata": dict(call.metadata), "uploads": files}


def every_event_agent() -> RegisteredAgent:
    return RegisteredAgent(AgentInfo(name=NAME, input_types=("*/*",), stateful=True), EveryEventAgent())


def every_event_run(input_data: Any, login: Any) -> Sequence[Event]:
    """Return all events of the agent: its input, `EVENTS`, its questions, and the answer to the last one."""
    return (*_message("heard", DataPart(data=input_data)), *EVENTS, *QUESTIONS, LOGIN, *ended([["answer", login]]))


# Comparison


_KINDS: Final = frozenset(type(event) for event in EVENTS)
_GATEWAY_MEMBERS: Final = frozenset(
    {"extra", "node", "index", "checkpoint_id", "parent_id", "source", "step", "as_node"}
)
"""Members that each gateway sets itself."""


def exact(events: Sequence[Event]) -> Sequence[Any]:
    """Return the emitted events in a form that can be compared. `RunEnded` is reduced to its output and usage, and left
    out without usage. Events that the agent does not emit are left out, too."""
    found: list[Any] = []
    for event in map(hashed, events):
        if isinstance(event, RunEnded):
            found += [(event.output, event.usage)] if event.usage else []
        elif isinstance(event, InterruptRaised):
            found.append((event.interrupt_id, event.ask, event.message.parts, event.value, event.answer_schema))
        elif type(event) in _KINDS:
            found.append(
                {name: value for name, value in msgspec.to_builtins(event).items() if name not in _GATEWAY_MEMBERS}
            )
    return found


def hashed(event: Event) -> Event:
    """Return the event as the log records it: a file has its hash and size in place of its bytes."""
    part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
    if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.inline is None:
        return event
    return event.replace(part=part.replace(inline=None, blob=sha256(part.inline).hexdigest(), size=len(part.inline)))
