"""One run of an agent while its records arrive, cut into the steps that the agent marked."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from adapters.aief.carries import CARRIES
from adapters.aief.codec import json_text
from adapters.aief.fault import encode_error
from canonical import (
    AnnotationPart,
    DataPart,
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
from canonical.event import (
    ArtifactAdded,
    Custom,
    MessageStarted,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from canonical.thread import Loss
from canonical.value import Json, JsonObject

__all__ = ("Segment", "Work")


@dataclass(slots=True)
class Segment:
    """What was said and done from one mark to the next."""

    at: int
    name: str | None = None
    said: list[str] = field(default_factory=list[str])
    data: list[Json] = field(default_factory=list[Json])
    reasoning: list[str] = field(default_factory=list[str])
    progress: list[str] = field(default_factory=list[str])
    citations: list[JsonObject] = field(default_factory=list[JsonObject])
    tools: list[JsonObject] = field(default_factory=list[JsonObject])
    artifacts: list[str] = field(default_factory=list[str])
    """Ids, as the agent gave them."""
    speaker: str = ""
    """The message that spoke last."""

    def say(self, message_id: str, text: str) -> None:
        if text:
            if self.said and self.speaker != message_id:
                self.said.append("\n")
            self.speaker = message_id
            self.said.append(text)

    @property
    def output(self) -> str:
        return "".join(self.said)

    @property
    def data_text(self) -> str:
        """The data, for those who read nothing but text."""
        return json_text(self.data[0] if len(self.data) == 1 else self.data) if self.data else ""

    def beside(self) -> JsonObject:
        """What was said and done that is no output."""
        told: JsonObject = {
            "data": self.data,
            "reasoning": "".join(self.reasoning),
            "progress": "".join(self.progress),
            "citations": self.citations,
            "tools": self.tools,
        }
        return {name: value for name, value in told.items() if value}


class Work:
    def __init__(self, created: RunCreated, at: int) -> None:
        self.created = created
        self.segments = [Segment(at)]
        self.ended = False
        self.questions: tuple[Interrupt, ...] = ()
        """Those that were open when it paused."""
        self.losses: dict[Loss, None] = {}
        self._marked = False
        self._progress: set[str] = set()
        """Messages that are no part of the answer."""
        self._growing: dict[tuple[str, int], Part] = {}
        self._tools: dict[str, JsonObject] = {}

    def apply(self, record: Record) -> None:
        event = record.event
        match event:
            case StepStarted():
                self._step_started(event, record.at)
            case MessageStarted() if event.phase == "progress":
                self._progress.add(event.message_id or "")
            case PartAdded():
                message_id, index = event.message_id or "", event.index or 0
                self._growing[message_id, index] = event.part
                for name in self._add(message_id, index, event.part):
                    self.segments[-1].artifacts.append(name)
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
            case RunEnded():
                self.ended = True
            case _:
                pass

    def over(self, number: int) -> bool:
        """Whether the step of this number has come to its end."""
        return self.ended or number < len(self.segments) - 1

    def _lose(self, feature: Feature) -> None:
        self.losses[Loss(feature=feature.value, how=CARRIES[feature].how)] = None

    def _step_started(self, event: StepStarted, at: int) -> None:
        if event.ns:  # a step inside of a step
            self._lose(Feature.STEP)
        elif self._marked:
            self.segments.append(Segment(at, event.name))
        else:  # what came before the first mark belongs to the first step
            self._marked = True
            self.segments[0].name = event.name

    def _artifact_added(self, event: ArtifactAdded) -> None:
        name = event.artifact_id or ""
        if not any(name in segment.artifacts for segment in self.segments):
            self.segments[-1].artifacts.append(name)
        if event.description or event.metadata:
            self._lose(Feature.ARTIFACT)

    # Parts of messages

    def _add(self, message_id: str, index: int, part: Part) -> Iterator[str]:
        """Yields the id of the artifact that a file becomes."""
        segment = self.segments[-1]
        match part:
            case TextPart() | RefusalPart() | ReasoningPart():
                self._grow(message_id, part, part.text)
            case DataPart():
                segment.data.append(part.data)
            case FilePart():
                yield f"{message_id}/{index}"
            case ToolCallPart():
                self._grow(message_id, part, part.arguments)
            case ToolResultPart():
                self._tool(part.call_id)["error" if part.error else "output"] = part.output
            case AnnotationPart():
                about = part.model_dump(include={"start", "end", "url", "title", "description"}, exclude_none=True)
                segment.citations.append(about)

    def _grow(self, message_id: str, part: Part, text: str) -> None:
        segment = self.segments[-1]
        match part:
            case TextPart() | RefusalPart():
                if message_id in self._progress:
                    segment.progress.append(text)
                else:
                    segment.say(message_id, text)
            case ReasoningPart():
                segment.reasoning.append(text)
            case ToolCallPart():
                told = self._tool(part.call_id, part.name)
                told["arguments"] = told.get("arguments", "") + text
            case _:
                pass

    # Tools

    def _tool(self, call_id: str | None, name: str | None = None) -> JsonObject:
        """What is told of a call, with the step in which it began."""
        if (call_id or "") not in self._tools:
            self._tools[call_id or ""] = {"name": name}
            self.segments[-1].tools.append(self._tools[call_id or ""])
        return self._tools[call_id or ""]

    def _tool_ended(self, event: ToolEnded) -> None:
        told = self._tool(event.call_id, event.name)
        if event.fault is not None:
            told["error"] = encode_error(event.fault)
        else:
            told["output"] = event.output
