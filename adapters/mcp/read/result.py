"""Results of a tool on another server, and the notifications before them, as the events of a run."""

from base64 import b64decode
from binascii import Error as BinasciiError
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from babelgate.adapters.kit.json import ABSENT, Absent, parse_text
from babelgate.adapters.mcp.codec.questions import FORM
from babelgate.adapters.mcp.read.questions import decode_request
from babelgate.canonical import DataPart, Event, Fault, FaultCode, FaultError, FilePart, Part, RunStatus, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    LossNoted,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunEnded,
)
from babelgate.canonical.json import as_object, objects_in
from babelgate.canonical.state import RunReason
from babelgate.canonical.value import Json, JsonObject

_WORDS: Final = 8192
"""Maximum length of a progress message, in characters. Chosen: longer messages are split."""


def mark_of(value: JsonObject) -> JsonObject:
    """Return the member `babelgate` of `_meta`, by which another Babelgate marks what MCP has no field for."""
    return as_object(as_object(value.get("_meta")).get("babelgate"))


class ResultReader:
    """Reader of the messages of one call: notifications, and the result that ends it."""

    def __init__(self) -> None:
        self.has_ended = False
        """True if the result of the call was read. The run has ended, or waits for answers."""
        self.task_id: str | None = None
        """Id of the task that the server returned instead of a result."""

    def read_notification(self, message: JsonObject) -> Sequence[Event]:
        """Return the events for a notification: a progress message (SPEC/basic/utilities/progress). Pieces of the
        answer from another Babelgate are skipped, because the result contains the whole text."""
        params = as_object(message.get("params"))
        words = params.get("message")
        if message.get("method") != "notifications/progress" or mark_of(params).get("text") is True:
            return ()
        if not isinstance(words, str) or not words:
            words = _amount(params)
        return self._progress(words)

    def _progress(self, words: str) -> Sequence[Event]:
        pieces = [words[at : at + _WORDS] for at in range(0, len(words), _WORDS)]
        return self._message([TextPart(text=piece) for piece in pieces], phase="progress") if pieces else ()

    def _message(self, parts: Sequence[Part], **start: Any) -> list[Event]:
        return [MessageStarted(**start), *(PartAdded(part=part) for part in parts), MessageEnded()]

    def read_result(self, result: JsonObject) -> Sequence[Event]:
        """Return the events for the result of a call, or for that of a task. A result with `isError` ends the run with
        its last text as the fault, after its other content. Raises agent_invalid if it is no result."""
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
            return read_questions(as_object(result.get("inputRequests")), {"requestState": state})
        if not isinstance(result.get("content"), list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server returned a result without content")
        return self._output(result)

    def _output(self, result: JsonObject) -> list[Event]:
        blocks = objects_in(result["content"])
        structured: Json = result.get("structuredContent")
        fault: str | None = None
        if result.get("isError") is True:
            texts = [block for block in blocks if block.get("type") == "text"]
            fault = str(texts[-1].get("text") or "") if texts else ""
            blocks = [block for block in blocks if not texts or block is not texts[-1]]
        elif structured is not None:
            blocks = [block for block in blocks if not _is_copy(block, structured)]
        events: list[Event] = [*_losses(result), *self._contents(blocks)]
        if fault is not None:
            reason = fault or "The agent's tool failed and did not say why"
            failure = Fault(code=FaultCode.AGENT_FAILED, message=reason)
            events.append(RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=failure))
        elif structured is not None:
            events.append(RunEnded(output=structured))
        return events

    def _contents(self, blocks: Iterable[JsonObject]) -> list[Event]:
        """Return the events for the blocks of a result: artifacts that another Babelgate has marked, and one message
        of all other parts."""
        artifacts: list[Event] = []
        parts: list[Part] = []
        for block in blocks:
            part = decode_block(block)
            if part is None:
                continue
            artifact = as_object(mark_of(block).get("artifact"))
            if artifact:
                name, description = artifact.get("name"), artifact.get("description")
                artifacts.append(
                    ArtifactAdded(
                        name=name if isinstance(name, str) else None,
                        description=description if isinstance(description, str) else None,
                        part=part,
                    )
                )
            else:
                parts.append(part)
        return [*artifacts, *(self._message(parts) if parts else ())]


def read_questions(requests: JsonObject, extra: JsonObject) -> list[Event]:
    """Return the questions of a result or of a task: each request of the server to its client, by key. `extra` is
    stored with each question, for the request that answers it. Raises agent_invalid for a method that the gateway does
    not offer, such as sampling, and if there is no question."""
    events: list[Event] = []
    for key, request in requests.items():
        members = as_object(request)
        if members.get("method") != FORM:
            raise FaultError(
                FaultCode.AGENT_INVALID,
                f"The agent's server needs {str(members.get('method'))[:100]}, which has no form",
            )
        events.append(decode_request(as_object(members.get("params")), {**extra, "key": key}))
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
            return TextPart(text=text) if text else None
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
