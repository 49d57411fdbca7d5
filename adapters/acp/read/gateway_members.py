"""Decoding of the members that another gateway adds to ACP objects (key `babelgate`) for data that ACP has no place
for."""

from itertools import accumulate
from typing import Any, cast

from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import DataPart, FilePart, Part, TextPart
from babelgate.canonical.value import JsonObject


def text_member(members: JsonObject, name: str) -> str | None:
    """Return a member if its value is a text. Return None otherwise."""
    value = members.get(name)
    return value if isinstance(value, str) else None


def place_of(members: JsonObject) -> dict[str, Any]:
    """Return the fields `step_id`, `node` and `ns` of a step's event from the members that another gateway has
    added."""
    ns = tuple(each for each in _list(members.get("ns")) if isinstance(each, str))
    return {"step_id": text_member(members, "step_id"), "node": text_member(members, "node") or "", "ns": ns}


def with_blob(part: FilePart, members: JsonObject) -> FilePart:
    """Return a file with the hash under which the other gateway stores it, instead of its URL. Its bytes are fetched by
    the hash. Return a file without such a hash, or with bytes, unchanged."""
    blob = text_member(members, "blob")
    return part if blob is None or part.inline is not None else part.replace(blob=blob, url=None)


def decode_artifact(part: FilePart, kind: object) -> Part:
    """Return the part of an artifact that the other gateway sent as a file. `kind` says what the part was there: `text`
    or `data`; any other value leaves it a file."""
    media_type = part.media_type if part.media_type not in ("text/plain", "application/json") else None
    if part.inline is None:
        return part
    if kind == "text":
        return TextPart(text=part.inline.decode(errors="replace"), media_type=media_type)
    data = parse_text(part.inline.decode(errors="replace")) if kind == "data" else ABSENT
    return part if data is ABSENT else DataPart(data=data, media_type=media_type)


def split_artifact(part: Part, sizes: object) -> list[Part]:
    """Return the pieces in which an artifact arrived at the other gateway. `sizes` are the lengths of the pieces, in
    characters of a text or in bytes of a file. If they do not add up to the length of the part, return the whole
    part."""
    listed = _list(sizes)
    lengths = [int(each) for each in listed if isinstance(each, int | float) and each >= 0]
    content = part.text if isinstance(part, TextPart) else part.inline if isinstance(part, FilePart) else None
    if content is None or len(lengths) != len(listed) or len(lengths) < 2 or sum(lengths) != len(content):
        return [part]
    ends = list(accumulate(lengths))
    pieces = [content[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    return [
        part.replace(text=piece) if isinstance(part, TextPart) else part.replace(inline=piece, size=len(piece))
        for piece in pieces
    ]


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
