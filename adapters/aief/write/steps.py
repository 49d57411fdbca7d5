"""One run of an agent while its records arrive, cut into the steps that the agent marked."""

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from babelgate.adapters.aief.carries import CARRIES
from babelgate.adapters.aief.codec import added_suffix, clean_name
from babelgate.adapters.aief.errors import encode_error
from babelgate.adapters.aief.wire.types import STEP
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Feature,
    FilePart,
    Interrupt,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.growing import share
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject

T = TypeVar("T")

_By = list[tuple[str | None, T]]
"""Each with the message that it is of; None = of none."""

_THEIRS: Final = {"reasoning": "thoughts", "tools": "last_action"}
"""Members by which AutoGPT's classic agent has said it already, where its own are shown."""


@dataclass(slots=True)
class Segment:
    """What was said and done from one mark to the next."""

    at: int
    name: str | None = None
    own: JsonObject = field(default_factory=dict[str, Any])
    """What another AIEF server told beside the step."""
    unknown: JsonObject = field(default_factory=dict[str, Any])
    """Members of its step that the document does not have (OpenAPI v1, components.schemas.Step)."""
    _said: _By[list[str]] = field(default_factory=_By[list[str]])
    _reasoning: _By[list[str]] = field(default_factory=_By[list[str]])
    _progress: _By[list[str]] = field(default_factory=_By[list[str]])
    _data: _By[Json] = field(default_factory=_By[Json])
    _citations: _By[JsonObject] = field(default_factory=_By[JsonObject])
    _tools: _By[JsonObject] = field(default_factory=_By[JsonObject])
    _artifacts: _By[str] = field(default_factory=_By[str])

    def say(self, message_id: str, text: str) -> None:
        _add(self._said, message_id, text)

    def think(self, message_id: str, text: str) -> None:
        _add(self._reasoning, message_id, text)

    def remark(self, message_id: str, text: str) -> None:
        _add(self._progress, message_id, text)

    def give(self, message_id: str, data: Json) -> None:
        self._data.append((message_id, data))

    def cite(self, message_id: str, citation: JsonObject) -> None:
        self._citations.append((message_id, citation))

    def use(self, message_id: str | None, tool: JsonObject) -> None:
        self._tools.append((message_id, tool))

    def put_out(self, message_id: str | None, artifact_id: str) -> None:
        self._artifacts.append((message_id, artifact_id))

    def take_back(self, start: RunStarted) -> None:
        """What is void of it."""
        self._said = _without_voided(self._said, start)
        self._reasoning = _without_voided(self._reasoning, start)
        self._progress = _without_voided(self._progress, start)
        self._data = _without_voided(self._data, start)
        self._citations = _without_voided(self._citations, start)
        self._tools = _without_voided(self._tools, start)
        self._artifacts = _without_voided(self._artifacts, start)

    def absorb(self, other: "Segment") -> None:
        """Add what is not void of a step that begins again as this one."""
        self._said += other._said
        self._reasoning += other._reasoning
        self._progress += other._progress
        self._data += other._data
        self._citations += other._citations
        self._tools += other._tools
        self._artifacts += other._artifacts

    @property
    def output(self) -> str:
        return share("\n".join("".join(texts) for _, texts in self._said))

    @property
    def data(self) -> list[Json]:
        return [data for _, data in self._data]

    @property
    def tools(self) -> list[JsonObject]:
        return [tool for _, tool in self._tools]

    @property
    def artifacts(self) -> list[str]:
        """Ids, as the agent gave them."""
        return [artifact_id for _, artifact_id in self._artifacts]

    @property
    def data_text(self) -> str:
        """The data, for those who read nothing but text."""
        return json_text(self.data[0] if len(self.data) == 1 else self.data) if self._data else ""

    def beside(self) -> JsonObject:
        """What was said and done that is no output."""
        told: JsonObject = {
            "data": self.data,
            "reasoning": "".join(text for _, texts in self._reasoning for text in texts),
            "progress": "".join(text for _, texts in self._progress for text in texts),
            "citations": [citation for _, citation in self._citations],
            "tools": self.tools,
        }
        return {name: value for name, value in told.items() if value and _THEIRS.get(name) not in self.own}


def _without_voided(told: _By[T], start: RunStarted) -> _By[T]:
    return [each for each in told if not start.is_void(each[0])]


def _add(told: _By[list[str]], message_id: str, text: str) -> None:
    if told and told[-1][0] == message_id:
        told[-1][1].append(text)
    elif text:
        told.append((message_id, [text]))


@dataclass(slots=True)
class Progress:
    """How far a run has come, and nothing of what it said: all that is to be known while somebody waits for a step."""

    steps: int = 1
    """That were begun. What comes before the first mark belongs to the first."""
    marked: bool = False
    ended: bool = False
    _open: dict[str | None, int] = field(default_factory=dict[str | None, int])
    """Numbers of the steps that have not ended, from 1, by id."""

    def apply(self, event: Event) -> None:
        match event:
            case RunStarted() if event.is_void(None):
                self.steps, self.marked = 1, False
                self._open.clear()
            case RunStarted() if event.is_restart and self._open:  # it begins with the steps that had not ended
                self.steps, self.marked = min(self._open.values()), False
                self._open.clear()
            case StepStarted() if not event.ns:
                self.steps += self.marked
                self.marked = True
                self._open[event.step_id] = self.steps
            case StepEnded() if not event.ns:
                self._open.pop(event.step_id, None)
            case RunEnded():
                self.ended = True
            case _:
                pass

    def copy(self) -> "Progress":
        return Progress(self.steps, self.marked, self.ended, dict(self._open))

    def is_over(self, number: int) -> bool:
        """Whether the step of this number has come to its end."""
        # No step fails (OpenAPI v1, Step.status): one that the next follows has completed.
        return self.ended or number < self.steps - 1


class RunSteps:
    def __init__(self, created: RunCreated, at: int) -> None:
        self.created = created
        self.segments = [Segment(at)]
        self.progress = Progress()
        self.questions: tuple[Interrupt, ...] = ()
        """Those that were open when it paused."""
        self.losses: dict[Loss, None] = {}
        self._asides: set[str] = set()
        """Messages that are no part of the answer."""
        self._growing: dict[tuple[str, int], Part] = {}
        self._tools: dict[str, JsonObject] = {}
        if created.metadata:
            self._lose(Feature.METADATA)

    def apply(self, record: Record) -> None:
        event = record.event
        self.progress.apply(event)
        match event:
            case RunStarted() if event.is_restart:
                self._start_over(event)
            case StepStarted():
                self._step_started(event, record.at)
            case MessageStarted():
                self._message_started(event)
            case PartAdded():
                message_id, index = event.message_id or "", event.index or 0
                self._growing[message_id, index] = event.part
                self._add(message_id, index, event.part)
            case PartDelta():
                part = self._growing.get((event.message_id or "", event.index or 0))
                if part is not None:
                    self._grow(event.message_id or "", part, event.text)
            case ToolStarted():
                self._tool(event.call_id, event.name)["input"] = event.input
            case ToolEnded():
                self._tool_ended(event)
            case ArtifactAdded():
                self._artifact_added(event)
            case Custom():
                self._lose(Feature.CUSTOM)
            case Native(protocol="aief", event=name) if name == STEP:
                self.segments[-1].unknown = dict(event.data or {})
            case Native(protocol="aief"):
                own: Any = event.data
                self.segments[-1].own = own if isinstance(own, dict) else {}
            case _:
                pass

    def _start_over(self, start: RunStarted) -> None:
        if start.is_void(None):
            del self.segments[1:]
            self.segments[0].name, self.segments[0].own, self.segments[0].unknown = None, {}, {}
            self._tools.clear()
        for segment in self.segments:
            segment.take_back(start)
        for begun in self.segments[self.progress.steps :]:
            self.segments[self.progress.steps - 1].absorb(begun)
        del self.segments[self.progress.steps :]

    def _lose(self, feature: Feature) -> None:
        if CARRIES[feature].is_lost():
            self.losses[Loss(feature=feature.value, how=CARRIES[feature].how)] = None

    def _step_started(self, event: StepStarted, at: int) -> None:
        if event.ns:  # a step inside of a step
            self._lose(Feature.STEP)
        elif self.progress.steps > len(self.segments):
            self.segments.append(Segment(at, event.name))
        else:
            self.segments[-1].name = event.name

    def _artifact_added(self, event: ArtifactAdded) -> None:
        name = event.artifact_id or ""
        if not any(name in segment.artifacts for segment in self.segments):
            self.segments[-1].put_out(None, name)
        is_renamed = event.name and not event.append and added_suffix(clean_name(event.name), event.part)
        if event.description or event.metadata or is_renamed:
            self._lose(Feature.ARTIFACT)

    # Messages

    def _message_started(self, event: MessageStarted) -> None:
        if event.phase == "progress":
            self._asides.add(event.message_id or "")
        if event.metadata:
            self._lose(Feature.METADATA)

    def _add(self, message_id: str, index: int, part: Part) -> None:
        segment = self.segments[-1]
        if isinstance(part, RefusalPart):
            self._lose(Feature.REFUSAL)
        if part.metadata:
            self._lose(Feature.METADATA)
        match part:
            case TextPart() | RefusalPart() | ReasoningPart():
                self._grow(message_id, part, part.text)
            case DataPart():
                segment.give(message_id, part.data)
            case FilePart():
                segment.put_out(message_id, f"{message_id}/{index}")
            case ToolCallPart():
                self._grow(message_id, part, part.arguments)
            case ToolResultPart():
                self._tool(part.call_id, said_in=message_id)["error" if part.error else "output"] = part.output
            case AnnotationPart():
                named = {name: getattr(part, name) for name in ("start", "end", "url", "title", "description")}
                about = {name: value for name, value in named.items() if value is not None}
                segment.cite(message_id, about)

    def _grow(self, message_id: str, part: Part, text: str) -> None:
        segment = self.segments[-1]
        match part:
            case TextPart() | RefusalPart():
                if message_id in self._asides:
                    segment.remark(message_id, text)
                else:
                    segment.say(message_id, text)
            case ReasoningPart():
                segment.think(message_id, text)
            case ToolCallPart():
                told = self._tool(part.call_id, part.name, said_in=message_id)
                told["arguments"] = told.get("arguments", "") + text
            case _:
                pass

    # Tools

    def _tool(self, call_id: str | None, name: str | None = None, said_in: str | None = None) -> JsonObject:
        """What is told of a call, with the step in which it began."""
        if (call_id or "") not in self._tools:
            self._tools[call_id or ""] = {"name": name}
            self.segments[-1].use(said_in, self._tools[call_id or ""])
        return self._tools[call_id or ""]

    def _tool_ended(self, event: ToolEnded) -> None:
        told = self._tool(event.call_id, event.name)
        if event.fault is not None:
            told["error"] = encode_error(event.fault)
        else:
            told["output"] = event.output
