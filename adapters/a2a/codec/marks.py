"""Conversion of framework marks in A2A's parts and metadata to thoughts, tool calls, citations, progress, states and
failures.

A2A has text, data and files. Each framework marks its other content in its own way (`adapters.a2a.frameworks`), for
example by a key of the metadata. Content without a mark stays unchanged.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from babelgate.adapters.a2a.codec.asks import genai_mark, is_waiting
from babelgate.adapters.a2a.frameworks import FRAMEWORKS
from babelgate.adapters.a2a.frameworks.framework import DecodedContent, ErrorReader, MetadataReader
from babelgate.adapters.a2a.frameworks.google_adk import read_genai_part
from babelgate.canonical import DataPart, Part, ReasoningPart, TextPart
from babelgate.canonical.value import Json, JsonObject

_Reader = TypeVar("_Reader")

_MAX_CITATIONS: Final = 1000
"""Maximum number of citations per message. Chosen, because each citation becomes an event of the log."""

_THOUGHTS: Final[Mapping[str, Sequence[Json]]] = {
    "thought": (True,),
    **{key: values for framework in FRAMEWORKS for key, values in framework.thoughts.items()},
}
"""Keys of a part's metadata that mark its text as a thought (the model's reasoning), each with the values that do
so."""
_READERS: Final[Mapping[str, MetadataReader]] = {
    key: reader for framework in FRAMEWORKS for key, reader in framework.metadata.items()
}
_ENDING_READERS: Final[Mapping[str, MetadataReader]] = {
    ending: reader for framework in FRAMEWORKS for ending, reader in framework.metadata_endings.items()
}
_ERRORS: Final[Mapping[str, ErrorReader]] = {
    key: reader for framework in FRAMEWORKS for key, reader in framework.errors.items()
}
_ENDING_ERRORS: Final[Mapping[str, ErrorReader]] = {
    ending: reader for framework in FRAMEWORKS for ending, reader in framework.error_endings.items()
}
_DATA_READERS: Final = [framework.read_data for framework in FRAMEWORKS if framework.read_data is not None]
_ARTIFACT_READERS: Final = [framework.read_artifact for framework in FRAMEWORKS if framework.read_artifact is not None]
_AUTHOR_READERS: Final = [framework.read_author for framework in FRAMEWORKS if framework.read_author is not None]
_EVENT_IDS: Final = [framework.event_id for framework in FRAMEWORKS if framework.event_id]
_LATE_TASK: Final = [key for framework in FRAMEWORKS for key in framework.late_task]


def decode_marks(parts: Sequence[Part], scope: str, *metadata: JsonObject | None) -> DecodedContent:
    """Return the content of a message or artifact, sorted by kind.

    `metadata` are those of the message or artifact, and of the update that contains it. `scope` is the id of the
    message or artifact. Code executions that have no id get one from it.
    """
    content = DecodedContent()
    for part in parts:
        _decode_part(content, part, scope)
    content.is_marked = bool(content.tools) or any(isinstance(part, ReasoningPart) for part in content.parts)
    for members in metadata:
        for key, value in (members or {}).items():
            reader = _READERS.get(key) or _by_ending(_ENDING_READERS, key)
            if reader is not None:
                reader(content, value, members or {})
    _settle_thoughts(content)
    del content.citations[_MAX_CITATIONS:]
    return content


def decode_artifact(
    parts: Sequence[Part], artifact_id: str, metadata: JsonObject | None, task_id: str | None = None
) -> DecodedContent:
    """Return the content of an artifact, sorted by kind. Some frameworks encode a kind in the artifact's id. `task_id`
    is the id of the task, if it is known: it is a part of the artifact ids of crewai."""
    content = decode_marks(parts, artifact_id, metadata)
    for read_artifact in _ARTIFACT_READERS:
        read_artifact(content, artifact_id, task_id)
    _settle_thoughts(content)
    return content


def _by_ending(readers: Mapping[str, _Reader], key: str) -> _Reader | None:
    return next((reader for ending, reader in readers.items() if key.endswith(ending)), None)


def _decode_part(content: DecodedContent, part: Part, scope: str) -> None:
    match part:
        case TextPart() if is_thought(part):
            content.parts.append(_as_thought(part))
        case DataPart() if isinstance(part.data, dict):
            if is_waiting(part) or any(read_data(content, part) for read_data in _DATA_READERS):
                return
            mark = genai_mark(part)
            uses = [] if mark is None else read_genai_part(str(part.metadata[mark]), part, content, scope)
            content.tools += uses
            if not uses:
                content.parts.append(part)
        case _:
            content.parts.append(part)


def is_thought(part: Part) -> bool:
    """Return True if the metadata of a text part mark it as a thought (the model's reasoning)."""
    metadata = part.metadata if isinstance(part, TextPart) else {}
    return any(metadata[key] in values for key, values in _THOUGHTS.items() if key in metadata)


def _settle_thoughts(content: DecodedContent) -> None:
    if content.is_all_thought:
        content.parts = [_as_thought(part) if isinstance(part, TextPart) else part for part in content.parts]


def _as_thought(part: TextPart) -> ReasoningPart:
    """Return a text part as a reasoning part, without the metadata that mark it as a thought."""
    metadata = {key: value for key, value in part.metadata.items() if value not in _THOUGHTS.get(key, ())}
    return ReasoningPart(text=part.text, metadata=metadata, extra=part.extra)


def author_of(metadata: JsonObject | None) -> tuple[str, str] | None:
    """Return the name of the inner agent that wrote an update, and its branch, from the update's metadata. The name is
    empty for the called agent itself. Return None if the metadata name no agent."""
    if not metadata:
        return None
    return next(filter(None, (read_author(metadata) for read_author in _AUTHOR_READERS)), None)


def event_id_of(metadata: JsonObject | None) -> str | None:
    """Return the framework's id of the event that contains a message, from the event's metadata. Return None if there
    is no such id."""
    return next((str(metadata[key]) for key in _EVENT_IDS if key in metadata), None) if metadata else None


def has_task_after_end(metadata: JsonObject | None) -> bool:
    """Return True if the metadata show that the agent sends the whole task, with its usage and files, after its final
    status."""
    return any(key in (metadata or {}) for key in _LATE_TASK)


def error_of(*metadata: JsonObject | None) -> tuple[str, JsonObject]:
    """Return the text of a failure from the metadata of frameworks, and further details. The text is empty if there is
    none."""
    words, details = "", dict[str, Any]()
    for members in filter(None, metadata):
        for key, value in members.items():
            reader = _ERRORS.get(key) or _by_ending(_ENDING_ERRORS, key)
            if reader is not None:
                new_words, new_details = reader(value, members)
                words, details = new_words or words, {**details, **new_details}
    return words, details
