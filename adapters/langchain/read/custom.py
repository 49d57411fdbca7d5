"""Decoding of a server's custom data as `Custom` events. The progress and artifacts that another Babelgate sends as
custom data are restored."""

from collections.abc import Sequence
from typing import Final

from babelgate.adapters.langchain.codec.content import decode_content
from babelgate.adapters.langchain.read.messages import Place
from babelgate.canonical import Event, FaultError, TextPart
from babelgate.canonical.event import ArtifactAdded, Custom, MessageEnded, MessageStarted, PartAdded
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_ARTIFACT_MEMBERS: Final = frozenset({"id", "name", "description", "content", "append", "last"})
_ALL_ARTIFACT_MEMBERS: Final = _ARTIFACT_MEMBERS | {"metadata"}
"""Members of an artifact in custom data, including `metadata`, which is optional."""


def decode_custom(ns: Place, data: Json) -> Sequence[Event]:
    """Return the events of one item of custom data in the namespace `ns`. Objects in the forms of another Babelgate
    become a named `Custom`, a progress message or an artifact; all else becomes a `Custom` without a name."""
    wire = as_object(data)
    if wire.keys() == {"name", "value"} and isinstance(wire["name"], str) and wire["name"]:
        return (Custom(name=wire["name"], ns=ns, value=wire["value"]),)
    if wire.keys() == {"progress"} and isinstance(wire["progress"], str):
        part = PartAdded(part=TextPart(text=wire["progress"]))
        return (MessageStarted(phase="progress", ns=ns), part, MessageEnded())
    artifact = as_object(wire.get("artifact"))
    is_artifact = wire.keys() == {"artifact"} and _ARTIFACT_MEMBERS <= artifact.keys() <= _ALL_ARTIFACT_MEMBERS
    if is_artifact and (events := _decode_artifact(artifact)):
        return events
    return (Custom(ns=ns, value=data),)


def _decode_artifact(wire: JsonObject) -> Sequence[Event]:
    """Return an `ArtifactAdded` for each part of an artifact. Return nothing if its content cannot be decoded, so that
    the caller keeps it as custom data."""
    try:
        parts = decode_content(wire["content"])
    except FaultError:
        return ()
    append, last = wire["append"] is True, wire["last"] is not False
    return [
        ArtifactAdded(
            artifact_id=_text(wire["id"]),
            name=_text(wire["name"]),
            description=_text(wire["description"]),
            part=part,
            append=append or index > 0,
            last=last and index == len(parts) - 1,
            metadata=as_object(wire.get("metadata")),
        )
        for index, part in enumerate(parts)
    ]


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
