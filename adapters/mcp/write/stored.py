"""Encoding of stored threads, runs, artifacts and files as resources: entries of lists, and contents."""

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from babelgate.adapters.kit.json import json_text
from babelgate.adapters.mcp.codec.uris import RUNS, THREADS, artifact_uri, file_uri
from babelgate.canonical import DataPart, FilePart, Part, TextPart
from babelgate.canonical.fold import Fold
from babelgate.canonical.message import Message
from babelgate.canonical.thread import Artifact, Run, ThreadView, losses_by_feature
from babelgate.canonical.value import Json, JsonObject

_JSON: Final = "application/json"
_TEXTUAL: Final = frozenset({_JSON, "application/xml", "application/yaml", "application/javascript"})
"""Media types outside of `text/` whose files are sent as text, if they are UTF-8."""


def thread_entry(view: ThreadView) -> JsonObject:
    """Return a thread as an entry of the list of resources (SPEC/server/resources, Resource)."""
    thread = view.thread
    return {
        "uri": f"{THREADS}{thread.thread_id}",
        "name": f"thread {thread.thread_id}",
        "description": f"Conversation, {view.status}.",
        "mimeType": _JSON,
        "annotations": {"lastModified": _time(view.updated_at)},
    }


def run_entry(run: Run) -> JsonObject:
    """Return a run as an entry of the list of resources."""
    changed = run.ended_at or run.started_at or run.created_at
    return {
        "uri": f"{RUNS}{run.run_id}",
        "name": f"run {run.run_id}",
        "description": f"Run of {run.agent}, {run.status}.",
        "mimeType": _JSON,
        "annotations": {"lastModified": _time(changed)},
    }


def artifact_entry(artifact: Artifact) -> JsonObject:
    """Return an artifact of a run as an entry of the list of resources."""
    entry: JsonObject = {
        "uri": artifact_uri(artifact.run_id or "", artifact.artifact_id or ""),
        "name": artifact.name or "artifact",
    }
    if artifact.description:
        entry["description"] = artifact.description
    first = artifact.parts[0]
    if isinstance(first, FilePart):
        entry |= {} if first.media_type is None else {"mimeType": first.media_type}
        entry |= {} if first.size is None or len(artifact.parts) > 1 else {"size": first.size}
    return entry


def thread_contents(uri: str, view: ThreadView, fold: Fold) -> JsonObject:
    """Return the contents of a thread: its status, its messages without their files' bytes, and its runs."""
    thread = view.thread
    runs = [run for run in fold.runs.values() if not run.removed]
    return _json_contents(
        uri,
        {
            "thread_id": thread.thread_id,
            "status": view.status,
            "created_at": _time(thread.created_at),
            "updated_at": _time(view.updated_at),
            "metadata": thread.metadata,
            "messages": [_message(message) for message in fold.messages()],
            "runs": [{"uri": f"{RUNS}{run.run_id}", "agent": run.agent, "status": run.status} for run in runs],
        },
    )


def run_contents(uri: str, run: Run, fold: Fold) -> JsonObject:
    """Return the contents of a run: its status, its messages without their files' bytes, its output, its artifacts and
    its open questions."""
    value: JsonObject = {
        "run_id": run.run_id,
        "task_id": run.task_id,
        "thread": f"{THREADS}{run.thread_id}",
        "agent": run.agent,
        "status": run.status,
        "created_at": _time(run.created_at),
        "started_at": None if run.started_at is None else _time(run.started_at),
        "ended_at": None if run.ended_at is None else _time(run.ended_at),
        "messages": [_message(message) for message in fold.messages(run_id=run.run_id)],
        "output": run.output,
        "artifacts": [
            {"uri": artifact_uri(run.run_id, each.artifact_id or ""), "name": each.name, "complete": each.complete}
            for each in run_artifacts(fold, run.run_id)
        ],
        "questions": [
            {"id": each.interrupt_id, "kind": each.ask, "message": each.message.text}
            for each in fold.open_interrupts(run.task_id)
            if each.run_id == run.run_id
        ],
        "usage": run.usage,
        "metadata": run.metadata,
    }
    if run.fault is not None:
        value["fault"] = {"code": str(run.fault.code), "message": run.fault.message}
    if run.loss:
        value["loss"] = losses_by_feature(run.loss)
    return _json_contents(uri, value)


def run_artifacts(fold: Fold, run_id: str) -> Sequence[Artifact]:
    """Return the artifacts that the agent produced in a run. Uploads of callers are left out."""
    return [each for each in fold.artifacts.values() if each.run_id == run_id and each.origin == "agent"]


def part_contents(uri: str, part: Part) -> JsonObject:
    """Return one part of an artifact as contents. The bytes of a file are in `inline`."""
    match part:
        case TextPart():
            return {"uri": uri, "mimeType": part.media_type or "text/plain", "text": part.text}
        case DataPart():
            return _json_contents(uri, part.data)
        case FilePart() if part.url is None:
            return file_contents(uri, part)
        case _:
            return _json_contents(uri, _part(part))


def file_contents(uri: str, part: FilePart) -> JsonObject:
    """Return a file, whose bytes are in `inline`, as contents: as text if its type is textual and its bytes are UTF-8,
    otherwise in base64."""
    kind, raw = part.media_type or "application/octet-stream", part.inline or b""
    contents: JsonObject = {"uri": uri, "mimeType": kind}
    if part.name is not None:
        contents["_meta"] = {"babelgate": {"name": part.name}}
    if is_textual(kind):
        try:
            return {**contents, "text": raw.decode()}
        except UnicodeDecodeError:
            pass
    return {**contents, "blob": b64encode(raw).decode()}


def is_textual(media_type: str) -> bool:
    """Return True for media types whose files are sent as text."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTUAL or kind.endswith(("+json", "+xml"))


def _json_contents(uri: str, value: Json) -> JsonObject:
    return {"uri": uri, "mimeType": _JSON, "text": json_text(value)}


def _message(message: Message) -> JsonObject:
    """Return a message as JSON. Its members are those of the canonical model."""
    encoded: JsonObject = {"message_id": message.message_id, "role": message.role}
    if message.name is not None:
        encoded["name"] = message.name
    if message.phase != "answer":
        encoded["phase"] = message.phase
    if message.metadata:
        encoded["metadata"] = message.metadata
    return {**encoded, "parts": [_part(part) for part in message.parts]}


def _part(part: Part) -> JsonObject:
    """Return a part as JSON. A file has the URI of its contents, but not its bytes."""
    plain: Any = msgspec.to_builtins(part.replace(inline=None) if isinstance(part, FilePart) else part)
    members: JsonObject = {name: value for name, value in plain.items() if name not in ("extra", "blob", "inline")}
    return {**members, "uri": file_uri(part)} if isinstance(part, FilePart) else members


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
