"""Chunks of an agent's messages → canonical messages. A chunk is an `agent_message_chunk` or an
`agent_thought_chunk`."""

import re
from collections.abc import Callable
from typing import Any, Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import BLOCKS, PROTOCOL, decode_block, own_members
from babelgate.canonical import AnnotationPart, Event, Feature, FilePart, Part, ReasoningPart, RefusalPart, TextPart
from babelgate.canonical.event import (
    ArtifactAdded,
    LossNoted,
    MessageEnded,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    PartEnded,
)
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import JsonObject

_GROWING: Final[dict[str, Callable[[], Part]]] = {
    "text": lambda: TextPart(text=""),
    "reasoning": lambda: ReasoningPart(text=""),
    "refusal": lambda: RefusalPart(text=""),
}
"""Empty parts by the kind of text, to which chunks are appended."""


_OWN_FILE: Final = re.compile(r"https?://.*/agent-client/[^/]+/files/[0-9a-f]{64}")
_LINKED: Final = LossNoted(
    feature=Feature.FILE_BYTES, how="the bytes of a large file, which the agent's gateway sends as a link"
)


def is_link_of_gateway(part: Part) -> bool:
    """Return True for a file that another gateway has sent as a link, because it is too large for a message."""
    return isinstance(part, FilePart) and part.url is not None and _OWN_FILE.fullmatch(part.url) is not None


class MessageReader:
    """Decoder of message chunks. It passes canonical events to `add`, and gets ids of messages from `new_id`."""

    def __init__(self, add: Callable[[Event], None], new_id: Callable[[], str]) -> None:
        self._add = add
        self._new_id = new_id
        self._key: tuple[str, str] | None = None
        """Id of the open message on the wire, which may be empty, and its phase. None if no message is open."""
        self._message_id = ""
        self._parts = 0
        """Number of parts of the open message."""
        self._kind = ""
        """Kind of the open part, a key of `_GROWING`; empty if no part is open."""

    def read(self, update: w.Update) -> None:
        """Read an `agent_message_chunk` or an `agent_thought_chunk`. Raises invalid for a malformed block."""
        marks, block = own_members(update), as_object(update.get("content"))
        artifact = as_object(marks.get("artifact"))
        if artifact:
            added = decode_artifact(block, artifact)
            if is_link_of_gateway(added.part):
                self._add(_LINKED)
            self._add(added)
            return
        if block.get("type") not in BLOCKS:
            self._add(Native(protocol=PROTOCOL, event=as_text(update.get("sessionUpdate")), data=update))
            return
        is_progress = marks.get("phase") == "progress"
        key = (as_text(update.get("messageId")), "progress" if is_progress else "answer")
        if key != self._key:
            self.close()
            self._begin(key, marks)
        is_thought = update.get("sessionUpdate") == "agent_thought_chunk" and not is_progress
        kind = as_text(marks.get("kind"))
        if block["type"] == "text" and kind not in ("data", "citation"):
            text = as_text(block.get("text"))
            self._append("reasoning" if is_thought else "refusal" if kind == "refusal" else "text", text)
            return
        self._end_part()
        part = _citation(as_object(marks.get("citation"))) if kind == "citation" else decode_marked(block, marks)
        if is_link_of_gateway(part):
            self._add(_LINKED)
        self._add(PartAdded(message_id=self._message_id, index=self._parts, part=part))
        self._parts += 1

    def _begin(self, key: tuple[str, str], marks: JsonObject) -> None:
        # An id of the wire may come again in another turn, and an id of the log must not.
        self._key, self._message_id, self._parts = key, self._new_id(), 0
        phase: Any = key[1]
        self._add(
            MessageStarted(
                message_id=self._message_id,
                name=as_text(marks.get("name")) or None,
                phase=phase,
                metadata=as_object(marks.get("metadata")),
            )
        )

    def _append(self, kind: str, text: str) -> None:
        if self._kind != kind:
            self._end_part()
            self._kind = kind
            self._add(PartAdded(message_id=self._message_id, index=self._parts, part=_GROWING[kind](), open=True))
            self._parts += 1
        if text:
            self._add(PartDelta(message_id=self._message_id, index=self._parts - 1, text=text))

    def _end_part(self) -> None:
        if self._kind:
            self._add(PartEnded(message_id=self._message_id, index=self._parts - 1))
            self._kind = ""

    def interrupt(self) -> None:
        """End the open message if it has no id on the wire, because another kind of update ends it."""
        if self._key is not None and not self._key[0]:
            self.close()

    def close(self) -> None:
        """End the open message, if there is one."""
        if self._key is not None:
            self._end_part()
            self._key = None
            self._add(MessageEnded(message_id=self._message_id))


def decode_marked(block: JsonObject, marks: JsonObject) -> Part:
    """Return a content block of an agent as a part. `marks` is `_meta.babelgate` of its update. Raises invalid."""
    if marks.get("kind") == "data":
        block = {**block, "_meta": {w.OWN: {"kind": "data"}}}
    return decode_block(block, "content")


def _citation(members: JsonObject) -> AnnotationPart:
    start, end = members.get("start"), members.get("end")
    return AnnotationPart(
        start=start if isinstance(start, int) else None,
        end=end if isinstance(end, int) else None,
        url=as_text(members.get("url")) or None,
        title=as_text(members.get("title")) or None,
        description=as_text(members.get("description")) or None,
    )


def decode_artifact(block: JsonObject, marks: JsonObject) -> ArtifactAdded:
    """Return a block of a gateway as a piece of an artifact. `marks` is the object `artifact` in `_meta.babelgate`.
    Raises invalid."""
    part = decode_marked(block, marks)
    if isinstance(part, FilePart) and part.name is None:
        part = part.replace(name=as_text(marks.get("name")) or None)
    return ArtifactAdded(
        artifact_id=as_text(marks.get("id")) or None,
        name=as_text(marks.get("name")) or None,
        description=as_text(marks.get("description")) or None,
        part=part,
        append=marks.get("append") is True,
        last=marks.get("last") is not False,
        metadata=as_object(marks.get("metadata")),
    )
