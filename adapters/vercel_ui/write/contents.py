"""Content of one assistant message: texts, reasoning, files, tools, artifacts and data of its runs → chunks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from babelgate.adapters.kit.json import ABSENT, json_text, parse_text
from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.write.view import ReplyView, media_type_of
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
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
from babelgate.canonical.value import Json, JsonObject

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Pattern of event names that become a type of data part: the custom event `weather` is sent as `data-weather`. An
event with another name is sent as `data-custom`."""
_RESERVED: Final = frozenset({"part", "output", "progress", "artifact", "step", "custom"})
"""Names of the gateway's own data parts, such as `data-progress`, which custom events cannot use."""
_SHOWN: Final = re.compile(r"image/|audio/|video/|application/pdf")
"""Media types of artifacts that are sent as a `file` chunk, too, because pages can show them."""
_DYNAMIC: Final[JsonObject] = {"dynamic": True, "providerExecuted": True}
"""Members of the chunks for calls of the agent's own tools. Without `providerExecuted`, the page would execute the
calls itself."""
_MAX_FALLBACK: Final = 64 * 1024
"""Maximum length of the text that shows an answer's data if the answer has no text, in characters. Chosen."""
_SOURCE_MEMBERS: Final = frozenset({"url", "title", "mediaType"})
"""Members of a source chunk that the source of a citation has, too."""
_OPEN_TYPES: Final[Mapping[type[Part], str]] = {TextPart: "text", RefusalPart: "text", ReasoningPart: "reasoning"}


@dataclass(slots=True)
class _OpenMessage:
    """Message of the agent that has begun but not ended."""

    is_progress: bool
    is_hidden: bool
    metadata: JsonObject
    """Metadata of the message until a chunk has carried it in its provider metadata, and then empty."""
    parts: int = 0
    has_text: bool = False
    """True if the message has a part with text."""


@dataclass(slots=True)
class _OpenPart:
    """Part with text or reasoning that has begun but not ended."""

    message_id: str
    part_id: str
    kind: str
    """Kind of the part's chunks: `text` or `reasoning`, or `progress` for a text that is sent as one data part at its
    end."""
    progress: list[str] = field(default_factory=list[str])
    citations: list[JsonObject] | None = None
    """Citations of the text for its `text-end`; None if they cannot be sent there."""


class Contents:
    """Encoder of the content of one assistant message: events of its runs → chunks."""

    def __init__(self, view: ReplyView) -> None:
        self._view = view
        self._messages: dict[str, _OpenMessage] = {}
        self._open: dict[tuple[str, int], _OpenPart] = {}
        self._calls: set[str] = set()
        """Ids of the calls of the agent's own tools for which a chunk was sent."""
        self._pieces: dict[str, int] = {}
        """Number of pieces of each artifact that the run has sent, by artifact id."""
        self._started: dict[str, StepStarted] = {}
        self.begin("")

    def begin(self, run_id: str) -> None:
        """Reset the state of a run, when it begins or a restart makes all of its content void."""
        self._run_id = run_id
        self._messages.clear()
        self._open.clear()
        self._pieces.clear()
        self._sent: set[str | None] = set()
        """Ids of the run's messages for which chunks were sent; None stands for chunks outside of messages, such as
        tool calls."""
        self._has_text = False
        self._ended: _OpenPart | None = None
        """Text that has ended, and whose `text-end` waits for the citations behind it."""
        self._fallback: list[tuple[str, str]] = []
        """Data for pages that show no data parts: pairs of the data part's type and the data as text. They are sent if
        the run has no text."""
        self._last_data: Json = None
        self.finish_reason = "stop"
        self.usage: JsonObject = {}
        """Token counts by name, summed over the messages of the run."""

    def has_void(self, event: RunStarted) -> bool:
        """Return True if a restart makes content void for which chunks were sent."""
        return any(event.is_void(message_id) for message_id in self._sent)

    def write(self, event: Any) -> list[w.Chunk]:
        """Return the chunks of one content event."""
        is_citation = isinstance(event, PartAdded) and isinstance(event.part, AnnotationPart)
        chunks = [] if is_citation else self._release()
        return [*chunks, *self._WRITES[type(event)](self, event)]

    def find_text(self, event: PartDelta) -> tuple[str, str] | None:
        """Return the chunk type and the part id for a delta and the ones after it, for example `text-delta` and `m1.0`.
        Return None if the part sends no chunk for a delta."""
        opened = self._open.get((event.message_id or "", event.index or 0))
        if opened is None or opened.kind == "progress" or self._ended is not None:
            return None
        return f"{opened.kind}-delta", opened.part_id

    def close(self) -> list[w.Chunk]:
        """End all open parts, and return the chunks that end them."""
        chunks = self._release()
        chunks += [chunk for opened in self._open.values() for chunk in self._end_part(opened)]
        self._open.clear()
        return [*chunks, *self._release()]

    def end(self, event: RunEnded) -> list[w.Chunk]:
        """Return the last chunks of a run: the ends of open parts, the structured output, and the data as text if the
        run has no text."""
        chunks = self.close()
        if event.output is not None:
            chunks.append({"type": "data-output", "id": f"{self._run_id}.output", "data": event.output})
            if self._last_data != event.output:
                self._show("data-output", json_text(event.output))
        if not self._has_text:
            chunks += self._fallback_text()
        return chunks

    def add_attachments(self, event: InterruptRaised) -> list[w.Chunk]:
        """Return the chunks for the files and data in the message of a question. Data that equals the question's value
        is left out."""
        parts = [
            part
            for part in event.message.parts
            if isinstance(part, FilePart) or (isinstance(part, DataPart) and part.data != event.value)
        ]
        opened = _OpenMessage(is_progress=False, is_hidden=False, metadata={})
        return [
            chunk
            for number, part in enumerate(parts)
            for chunk in self._part(opened, event.interrupt_id or "", number, part)
        ]

    # Messages

    def _message_started(self, event: MessageStarted) -> Iterator[w.Chunk]:
        self._messages[event.message_id or ""] = _OpenMessage(
            is_progress=event.phase == "progress",
            is_hidden=event.role in ("user", "system") and event.phase == "answer",
            metadata=event.metadata,
        )
        return iter(())

    def _part_added(self, event: PartAdded) -> Iterator[w.Chunk]:
        message_id = event.message_id or ""
        message = self._messages.get(message_id)
        if message is None or message.is_hidden:
            return
        index = message.parts if event.index is None else event.index
        message.parts = max(message.parts, index + 1)
        kind = _OPEN_TYPES.get(type(event.part))
        if kind is None:
            self._sent.add(message_id)
            yield from self._part(message, message_id, index, event.part)
            return
        yield from self._text_part(message, event, message_id, index, kind)

    def _text_part(
        self, message: _OpenMessage, event: PartAdded, message_id: str, index: int, kind: str
    ) -> Iterator[w.Chunk]:
        """Yield the chunks for the beginning of a part with text, a refusal or reasoning, and its end if it is
        complete. `kind` is `text` or `reasoning`."""
        text: str = getattr(event.part, "text", "")
        is_refusal = isinstance(event.part, RefusalPart)
        if is_refusal:
            self.finish_reason = "content-filter"
        opened = _OpenPart(message_id, f"{message_id}.{index}", "progress" if message.is_progress else kind)
        if opened.kind == "progress" and kind == "reasoning":
            opened.kind = kind
        if opened.kind == "progress":
            opened.progress.append(text)
        elif text or event.open:
            if kind == "text":
                # The places of citations count from the first text, so only that one can have them.
                opened.citations = None if message.has_text or self._view.sdk < w.CITING_SDK else []
                message.has_text = True
            self._sent.add(message_id)
            self._has_text = self._has_text or kind == "text"
            mark = _provider(self._with_metadata(message, {"refusal": True} if is_refusal else {}))
            yield {"type": f"{kind}-start", "id": opened.part_id, **mark}
            if text:
                yield {"type": f"{kind}-delta", "id": opened.part_id, "delta": text}
        else:
            return
        if event.open:
            self._open[message_id, index] = opened
        else:
            yield from self._end_part(opened)

    def _part_delta(self, event: PartDelta) -> Iterator[w.Chunk]:
        opened = self._open.get((event.message_id or "", event.index or 0))
        if opened is None:
            return
        if opened.kind == "progress":
            opened.progress.append(event.text)
        elif event.text:
            yield {"type": f"{opened.kind}-delta", "id": opened.part_id, "delta": event.text}

    def _part_ended(self, event: PartEnded) -> Iterator[w.Chunk]:
        opened = self._open.pop((event.message_id or "", event.index or 0), None)
        if opened is not None:
            yield from self._end_part(opened)

    def _end_part(self, opened: _OpenPart) -> Iterator[w.Chunk]:
        if opened.citations is not None:
            yield from self._release()
            self._ended = opened
        elif opened.kind != "progress":
            yield {"type": f"{opened.kind}-end", "id": opened.part_id}
        elif text := "".join(opened.progress):
            self._sent.add(opened.message_id)
            yield {"type": "data-progress", "id": opened.part_id, "data": {"text": text}}

    def _release(self) -> list[w.Chunk]:
        """Return the `text-end` that has waited for citations, or nothing if none waits."""
        ended, self._ended = self._ended, None
        if ended is None:
            return []
        citations: JsonObject = {"citations": ended.citations} if ended.citations else {}
        return [{"type": "text-end", "id": ended.part_id, **citations}]

    def _message_ended(self, event: MessageEnded) -> Iterator[w.Chunk]:
        message_id = event.message_id or ""
        for key in [key for key in self._open if key[0] == message_id]:
            yield from self._end_part(self._open.pop(key))
        yield from self._release()
        self._messages.pop(message_id, None)
        for name, count in event.usage.items():
            if isinstance(count, int):
                self.usage[name] = self.usage.get(name, 0) + count
        if event.finish in ("length", "refusal") and self.finish_reason == "stop":
            self.finish_reason = "length" if event.finish == "length" else "content-filter"

    @staticmethod
    def _with_metadata(message: _OpenMessage, members: JsonObject) -> JsonObject:
        """Return `members`, the provider metadata of a part, with the metadata of its message added if no earlier part
        has carried it."""
        if message.metadata:
            members = {**members, "metadata": message.metadata}
            message.metadata = {}
        return members

    # Parts

    def _part(self, message: _OpenMessage, message_id: str, index: int, part: Part) -> Iterator[w.Chunk]:
        part_id = f"{message_id}.{index}"
        match part:
            case DataPart():
                self._last_data = part.data
                self._show("data-part", json_text(part.data))
                yield {"type": "data-part", "id": part_id, "data": part.data}
            case FilePart():
                yield self._file(part, self._with_metadata(message, {"id": part_id}))
            case AnnotationPart():
                self._cite(message_id, part, part_id)
                yield self._source(part, part_id)
            case ToolCallPart(side="agent"):
                arguments = parse_text(part.arguments) if part.arguments else {}
                yield from self._call(part.call_id, part.name, part.arguments if arguments is ABSENT else arguments)
            case ToolResultPart() if part.call_id in self._calls:
                yield self._result(part.call_id, part.output, _error_text(part.output) if part.error else None)
            case _:
                pass

    def _file(self, part: FilePart, members: JsonObject) -> w.Chunk:
        """Return the `file` chunk of a file. `members` are its provider metadata, to which the file's name is added."""
        if part.name is not None:
            members = {**members, "name": part.name}
        url, media_type = self._view.file_url(part), media_type_of(part)
        return {"type": "file", "url": url, "mediaType": media_type, **_provider(members)}

    def _cite(self, message_id: str, part: AnnotationPart, part_id: str) -> None:
        """Add a citation to the text that has ended last, if that is the first text of its message."""
        ended = self._ended
        if ended is None or ended.citations is None or ended.message_id != message_id:
            return
        members = {name: value for name, value in self._source(part, part_id).items() if name in _SOURCE_MEMBERS}
        kind = "document" if part.url is None else "url"
        places = {"startIndex": part.start, "endIndex": part.end}
        ended.citations.append(
            {
                "source": {"type": "source", "sourceType": kind, "id": part_id, **members},
                **{name: at for name, at in places.items() if at is not None},
            }
        )

    @staticmethod
    def _source(part: AnnotationPart, part_id: str) -> w.Chunk:
        names = ("start", "end", "description")
        mark = _provider({name: getattr(part, name) for name in names if getattr(part, name) is not None})
        if part.url is None:
            title = part.title or part.description or "Note"
            return {"type": "source-document", "sourceId": part_id, "mediaType": "text/plain", "title": title, **mark}
        title_member: JsonObject = {} if part.title is None else {"title": part.title}
        return {"type": "source-url", "sourceId": part_id, "url": part.url, **title_member, **mark}

    # Tools

    def _tool_started(self, event: ToolStarted) -> Iterator[w.Chunk]:
        self._sent.add(None)
        yield from self._call(event.call_id or "", event.name, event.input)

    def _tool_ended(self, event: ToolEnded) -> Iterator[w.Chunk]:
        self._sent.add(None)
        call_id = event.call_id or ""
        if call_id not in self._calls:
            yield from self._call(call_id, event.name, None)
        yield self._result(call_id, event.output, None if event.fault is None else event.fault.message)

    def _call(self, call_id: str, name: str, arguments: object) -> Iterator[w.Chunk]:
        self._calls.add(call_id)
        yield {
            "type": "tool-input-available",
            "toolCallId": call_id,
            "toolName": name,
            "input": {} if arguments is None else arguments,
            **_DYNAMIC,
        }

    @staticmethod
    def _result(call_id: str, output: Json, error: str | None) -> w.Chunk:
        if error is not None:
            return {"type": "tool-output-error", "toolCallId": call_id, "errorText": error, **_DYNAMIC}
        return {"type": "tool-output-available", "toolCallId": call_id, "output": output, **_DYNAMIC}

    # Data parts

    def _artifact(self, event: ArtifactAdded) -> Iterator[w.Chunk]:
        if event.origin != "agent":
            return
        self._sent.add(None)
        artifact_id = event.artifact_id or ""
        number = self._pieces.get(artifact_id, 0) if event.append else 0
        self._pieces[artifact_id] = number + 1
        data: JsonObject = {"artifactId": artifact_id, "last": event.last, "part": self._artifact_part(event.part)}
        for name in ("name", "description"):
            if getattr(event, name) is not None:
                data[name] = getattr(event, name)
        if event.metadata:
            data["metadata"] = event.metadata
        if event.append:
            data["append"] = True
        piece_id = artifact_id if number == 0 else f"{artifact_id}.{number}"
        yield {"type": "data-artifact", "id": piece_id, "data": data}
        if isinstance(event.part, FilePart) and _SHOWN.match(media_type_of(event.part)):
            yield self._file(event.part, {"artifact": artifact_id})

    def _artifact_part(self, part: Part) -> JsonObject:
        match part:
            case FilePart():
                members: JsonObject = {"url": self._view.stored_url(part), "mediaType": media_type_of(part)}
                members |= {} if part.name is None else {"name": part.name}
                return members if part.size is None else {**members, "size": part.size}
            case DataPart():
                self._show("data-artifact", json_text(part.data))
                return {"data": part.data}
            case _:
                text: str = getattr(part, "text", "")
                self._show("data-artifact", text)
                return {"text": text}

    def _custom(self, event: Custom) -> Iterator[w.Chunk]:
        self._sent.add(None)
        if _NAME.fullmatch(event.name) and event.name not in _RESERVED:
            yield {"type": f"data-{event.name}", "data": event.value}
            return
        named: JsonObject = {"name": event.name} if event.name else {}
        yield {"type": "data-custom", "data": {**named, "value": event.value}}

    def _step(self, event: StepStarted | StepEnded) -> Iterator[w.Chunk]:
        if not self._view.steps:
            return
        self._sent.add(None)
        data: JsonObject = {"name": event.name, "state": "started"}
        if isinstance(event, StepStarted):
            more = {"input": event.input}
        else:
            data["state"] = "ended" if event.fault is None else "failed"
            fault = None if event.fault is None else {"code": str(event.fault.code), "message": event.fault.message}
            more = {"update": event.update, "fault": fault}
        data |= {name: value for name, value in more.items() if value is not None}
        # Transient parts are not in the message of the page, and so not in its next request.
        yield {"type": "data-step", "id": event.step_id or event.name, "data": data, "transient": True}

    # Text for pages that show no data parts

    def _show(self, data_type: str, text: str) -> None:
        room = _MAX_FALLBACK - sum(len(each) for _, each in self._fallback)
        if not self._has_text and room > 0:
            self._fallback.append((data_type, text[:room]))

    def _fallback_text(self) -> Iterator[w.Chunk]:
        """Yield the chunks of one text with the collected data, or none if there is none. Its provider metadata has the
        type of the first data part, such as `data-output`."""
        text, part_id = "".join(text for _, text in self._fallback), f"{self._run_id}.shown"
        if text:
            yield {"type": "text-start", "id": part_id, **_provider({"shows": self._fallback[0][0]})}
            yield {"type": "text-delta", "id": part_id, "delta": text}
            yield {"type": "text-end", "id": part_id}

    _WRITES: ClassVar[Mapping[type, Any]] = {
        MessageStarted: _message_started,
        PartAdded: _part_added,
        PartDelta: _part_delta,
        PartEnded: _part_ended,
        MessageEnded: _message_ended,
        ToolStarted: _tool_started,
        ToolEnded: _tool_ended,
        ArtifactAdded: _artifact,
        Custom: _custom,
        StepStarted: _step,
        StepEnded: _step,
    }


def _provider(members: JsonObject) -> JsonObject:
    """Return the gateway's own members of a part as the member `providerMetadata` of its chunk; empty if there are
    none."""
    return {"providerMetadata": {w.OWN: members}} if members else {}


def _error_text(output: Json) -> str:
    return output if isinstance(output, str) else json_text(output)
