"""AIEF ↔ canonical: names and contents of files, times, pages, inputs and answers. `write` makes steps of a log.

A file's name comes from outside, as an upload or from an agent, and the clients of this protocol save files under the
names that they are told. So a name is one word without a way out, in whichever direction it goes.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote
from uuid import NAMESPACE_OID, uuid5

from pydantic_core import to_json

from babelgate.adapters.aief.wire import types as w
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.adapters.kit.time import encode_time
from babelgate.canonical import Artifact, DataPart, FilePart, Message, Part, RefusalPart, TextPart
from babelgate.canonical.message import ReasoningPart
from babelgate.canonical.value import Json, JsonObject

PAGE_SIZE: Final = 10

_NAME_BYTES: Final = 255
"""What file systems take."""
_FOLDER_LENGTH: Final = 1024
_LONG: Final = 4096
"""Characters of a name that are looked at: nobody has longer ones, and the rest would only take time."""
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Control characters, line ends, lone surrogates, and those that turn the direction of writing, which make a name look
like another."""

COSTS: Final = ("task_total_cost", "task_cumulative_cost")
"""Members of `additional_output` that say what a task has cost so far, the first of them in its last step (agbenchmark
0.0.10)."""


def page_of(total: int, page: int, size: int) -> w.Pagination:
    # Rounded up. The Python SDK 1.0.2 rounds down: no page at all of nine things.
    return w.Pagination(total_items=total, total_pages=-(-total // size), current_page=page, page_size=size)


# Names


def clean_name(name: str | None, otherwise: str = "file") -> str:
    """The last segment of what may be meant as a path, as the name of a file."""
    base = _HIDDEN.sub("", _shorten_name((name or "")[_last_separator(name or "") + 1 :])).strip()
    if not base.strip(". "):
        return otherwise
    if len(base.encode()) > _NAME_BYTES:
        stem, dot, suffix = base.rpartition(".")
        kept = dot + suffix if stem and len(suffix.encode()) <= 20 else ""
        room = _NAME_BYTES - len(kept.encode())
        base = (stem if kept else base).encode()[:room].decode(errors="ignore") + kept
    return base


def _last_separator(path: str) -> int:
    return max(path.rfind("/"), path.rfind("\\"))


def _shorten_name(name: str) -> str:
    """With both ends: what a file is stands at the end of its name."""
    return name if len(name) <= _LONG else name[: _LONG // 2] + name[-_LONG // 2 :]


def clean_folder(folder: str | None) -> str | None:
    """A folder below the workspace of whoever is told; None for that workspace itself."""
    if folder is None:
        return None
    # The Python SDK 1.0.2 joins `relative_path` and the file's name to its workspace unchecked: `../../evil.txt` was
    # written outside.
    segments = [_HIDDEN.sub("", each).strip() for each in folder[:_LONG].replace("\\", "/").split("/")]
    kept = [each for each in segments if each.strip(". ") and not each.endswith(":")]
    cleaned = "/".join(kept)[:_FOLDER_LENGTH]
    if not cleaned:
        return None
    return f"{cleaned}/" if folder.endswith(("/", "\\")) and not cleaned.endswith("/") else cleaned


def disposition(name: str) -> str:
    """Content-Disposition: in ASCII for all, and whole for those who read RFC 6266, section 4.3."""
    plain = re.sub(r'[^\x20-\x7e]|["\\%;]', "_", name)
    whole = f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else ""
    return f'attachment; filename="{plain}"{whole}'


# Artifacts


def artifact_id(artifact: Artifact) -> str:
    """Agents choose ids, the same ones in every run if they like, and with characters that no path takes."""
    own = artifact.artifact_id or ""
    return own if artifact.run_id is None else str(uuid5(NAMESPACE_OID, f"{artifact.run_id}/{own}"))


def encode_artifact(artifact: Artifact) -> w.Artifact:
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
    """What the name of a file is given at its end: it is made of parts that are no files, of which this is the
    first."""
    if isinstance(first, FilePart):
        # OpenAPI v1 has no content type: what a file is stands in its name.
        return ".uri" if first.blob is None and first.url is not None else ""
    if re.search(r"[^.]\.[^.]+$", name):
        return ""
    return ".json" if isinstance(first, DataPart) else ".txt"


def contents(artifact: Artifact) -> Iterator[bytes | str]:
    """The pieces of the file: bytes, or the hash of a stored file. A URL is its own content: nothing is fetched."""
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

_GO_ON: Final = frozenset({"y", "yes", "continue"})


def is_go_ahead(text: str | None) -> bool:
    """Whether the input of a step only has it done. The protocol's Postman collection sends "y" with every step, and
    its agents, who are given the input of the task beside that of the step, still know what to do."""
    return (text or "").strip().lower() in _GO_ON


def decode_input(text: str | None) -> Message:
    """Without a text part where there is no text: then the agent gets the text that is in the data."""
    return Message(role="user", parts=() if text is None else (TextPart(text=text),))


def input_of(messages: tuple[Message, ...], data: Json) -> tuple[str | None, JsonObject]:
    """Of a run that another protocol's caller started."""
    texts = [message.text for message in messages if any(isinstance(part, TextPart) for part in message.parts)]
    # Strings alone: the Python client 1.1.0 takes nothing else (StrictStr).
    return "\n".join(texts) if texts else None, data if isinstance(data, dict) else {}


def decode_answer(body: w.RequestBody, schema: JsonObject | None) -> tuple[Json, Message]:
    """The answer as a value, and as the caller said it. The protocol has text and an object beside it: the text is the
    answer, or the object if there is no text. To a question with a schema, text that is a JSON object or array means
    what it says."""
    more = body.additional_input or None
    said: tuple[Part, ...] = () if more is None else (DataPart(data=more),)
    if body.input is None and more is not None:
        return more, Message(role="user", parts=said)
    text = body.input or ""
    value: Json = text
    if schema is not None and text.lstrip()[:1] in ("{", "["):
        parsed = parse_text(text)
        value = text if parsed is ABSENT else parsed  # text may only begin like JSON
    return value, Message(role="user", parts=(TextPart(text=text), *said))
