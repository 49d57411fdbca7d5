"""Encoding of one run's records as AIEF steps. A run is one step, or several if its agent marks steps with
`StepStarted` events."""

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
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject

T = TypeVar("T")

_ByMessage = list[tuple[str | None, T]]
"""List of items, each with the id of the message that it belongs to. None: no message."""

_AUTOGPT_MEMBERS: Final = {"reasoning": "thoughts", "tools": "last_action"}
"""Member of AutoGPT's classic agent by the member of the gateway with the same content. If a step has AutoGPT's member,
the gateway's is left out."""


@dataclass(slots=True)
class Segment:
    """Content of one step: output and activity from its `StepStarted` to that of the next step."""

    at: int
    """Start time of the step, in microseconds since 1970."""
    name: str | None = None
    additional_output: JsonObject = field(default_factory=dict[str, Any])
    """Member `additional_output` of the step at the agent's AIEF server."""
    unknown: JsonObject = field(default_factory=dict[str, Any])
    """Members of the step at the agent's AIEF server that the document does not define (OpenAPI v1,
    components.schemas.Step)."""
    _texts: _ByMessage[list[str]] = field(default_factory=_ByMessage[list[str]])
    _reasoning: _ByMessage[list[str]] = field(default_factory=_ByMessage[list[str]])
    _progress: _ByMessage[list[str]] = field(default_factory=_ByMessage[list[str]])
    _data: _ByMessage[Json] = field(default_factory=_ByMessage[Json])
    _citations: _ByMessage[JsonObject] = field(default_factory=_ByMessage[JsonObject])
    _tools: _ByMessage[JsonObject] = field(default_factory=_ByMessage[JsonObject])
    _artifacts: _ByMessage[str] = field(default_factory=_ByMessage[str])

    def add_text(self, message_id: str, text: str) -> None:
        """Add a piece of the answer's text, which belongs to a message."""
        _add(self._texts, message_id, text)

    def add_reasoning(self, message_id: str, text: str) -> None:
        """Add a piece of reasoning."""
        _add(self._reasoning, message_id, text)

    def add_progress(self, message_id: str, text: str) -> None:
        """Add a piece of a progress report."""
        _add(self._progress, message_id, text)

    def add_data(self, message_id: str, data: Json) -> None:
        """Add the data of a message's `DataPart`."""
        self._data.append((message_id, data))

    def add_citation(self, message_id: str, citation: JsonObject) -> None:
        """Add a citation of a message, as a JSON object."""
        self._citations.append((message_id, citation))

    def add_tool(self, message_id: str | None, tool: JsonObject) -> None:
        """Add the object of a tool call. The caller updates the object when the result arrives. `message_id` is None
        for a call outside of messages."""
        self._tools.append((message_id, tool))

    def add_artifact(self, message_id: str | None, artifact_id: str) -> None:
        """Add the id of an artifact. `message_id` is None for an artifact that is not a file of a message."""
        self._artifacts.append((message_id, artifact_id))

    def drop_voided(self, start: RunStarted) -> None:
        """Remove the content of messages that a restart of the run voids."""
        self._texts = _without_voided(self._texts, start)
        self._reasoning = _without_voided(self._reasoning, start)
        self._progress = _without_voided(self._progress, start)
        self._data = _without_voided(self._data, start)
        self._citations = _without_voided(self._citations, start)
        self._tools = _without_voided(self._tools, start)
        self._artifacts = _without_voided(self._artifacts, start)

    def absorb(self, other: "Segment") -> None:
        """Append the content of a later step, which a restart has merged into this one."""
        self._texts += other._texts
        self._reasoning += other._reasoning
        self._progress += other._progress
        self._data += other._data
        self._citations += other._citations
        self._tools += other._tools
        self._artifacts += other._artifacts

    @property
    def output(self) -> str:
        """Text of the answer, with one line for each message."""
        return share("\n".join("".join(texts) for _, texts in self._texts))

    @property
    def data(self) -> list[Json]:
        """Data of all data parts."""
        return [data for _, data in self._data]

    @property
    def tools(self) -> list[JsonObject]:
        """Tool calls as JSON objects, with their results so far."""
        return [tool for _, tool in self._tools]

    @property
    def artifacts(self) -> list[str]:
        """Ids of the artifacts, as the agent has chosen them."""
        return [artifact_id for _, artifact_id in self._artifacts]

    @property
    def data_text(self) -> str:
        """Data as JSON text, for callers that read only the output; "" if there is no data."""
        return json_text(self.data[0] if len(self.data) == 1 else self.data) if self._data else ""

    def other_output(self) -> JsonObject:
        """Return members of `additional_output` for all content except text and artifacts."""
        members: JsonObject = {
            "data": self.data,
            "reasoning": "".join(text for _, texts in self._reasoning for text in texts),
            "progress": "".join(text for _, texts in self._progress for text in texts),
            "citations": [citation for _, citation in self._citations],
            "tools": self.tools,
        }
        return {
            name: value
            for name, value in members.items()
            if value and _AUTOGPT_MEMBERS.get(name) not in self.additional_output
        }


def _without_voided(items: _ByMessage[T], start: RunStarted) -> _ByMessage[T]:
    return [item for item in items if not start.is_void(item[0])]


def _add(texts: _ByMessage[list[str]], message_id: str, text: str) -> None:
    """Append a piece of text to the last item if that belongs to the same message; otherwise add an item."""
    if texts and texts[-1][0] == message_id:
        texts[-1][1].append(text)
    elif text:
        texts.append((message_id, [text]))


@dataclass(slots=True)
class StepProgress:
    """Numbers of the steps of a run that have begun and ended, without their content. A caller that waits for a step
    needs no more."""

    steps: int = 1
    """Number of steps that have begun. It is 1 at the start, because content before the first `StepStarted` belongs to
    the first step."""
    marked: bool = False
    """True if the newest step has had its `StepStarted`."""
    ended: bool = False
    _open: dict[str | None, int] = field(default_factory=dict[str | None, int])
    """Number of each step without its `StepEnded`, counted from 1, by the step's id."""

    def apply(self, event: Event) -> None:
        """Update the numbers by the next event of the run."""
        match event:
            case RunStarted() if event.is_void(None):
                self.steps, self.marked = 1, False
                self._open.clear()
            case RunStarted() if event.is_restart and self._open:  # it begins with the first step that had not ended
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

    def copy(self) -> "StepProgress":
        """Return a copy that can be updated independently."""
        return StepProgress(self.steps, self.marked, self.ended, dict(self._open))

    def is_over(self, number: int) -> bool:
        """Return True if the step with this number, counted from 0, has ended."""
        # Steps cannot fail (OpenAPI v1, Step.status): a step has completed as soon as the next one follows.
        return self.ended or number < self.steps - 1


class RunSteps:
    """Steps of one run. It must receive all records of the run, in order."""

    def __init__(self, created: RunCreated, at: int) -> None:
        self.created = created
        self.segments = [Segment(at)]
        self.progress = StepProgress()
        self.questions: tuple[Interrupt, ...] = ()
        """Questions that were open when the run stopped for them."""
        self.losses: dict[Loss, None] = {}
        self._asides: set[str] = set()
        """Ids of the progress messages."""
        self._parts: dict[tuple[str, int], Part] = {}
        """Parts in the state in which they were added, by message id and part index. A text delta needs the part's
        type."""
        self._tools: dict[str, JsonObject] = {}
        """JSON object of each tool call, by call id."""
        if created.metadata:
            self._lose(Feature.METADATA)

    def apply(self, record: Record) -> None:
        """Update the steps by the next record of the run."""
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
                self._parts[message_id, index] = event.part
                self._add(message_id, index, event.part)
            case PartDelta():
                part = self._parts.get((event.message_id or "", event.index or 0))
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
            case Native(protocol="aief"):
                self._read_native(event)
            case _:
                pass

    def _read_native(self, event: Native) -> None:
        """Read the members of the step at the agent's AIEF server into the newest step."""
        segment = self.segments[-1]
        if event.event == STEP:
            segment.unknown = dict(event.data or {})
        else:
            segment.additional_output = as_object(event.data)

    def _start_over(self, start: RunStarted) -> None:
        """Remove the content that a restart voids. Steps that the restarted agent begins again are merged into the
        first of them."""
        if start.is_void(None):
            del self.segments[1:]
            first = self.segments[0]
            first.name, first.additional_output, first.unknown = None, {}, {}
            self._tools.clear()
        for segment in self.segments:
            segment.drop_voided(start)
        for later in self.segments[self.progress.steps :]:
            self.segments[self.progress.steps - 1].absorb(later)
        del self.segments[self.progress.steps :]

    def _lose(self, feature: Feature) -> None:
        """Note the loss of a feature, unless AIEF carries it whole."""
        if CARRIES[feature].is_lost():
            self.losses[Loss(feature=feature.value, how=CARRIES[feature].how)] = None

    def _step_started(self, event: StepStarted, at: int) -> None:
        if event.ns:  # a step inside another step
            self._lose(Feature.STEP)
        elif self.progress.steps > len(self.segments):
            self.segments.append(Segment(at, event.name))
        else:
            self.segments[-1].name = event.name

    def _artifact_added(self, event: ArtifactAdded) -> None:
        name = event.artifact_id or ""
        if not any(name in segment.artifacts for segment in self.segments):
            self.segments[-1].add_artifact(None, name)
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
        """Add a part of a message to the newest step. `index` is the part's index in its message."""
        segment = self.segments[-1]
        if isinstance(part, RefusalPart):
            self._lose(Feature.REFUSAL)
        if part.metadata:
            self._lose(Feature.METADATA)
        match part:
            case TextPart() | RefusalPart() | ReasoningPart():
                self._grow(message_id, part, part.text)
            case DataPart():
                segment.add_data(message_id, part.data)
            case FilePart():
                segment.add_artifact(message_id, f"{message_id}/{index}")
            case ToolCallPart():
                self._grow(message_id, part, part.arguments)
            case ToolResultPart():
                self._tool(part.call_id, message_id=message_id)["error" if part.error else "output"] = part.output
            case AnnotationPart():
                fields = {name: getattr(part, name) for name in ("start", "end", "url", "title", "description")}
                citation = {name: value for name, value in fields.items() if value is not None}
                segment.add_citation(message_id, citation)

    def _grow(self, message_id: str, part: Part, text: str) -> None:
        """Add text of a part to the newest step: answer, progress, reasoning, or arguments of a tool call."""
        segment = self.segments[-1]
        match part:
            case TextPart() | RefusalPart():
                if message_id in self._asides:
                    segment.add_progress(message_id, text)
                else:
                    segment.add_text(message_id, text)
            case ReasoningPart():
                segment.add_reasoning(message_id, text)
            case ToolCallPart():
                tool = self._tool(part.call_id, part.name, message_id)
                tool["arguments"] = tool.get("arguments", "") + text
            case _:
                pass

    # Tools

    def _tool(self, call_id: str | None, name: str | None = None, message_id: str | None = None) -> JsonObject:
        """Return the JSON object of the tool call with an id. If there is none, add one to the newest step, with the
        name and the message id."""
        key = call_id or ""
        if key not in self._tools:
            self._tools[key] = {"name": name}
            self.segments[-1].add_tool(message_id, self._tools[key])
        return self._tools[key]

    def _tool_ended(self, event: ToolEnded) -> None:
        tool = self._tool(event.call_id, event.name)
        if event.fault is not None:
            tool["error"] = encode_error(event.fault)
        else:
            tool["output"] = event.output
