"""Records of a task → one chat completion: what one of its runs said, whole, or as the deltas of a stream."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from pydantic_core import to_json

from adapters.openai.carries import CHAT
from adapters.openai.codec.model import encode_usage
from adapters.openai.codec.questions import called_part, encode_question
from adapters.openai.errors.encode import CANCELLED
from adapters.openai.wire.replies import COMPLETION
from canonical import (
    AnnotationPart,
    DataPart,
    Fault,
    FaultCode,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    RunStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptAnswered,
    InterruptRaised,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from canonical.thread import Loss
from canonical.value import Json, JsonObject

_BETWEEN: Final = "\n"
"""Of two messages: a completion is one."""

_FAILED: Final = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")


class CompletionWriter:
    """Fed with the records of a task from its first one on. What the run said goes into the completion; of the others
    only their questions are looked at."""

    def __init__(self, task_id: str, run_id: str) -> None:
        self.has_ended = False
        self.fault: Fault | None = None
        """Why there is no completion, once it has ended."""
        self.broken = False
        """The agent has started over: what a stream has told is void, and it cannot take it back."""
        self.finish: str | None = None
        self.usage = encode_usage({})
        self.output: Json = None
        self._task_id = task_id
        self._run_id = run_id
        self._asked: dict[str, InterruptRaised] = {}
        """Open questions of the task."""
        self._losses: dict[Loss, None] = {}
        self._deltas: list[JsonObject] = []
        self._reset()

    def _reset(self) -> None:
        self._content: list[str] = []
        self._length = 0
        self._refusal: list[str] = []
        self._thoughts: list[str] = []
        self._annotations: list[JsonObject] = []
        self._data: list[Json] = []
        self._progress: set[str] = set()
        self._open: dict[tuple[str, int], type[Part]] = {}
        self._begun: dict[str, int] = {}
        """Where in the content each message begins."""
        self._counted: JsonObject = {}
        """Tokens, as the messages tell of them."""
        self._message_finish = "stop"
        self.about: JsonObject = {}
        """What the agent's own OpenAI server says of its completion beside the message."""

    # Looking

    @property
    def content(self) -> str:
        return "".join(self._content)

    @property
    def losses(self) -> tuple[Loss, ...]:
        return tuple(self._losses)

    @property
    def has_said(self) -> bool:
        return bool(self._content or self._refusal or self._thoughts)

    def message(self) -> JsonObject:
        """SPEC/chat/chat_completion_message.py."""
        content, refusal = self.content, "".join(self._refusal)
        calls = self.tool_calls
        made: JsonObject = {
            "role": "assistant",
            "content": content if content or not (calls or refusal) else None,
            "refusal": refusal or None,
        }
        if self._annotations:
            made["annotations"] = self._annotations
        if self._thoughts:
            # Not OpenAI's: what servers of reasoning models call it, and most clients read.
            made["reasoning_content"] = "".join(self._thoughts)
        if calls:
            made["tool_calls"] = calls
        return made

    @property
    def has_called(self) -> bool:
        """A tool of the caller's waits for its result."""
        return self.finish == "tool_calls" and any(called_part(asked) for asked in self._asked.values())

    @property
    def tool_calls(self) -> list[JsonObject]:
        if self.finish != "tool_calls":
            return []
        return [encode_question(self._task_id, asked) for asked in self._asked.values()]

    @property
    def annotations(self) -> list[JsonObject]:
        return self._annotations

    # Writing

    def write(self, record: Record) -> list[JsonObject]:
        """What the record adds to `delta`s."""
        event = record.event
        if self.has_ended:
            return []
        if isinstance(event, InterruptRaised):
            self._asked[event.interrupt_id or ""] = event
        elif isinstance(event, InterruptAnswered):
            self._asked.pop(event.interrupt_id, None)
        if record.run_id != self._run_id:
            return []
        write = self._WRITES.get(type(event))
        if write is None:
            return []
        self._deltas = []
        write(self, event)
        return self._deltas

    def _lose(self, feature: Feature) -> None:
        self._losses[Loss(feature=feature.value, how=CHAT[feature].how)] = None

    def _run_started(self, event: RunStarted) -> None:
        if event.starts_over and (event.voids(None) or any(map(event.voids, self._begun))):
            self.broken = self.broken or self.has_said
            self._reset()

    def _message_started(self, event: MessageStarted) -> None:
        message_id = event.message_id or ""
        if event.metadata:
            self._lose(Feature.METADATA)
        if event.phase == "progress" or event.role != "agent":
            self._lose(Feature.PROGRESS if event.phase == "progress" else Feature.TOOL_ACTIVITY)
            self._progress.add(message_id)

    def _part_added(self, event: PartAdded) -> None:
        message_id = event.message_id or ""
        if message_id in self._progress:
            return
        part = event.part
        if event.open:
            self._open[message_id, event.index or 0] = type(part)
        if part.metadata:
            self._lose(Feature.METADATA)
        match part:
            case TextPart():
                self._say(part.text, message_id)
            case RefusalPart():
                self._refuse(part.text)
            case ReasoningPart():
                self._lose(Feature.REASONING)
                self._think(part.text)
            case DataPart():
                self._lose(Feature.DATA)
                self._data.append(part.data)
                self._say(to_json(part.data).decode(), message_id)
            case AnnotationPart():
                self._cite(part, message_id)
            case FilePart():
                self._lose(Feature.FILE_BYTES)
            case ToolCallPart() | ToolResultPart():
                self._lose(Feature.TOOL_ACTIVITY)

    def _part_delta(self, event: PartDelta) -> None:
        message_id = event.message_id or ""
        match self._open.get((message_id, event.index or 0)):
            case kind if kind is TextPart:
                self._say(event.text, message_id)
            case kind if kind is RefusalPart:
                self._refuse(event.text)
            case kind if kind is ReasoningPart:
                self._think(event.text)
            case _:
                pass

    def _part_ended(self, event: PartEnded) -> None:
        self._open.pop((event.message_id or "", event.index or 0), None)

    def _say(self, text: str, message_id: str) -> None:
        if not text:
            return
        if message_id not in self._begun:
            if self._content:
                text = _BETWEEN + text
            self._begun[message_id] = self._length + (len(_BETWEEN) if self._content else 0)
        self._content.append(text)
        self._length += len(text)
        self._deltas.append({"content": text})

    def _refuse(self, text: str) -> None:
        if text:
            self._refusal.append(text)
            self._deltas.append({"refusal": text})

    def _think(self, text: str) -> None:
        if text:
            self._thoughts.append(text)
            self._deltas.append({"reasoning_content": text})

    def _cite(self, part: AnnotationPart, message_id: str) -> None:
        begun = self._begun.get(message_id, self._length)
        # SPEC/chat/chat_completion_message.py, AnnotationURLCitation: all four are there.
        cited = {
            "start_index": begun + (part.start or 0),
            "end_index": self._length if part.end is None else begun + part.end,
            "url": part.url or "",
            "title": part.title or part.description or "",
        }
        self._annotations.append({"type": "url_citation", "url_citation": cited})

    def _message_ended(self, event: MessageEnded) -> None:
        message_id = event.message_id or ""
        if message_id in self._progress:
            return
        for name, count in event.usage.items():
            if isinstance(count, int):
                self._counted[name] = self._counted.get(name, 0) + count
        if event.finish == "length":
            self._message_finish = "length"
        elif event.finish == "refusal" and not self._refusal:
            self._message_finish = "content_filter"

    def _run_ended(self, event: RunEnded) -> None:
        self.has_ended = True
        self.output = event.output
        self.usage = encode_usage(event.usage or self._counted)
        match event.status:
            case RunStatus.SUCCESS:
                self.finish = self._message_finish
                if event.output is not None and event.output not in self._data:
                    self._end_with_output(event.output)
            case RunStatus.PAUSED:
                self.finish = "tool_calls"
                self._lose_of_questions()
            case RunStatus.CANCELLED:
                self.fault = CANCELLED
            case _:
                self.fault = event.fault or _FAILED

    def _end_with_output(self, output: Json) -> None:
        self._lose(Feature.STRUCTURED_OUTPUT)
        if not self._content:
            self._say(to_json(output).decode(), "")

    def _lose_of_questions(self) -> None:
        for asked in self._asked.values():
            if asked.ask == "auth":
                self._lose(Feature.AUTH_REQUEST)
            if asked.answer_schema is not None:
                self._lose(Feature.ANSWER_SCHEMA)
            if called_part(asked) is None:
                self._lose(Feature.QUESTION)

    def _loss_noted(self, event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    def _artifact(self, event: ArtifactAdded) -> None:
        if event.origin == "agent":
            self._lose(Feature.ARTIFACT)

    def _native(self, event: Native) -> None:
        if event.protocol == "openai" and event.event == COMPLETION:
            self.about = dict(event.extra.get("openai") or {})

    def _custom(self, event: Custom) -> None:
        self._lose(Feature.CUSTOM)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        self._lose(Feature.TOOL_ACTIVITY)

    def _step(self, event: StepStarted | StepEnded) -> None:
        self._lose(Feature.STEP)

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunStarted: _run_started,
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        RunEnded: _run_ended,
        LossNoted: _loss_noted,
        ArtifactAdded: _artifact,
        Custom: _custom,
        Native: _native,
        ToolStarted: _tool,
        ToolEnded: _tool,
        StepStarted: _step,
        StepEnded: _step,
    }
