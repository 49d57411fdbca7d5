"""Encoding of a task's records as the result of a tool call: the agent's output, or the questions at which it stopped.
Also the progress messages before the result."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from babelgate.adapters.kit.extension import Slice
from babelgate.adapters.kit.json import json_text
from babelgate.adapters.mcp.carries import CARRIES
from babelgate.adapters.mcp.codec.questions import encode_question, encode_questions, question_text
from babelgate.adapters.mcp.codec.run_id import encode_run_id
from babelgate.adapters.mcp.codec.uris import artifact_uri, file_uri
from babelgate.adapters.mcp.errors import CANCELLED, STOPPING, encode_fault_facts
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.adapters.mcp.write.marks import Marks, encode_citation
from babelgate.adapters.mcp.write.stored import file_contents
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
    Task,
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
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Loss, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_FAILED = Fault(code=FaultCode.AGENT_FAILED, message="The agent failed and did not say why.")


@dataclass(frozen=True, slots=True)
class ProgressText:
    """Text of one progress notification: a progress message of the agent, or the name of a tool or step that
    started."""

    text: str
    is_activity: bool = False
    """True for the name of a tool or step, which is also in the marks of the result."""


@dataclass(slots=True)
class _Content:
    """Content block of the result, built from the parts of one message or from one artifact."""

    run_id: str | None
    message_id: str | None
    artifact_id: str | None = None
    """Id of the artifact; None for the parts of a message."""
    text: list[str] = field(default_factory=list[str])
    file: FilePart | None = None
    pieces: list[bytes] = field(default_factory=list[bytes])
    values: list[Json] = field(default_factory=list[Json])
    """Data of the data parts whose JSON is in `text`."""
    mark: JsonObject = field(default_factory=dict[str, Any])
    """Member `babelgate` of the block's `_meta`."""


class ResultWriter:
    """Writer of one tool result. It must receive all records of a task.

    The result contains the output after the record `since`. From earlier records it takes only the open questions, the
    task's state, and the records for the Babelgate extension.
    """

    def __init__(self, task: Task, since: int, run_id: str | None, *, whole: bool = False) -> None:
        """Create the writer for records of `task`.

        Args:
            task: Task of the call.
            since: Number of the last record before the result, which contains only later output.
            run_id: Id of the run whose end ends the result. None means the first run that ends after `since`.
            whole: True if the result covers all runs of the task, and so ends with the last one.
        """
        self.has_ended = False
        self.task = task
        self.state = TaskState.SUBMITTED
        self._whole = whole
        self.status: RunStatus | None = None
        self.fault: Fault | None = None
        self.output: Json = None
        self.run_id = run_id
        self._since = since
        self._last_run = run_id
        self._questions: dict[str, InterruptRaised] = {}
        self._blocks: dict[tuple[str, object], _Content] = {}
        self._hidden: set[str] = set()
        """Ids of messages that are not part of the answer, such as tool results."""
        self._open_progress: dict[str, list[str]] = {}
        """Text of each open progress message, in pieces, by message id."""
        self._losses: dict[Loss, None] = {}
        self._marks = Marks(self._losses)
        self._thoughts: dict[tuple[str, int], list[str]] = {}
        """Text of each thought, in pieces, by message id and index of the part."""
        self._message_metadata: dict[str, JsonObject] = {}
        self._progress: list[ProgressText] = []
        self._new_text: list[str] = []
        self._record: Record | None = None
        self.notified_until = 0
        """Number of the last record about which the client was notified by an earlier call."""
        self.records: Slice | None = None
        """Collector of records for the Babelgate extension. None: the client did not activate it."""

    @property
    def questions(self) -> tuple[InterruptRaised, ...]:
        """Open questions of the task."""
        return tuple(self._questions.values())

    @property
    def is_paused(self) -> bool:
        """True if the run has stopped for questions."""
        return self.has_ended and self.status is RunStatus.PAUSED and self.fault is None

    @property
    def has_output(self) -> bool:
        """True if the result has content, or the run has a structured output."""
        return bool(self._blocks) or self.output is not None

    def resume(self, run_id: str | None) -> None:
        """Continue the result after an answer. It then ends with the run `run_id`; None means with the next run that
        ends."""
        self.has_ended, self.run_id, self.status, self.fault = False, run_id, None, None

    # The result

    @property
    def _data(self) -> list[Json]:
        return [value for block in self._blocks.values() for value in block.values]

    def structured_output(self) -> JsonObject | None:
        """Return the agent's structured output: the run's output, or the only data part. Return None unless it is an
        object."""
        if isinstance(self.output, dict):
            return self.output
        single = self._data[0] if self.output is None and len(self._data) == 1 else None
        return single if isinstance(single, dict) else None

    def result(self, *, so_far: bool = False) -> JsonObject:
        """Return the tool result as JSON (SPEC/server/tools, Tool Result). `so_far`: only the output until now, without
        questions and error."""
        content = self._content()
        result: JsonObject = {"content": content}
        if so_far:
            return {**result, "_meta": self.metadata()}
        if not self.has_ended and self.fault is None:
            self.fault = STOPPING
        if self.fault is not None:
            content.append(_text(self.fault.message))
            result["isError"] = True
        elif self.is_paused:
            question: JsonObject = {
                "run_id": encode_run_id(self.task.task_id),
                "status": "input_required",
                "interrupts": [encode_question(each) for each in self.questions],
            }
            content += [_text(question_text(each)) for each in self.questions]
            content.append(_text(json_text(question)))
            result["structuredContent"] = question
        elif (structured := self.structured_output()) is not None:
            result["structuredContent"] = structured
        if not content:
            content.append(_text(""))
        result["_meta"] = self.metadata()
        return result

    def metadata(self) -> JsonObject:
        """Return the member `_meta` of the result."""
        meta: JsonObject = {"babelgate": self.meta()}
        return meta if self.records is None else {**meta, RECORDS: self.records.envelope()}

    def question_metadata(self) -> JsonObject:
        """Return the member `_meta` of a result that only asks questions. As such a result has no content, `_meta`
        contains the output so far."""
        metadata = self.metadata()
        if self.has_output:
            metadata["babelgate"]["result"] = {"content": self._content()}
        return metadata

    def meta(self) -> JsonObject:
        """Return the member `babelgate` of `_meta`: the ids of the run, and the fault and losses, if any."""
        meta: JsonObject = {"thread_id": self.task.thread_id, "task_id": self.task.task_id}
        if self._last_run is not None:
            meta["run_id"] = self._last_run
        if self.fault is not None:
            meta |= encode_fault_facts(self.fault)
        if self.task.metadata:
            meta["metadata"] = self.task.metadata
        meta |= self._marks.encode()
        if self.is_paused:
            meta |= encode_questions(self.questions)
        if self._losses:
            meta["loss"] = losses_by_feature(self._losses)
        return meta

    def _content(self) -> list[JsonObject]:
        blocks: list[JsonObject] = []
        message_id: str | None = None
        for block in self._blocks.values():
            encoded = _block(block)
            if encoded is None:
                continue
            mark = dict(block.mark)
            if "artifact" in mark and len(sizes := _piece_sizes(block)) > 1:
                mark["artifact"] = {**mark["artifact"], "pieces": sizes}
            if block.message_id is not None and block.message_id != message_id:
                metadata = self._message_metadata.get(block.message_id, {})
                if metadata or message_id is not None:
                    mark["message"] = {"metadata": metadata} if metadata else {}
                message_id = block.message_id
            blocks.append(_with_mark(encoded, mark))
        if self.output is not None and self.output not in self._data and self.fault is None:
            # SPEC/server/tools, Structured Content: also sent as text, for clients that do not support it.
            whole = isinstance(self.output, str)
            if not (whole and any(each.get("text") == self.output for each in blocks)):
                blocks.append(_text(self.output if isinstance(self.output, str) else json_text(self.output)))
        return blocks

    # Records

    def write(self, record: Record) -> list[ProgressText]:
        """Read a record. Return the progress messages that it completes."""
        if self.records is not None:
            self.records.add(record)
        event = record.event
        if isinstance(event, InterruptRaised):
            self._questions[event.interrupt_id or ""] = event
            if event.ask == "auth":
                self._lose(Feature.AUTH_REQUEST)
        elif isinstance(event, InterruptAnswered):
            self._questions.pop(event.interrupt_id, None)
        elif isinstance(event, TaskChanged):
            self.state = event.state
        elif isinstance(event, RunCreated) and self._whole:
            self.resume(None)
        if record.seq <= self._since or self.has_ended:
            return []
        self._last_run = record.run_id or self._last_run
        self._record = record
        self._progress = []
        write = self._WRITES.get(type(event))
        if write is not None:
            write(self, event)
        if record.seq <= self.notified_until:
            self._new_text.clear()
            return []
        return self._progress

    def take_text(self) -> str:
        """Return the text that was added to the result since the previous call."""
        text, self._new_text = "".join(self._new_text), []
        return text

    def _lose(self, feature: Feature) -> None:
        if CARRIES[feature].is_lost():
            self._losses[Loss(feature=feature.value, how=CARRIES[feature].how)] = None

    def _entry(self, key: tuple[str, object], message_id: str | None) -> _Content:
        run_id = self._record.run_id if self._record is not None else None
        artifact_id = str(key[1]) if key[0] == "artifact" else None
        return self._blocks.setdefault(key, _Content(run_id, message_id, artifact_id))

    def _run_started(self, event: RunStarted) -> None:
        if not event.is_restart:
            return
        run_id = self._record.run_id if self._record is not None else None
        self._blocks = {
            key: block
            for key, block in self._blocks.items()
            if block.run_id != run_id or not event.is_void(block.message_id)
        }
        if event.is_void(None):
            self._marks.drop(run_id)

    def _message_started(self, event: MessageStarted) -> None:
        if event.metadata and event.phase == "answer":
            self._message_metadata[event.message_id or ""] = event.metadata
        if event.phase == "progress":
            self._open_progress[event.message_id or ""] = []
        elif event.role == "agent":
            return
        self._hidden.add(event.message_id or "")

    def _part_added(self, event: PartAdded) -> None:
        message_id, part = event.message_id or "", event.part
        if message_id in self._open_progress and isinstance(part, TextPart):
            self._open_progress[message_id].append(part.text)
        if message_id in self._hidden and not isinstance(part, ToolCallPart | ToolResultPart):
            return
        self._write_part(part, (message_id, event.index or 0), event.message_id)

    def _write_part(self, part: Part, key: tuple[str, object], message_id: str | None) -> None:
        run_id = self._record.run_id if self._record is not None else None
        match part:
            case TextPart():
                self._entry(key, message_id).text.append(part.text)
                self._new_text.append(part.text)
            case RefusalPart():
                block = self._entry(key, message_id)
                block.mark["refusal"] = True
                block.text.append(part.text)
                self._new_text.append(part.text)
            case DataPart():
                block = self._entry(key, message_id)
                block.mark["data"] = True
                block.values.append(part.data)
                block.text.append(json_text(part.data))
            case FilePart():
                block = self._entry(key, message_id)
                block.file = block.file or part
                if part.inline is not None:
                    block.pieces.append(part.inline)
                elif part.url is None:
                    self._lose(Feature.FILE_BYTES)
            case ReasoningPart():
                self._thoughts[(str(key[0]), int(str(key[1])))] = self._marks.add_reasoning(run_id, part)
            case AnnotationPart():
                self._cite(part, message_id)
            case ToolCallPart() | ToolResultPart():
                self._marks.add_activity(run_id, part)
        if part.metadata and key in self._blocks:
            self._blocks[key].mark["metadata"] = part.metadata

    def _cite(self, part: AnnotationPart, message_id: str | None) -> None:
        """Mark the newest block of a message with a citation. A message without a block has none, which is a loss."""
        blocks = [block for block in self._blocks.values() if block.message_id == message_id]
        if blocks:
            blocks[-1].mark.setdefault("citations", []).append(encode_citation(part))
        else:
            self._losses[Loss(feature=Feature.CITATION.value, how="a citation without a text before it")] = None

    def _part_delta(self, event: PartDelta) -> None:
        message_id = event.message_id or ""
        pieces = self._thoughts.get((message_id, event.index or 0))
        if pieces is not None:
            self._marks.add_piece(pieces, event.text)
            return
        if message_id in self._open_progress:
            self._open_progress[message_id].append(event.text)
        block = self._blocks.get((message_id, event.index or 0))
        if block is not None and block.file is None:
            block.text.append(event.text)
            self._new_text.append(event.text)

    def _message_ended(self, event: MessageEnded) -> None:
        if event.usage:
            self._marks.add_usage(event.usage)
        texts = self._open_progress.pop(event.message_id or "", None)
        if texts:
            text = "".join(texts)
            self._marks.add_progress(self._last_run, text)
            self._progress.append(ProgressText(text))

    def _artifact(self, event: ArtifactAdded) -> None:
        if event.origin != "agent":
            return
        part = event.part
        if isinstance(part, FilePart) and part.name is None and event.name is not None:
            part = part.replace(name=event.name)
        key = ("artifact", event.artifact_id)
        self._write_part(part, key, None)
        if (block := self._blocks.get(key)) is not None and "artifact" not in block.mark:
            described: JsonObject = {
                "id": event.artifact_id,
                "name": event.name,
                "description": event.description,
                "metadata": event.metadata or None,
            }
            block.mark["artifact"] = {name: value for name, value in described.items() if value is not None}

    def _run_ended(self, event: RunEnded) -> None:
        record = self._record
        if self.run_id is not None and record is not None and record.run_id != self.run_id:
            return
        self.has_ended = True
        self.status, self.output = event.status, event.output
        if event.usage:
            self._marks.add_usage(event.usage)
        match event.status:
            case RunStatus.SUCCESS | RunStatus.PAUSED:
                self.fault = None
            case RunStatus.CANCELLED:
                self.fault = CANCELLED
            case _:
                self.fault = event.fault or _FAILED

    def _task_changed(self, event: TaskChanged) -> None:
        if event.state in TERMINAL and event.state is not TaskState.COMPLETED:
            self.has_ended = True
            cancelled = event.state is TaskState.CANCELLED
            self.fault = CANCELLED if cancelled else self.fault or event.fault or _FAILED

    def _loss_noted(self, event: LossNoted) -> None:
        self._losses[Loss(feature=event.feature, how=event.how)] = None

    def _custom(self, event: Custom) -> None:
        self._marks.add_custom(self._last_run, event)

    def _activity(self, event: ToolStarted | ToolEnded | StepStarted | StepEnded) -> None:
        self._marks.add_activity(self._last_run, event)
        if isinstance(event, ToolStarted | StepStarted):
            self._progress.append(ProgressText(event.name, is_activity=True))

    _WRITES: ClassVar[Mapping[type, Any]] = {
        RunStarted: _run_started,
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        MessageEnded: _message_ended,
        ArtifactAdded: _artifact,
        RunEnded: _run_ended,
        TaskChanged: _task_changed,
        LossNoted: _loss_noted,
        Custom: _custom,
        ToolStarted: _activity,
        ToolEnded: _activity,
        StepStarted: _activity,
        StepEnded: _activity,
    }


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _piece_sizes(content: _Content) -> list[int]:
    """Return the sizes of an artifact's pieces: in characters of its text, or in bytes of its file."""
    return [len(piece) for piece in (content.pieces if content.file is not None else content.text)]


def _with_mark(block: JsonObject, mark: JsonObject) -> JsonObject:
    """Return a block with members added to `_meta.babelgate`."""
    if not mark:
        return block
    existing: JsonObject = block.get("_meta", {}).get("babelgate", {})
    return {**block, "_meta": {"babelgate": {**existing, **mark}}}


def _block(content: _Content) -> JsonObject | None:
    """Return a content block as JSON, or None for an empty text. It is a text, an image, audio, a resource link or an
    embedded resource (SPEC/server/tools, Tool Result)."""
    part = content.file
    if part is None:
        text = "".join(content.text)
        return _text(text) if text else None
    if part.url is not None:
        link: JsonObject = {"type": "resource_link", "uri": part.url, "name": part.name or part.url}
        return link if part.media_type is None else {**link, "mimeType": part.media_type}
    name, kind = part.name or "file", part.media_type or "application/octet-stream"
    uri = file_uri(part)
    if content.artifact_id is not None and content.run_id is not None:
        uri = artifact_uri(content.run_id, content.artifact_id)
    if not content.pieces and part.size != 0:
        return {"type": "resource_link", "uri": uri, "name": name, "mimeType": kind, "size": part.size}
    family = kind.partition("/")[0]
    if family in ("image", "audio"):
        data = b64encode(b"".join(content.pieces)).decode()
        return {"type": family, "data": data, "mimeType": kind, "_meta": {"babelgate": {"name": name, "uri": uri}}}
    return {"type": "resource", "resource": file_contents(uri, part.replace(inline=b"".join(content.pieces)))}
