"""Probes: events and inputs that are sent to measure a feature, and the values that must arrive.

An agent emits `emits` behind a real server of a protocol, and the client of the same protocol reads it there. The
feature arrives whole if `extract` returns the same values for the events that were read as for those that were emitted.
It arrives with a loss if `extract` returns other values, or if its trace (`TRACES`) is anywhere in the events.
Otherwise it does not arrive.

`extract` leaves out ids, times, nodes and the protocols' members of `extra`. Names and order count. Boundaries of text
pieces count only for streams, which measure them. The separation of messages is not a feature, and is not measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    RunInput,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
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
from babelgate.canonical.growing import GrowingParts

Values = Sequence[Any]


@dataclass(frozen=True)
class AgentInput:
    """Parts of the measured call that the agent received."""

    history: Sequence[Message] = ()
    input: RunInput = field(default_factory=RunInput)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: Sequence[str] = ()


@dataclass(frozen=True)
class Probe:
    emits: Sequence[Event]
    extract: Callable[[Sequence[Event]], Values]
    input: RunInput = field(default_factory=lambda: RunInput(messages=(Message.of("go", "user"),)))
    before: str = ""
    """Text of an earlier message in the same conversation."""
    extract_input: Callable[[AgentInput], Values] = lambda _: ()
    """Function that extracts the measured values from the agent's input."""
    expected_input: Values = ()
    """Expected values of the agent's input."""
    stateful: bool = False


# Extraction of values


def _messages(events: Sequence[Event]) -> Iterator[tuple[MessageStarted, Sequence[Part]]]:
    """Yield each message as it started, with its parts."""
    messages: list[tuple[MessageStarted, GrowingParts]] = []
    named: dict[str | None, GrowingParts] = {}
    for event in events:
        match event:
            case MessageStarted():
                messages.append((event, GrowingParts()))
                named[event.message_id] = messages[-1][1]
            case PartAdded():
                named[event.message_id].append(event.part)
            case PartDelta():
                named[event.message_id].extend(event.index, (event.text,))
            case _:
                pass
    for event, parts in messages:
        yield event, parts.join_all()


def _parts(kind: type[Part], *names: str) -> Callable[[Sequence[Event]], Values]:
    """Return a function that extracts the parts of a kind, each with the number, role and phase of its message."""

    def extract(events: Sequence[Event]) -> Values:
        found = [
            (number, begun.role, begun.phase, *(getattr(part, name) for name in names))
            for number, (begun, parts) in enumerate(_nonempty_messages(events))
            for part in parts
            if isinstance(part, kind)
        ]
        return [each for each in found if each[-1] != ""]

    return extract


def _nonempty_messages(events: Sequence[Event]) -> list[tuple[MessageStarted, Sequence[Part]]]:
    """Return the messages that are not empty."""
    return [each for each in _messages(events) if any(getattr(part, "text", True) for part in each[1])]


def _file(part: Part) -> Any:
    assert isinstance(part, FilePart)
    content = None if part.inline is None else sha256(part.inline).hexdigest()
    return (part.name, part.media_type, content or part.blob, part.url)


def _files(events: Sequence[Event]) -> Values:
    return [
        (begun.role, begun.phase, _file(part))
        for begun, parts in _nonempty_messages(events)
        for part in parts
        if isinstance(part, FilePart)
    ]


def _uploads(run_input: RunInput) -> Sequence[Part]:
    """Return the parts of the input that are uploads, and not content of the message that brings them."""
    return run_input.messages[-1].parts[-run_input.uploaded :] if run_input.uploaded else ()


def _artifacts(events: Sequence[Event]) -> list[ArtifactAdded]:
    return [event for event in events if isinstance(event, ArtifactAdded)]


def _content(part: Part) -> Any:
    return _file(part) if isinstance(part, FilePart) else (part.kind, getattr(part, "text", None))


def _artifact(events: Sequence[Event]) -> Values:
    """Return the artifacts without the members that only describe pieces."""
    return [(each.name, each.description, each.metadata, _content(each.part)) for each in _artifacts(events)]


def _pieces(events: Sequence[Event]) -> Values:
    return [(each.name, each.append, each.last, _content(each.part)) for each in _artifacts(events)]


def _phase(phase: str) -> Callable[[Sequence[Event]], Values]:
    def extract(events: Sequence[Event]) -> Values:
        return [
            "".join(part.text for part in parts if isinstance(part, TextPart))
            for begun, parts in _nonempty_messages(events)
            if begun.phase == phase
        ]

    return extract


def _fault(fault: Fault | None) -> Any:
    return None if fault is None else (fault.code, fault.message)


def _tools(events: Sequence[Event]) -> Values:
    """Return calls and results of tools. A result refers to the number and name of its call."""
    calls: dict[str | None, int] = {}
    found: list[Any] = []
    for event in events:
        match event:
            case ToolStarted():
                found.append(("call", calls.setdefault(event.call_id, len(calls)), event.name, event.input))
            case ToolEnded():
                found.append(("result", calls.get(event.call_id, -1), event.name, event.output, _fault(event.fault)))
            case _:
                pass
    return found


def _steps(events: Sequence[Event]) -> Values:
    found: list[Any] = []
    for event in events:
        match event:
            case StepStarted():
                found.append(("begins", event.name, event.input))
            case StepEnded():
                found.append(("ends", event.name, event.update, _fault(event.fault)))
            case _:
                pass
    return found


def _deltas(events: Sequence[Event]) -> Values:
    """Return the pieces of streamed text. A single piece is no stream."""
    pieces: list[str] = []
    for event in events:
        if isinstance(event, PartAdded) and isinstance(event.part, TextPart):
            pieces.append(event.part.text)
        elif isinstance(event, PartDelta):
            pieces.append(event.text)
    pieces = [piece for piece in pieces if piece]
    return pieces if len(pieces) > 1 else ()


def _question_members(*names: str) -> Callable[[Sequence[Event]], Values]:
    def extract(events: Sequence[Event]) -> Values:
        found = [event for event in events if isinstance(event, InterruptRaised)]
        return [
            tuple(event.message.text if name == "text" else getattr(event, name) for name in names) for event in found
        ]

    return extract


def _schemas(events: Sequence[Event]) -> Values:
    found = [event.answer_schema for event in events if isinstance(event, InterruptRaised)]
    return [] if found == [None] else found


def _calls(events: Sequence[Event]) -> Values:
    """Return the calls of the caller's tools."""
    return [
        (part.name, part.arguments)
        for event in events
        if isinstance(event, InterruptRaised)
        for part in event.message.parts
        if isinstance(part, ToolCallPart) and part.side == "caller"
    ]


def _faults(events: Sequence[Event]) -> Values:
    return [_fault(event.fault) for event in events if isinstance(event, RunEnded) and event.status is RunStatus.ERROR]


def _outputs(events: Sequence[Event]) -> Values:
    """Return the outputs. An output that arrives in another form has a loss."""
    found = [event.output for event in events if isinstance(event, RunEnded) and event.output is not None]
    other_forms = [("said", part.kind) for _, parts in _nonempty_messages(events) for part in parts]
    return found or other_forms or [("saved", event.values) for event in events if isinstance(event, StateSaved)]


def _usage(events: Sequence[Event]) -> Values:
    usage: dict[str, Any] = {}
    for event in events:
        if isinstance(event, MessageEnded | RunEnded):
            usage |= event.usage
    return sorted(usage.items())


def _metadata(events: Sequence[Event]) -> Values:
    return [begun.metadata for begun, _ in _nonempty_messages(events) if begun.metadata]


def _states(events: Sequence[Event]) -> Values:
    return [(event.values, event.delta) for event in events if isinstance(event, StateSaved)]


def _customs(events: Sequence[Event]) -> Values:
    return [(event.name, event.value) for event in events if isinstance(event, Custom)]


# Emitted events


def _message(*parts: Part, number: int = 1, **begun: Any) -> list[Event]:
    message_id = f"m{number}"
    return [
        MessageStarted(message_id=message_id, **begun),
        *(PartAdded(message_id=message_id, part=part) for part in parts),
        MessageEnded(message_id=message_id),
    ]


def _streamed(*pieces: str) -> list[Event]:
    return [
        MessageStarted(message_id="m1"),
        PartAdded(message_id="m1", part=TextPart(text=""), open=True),
        *(PartDelta(message_id="m1", text=piece) for piece in pieces),
        PartEnded(message_id="m1"),
        MessageEnded(message_id="m1"),
    ]


_ANSWER: Final = TextPart(text="As cited.")
_FILE: Final = FilePart(name="every byte.bin", media_type="application/x-all", inline=bytes(range(256)))
_LARGE: Final = _FILE.replace(name="large.bin", inline=bytes(range(256)) * 8192)
"""File larger than `limits.inline`."""
_PAGE: Final = FilePart(name="page.html", media_type="text/html", url="https://example.com/page.html")
_NAME: Final = InterruptRaised(interrupt_id="i1", message=Message.of("What is your name?"), value={"length": 8})
_APPROVAL: Final = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
_WRITE: Final = InterruptRaised(interrupt_id="i2", message=Message.of("May I write?"), answer_schema=_APPROVAL)
_LOGIN: Final = InterruptRaised(interrupt_id="i1", ask="auth", message=Message.of("Who are you?"))
_CALL: Final = ToolCallPart(call_id="c1", name="weather", arguments='{"city": "Rome"}', side="caller")
_WEATHER: Final = {
    "type": "function",
    "function": {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}},
}
_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="There is no such word.")
_BROKEN: Final = Fault(code=FaultCode.AGENT_INVALID, message="There is no such word.")
_COUNTED: Final[Any] = {"words": 2, "of": ["two", "words"]}
_USAGE: Final = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
_LABELS: Final = {"label": "x", "nested": {"number": 1}}


def _asking(*questions: InterruptRaised) -> list[Event]:
    return [*questions]


PROBES: Final[Mapping[Feature, Probe]] = {
    Feature.TEXT: Probe(_message(TextPart(text="Öne.\n"), TextPart(text=" Twö.")), _phase("answer")),
    Feature.DATA: Probe(
        _message(DataPart(data={"a": [1, 2.5, None, True, "é"]}), DataPart(data=[1]), DataPart(data="x")),
        _parts(DataPart, "data"),
    ),
    Feature.FILE_BYTES: Probe(
        [*_message(_ANSWER, _FILE), *_message(_FILE, number=2), *_message(_LARGE, number=3)], _files
    ),
    Feature.UPLOAD: Probe(
        _message(_ANSWER),
        lambda _: (),
        input=RunInput(messages=(Message(role="user", parts=(TextPart(text="go"), _FILE)),), uploaded=1),
        extract_input=lambda received: [_file(part) for part in _uploads(received.input)],
        expected_input=[_file(_FILE)],
    ),
    Feature.FILE_URL: Probe([*_message(_ANSWER, _PAGE), *_message(_PAGE, number=2)], _files),
    Feature.REASONING: Probe(
        [*_message(ReasoningPart(text="Thinking about it."), _ANSWER)], _parts(ReasoningPart, "text")
    ),
    Feature.REFUSAL: Probe(_message(RefusalPart(text="I cannot say that.")), _parts(RefusalPart, "text")),
    Feature.CITATION: Probe(
        _message(_ANSWER, AnnotationPart(url="https://example.com/a", title="A", start=0, end=8)),
        _parts(AnnotationPart, "start", "end", "url", "title"),
    ),
    Feature.TOOL_ACTIVITY: Probe(
        [
            ToolStarted(call_id="c1", name="count", input={"text": "two words"}),
            ToolEnded(call_id="c1", name="count", output={"words": 2}),
            ToolStarted(call_id="c2", name="find", input={"word": "x"}),
            ToolEnded(call_id="c2", name="find", fault=_FAILED),
            *_message(_ANSWER),
        ],
        _tools,
    ),
    Feature.CALLER_TOOLS: Probe(
        _asking(InterruptRaised(interrupt_id="c1", message=Message(parts=(_CALL,)))),
        _calls,
        input=RunInput(messages=(Message.of("go", "user"),), config={"tools": [_WEATHER]}),
        extract_input=lambda received: received.tools,
        expected_input=["weather"],
    ),
    Feature.STEP: Probe(
        [
            StepStarted(step_id="s1", name="plan", input={"goal": "x"}),
            StepEnded(step_id="s1", name="plan", update={"plan": ["y"]}),
            StepStarted(step_id="s2", name="act"),
            StepEnded(step_id="s2", name="act", fault=_FAILED),
            *_message(_ANSWER),
        ],
        _steps,
    ),
    Feature.PROGRESS: Probe(
        [*_message(TextPart(text="Half way."), phase="progress"), *_message(_ANSWER, number=2)], _phase("progress")
    ),
    Feature.ARTIFACT: Probe(
        [
            ArtifactAdded(
                artifact_id="a1",
                name="every byte.bin",
                description="All of them.",
                part=_FILE,
                metadata=_LABELS,
            )
        ],
        _artifact,
    ),
    Feature.ARTIFACT_APPEND: Probe(
        [
            ArtifactAdded(artifact_id="a1", name="a.txt", part=TextPart(text="One. "), last=False),
            ArtifactAdded(artifact_id="a1", name="a.txt", part=TextPart(text="Two."), append=True),
        ],
        _pieces,
    ),
    Feature.STREAM: Probe(_streamed("One ", "two ", "three."), _deltas),
    Feature.QUESTION: Probe(_asking(_NAME), _question_members("text", "value")),
    Feature.QUESTIONS: Probe(_asking(_NAME, _WRITE), _question_members("text")),
    Feature.ANSWER_SCHEMA: Probe(_asking(_WRITE), _schemas),
    Feature.AUTH_REQUEST: Probe(_asking(_LOGIN), _question_members("ask", "text")),
    Feature.FAULT: Probe(
        [*_message(_ANSWER), RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=_BROKEN)], _faults
    ),
    Feature.STRUCTURED_OUTPUT: Probe([*_message(DataPart(data=_COUNTED)), RunEnded(output=_COUNTED)], _outputs),
    Feature.USAGE: Probe([*_message(_ANSWER), RunEnded(usage=_USAGE)], _usage),
    Feature.METADATA: Probe(
        _message(_ANSWER, metadata=_LABELS),
        _metadata,
        input=RunInput(messages=(Message.of("go", "user"),), metadata=_LABELS),
        extract_input=lambda received: [received.metadata] if received.metadata else [],
        expected_input=[_LABELS],
    ),
    Feature.STATE: Probe([*_message(_ANSWER), StateSaved(values={"note": {"read": True}})], _states, stateful=True),
    Feature.HISTORY: Probe(
        _message(_ANSWER),
        lambda _: (),
        before="one",
        extract_input=lambda received: [(message.role, message.text) for message in received.history],
        expected_input=[("user", "one"), ("agent", "As cited.")],
    ),
    Feature.CUSTOM: Probe([Custom(name="dance", value={"steps": 2}), *_message(_ANSWER)], _customs),
}

UNMEASURED: Final[Mapping[Feature, str]] = {
    Feature.REATTACH: "what is shown again is the server's matter: the pair suite compares it frame by frame",
    Feature.CANCEL: "a deed, of which nothing is read: the pair suite waits for the agent to hear of it",
    Feature.FORK: "a start from an older state: `test_forks` asks the agent what it knows there",
}
"""Features that no answer contains, and the tests that cover them instead."""

TRACES: Final[Mapping[Feature, str]] = {
    Feature.TEXT: "Twö",
    Feature.DATA: "2.5",
    Feature.FILE_BYTES: "every byte.bin",
    Feature.FILE_URL: "example.com/page.html",
    Feature.REASONING: "Thinking about it.",
    Feature.REFUSAL: "cannot say",
    Feature.CITATION: "example.com/a",
    Feature.TOOL_ACTIVITY: "count",
    Feature.CALLER_TOOLS: "weather",
    Feature.STEP: "plan",
    Feature.PROGRESS: "Half way.",
    Feature.ARTIFACT: "every byte.bin",
    Feature.ARTIFACT_APPEND: "One. ",
    Feature.QUESTION: "your name",
    Feature.QUESTIONS: "May I write",
    Feature.ANSWER_SCHEMA: "approved",
    Feature.AUTH_REQUEST: "Who are you",
    Feature.FAULT: "no such word",
    Feature.STRUCTURED_OUTPUT: "words",
    Feature.USAGE: "tokens",
    Feature.METADATA: "nested",
    Feature.STATE: '"read": true',
    Feature.HISTORY: "one",
    Feature.CUSTOM: "dance",
}
"""Word of each feature in the emitted events."""
