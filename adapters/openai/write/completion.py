"""Conversion of a task's records to one chat completion, which shows the output of one run: whole, or as the deltas of
a stream."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.carries import CHAT
from babelgate.adapters.openai.codec.model import encode_usage
from babelgate.adapters.openai.codec.questions import (
    encode_question,
    question_losses,
    question_text,
    text_losses,
)
from babelgate.adapters.openai.errors.encode import CANCELLED, FAILED
from babelgate.adapters.openai.wire.replies import CHOICE, COMPLETION, PIECE_EXTRAS, USAGE, PieceExtras
from babelgate.adapters.openai.write.completion_text import CONTENT, REFUSAL, CompletionText
from babelgate.adapters.openai.write.message_tracker import MessageTracker
from babelgate.adapters.openai.write.open_questions import OpenQuestions
from babelgate.adapters.openai.write.run_losses import RunLosses
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Fault,
    Feature,
    FilePart,
    ReasoningPart,
    Record,
    RefusalPart,
    RunStatus,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import Json, JsonObject

_REASONING: Final = "reasoning_content"
"""Default member for reasoning. It is not OpenAI's: servers of reasoning models use it, and most clients read it. Some
use `reasoning`."""
_PLACED: Final = frozenset({"annotations"})
"""Unknown members of a delta that the writer stores separately."""
_NOT_CONCATENATED: Final = frozenset({"index", "type", "id"})
"""Members whose value in a later delta replaces the earlier one, instead of being appended."""


def join_delta(before: JsonObject, more: JsonObject) -> JsonObject:
    """Return the sum of two deltas, by the rules of clients (openai-python 3.54.0, lib/streaming/_deltas.py).

    Strings and lists are concatenated. Elements of a list with the same `index` are summed.
    """
    joined = dict(before)
    for name, value in more.items():
        joined[name] = (
            _join(joined[name], value) if joined.get(name) is not None and name not in _NOT_CONCATENATED else value
        )
    return joined


def _join(before: Any, more: Any) -> Any:
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    if isinstance(before, dict) and isinstance(more, dict):
        return join_delta(cast("JsonObject", before), cast("JsonObject", more))
    if isinstance(before, list) and isinstance(more, list):
        return _join_lists(cast("list[Any]", before), cast("list[Any]", more))
    return more


def _join_lists(before: list[Any], more: list[Any]) -> list[Any]:
    joined = list(before)
    for each in more:
        number = each.get("index") if isinstance(each, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        same = [i for i, old in enumerate(joined) if number is not None and old.get("index") == number]
        if same:
            joined[same[0]] = join_delta(joined[same[0]], cast("JsonObject", each))
        else:
            joined.append(each)
    return joined


class StreamPiece(NamedTuple):
    """Addition to a stream by one record: a `delta`, and members without a canonical form that the upstream sent with
    it."""

    delta: JsonObject
    extras: PieceExtras = PieceExtras()


class CompletionWriter:
    """Writer of the chat completion that shows the run `run_id`. It must receive the records of the run's task from the
    first one on.

    Of other runs of the task, it reads only the questions and answers.
    """

    def __init__(self, task_id: str, run_id: str) -> None:
        self.has_ended = False
        self.fault: Fault | None = None
        """Fault of the run, if it failed or was cancelled; None before its end."""
        self.broken = False
        """True if the agent was restarted after some output was sent: a stream cannot take that output back, and must
        fail."""
        self.finish: str | None = None
        self.is_paused = False
        """True if the run has stopped for a question."""
        self.usage = encode_usage({})
        self.output: Json = None
        self._task_id = task_id
        self._run_id = run_id
        self._questions = OpenQuestions()
        self._losses = RunLosses(CHAT)
        self._deltas: list[StreamPiece] = []
        self._reset()

    def _reset(self) -> None:
        self._text = CompletionText()
        self._reasoning_members: dict[tuple[str, int], str] = {}
        """Name of the message's member for each reasoning part, by message id and part index."""
        self._tracker = MessageTracker()
        self._progress: set[str] = set()
        self._finishes: dict[str, str] = {}
        """Reason why a message is incomplete, by message id."""
        self.about: JsonObject = {}
        """Members of the agent's upstream completion that have no canonical form."""
        self._message_members: JsonObject = {}
        """Members of the upstream's message that have no canonical form."""
        self.ended: JsonObject = {}
        """Members of the upstream's choice in the chunk that ended it."""
        self._choice: JsonObject = {}
        """Members of the upstream's choice in earlier chunks."""
        self._logprobs: JsonObject = {}
        self._upstream_usage: JsonObject = {}
        """Token counts as the upstream reported them; empty if those of the run are the same."""

    # Reading

    @property
    def content(self) -> str:
        return self._text.join(CONTENT)

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._losses.all()

    @property
    def has_output(self) -> bool:
        return not self._text.is_empty

    def message(self) -> JsonObject:
        """Return the message of the completion so far (SPEC/chat/chat_completion_message.py)."""
        content, refusal = self.content, self._text.join(REFUSAL)
        calls = self.tool_calls
        message: JsonObject = {
            **self._message_members,
            "role": "assistant",
            "content": content if content or not (calls or refusal) else None,
            "refusal": refusal or None,
        }
        if self.annotations:
            message["annotations"] = self.annotations
        message |= {name: self._text.join(name) for name in self._text.members() if name not in (CONTENT, REFUSAL)}
        if calls:
            message["tool_calls"] = calls
        return message

    @property
    def has_called(self) -> bool:
        """True if the run has stopped for a call of one of the caller's tools."""
        return self.finish == "tool_calls" and self._questions.has_call

    @property
    def tool_calls(self) -> list[JsonObject]:
        if self.finish != "tool_calls":
            return []
        questions = self._questions
        return [encode_question(self._task_id, question) for question in questions if questions.is_call(question)]

    @property
    def choice_extras(self) -> JsonObject:
        """Members of the upstream's choice that have no canonical form, including its logprobs."""
        return {**self._choice, **self.ended, **({"logprobs": self._logprobs} if self._logprobs else {})}

    @property
    def annotations(self) -> list[JsonObject]:
        return self._text.annotations

    # Writing

    def write(self, record: Record) -> list[StreamPiece]:
        """Read a record, and return what it adds to the stream."""
        event = record.event
        if self.has_ended:
            return []
        if type(event) is not PartDelta:  # most records of a long answer are deltas
            self._questions.read(event)
        if record.run_id != self._run_id:
            return []
        write = self._HANDLERS.get(type(event))
        if write is None:
            return []
        self._deltas = []
        write(self, event)
        if event.extra and PIECE_EXTRAS in event.extra:
            self._add_unknown(event.extra[PIECE_EXTRAS])
        return self._deltas

    def _run_created(self, event: RunCreated) -> None:
        self._questions.begin(event)

    def _run_started(self, event: RunStarted) -> None:
        if not event.is_restart:
            return
        if event.void is None:
            self.broken = self.broken or self.has_output
            self._reset()
        elif self._text.drop(event.is_void):
            self.broken = True
            self._tracker.drop_void(event.void)
            self._finishes = {each: finish for each, finish in self._finishes.items() if each not in event.void}
            self._logprobs = {}

    def _message_started(self, event: MessageStarted) -> None:
        message_id = event.message_id or ""
        if event.metadata:
            self._losses.note(Feature.METADATA)
        if event.phase == "progress" or event.role != "agent":
            self._losses.note(Feature.PROGRESS if event.phase == "progress" else Feature.TOOL_ACTIVITY)
            self._progress.add(message_id)

    def _part_added(self, event: PartAdded) -> None:
        message_id = event.message_id or ""
        if message_id in self._progress:
            return
        part = event.part
        self._tracker.add_part(event)
        if part.metadata:
            self._losses.note(Feature.METADATA)
        match part:
            case TextPart():
                self._add_text(part.text, message_id)
            case RefusalPart():
                self._add_text(part.text, message_id, REFUSAL)
            case ReasoningPart():
                extra: JsonObject = part.extra.get("openai") or {}
                if "field" not in extra:
                    self._losses.note(Feature.REASONING)
                field = self._reasoning_members[message_id, event.index or 0] = extra.get("field", _REASONING)
                self._add_text(part.text, message_id, field)
            case DataPart():
                self._losses.note(Feature.DATA)
                self._tracker.add_data(message_id, part.data)
                self._add_text(json_text(part.data), message_id)
            case AnnotationPart():
                self._cite(part, message_id)
            case FilePart():
                self._losses.note(Feature.FILE_BYTES)
            case ToolCallPart() | ToolResultPart():
                self._losses.note(Feature.TOOL_ACTIVITY)

    def _part_delta(self, event: PartDelta) -> None:
        message_id = event.message_id or ""
        match self._tracker.open_kinds.get((message_id, event.index or 0)):
            case kind if kind is TextPart:
                self._add_text(event.text, message_id)
            case kind if kind is RefusalPart:
                self._add_text(event.text, message_id, REFUSAL)
            case kind if kind is ReasoningPart:
                field = self._reasoning_members.get((message_id, event.index or 0), _REASONING)
                self._add_text(event.text, message_id, field)
            case _:
                pass

    def add_texts(self, record: Record, texts: Sequence[str]) -> bool:
        """Read a passage: consecutive records, from `record` on, that only add text to one part
        (`babelgate.adapters.kit.server.passages`). `texts` are the texts of its records.

        Return False, and do nothing, if the text is no content, or if it is the first of its message. The caller must
        then write the records one by one.
        """
        event = record.event
        if self.has_ended or record.run_id != self._run_id or type(event) is not PartDelta:
            return False
        message_id = event.message_id or ""
        kind = self._tracker.open_kinds.get((message_id, event.index or 0))
        if kind is not TextPart or not self._text.has_content_of(message_id):
            return False
        self._text.extend(message_id, texts)
        return True

    def _part_ended(self, event: PartEnded) -> None:
        self._tracker.end_part(event)

    def _add_text(self, text: str, message_id: str, member: str = CONTENT) -> None:
        if text:
            self._deltas.append(StreamPiece({member: self._text.add(message_id, member, text)}))

    def _add_unknown(self, extras: PieceExtras) -> None:
        delta = extras.get("delta", {})
        self._message_members = join_delta(
            self._message_members, {name: value for name, value in delta.items() if name not in _PLACED}
        )
        for annotation in delta.get("annotations", ()):
            self._text.cite("", annotation)
        for name, value in extras.get("choice", {}).items():
            previous = self._choice.get(name)
            both = isinstance(previous, list) and isinstance(value, list)
            self._choice[name] = [*cast("list[Json]", previous), *value] if both else value
        for name, tokens in extras.get("logprobs", {}).items():
            if isinstance(tokens, list):
                self._logprobs[name] = self._logprobs.get(name) or []
                self._logprobs[name] += tokens
            else:
                self._logprobs.setdefault(name, tokens)
        last = self._deltas.pop() if self._deltas else StreamPiece({})
        self._deltas.append(StreamPiece({**delta, **last.delta}, extras))

    def _cite(self, part: AnnotationPart, message_id: str) -> None:
        # SPEC/chat/chat_completion_message.py, AnnotationURLCitation, requires all four.
        cited = {
            **self._text.span(message_id, part.start, part.end),
            "url": part.url or "",
            "title": part.title or part.description or "",
        }
        extra: JsonObject = part.extra.get("openai") or {}
        inner = {**extra.get("inner", {}), **cited}
        self._text.cite(message_id, {**extra.get("own", {}), "type": "url_citation", "url_citation": inner})

    def _message_ended(self, event: MessageEnded) -> None:
        message_id = event.message_id or ""
        if message_id in self._progress:
            return
        reason = self._tracker.end_message(event, has_refused=bool(self._text.join(REFUSAL)))
        if reason is not None:
            self._finishes[message_id] = reason

    def _run_ended(self, event: RunEnded) -> None:
        self.has_ended = True
        self.output = event.output
        self.usage = {**encode_usage(event.usage or self._tracker.usage), **self._upstream_usage}
        upstream_finish = self.ended.pop("finish_reason", None)
        match event.status:
            case RunStatus.SUCCESS:
                self.finish = upstream_finish or next(reversed(self._finishes.values()), "stop")
                if event.output is not None and not self._tracker.has_shown(event.output):
                    self._end_with_output(event.output)
            case RunStatus.PAUSED:
                self._ask()
            case RunStatus.CANCELLED:
                self.fault = CANCELLED
            case _:
                self.fault = event.fault or FAILED

    def _end_with_output(self, output: Json) -> None:
        self._losses.note(Feature.STRUCTURED_OUTPUT)
        if not self.content:
            self._add_text(json_text(output), "")

    def _ask(self) -> None:
        self.is_paused, self.finish = True, "stop"
        for question in self._questions:
            if self._questions.is_call(question):
                self.finish = "tool_calls"
                for feature in question_losses(question):
                    self._losses.note(feature)
            else:
                self._add_text(question_text(question), f"question {question.interrupt_id}")
                self._losses.add(text_losses(question))

    def _note_loss(self, event: ArtifactAdded | Custom | LossNoted | StepEnded | StepStarted) -> None:
        self._losses.read(event)

    def _native(self, event: Native) -> None:
        if event.protocol == "openai" and event.event == COMPLETION:
            self.about = dict(event.extra.get("openai") or {})
            self.ended = dict(event.extra.get(CHOICE) or {})
            self._upstream_usage = event.extra.get(USAGE) or {}

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        self._losses.note(Feature.TOOL_ACTIVITY)

    _HANDLERS: ClassVar[Mapping[type, Any]] = {
        RunCreated: _run_created,
        RunStarted: _run_started,
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        RunEnded: _run_ended,
        LossNoted: _note_loss,
        ArtifactAdded: _note_loss,
        Custom: _note_loss,
        Native: _native,
        ToolStarted: _tool,
        ToolEnded: _tool,
        StepStarted: _note_loss,
        StepEnded: _note_loss,
    }
