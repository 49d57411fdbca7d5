"""Records of a task → one chat completion: what one of its runs said, whole, or as the deltas of a stream."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, cast

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.openai.carries import CHAT
from babelgate.adapters.openai.codec.model import encode_usage
from babelgate.adapters.openai.codec.questions import (
    called_part,
    encode_question,
    is_asked_in_words,
    question_losses,
    question_text,
    text_losses,
)
from babelgate.adapters.openai.errors.encode import CANCELLED
from babelgate.adapters.openai.wire.replies import BESIDE, CHOICE, COMPLETION, USAGE, Beside
from babelgate.canonical import (
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
from babelgate.canonical.event import (
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

_BETWEEN: Final = "\n"
"""Of two messages: a completion is one."""

_THOUGHT: Final = "reasoning_content"
"""Not OpenAI's: what servers of reasoning models call it, and most clients read; some of them say `reasoning`."""
_SAID: Final = frozenset({"annotations"})
_NAMES: Final = frozenset({"index", "type", "id"})
"""Of things in deltas: they do not grow."""


def join_delta(before: JsonObject, more: JsonObject) -> JsonObject:
    """Both, as clients put deltas together (openai-python 3.54.0, lib/streaming/_deltas.py): text and lists grow, and
    what has an `index` in a list is one thing."""
    joined = dict(before)
    for name, value in more.items():
        joined[name] = _join(joined[name], value) if joined.get(name) is not None and name not in _NAMES else value
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
        same = [i for i, known in enumerate(joined) if number is not None and known.get("index") == number]
        if same:
            joined[same[0]] = join_delta(joined[same[0]], cast("JsonObject", each))
        else:
            joined.append(each)
    return joined


class Piece(NamedTuple):
    """What a record adds to the `delta`s of a stream, and what another server's choice says beside it."""

    delta: JsonObject
    beside: Beside = Beside()


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
        self.is_paused = False
        """The run waits for an answer."""
        self.usage = encode_usage({})
        self.output: Json = None
        self._task_id = task_id
        self._run_id = run_id
        self._asked: dict[str, InterruptRaised] = {}
        """Open questions of the task."""
        self._asks_in_words = False
        self._losses: dict[Loss, None] = {}
        self._deltas: list[Piece] = []
        self._reset()

    def _reset(self) -> None:
        self._content: list[str] = []
        self._length = 0
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        """By the member of the message that they are in."""
        self._thinking: dict[tuple[str, int], str] = {}
        """Of open parts."""
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
        """What the agent's own OpenAI server says of its completion beside the message; so it is in the others."""
        self._own: JsonObject = {}
        """Of the message."""
        self.ended: JsonObject = {}
        """Of the choice, with its end."""
        self._choice: JsonObject = {}
        """Of it before."""
        self._logprobs: JsonObject = {}
        self._their_usage: JsonObject = {}

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
            **self._own,
            "role": "assistant",
            "content": content if content or not (calls or refusal) else None,
            "refusal": refusal or None,
        }
        if self._annotations:
            made["annotations"] = self._annotations
        made |= {name: "".join(thoughts) for name, thoughts in self._thoughts.items()}
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
        return [encode_question(self._task_id, asked) for asked in self._asked.values() if self._is_call(asked)]

    def _is_call(self, asked: InterruptRaised) -> bool:
        return not self._asks_in_words or called_part(asked) is not None

    @property
    def beside(self) -> JsonObject:
        """More members of the choice."""
        return {**self._choice, **self.ended, **({"logprobs": self._logprobs} if self._logprobs else {})}

    @property
    def annotations(self) -> list[JsonObject]:
        return self._annotations

    # Writing

    def write(self, record: Record) -> list[Piece]:
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
        if event.extra and BESIDE in event.extra:
            self._say_beside(event.extra[BESIDE])
        return self._deltas

    def _lose(self, feature: Feature) -> None:
        if CHAT[feature].is_lost():
            self._losses[Loss(feature=feature.value, how=CHAT[feature].how)] = None

    def _run_created(self, event: RunCreated) -> None:
        self._asks_in_words = is_asked_in_words(event)

    def _run_started(self, event: RunStarted) -> None:
        if event.is_restart and (event.is_void(None) or any(map(event.is_void, self._begun))):
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
                own: JsonObject = part.extra.get("openai") or {}
                if "field" not in own:
                    self._lose(Feature.REASONING)
                field = self._thinking[message_id, event.index or 0] = own.get("field", _THOUGHT)
                self._think(field, part.text)
            case DataPart():
                self._lose(Feature.DATA)
                self._data.append(part.data)
                self._say(json_text(part.data), message_id)
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
                self._think(self._thinking.get((message_id, event.index or 0), _THOUGHT), event.text)
            case _:
                pass

    def add_texts(self, record: Record, texts: Sequence[str]) -> bool:
        """Add a passage: what `record` and those behind it add to one part, and they nothing else
        (`babelgate.adapters.kit.server.passages`). Return False, and do nothing, if it is no content, or the first of
        its message: then each has to be written."""
        event = record.event
        if self.has_ended or record.run_id != self._run_id or type(event) is not PartDelta:
            return False
        message_id = event.message_id or ""
        if message_id not in self._begun or self._open.get((message_id, event.index or 0)) is not TextPart:
            return False
        self._content.append("".join(texts))  # one string: half the memory of many short ones
        self._length += sum(map(len, texts))
        return True

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
        self._deltas.append(Piece({"content": text}))

    def _refuse(self, text: str) -> None:
        if text:
            self._refusal.append(text)
            self._deltas.append(Piece({"refusal": text}))

    def _think(self, field: str, text: str) -> None:
        if text:
            self._thoughts.setdefault(field, []).append(text)
            self._deltas.append(Piece({field: text}))

    def _say_beside(self, beside: Beside) -> None:
        delta = beside.get("delta", {})
        self._own = join_delta(self._own, {name: value for name, value in delta.items() if name not in _SAID})
        self._annotations += delta.get("annotations", ())
        for name, value in beside.get("choice", {}).items():
            known = self._choice.get(name)
            both = isinstance(known, list) and isinstance(value, list)
            self._choice[name] = [*cast("list[Json]", known), *value] if both else value
        for name, tokens in beside.get("logprobs", {}).items():
            if isinstance(tokens, list):
                self._logprobs[name] = self._logprobs.get(name) or []
                self._logprobs[name] += tokens
            else:
                self._logprobs.setdefault(name, tokens)
        last = self._deltas.pop() if self._deltas else Piece({})
        self._deltas.append(Piece({**delta, **last.delta}, beside))

    def _cite(self, part: AnnotationPart, message_id: str) -> None:
        begun = self._begun.get(message_id, self._length)
        # SPEC/chat/chat_completion_message.py, AnnotationURLCitation: all four are there.
        cited = {
            "start_index": begun + (part.start or 0),
            "end_index": self._length if part.end is None else begun + part.end,
            "url": part.url or "",
            "title": part.title or part.description or "",
        }
        own: JsonObject = part.extra.get("openai") or {}
        inner = {**own.get("inner", {}), **cited}
        self._annotations.append({**own.get("own", {}), "type": "url_citation", "url_citation": inner})

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
        self.usage = {**encode_usage(event.usage or self._counted), **self._their_usage}
        their_finish = self.ended.pop("finish_reason", None)
        match event.status:
            case RunStatus.SUCCESS:
                self.finish = their_finish or self._message_finish
                if event.output is not None and event.output not in self._data:
                    self._end_with_output(event.output)
            case RunStatus.PAUSED:
                self._ask()
            case RunStatus.CANCELLED:
                self.fault = CANCELLED
            case _:
                self.fault = event.fault or _FAILED

    def _end_with_output(self, output: Json) -> None:
        self._lose(Feature.STRUCTURED_OUTPUT)
        if not self._content:
            self._say(json_text(output), "")

    def _ask(self) -> None:
        self.is_paused, self.finish = True, "stop"
        for asked in self._asked.values():
            if self._is_call(asked):
                self.finish = "tool_calls"
                for feature in question_losses(asked):
                    self._lose(feature)
            else:
                self._say(question_text(asked), f"question {asked.interrupt_id}")
                self._losses |= dict.fromkeys(text_losses(asked))

    def _loss_noted(self, event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    def _artifact(self, event: ArtifactAdded) -> None:
        if event.origin == "agent":
            self._lose(Feature.ARTIFACT)

    def _native(self, event: Native) -> None:
        if event.protocol == "openai" and event.event == COMPLETION:
            self.about = dict(event.extra.get("openai") or {})
            self.ended = dict(event.extra.get(CHOICE) or {})
            self._their_usage = event.extra.get(USAGE) or {}

    def _custom(self, event: Custom) -> None:
        self._lose(Feature.CUSTOM)

    def _tool(self, event: ToolStarted | ToolEnded) -> None:
        self._lose(Feature.TOOL_ACTIVITY)

    def _step(self, event: StepStarted | StepEnded) -> None:
        self._lose(Feature.STEP)

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunCreated: _run_created,
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
