"""Records of a task → the message that shows the output of one run: whole, or as the events of a stream."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL, encode_call_id, message_id_of
from babelgate.adapters.anthropic.codec.questions import called_part, encode_question, question_text
from babelgate.adapters.anthropic.codec.usage import encode_usage, is_whole
from babelgate.adapters.anthropic.errors import CANCELLED, FAILED
from babelgate.adapters.anthropic.write.block import Block
from babelgate.adapters.anthropic.write.content import Content
from babelgate.adapters.kit.extension import encode_without_extra
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FilePart,
    ReasoningPart,
    Record,
    RefusalPart,
    RunStatus,
    TaskState,
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
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

BLOCK: Final = "block"
"""Name of the `Native` event with a content block of another server that has no canonical form."""
END: Final = "end"
"""Name of the `Native` event with the members `stop_reason`, `stop_sequence` and `stop_details` of another server."""
WORDS: Final = "words"
"""Key in the `extra` of a run's input: true if its caller sees questions as text."""
_SHORT: Final = 16_000
"""Limit on a message's text, in characters. A shorter message is encoded directly. For any other one, the server first
measures whether it must be encoded in a thread. Chosen."""
_DELTA_USAGE: Final = (
    *("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    *("server_tool_use", "output_tokens_details"),
)


class AnswerWriter:
    """Writer of the message that shows the run `run_id`. It must receive the records of the run's task from the first
    one on. Of other runs of the task, it reads only the questions and answers.

    `agent` is the name that the message has as its `model`.
    """

    def __init__(self, task_id: str, run_id: str, agent: str, base_url: str) -> None:
        self.message_id = message_id_of(run_id)
        self.has_ended = False
        self.fault: Fault | None = None
        """Fault of the run, if it failed or was cancelled. None until then, and for a successful run."""
        self.is_broken = False
        """True if the agent was restarted after some output was sent: a stream cannot take that output back."""
        self.stop_reason: str | None = None
        self.is_paused = False
        self.output: Json = None
        self.has_called = False
        """True if the run has stopped for a call of one of the caller's tools."""
        self._task_id, self._run_id, self._agent, self._base_url = task_id, run_id, agent, base_url
        self._questions: dict[str, InterruptRaised] = {}
        self._in_words = False
        self._losses: dict[Loss, None] = {}
        self._metadata: JsonObject = {}
        self._usage: JsonObject = {}
        self._reset()

    def _reset(self) -> None:
        self._content = Content(self._agent, self._base_url)
        self._kinds: dict[tuple[str, int], type] = {}
        """Type of each open part, by message id and index, because a delta does not contain the type."""
        self._calls: dict[str, bool] = {}
        """Calls of the agent's own tools that were shown, by id. The value is True if the result was shown, too."""
        self._finish: str | None = None
        self._stop: JsonObject = {}
        """Members `stop_reason`, `stop_sequence` and `stop_details` of another server's message."""
        self._data: list[Json] = []
        self._events: list[JsonObject] = []
        """Events of the log for which the API has no form, such as the start of a step. A stream sends each in a
        `ping`."""

    # MessageReading

    @property
    def losses(self) -> Sequence[Loss]:
        """Losses of the run so far, each once."""
        return tuple(self._losses)

    @property
    def has_output(self) -> bool:
        return bool(self._content.blocks)

    @property
    def is_short(self) -> bool:
        """True if the message has only plain text of fewer than `_SHORT` characters."""
        blocks = self._content.blocks
        is_plain = all(block.growth == "text" and w.OWN not in block.start for block in blocks)
        has_marks = bool(self._events or self._metadata or self._usage) or self.output is not None
        return is_plain and not has_marks and sum(len(piece) for block in blocks for piece in block.pieces) < _SHORT

    @property
    def text(self) -> str:
        """Text of the answer, without text blocks that only show something else, such as a file or a question."""
        return "".join(
            "".join(block.pieces)
            for block in self._content.blocks
            if block.growth == "text" and not _is_stand_in(as_object(block.start.get(w.OWN)))
        )

    def begin(self) -> JsonObject:
        """Return the first event of the stream."""
        marks = {w.OWN: {"metadata": self._metadata}} if self._metadata else {}
        message = {**w.message_body(self.message_id, self._agent, [], encode_usage({})), **marks}
        return {"type": "message_start", "message": message}

    def restate(self) -> list[JsonObject]:
        """Return the events that begin the message again after a restart, with the content that is not void."""
        events = [self.begin()]
        for block in self._content.blocks:
            text = "".join(block.pieces)
            events += [block.start_event(), *([block.delta(text)] if text else ()), block.stop_event()]
        return events

    def body(self) -> JsonObject:
        """Return the message as JSON, from the records read so far."""
        content = [block.whole() for block in self._content.blocks]
        body = w.message_body(self.message_id, self._agent, content, encode_usage(self._usage))
        body |= {**self._stop, "stop_reason": self.stop_reason}
        marks = self._marks()
        if self._metadata:
            marks["metadata"] = self._metadata
        if self._events:
            marks["events"] = self._events
        return {**body, w.OWN: marks} if marks else body

    def end(self) -> list[JsonObject]:
        """Return the last events of the stream of a run that has ended."""
        delta: JsonObject = {"stop_reason": self.stop_reason, "stop_sequence": None, "stop_details": None}
        usage = encode_usage(self._usage)
        event: JsonObject = {
            "type": "message_delta",
            "delta": {**delta, "container": None, **self._stop, "stop_reason": self.stop_reason},
            "usage": {name: usage[name] for name in _DELTA_USAGE},
        }
        marks = self._marks()
        return [{**event, w.OWN: marks} if marks else event, {"type": "message_stop"}]

    def _marks(self) -> JsonObject:
        """Return the members of the message's `babelgate` that are known only at the end of the run: output, usage and
        losses."""
        marks: JsonObject = {}
        if self.output is not None:
            marks["output"] = self.output
        if not is_whole(self._usage):
            marks["usage"] = self._usage
        if self._losses:
            marks["loss"] = losses_by_feature(self._losses)
        return marks

    def open_block(self, record: Record) -> Block | None:
        """Return the open block to which the text of a passage belongs. `record` is the first one of the passage
        (`babelgate.adapters.kit.server.passages`). Return None if its records must be written one by one."""
        event = record.event
        if self.has_ended or record.run_id != self._run_id or type(event) is not PartDelta:
            return None
        message_id = event.message_id or ""
        kind = self._kinds.get((message_id, event.index or 0))
        return None if kind is None else self._content.text_block(message_id, _key(kind, event.index))

    def extend(self, block: Block, texts: Sequence[str]) -> None:
        """Read a passage that continues a block. The caller writes the events of the stream."""
        self._content.extend(block, texts)

    # Writing

    def write(self, record: Record) -> list[JsonObject]:
        """Read a record, and return the events that it adds to the stream."""
        event = record.event
        if self.has_ended:
            return []
        if isinstance(event, InterruptRaised):
            self._questions[event.interrupt_id or ""] = event
        elif isinstance(event, InterruptAnswered):
            self._questions.pop(event.interrupt_id, None)
        if record.run_id != self._run_id:
            return []
        write = self._HANDLERS.get(type(event))
        if write is None:
            return []
        write(self, event)
        return self._content.take()

    def end_task(self, event: Event) -> None:
        """Read an event of the task that follows the end of the run. If the task was cancelled while it waited for an
        answer, set the fault `CANCELLED`."""
        if self.is_paused and isinstance(event, TaskChanged) and event.state is TaskState.CANCELLED:
            self.fault = CANCELLED

    def _run_created(self, event: RunCreated) -> None:
        self._in_words = as_object(event.extra.get(PROTOCOL)).get(WORDS) is True
        self._metadata = event.metadata

    def _run_started(self, event: RunStarted) -> None:
        if not event.is_restart:
            return
        if event.void is None:
            self.is_broken = self.is_broken or self.has_output
            self._reset()
        elif self._content.drop(event.is_void):
            self.is_broken = True
            self._kinds = {key: kind for key, kind in self._kinds.items() if key[0] not in event.void}

    def _message_started(self, event: MessageStarted) -> None:
        self._content.begin_message(event)

    def _part_added(self, event: PartAdded) -> None:
        message_id, part, content = event.message_id or "", event.part, self._content
        if event.open:
            self._kinds[message_id, event.index or 0] = type(part)
        match part:
            case TextPart():
                self._add_text(message_id, part)
            case RefusalPart():
                mark = content.mark(PartAdded(part=part.replace(text="", extra={}), open=True))
                content.add_text(message_id, _key(RefusalPart, event.index), part.text, "text", mark)
            case ReasoningPart():
                self._add_reasoning(message_id, event.index, part)
            case DataPart():
                self._data.append(part.data)
                block = part.data if as_object(part.extra.get(PROTOCOL)).get(BLOCK) is True else None
                mark = content.mark(PartAdded(part=part.replace(extra={})))
                if isinstance(block, dict):
                    content.add_whole(message_id, as_object(block))
                else:
                    content.add_shown(message_id, json_text(part.data), mark)
            case FilePart():
                portable = content.portable(part)
                content.add_shown(message_id, _file_text(portable), content.mark(PartAdded(part=portable)))
            case AnnotationPart():
                self._cite(message_id, part)
            case ToolCallPart():
                self._add_call(message_id, event, part)
            case ToolResultPart():
                self._add_result(part.call_id, part.output, is_error=part.error, mark=None)

    def _add_text(self, message_id: str, part: TextPart) -> None:
        is_aside = self._content.is_aside(message_id)
        mark = self._content.mark(PartAdded(part=part.replace(text="", extra={}), open=True)) if part.metadata else None
        growth = "thinking" if is_aside else "text"
        self._content.add_text(message_id, _key(TextPart, None), part.text, growth, mark)

    def _add_reasoning(self, message_id: str, index: int | None, part: ReasoningPart) -> None:
        extra = as_object(part.extra.get(PROTOCOL))
        if as_text(extra.get("redacted")):
            self._content.add_whole(message_id, {"type": "redacted_thinking", "data": extra["redacted"]})
            return
        is_aside = self._content.is_aside(message_id)
        mark = self._content.mark(PartAdded(part=ReasoningPart(text=""), open=True)) if is_aside else None
        self._content.add_text(message_id, _key(ReasoningPart, index), part.text, "thinking", mark)

    def _cite(self, message_id: str, part: AnnotationPart) -> None:
        citation: JsonObject = as_object(part.extra.get(PROTOCOL)).get("citation") or {
            "type": "web_search_result_location",
            "url": part.url or "",
            "title": part.title,
            "cited_text": part.description or "",
            "encrypted_index": "",
        }
        mark = self._content.mark(PartAdded(part=part.replace(extra={})))
        start: JsonObject = {"type": "text", "text": "", "citations": []}
        block = self._content.open(message_id, object(), start, None, mark)
        delta: JsonObject = {"type": "citations_delta", "citation": citation}
        self._content.events.append({"type": "content_block_delta", "index": block.index, "delta": delta})
        self._content.close()
        block.start = {**block.start, "citations": [citation]}  # a stream begins the block without its citations

    def _part_delta(self, event: PartDelta) -> None:
        message_id, content = event.message_id or "", self._content
        kind = self._kinds.get((message_id, event.index or 0))
        if kind is None:
            return
        key = _key(kind, event.index)
        block = content.text_block(message_id, key)
        if block is not None:
            content.grow(block, event.text)
        elif kind is TextPart:
            self._add_text(message_id, TextPart(text=event.text))
        elif kind is ReasoningPart:
            content.add_text(message_id, key, event.text, "thinking")
        elif kind is RefusalPart:
            mark = content.mark(PartAdded(part=RefusalPart(text=""), open=True))
            content.add_text(message_id, key, event.text, "text", mark)

    def _part_ended(self, event: PartEnded) -> None:
        message_id = event.message_id or ""
        kind = self._kinds.pop((message_id, event.index or 0), None)
        if kind is None:
            return
        block = self._content.text_block(message_id, _key(kind, event.index))
        signature = as_text(as_object(event.extra.get(PROTOCOL)).get("signature"))
        if block is None or kind is TextPart:  # the next text part of the message continues the block
            return
        if signature and block.growth == "thinking":
            delta: JsonObject = {"type": "signature_delta", "signature": signature}
            self._content.events.append({"type": "content_block_delta", "index": block.index, "delta": delta})
            self._content.close()
            block.start = {**block.start, "signature": signature}
            return
        self._content.close()

    def _message_ended(self, event: MessageEnded) -> None:
        message_id = event.message_id or ""
        self._content.end_message(message_id)
        for name, count in event.usage.items():
            if isinstance(count, int):
                self._usage = {**self._usage, name: self._usage.get(name, 0) + count}
        if not self._content.is_aside(message_id) and event.finish in ("length", "refusal"):
            self._finish = {"length": "max_tokens", "refusal": "refusal"}[event.finish]

    # Tools

    def _add_call(self, message_id: str, event: PartAdded, part: ToolCallPart) -> None:
        if part.side == "caller" or part.call_id in self._calls:
            return  # a call of the caller's tool is shown by its question
        self._calls[part.call_id] = False
        key = _key(ToolCallPart, event.index)
        block = self._content.open(message_id, key, self._tool_use(part.call_id, part.name, {}), "input", None)
        self._content.grow(block, part.arguments)
        if not event.open:
            self._content.close()

    def _tool_use(self, call_id: str, name: str, arguments: JsonObject) -> JsonObject:
        return {
            "type": "mcp_tool_use",
            "id": call_id,
            "name": name,
            "server_name": self._agent,
            "input": arguments,
        }

    def _tool_started(self, event: ToolStarted) -> None:
        call_id = event.call_id or ""
        if call_id in self._calls:
            return
        self._calls[call_id] = False
        block = as_object(event.extra.get(PROTOCOL)).get(BLOCK)
        if isinstance(block, dict):
            self._content.add_whole(None, as_object(block))
            return
        arguments = event.input if isinstance(event.input, dict) else {}
        is_exact = isinstance(event.input, dict) and not event.node
        mark = None if is_exact else self._content.mark(event)
        self._content.add_whole(None, self._tool_use(call_id, event.name, as_object(arguments)), mark)

    def _tool_ended(self, event: ToolEnded) -> None:
        call_id = event.call_id or ""
        if call_id not in self._calls:
            self._tool_started(ToolStarted(call_id=call_id, name=event.name))
        block = as_object(event.extra.get(PROTOCOL)).get(BLOCK)
        if isinstance(block, dict):
            if self._calls[call_id] is False:
                self._calls[call_id] = True
                self._content.add_whole(None, as_object(block))
            return
        is_exact = isinstance(event.output, str) and event.fault is None
        output = event.output
        if event.fault is not None and output is None:
            output = event.fault.message
        mark = None if is_exact else self._content.mark(event)
        self._add_result(call_id, output, is_error=event.fault is not None, mark=mark)

    def _add_result(self, call_id: str, output: Json, *, is_error: bool, mark: JsonObject | None) -> None:
        """Add a block with the result of a call, unless one was added before."""
        if self._calls.get(call_id) is not False:
            return
        self._calls[call_id] = True
        text = output if isinstance(output, str) else "" if output is None else json_text(output)
        content = [{"type": "text", "text": text, "citations": None}] if text else []
        block: JsonObject = {"type": "mcp_tool_result", "tool_use_id": call_id, "is_error": is_error}
        self._content.add_whole(None, {**block, "content": content}, mark)

    # Everything without a form in the API

    def _artifact_added(self, event: ArtifactAdded) -> None:
        if event.origin == "caller":
            return
        part = self._content.portable(event.part)
        text = (
            _file_text(part)
            if isinstance(part, FilePart)
            else json_text(part.data)
            if isinstance(part, DataPart)
            else getattr(part, "text", "")
        )
        self._content.add_shown(None, text, self._content.mark(event.replace(part=part)))

    def _show_aside(self, event: StepStarted | StepEnded | Custom) -> None:
        encoded = encode_without_extra(event)
        self._events.append(encoded)
        self._content.ping({"event": encoded})

    def _native(self, event: Native) -> None:
        if event.protocol != PROTOCOL:
            return
        if event.event == BLOCK and as_object(event.data):
            self._content.add_whole(None, as_object(event.data))
        elif event.event == END:
            self._stop = as_object(event.data)

    def _loss_noted(self, event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    # The end

    def _run_ended(self, event: RunEnded) -> None:
        self.has_ended = True
        self._content.close()
        self._usage = event.usage or self._usage
        match event.status:
            case RunStatus.SUCCESS:
                self.stop_reason = self._finish or as_text(self._stop.get("stop_reason")) or "end_turn"
                self._end_with_output(event.output)
            case RunStatus.PAUSED:
                self._ask()
            case RunStatus.CANCELLED:
                self.fault = CANCELLED
            case _:
                self.fault = event.fault or FAILED

    def _end_with_output(self, output: Json) -> None:
        """Add the structured output of the run as a text block. Leave it out if an earlier block has the same data, or
        if the message has text."""
        self.output = output
        if output is not None and output not in self._data and not self.text:
            self._content.add_shown(None, json_text(output), {"shows": "output"})

    def _ask(self) -> None:
        self.is_paused, self.stop_reason = True, "end_turn"
        for question in self._questions.values():
            call_id = encode_call_id(self._task_id, question.interrupt_id or "")
            portable = question.replace(message=self._content.portable_message(question.message))
            mark: JsonObject = {"question": {"id": call_id, "event": encode_without_extra(portable)}}
            is_call = called_part(question) is not None
            if self._in_words and not is_call:
                self._content.add_shown(None, question_text(question), mark)
                continue
            self.stop_reason = "tool_use"
            self.has_called = self.has_called or is_call
            call = encode_question(self._task_id, question)
            block = self._content.open(None, call_id, {**call, "input": {}}, "input", mark)
            self._content.grow(block, json_text(call["input"]))
            self._content.close()

    _HANDLERS: ClassVar[Mapping[type, Any]] = {
        RunCreated: _run_created,
        RunStarted: _run_started,
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        ArtifactAdded: _artifact_added,
        StepStarted: _show_aside,
        StepEnded: _show_aside,
        Custom: _show_aside,
        Native: _native,
        LossNoted: _loss_noted,
        RunEnded: _run_ended,
    }


def _is_stand_in(mark: JsonObject) -> bool:
    """Return True if a text block with this mark only shows something else to clients, such as a file or a question."""
    event = as_object(mark.get("event"))
    return bool(mark.keys() & {"question", "shows"}) or (bool(event) and event.get("open") is not True)


def _key(kind: type, index: int | None) -> object:
    """Return the key of the block for a part. All texts of a message share one, because agents may send a text in any
    number of parts."""
    return "text" if kind is TextPart else (kind, index or 0)


def _file_text(part: FilePart | Any) -> str:
    """Return the text that shows a file: a link in Markdown."""
    name = part.name or "file"
    return f"[{name}]({part.url})" if part.url else f"[{name}]"
