"""Conversion between AIEF and the canonical model: names and contents of files, pages, inputs and answers. Steps are
in `write`.

File names come from uploads or agents, and clients of the protocol save files under the names that they receive. So in
both directions, a name is a single path segment that cannot leave its folder.
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
"""Default number of items on a page."""

_NAME_BYTES: Final = 255
"""Maximum length of a file name, in bytes. From common file systems."""
_FOLDER_LENGTH: Final = 1024
"""Maximum length of a folder's path, in characters. Chosen."""
_LONG: Final = 4096
"""Maximum number of characters of a name that are processed. Chosen: no real name is longer, and more would only take
time."""
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Pattern for characters to remove from a name: control characters, line ends, lone surrogates, and characters that
change the direction of writing and can disguise a name."""

COSTS: Final = ("task_total_cost", "task_cumulative_cost")
"""Members of `additional_output` with a task's cost so far. agbenchmark 0.0.10 reads the first one from the task's last
step."""


def page_of(total: int, page: int, size: int) -> w.Pagination:
    """Return the pagination of a page: page number `page` of a list of `total` items, with `size` items on a page."""
    # Rounded up. The Python SDK 1.0.2 rounds down: nine items on no page at all.
    return w.Pagination(total_items=total, total_pages=-(-total // size), current_page=page, page_size=size)


# Names


def clean_name(name: str | None, default: str = "file") -> str:
    """Return a safe file name: the last segment of `name`, without hidden characters and shortened. Return `default` if
    nothing usable remains."""
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
    """Return a name with its middle removed if it is longer than `_LONG`. Its end has the extension of the file."""
    return name if len(name) <= _LONG else name[: _LONG // 2] + name[-_LONG // 2 :]


def clean_folder(folder: str | None) -> str | None:
    """Return a path to a folder that stays below the receiver's workspace. Return None for the workspace itself."""
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
    """Return the header `Content-Disposition` for a file name: an ASCII name for all clients, and the full name for
    those that support RFC 6266, section 4.3."""
    plain = re.sub(r'[^\x20-\x7e]|["\\%;]', "_", name)
    whole = f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else ""
    return f'attachment; filename="{plain}"{whole}'


# Artifacts


def artifact_id(artifact: Artifact) -> str:
    """Return the id of an artifact for callers. For artifacts of agents it is derived from the run and the agent's id,
    because that id may repeat in another run or be invalid in a path."""
    agent_id = artifact.artifact_id or ""
    return agent_id if artifact.run_id is None else str(uuid5(NAMESPACE_OID, f"{artifact.run_id}/{agent_id}"))


def encode_artifact(artifact: Artifact) -> w.Artifact:
    """Return an artifact in AIEF's form, with a safe file name and folder."""
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
    """Return the suffix to append to an artifact's file name so that the name shows the type, such as `.json`; or "".
    `first` is the artifact's first part, or None."""
    if isinstance(first, FilePart):
        # OpenAPI v1 has no content type, so the name must show the type.
        return ".uri" if first.blob is None and first.url is not None else ""
    if re.search(r"[^.]\.[^.]+$", name):
        return ""
    return ".json" if isinstance(first, DataPart) else ".txt"


def contents(artifact: Artifact) -> Iterator[bytes | str]:
    """Yield the content of an artifact in pieces: bytes, or the hash of a stored file as a string. For a file given by
    a URL, the content is the URL itself."""
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
"""Inputs of a step that say only that the agent shall continue."""


def is_go_ahead(text: str | None) -> bool:
    """Return True if the input of a step says only that the agent shall continue, such as the "y" in each step of the
    protocol's Postman collection. In the first step of a task, the agent then gets the task's input instead."""
    return (text or "").strip().lower() in _GO_AHEAD


def decode_input(text: str | None) -> Message:
    """Return the text of an input as a user's message. None gives a message without parts, for an agent whose input is
    only data."""
    return Message(role="user", parts=() if text is None else (TextPart(text=text),))


def input_of(messages: tuple[Message, ...], data: Json) -> tuple[str | None, JsonObject]:
    """Return the AIEF `input` and `additional_input` that correspond to the messages and the data of a run from another
    protocol."""
    texts = [message.text for message in messages if any(isinstance(part, TextPart) for part in message.parts)]
    # Only strings: the Python client 1.1.0 accepts nothing else (StrictStr).
    return "\n".join(texts) if texts else None, data if isinstance(data, dict) else {}


def decode_answer(body: w.RequestBody, schema: JsonObject | None) -> tuple[Json, Message]:
    """Return the value of an answer, and the message that shows it to other readers. The value is the text, or the
    additional object if there is no text.

    If the question has a `schema`, a text that is a JSON object or array is parsed.
    """
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
