"""Chunks → one message of the page, as the SDK builds it (ai 6.0.326, process-ui-message-stream.ts)."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from babelgate.adapters.vercel_ui import wire as w
from babelgate.canonical.value import JsonObject

_COPIED: Final = frozenset({"file", "source-url", "source-document"})
"""Types of chunks that become parts of the message unchanged."""
_META: Final = "providerMetadata"


class UiMessageBuilder:
    """Builder of one assistant message from its chunks. `message` is the message so far."""

    def __init__(self) -> None:
        self.message: JsonObject = {"id": "", "role": "assistant", "parts": []}
        self._parts: list[JsonObject] = self.message["parts"]
        self._texts: dict[str, JsonObject] = {}
        self._pieces: dict[str, list[str]] = {}
        self._tools: dict[str, JsonObject] = {}

    def add(self, chunks: Iterable[w.Chunk]) -> None:
        """Add chunks to the message, in order."""
        for chunk in chunks:
            kind: str = chunk["type"]
            if kind in _COPIED:
                self._parts.append(dict(chunk))
            elif kind.startswith("data-"):
                self._add_data(chunk)
            elif (add := self._ADDS.get(kind)) is not None:
                add(self, chunk)

    def _merge_metadata(self, chunk: w.Chunk) -> None:
        if "messageId" in chunk:
            self.message["id"] = chunk["messageId"]
        if (metadata := chunk.get("messageMetadata")) is not None:
            self.message["metadata"] = _merge(self.message.get("metadata", {}), metadata)

    def _begin_step(self, chunk: w.Chunk) -> None:
        self._parts.append({"type": "step-start"})

    def _reset_step(self, chunk: w.Chunk) -> None:
        while self._parts and self._parts[-1]["type"] != "step-start":
            self._parts.pop()
        self._texts.clear()
        self._pieces.clear()

    def _begin_text(self, chunk: w.Chunk) -> None:
        kind = chunk["type"].removesuffix("-start")
        part: JsonObject = {"type": kind, "text": "", "state": "done"}
        if _META in chunk:
            part[_META] = chunk[_META]
        self._texts[chunk["id"]], self._pieces[chunk["id"]] = part, []
        self._parts.append(part)

    def _add_text(self, chunk: w.Chunk) -> None:
        self._pieces[chunk["id"]].append(chunk["delta"])

    def _end_text(self, chunk: w.Chunk) -> None:
        part = self._texts.pop(chunk["id"])
        part["text"] = "".join(self._pieces.pop(chunk["id"]))
        if "citations" in chunk:
            part["citations"] = chunk["citations"]

    def _call(self, chunk: w.Chunk) -> None:
        name, part = chunk["toolName"], dict(chunk)
        del part["toolName"]
        is_dynamic = part.pop("dynamic", False)
        part |= {"type": "dynamic-tool", "toolName": name} if is_dynamic else {"type": f"tool-{name}"}
        part["state"] = "input-available"
        self._tools[chunk["toolCallId"]] = part
        self._parts.append(part)

    def _request_approval(self, chunk: w.Chunk) -> None:
        self._tools[chunk["toolCallId"]] |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}

    def _end_call(self, chunk: w.Chunk) -> None:
        part = self._tools[chunk["toolCallId"]]
        part["state"] = chunk["type"].removeprefix("tool-")
        part |= {name: chunk[name] for name in ("output", "errorText") if name in chunk}
        if "approval" in part:
            part["approval"] = {**part["approval"], "approved": part["state"] == "output-available"}

    def _add_data(self, chunk: w.Chunk) -> None:
        if chunk.get("transient"):
            return
        key = chunk["type"], chunk.get("id")
        for part in self._parts if key[1] is not None else ():
            if (part["type"], part.get("id")) == key:
                part["data"] = chunk["data"]
                return
        self._parts.append(dict(chunk))

    _ADDS: ClassVar[Mapping[str, Any]] = {
        "start": _merge_metadata,
        "finish": _merge_metadata,
        "message-metadata": _merge_metadata,
        "start-step": _begin_step,
        "reset-step": _reset_step,
        "text-start": _begin_text,
        "reasoning-start": _begin_text,
        "text-delta": _add_text,
        "reasoning-delta": _add_text,
        "text-end": _end_text,
        "reasoning-end": _end_text,
        "tool-input-available": _call,
        "tool-approval-request": _request_approval,
        "tool-output-available": _end_call,
        "tool-output-error": _end_call,
        "tool-output-denied": _end_call,
    }


def _merge(before: JsonObject, more: JsonObject) -> JsonObject:
    """Return the metadata `before` with the members of `more` added. Nested objects are merged, too, as the SDK does
    it."""
    merged = dict(before)
    for name, value in more.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType]
    return merged
