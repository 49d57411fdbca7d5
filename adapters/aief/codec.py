"""AIEF ↔ canonical model: names and contents of files, times, pages, inputs and answers. `write` builds the steps from
a log.

File names come from outside, from an upload or from an agent, and the protocol's clients save files under the names
that they receive. So in both directions, a name is a single path segment that cannot leave its folder.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_OID, uuid5

from pydantic_core import to_json

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.kit.json import ABSENT, is_text_schema, parse_text
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import Artifact, DataPart, FilePart, Message, Part, RefusalPart, TextPart
from babelgate.canonical.message import ReasoningPart
from babelgate.canonical.value import Json, JsonObject

PAGE_SIZE: Final = 10
"""Default size of a page."""

_NAME_BYTES: Final = 255
"""Maximum length of a name, in bytes, on common file systems."""
_FOLDER_LENGTH: Final = 1024
"""Maximum length of a folder, in characters."""
_LONG: Final = 4096
"""Characters of a name that are processed. No real name is longer, and more would only take time."""
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Control characters, line ends, lone surrogates, and characters that change the direction of writing, which can
disguise a name."""

COSTS: Final = ("task_total_cost", "task_cumulative_cost")
"""Members of `additional_output` with the cost of a task so far; the first of them is in its last step (agbenchmark
0.0.10)."""


def page_of(total: int, page: int, size: int) -> w.Pagination:
    """Return the description of page number `page`, with `size` items of the `total`."""
    # Rounded up. The Python SDK 1.0.2 rounds down: nine items on no page at all.
    return w.Pagination(total_items=total, total_pages=-(-total // size), current_page=page, page_size=size)


# Names


def clean_name(name: str | None, default: str = "file") -> str:
    """Return the last segment of a possible path as the name of a file, or `default` if nothing is left."""
    base = _HIDDEN.sub("", _shorten_name((name or "")[_last_separator(name or "") + 1 :])).strip()
    if not base.strip(". "):
        return default
    if len(base.encode()) > _NAME_BYTES:
        stem, dot, suffix = base.rpartition(".")
        extension = dot + suffix if stem and len(suffix.encode()) <= 20 else ""
        room = _NAME_BYTES - len(extension.encode())
        base = (stem if extension else base).encode()[:room].decode(errors="ignore") + extension
    return base


def _last_separator(path: str) -> int:
    """Return the position of the last slash or backslash, or -1."""
    return max(path.rfind("/"), path.rfind("\\"))


def _shorten_name(name: str) -> str:
    """Return the beginning and the end of a long name: the end holds the type of the file."""
    return name if len(name) <= _LONG else name[: _LONG // 2] + name[-_LONG // 2 :]


def clean_folder(folder: str | None) -> str | None:
    """Return a folder below the receiver's workspace. Return None for the workspace itself."""
    if folder is None:
        return None
    # The Python SDK 1.0.2 joins `relative_path` and the file's name to its workspace without a check: `../../evil.txt`
    # was written outside.
    segments = [_HIDDEN.sub("", each).strip() for each in folder[:_LONG].replace("\\", "/").split("/")]
    safe_segments = [each for each in segments if each.strip(". ") and not each.endswith(":")]
    cleaned = "/".join(safe_segments)[:_FOLDER_LENGTH]
    if not cleaned:
        return None
    return f"{cleaned}/" if folder.endswith(("/", "\\")) and not cleaned.endswith("/") else cleaned


def disposition(name: str) -> str:
    """Return the Content-Disposition of a file: an ASCII name for all clients, and the full name for those that support
    RFC 6266, section 4.3."""
    plain = re.sub(r'[^\x20-\x7e]|["\\%;]', "_", name)
    whole = f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else ""
    return f'attachment; filename="{plain}"{whole}'


# Artifacts


def artifact_id(artifact: Artifact) -> str:
    """Return the wire id of an artifact. Agents choose ids freely: they may repeat in every run, and may have
    characters that are illegal in a path."""
    agent_id = artifact.artifact_id or ""
    return agent_id if artifact.run_id is None else str(uuid5(NAMESPACE_OID, f"{artifact.run_id}/{agent_id}"))


def encode_artifact(artifact: Artifact) -> w.Artifact:
    """Return an artifact in its wire form."""
    name = artifact.name or next((part.name for part in artifact.parts if isinstance(part, FilePart)), None) or ""
    folder = artifact.folder if artifact.folder is not None else name[: _last_separator(name) + 1]
    file_name = clean_name(name, "artifact")
    return w.Artifact(
        artifact_id=artifact_id(artifact),
        agent_created=artifact.origin == "agent",
        file_name=file_name + added_suffix(file_name, artifact.parts[0] if artifact.parts else None),
        relative_path=clean_folder(folder),
        created_at=encode_time(artifact.created_at),
    )


def added_suffix(name: str, first: Part | None) -> str:
    """Return the suffix that a file's name needs in order to show the file's type; empty if it needs none. `first` is
    the first part of the artifact, if it has one."""
    if isinstance(first, FilePart):
        # OpenAPI v1 has no content type, so the name must show the type.
        return ".uri" if first.blob is None and first.url is not None else ""
    if re.search(r"[^.]\.[^.]+$", name):
        return ""
    return ".json" if isinstance(first, DataPart) else ".txt"


def contents(artifact: Artifact) -> Iterator[bytes | str]:
    """Yield the pieces of the file: bytes, or the hash of a stored file. The content of a URL is the URL itself;
    nothing is fetched."""
    for part in artifact.parts:
        match part:
            case FilePart() if part.blob is not None:
                yield part.blob
            case FilePart() if part.url is not None:
                yield f"{part.url}\r\n".encode()  # text/uri-list, RFC 2483
            case TextPart() | ReasoningPart() | RefusalPart():
                yield part.text.encode()
            case DataPart():
                yield to_json(part.data)
            case _:
                pass


# Inputs and answers

_GO_AHEAD: Final = frozenset({"y", "yes", "continue"})
"""Inputs of steps that only request the next step."""


def is_go_ahead(text: str | None) -> bool:
    """Return True if the input of a step only requests the step. The protocol's Postman collection sends "y" with every
    step. AIEF agents receive the task's input together with the step's, so they still know what to do."""
    return (text or "").strip().lower() in _GO_AHEAD


def decode_input(text: str | None) -> Message:
    """Return the input as a message. Without a text, the message has no text part, and the agent gets the text in the
    data."""
    return Message(role="user", parts=() if text is None else (TextPart(text=text),))


def input_of(messages: tuple[Message, ...], data: Json) -> tuple[str | None, JsonObject]:
    """Return the text and the data of a run that a caller of another protocol started."""
    texts = [message.text for message in messages if any(isinstance(part, TextPart) for part in message.parts)]
    # Only strings: the Python client 1.1.0 accepts nothing else (StrictStr).
    return "\n".join(texts) if texts else None, data if isinstance(data, dict) else {}


def decode_answer(body: w.RequestBody, schema: JsonObject | None) -> tuple[Json, Message]:
    """Return the answer as a value, and as the caller's message. The protocol has a text and an additional object: the
    text is the answer, or the object if there is no text. If the question has a schema, a text that holds a JSON object
    or array is parsed."""
    more = body.additional_input or None
    data_parts: tuple[Part, ...] = () if more is None else (DataPart(data=more),)
    if body.input is None and more is not None:
        return more, Message(role="user", parts=data_parts)
    text = body.input or ""
    value: Json = text
    if schema is not None and not is_text_schema(schema) and text.lstrip()[:1] in ("{", "["):
        parsed = parse_text(text)
        value = text if parsed is ABSENT else parsed  # the text may only begin like JSON
    return value, Message(role="user", parts=(TextPart(text=text), *data_parts))
