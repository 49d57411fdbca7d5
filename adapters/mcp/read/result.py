"""Results of a tool on another server, and the notifications before them, as the events of a run."""

from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from babelgate.adapters.kit.json import ABSENT, Absent, parse_text
from babelgate.adapters.mcp.codec.questions import FORM
from babelgate.adapters.mcp.read.activity import read_activity
from babelgate.adapters.mcp.read.questions import decode_request
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    FaultError,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    RunStatus,
    TextPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunEnded,
)
from babelgate.canonical.fault import BLAME
from babelgate.canonical.json import as_list, as_object, objects_in
from babelgate.canonical.state import RunReason
from babelgate.canonical.value import Json, JsonObject

_WORDS: Final = 8192
"""Maximum length of a progress message, in characters. Chosen: longer messages are split."""


_LISTS: Final = ("reasoning", "activity", "custom")
"""Kinds of marks that are lists of values."""


def mark_of(value: JsonObject) -> JsonObject:
    """Return the member `babelgate` of `_meta`, by which another Babelgate marks what MCP has no field for."""
    return as_object(as_object(value.get("_meta")).get("babelgate"))


class ResultReader:
    """Reader of the messages of one call: notifications, and the result that ends it."""

    def __init__(self, read_before: JsonObject | None = None) -> None:
        """Create the reader. `read_before` has the numbers of blocks and marks that were read before the question which
        this call answers, by kind. The result of another Babelgate contains them again, so they are skipped."""
        self._read_before = dict(read_before or {})
        self.has_ended = False
        """True if the result of the call was read. The run has ended, or waits for answers."""
        self.task_id: str | None = None
        """Id of the task that the server returned instead of a result."""
        self._progress_read = self._count("progress")
        """Number of progress messages of a task that were read."""

    def read_notification(self, message: JsonObject) -> Sequence[Event]:
        """Return the events for a notification: a progress message (SPEC/basic/utilities/progress). Pieces of the
        answer, and names of tools and steps, from another Babelgate are skipped, because the result contains them."""
        params = as_object(message.get("params"))
        words = params.get("message")
        if message.get("method") != "notifications/progress" or mark_of(params).keys() & {"text", "activity"}:
            return ()
        self._progress_read += 1
        if not isinstance(words, str) or not words:
            words = _amount(params)
        return self._progress(words)

    def _progress(self, words: str) -> Sequence[Event]:
        pieces = [words[at : at + _WORDS] for at in range(0, len(words), _WORDS)]
        return self._message([TextPart(text=piece) for piece in pieces], phase="progress") if pieces else ()

    def _message(self, parts: Sequence[Part], **start: Any) -> list[Event]:
        return [MessageStarted(**start), *(PartAdded(part=part) for part in parts), MessageEnded()]

    def read_result(self, result: JsonObject) -> Sequence[Event]:
        """Return the events for the result of a call or of a task. A result with `isError` ends the run with a fault:
        its text is the last text block, and all other blocks become output before it. Raises agent_invalid if it is no
        result."""
        kind = result.get("resultType", "complete")
        if kind == "task":
            task_id = result.get("taskId")
            if not isinstance(task_id, str) or not task_id:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's server returned a task without an id")
            self.task_id = task_id
            return ()
        self.has_ended = True
        if kind == "input_required":
            state = result.get("requestState")
            return self.read_pause(result, {"requestState": state})
        if not isinstance(result.get("content"), list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server returned a result without content")
        return self._output(result)

    def _output(self, result: JsonObject) -> list[Event]:
        blocks = objects_in(result["content"])[self._count("content") :]
        structured: Json = result.get("structuredContent")
        fault: str | None = None
        if result.get("isError") is True:
            texts = [block for block in blocks if block.get("type") == "text"]
            fault = str(texts[-1].get("text") or "") if texts else ""
            blocks = [block for block in blocks if not texts or block is not texts[-1]]
        elif _is_wrapped(blocks, structured):
            structured = None
        elif structured is not None:
            blocks = [block for block in blocks if not _is_copy(block, structured)]
        mark = self._new_marks(mark_of(result))
        progress = self._new_progress(mark.get("progress"))
        events: list[Event] = [*progress, *_losses(result), *read_activity(mark), *self._contents(blocks, mark)]
        usage = as_object(mark.get("usage"))
        if fault is not None:
            reason = fault or "The agent's tool failed and did not say why"
            failure = Fault(code=_fault_code(mark.get("fault")), message=reason)
            events.append(RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=failure, usage=usage))
        elif structured is not None or usage:
            events.append(RunEnded(output=structured, usage=usage))
        return events

    def _count(self, kind: str) -> int:
        count = self._read_before.get(kind)
        return count if isinstance(count, int) and count > 0 else 0

    def _new_marks(self, mark: JsonObject) -> JsonObject:
        """Return the marks without those that were read before."""
        new = {kind: as_list(mark.get(kind))[self._count(kind) :] for kind in _LISTS if kind in mark}
        return {**mark, **new}

    def read_pause(self, result: JsonObject, extra: JsonObject) -> list[Event]:
        """Return the events for a result, or a task, that asks questions: the output so far from another Babelgate, and
        the questions. `extra` is stored with each question."""
        mark = mark_of(result)
        questions = read_questions(result, {})
        output_blocks = objects_in(as_object(mark.get("result")).get("content"))
        if "structuredContent" in as_object(mark.get("result")):  # the content ends with the questions, and their JSON
            output_blocks = output_blocks[: -len(questions) - 1]
        new = self._new_marks(mark)
        output = [
            *self._new_progress(mark.get("progress")),
            *read_activity(new),
            *self._contents(output_blocks[self._count("content") :], new),
        ]
        counts = {kind: len(as_list(mark.get(kind))) for kind in (*_LISTS, "progress") if kind in mark}
        stored = {**extra, "read": {**counts, "content": len(output_blocks)}}
        return [*output, *read_questions(result, stored)]

    def _new_progress(self, listed: object) -> list[Event]:
        """Return the progress messages of a task that were not read before, of which another Babelgate lists all."""
        words = [each for each in as_list(listed) if isinstance(each, str) and each]
        new, self._progress_read = words[self._progress_read :], max(self._progress_read, len(words))
        return [event for each in new for event in self._progress(each)]

    def read_state(self, task: JsonObject) -> Sequence[Event]:
        """Return the events for the state of an active task: its new progress messages."""
        return self._new_progress(mark_of(task).get("progress"))

    def _contents(self, blocks: Iterable[JsonObject], mark: JsonObject) -> list[Event]:
        """Return the events for the blocks of a result: artifacts that another Babelgate has marked, and messages of
        all other parts. There is one message, unless blocks are marked as the first ones of others."""
        artifacts: list[Event] = []
        thoughts = [ReasoningPart(text=each) for each in as_list(mark.get("reasoning")) if isinstance(each, str)]
        messages: list[tuple[JsonObject, list[Part]]] = [({}, [*thoughts])]
        for block in blocks:
            part = decode_block(block)
            block_mark = mark_of(block)
            if part is None:
                continue
            if as_object(block_mark.get("artifact")):
                artifacts += _artifact(as_object(block_mark["artifact"]), part)
                continue
            if "message" in block_mark:
                metadata = as_object(as_object(block_mark["message"]).get("metadata"))
                if any(not isinstance(each, ReasoningPart) for each in messages[-1][1]):
                    messages.append((metadata, []))
                else:
                    messages[-1] = (metadata, messages[-1][1])
            messages[-1][1].append(part)
            messages[-1][1].extend(_citation(each) for each in objects_in(block_mark.get("citations")))
        message_events = [
            event for metadata, parts in messages if parts for event in self._message(parts, metadata=metadata)
        ]
        return [*artifacts, *message_events]


def _artifact(mark: JsonObject, part: Part) -> list[Event]:
    """Return an artifact in one or several pieces. The mark has the size of each piece."""
    pieces = _split(part, [size for size in as_list(mark.get("pieces")) if isinstance(size, int) and size >= 0])
    artifact_id = _text(mark.get("id")) if len(pieces) > 1 else None
    if artifact_id is None:
        pieces = [part]
    return [
        ArtifactAdded(
            artifact_id=artifact_id,
            name=_text(mark.get("name")),
            description=_text(mark.get("description")),
            part=piece,
            append=number > 0,
            last=number == len(pieces) - 1,
            metadata=as_object(mark.get("metadata")),
        )
        for number, piece in enumerate(pieces)
    ]


def _split(part: Part, sizes: Sequence[int]) -> list[Part]:
    """Return the pieces of a text or of a file. Return the part itself unless the sizes are those of all its pieces."""
    text = part.text if isinstance(part, TextPart) else None
    content = part.inline if isinstance(part, FilePart) else None
    if len(sizes) < 2 or sum(sizes) != len(text or content or b""):
        return [part]
    pieces: list[Part] = []
    at = 0
    for size in sizes:
        if isinstance(part, TextPart):
            pieces.append(part.replace(text=part.text[at : at + size]))
        elif isinstance(part, FilePart) and content is not None:
            pieces.append(part.replace(inline=content[at : at + size], size=size))
        at += size
    return pieces


def _citation(mark: JsonObject) -> AnnotationPart:
    start, end = mark.get("start"), mark.get("end")
    return AnnotationPart(
        start=start if isinstance(start, int) else None,
        end=end if isinstance(end, int) else None,
        url=_text(mark.get("url")),
        title=_text(mark.get("title")),
        description=_text(mark.get("description")),
    )


def _fault_code(code: object) -> FaultCode:
    """Return the code of a fault that another Babelgate marks, if it is one of an agent."""
    codes = [each for each in FaultCode if each == code and BLAME[each] == "upstream"]
    return codes[0] if codes else FaultCode.AGENT_FAILED


def read_questions(result: JsonObject, extra: JsonObject) -> list[Event]:
    """Return the questions of a result or of a task (`inputRequests`): each request of the server to its client.
    `extra` is stored with each question, with the key of its request.

    Raises agent_invalid for a method that the gateway does not offer, such as sampling, and if there is no question.
    """
    events: list[Event] = []
    marks = as_object(mark_of(result).get("questions"))
    for key, request in as_object(result.get("inputRequests")).items():
        members = as_object(request)
        if members.get("method") != FORM:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent's server needs {str(members.get('method'))[:100]}, which has no form",
            )
        events.append(
            decode_request(as_object(members.get("params")), {**extra, "key": key}, as_object(marks.get(key)))
        )
    if not events:
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server waits for input, and asks no question")
    return events


def decode_block(block: JsonObject) -> Part | None:
    """Return a content block as a part (SPEC/server/tools, Tool Result). Return None for an empty text. Raises
    agent_invalid for a block of an unknown type, because its content would be lost."""
    mark = mark_of(block)
    match block.get("type"):
        case "text" if isinstance(text := block.get("text"), str):
            value = parse_text(text) if mark.get("data") is True else ABSENT
            if not isinstance(value, Absent):
                return DataPart(data=value)
            if mark.get("refusal") is True:
                return RefusalPart(text=text)
            return TextPart(text=text, metadata=as_object(mark.get("metadata"))) if text else None
        case "image" | "audio":
            name = mark.get("name")
            raw = _bytes(block.get("data"))
            media_type = _text(block.get("mimeType"))
            return FilePart(name=_text(name), media_type=media_type, inline=raw, size=len(raw))
        case "resource_link" if isinstance(uri := block.get("uri"), str) and uri:
            return FilePart(name=_text(block.get("name")), media_type=_text(block.get("mimeType")), url=uri)
        case "resource":
            return decode_contents(as_object(block.get("resource")))
        case kind:
            raise FaultError(
                FaultCode.AGENT_INVALID, f"The agent's server returned content of the type {str(kind)[:50]!r}"
            )


def decode_contents(resource: JsonObject, name: str | None = None) -> FilePart:
    """Return the contents of a resource as a file (SPEC/server/resources, Resource Contents). `name` is used if the
    contents have none. Raises agent_invalid for contents that are neither text nor base64."""
    text, uri = resource.get("text"), _text(resource.get("uri")) or ""
    raw = text.encode() if isinstance(text, str) else _bytes(resource.get("blob"))
    media_type = _text(resource.get("mimeType")) or ("text/plain" if isinstance(text, str) else None)
    named = _text(mark_of(resource).get("name")) or name or _last_segment(uri)
    return FilePart(name=named, media_type=media_type, inline=raw, size=len(raw))


def _last_segment(uri: str) -> str | None:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    return unquote(parts.path.rstrip("/").rpartition("/")[2] or parts.netloc) or None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _bytes(value: object) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (BinasciiError, ValueError):
        pass
    raise FaultError(FaultCode.AGENT_INVALID, "The agent's server returned content that is not base64")


def _is_copy(block: JsonObject, structured: Json) -> bool:
    """Return True for a text block that repeats the structured content (SPEC/server/tools, Structured Content)."""
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and parse_text(text) == structured


def _is_wrapped(blocks: Sequence[JsonObject], structured: Json) -> bool:
    """Return True if the structured content only wraps the text, as the official Python SDK (mcp 2.3) does for a tool
    that returns a text: `{"result": text}`."""
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    return len(texts) == 1 and structured == {"result": texts[0]}


def _losses(result: JsonObject) -> list[Event]:
    """Return the losses that another Babelgate reports."""
    losses = as_object(mark_of(result).get("loss"))
    return [LossNoted(feature=name, how=how) for name, how in losses.items() if isinstance(how, str)]


def _amount(params: JsonObject) -> str:
    """Return the progress as text, such as `3/10`, if the notification has no message."""
    progress, total = params.get("progress"), params.get("total")
    if not isinstance(progress, int | float) or isinstance(progress, bool):
        return ""
    return f"{progress:g}/{total:g}" if isinstance(total, int | float) else f"{progress:g}"
