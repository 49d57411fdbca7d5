"""Conversion between ACP's message parts and canonical parts.

Some wire parts differ from the form in which the gateway would write their canonical part: other spacing of JSON,
another encoding, or text and a citation in one part. The difference is stored in `extra`, so that a part passes from
ACP to ACP unchanged.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel

from babelgate.adapters.acp import wire as w
from babelgate.adapters.kit.json import ABSENT, json_text, parse_text
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.value import Extra, Json, JsonObject

_PART: Final = "acp.part"
"""Key in `extra` of a part or an event for those members of the wire part that differ from the form in which the
gateway would write it. The value is None if an earlier part or event already shows the same wire part.

Members that ACP does not define are under the key `acp`, because their names can be chosen by the author of a wire
part.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodingContext:
    """Values on which an encoding depends in addition to the encoded object."""

    run_id: str
    session_id: str
    agent: str
    """Name under which ACP callers see the agent."""
    base_url: str = ""


_NOWHERE: Final = EncodingContext(run_id="", session_id="", agent="")
"""Empty context, for encodings that do not depend on it."""


def resource_url(base_url: str, resource_id: str) -> str:
    """Return the URL of a session's message or of a file on this gateway."""
    return f"{base_url}/acp/resources/{resource_id}"


def extra_of(extra: Extra) -> Mapping[str, Any]:
    """Return the members in `extra` that an ACP peer sent and ACP does not define. Return an empty object if there are
    none."""
    return extra.get("acp") or {}


def part_extra(members: JsonObject | None, extra: Extra | None = None) -> Extra:
    """Return the `extra` that makes `as_received` write a wire part with these members, and with those already in
    `extra`. If `members` is None, the part is not written at all."""
    if members is None or extra is None:
        return {_PART: members}
    return {**extra, _PART: {**members, **(extra.get(_PART) or {})}}


def as_received(part: w.MessagePart, extra: Extra) -> w.MessagePart:
    """Return a wire part with the members in `extra`, so that it equals the part that the peer sent."""
    members: JsonObject = extra.get(_PART) or {}
    if part.content_url is not None:  # bytes that became a URL, because they are too large to be inline
        members = {name: value for name, value in members.items() if name not in ("content", "content_encoding")}
    return part.model_copy(update=members) if members else part


def part_of(extra: Extra) -> w.MessagePart | None:
    """Return the wire part in the `extra` of an event, as the peer sent it. Return None if there is none, or if an
    earlier event already shows the same wire part."""
    return _with_extra(as_received(w.MessagePart(), extra), extra) if extra.get(_PART) else None


def has_part(extra: Extra) -> bool:
    """Return True if the `extra` of an event or a part says that it was read from a wire part, or that it must not be
    written."""
    return _PART in extra


def is_repetition(extra: Extra) -> bool:
    """Return True if the `extra` of an event or a part says that an earlier one already shows the same wire part."""
    return _PART in extra and extra[_PART] is None


def mark(part: w.MessagePart, **members: Any) -> w.MessagePart:
    """Return a wire part with further members under the key `babelgate`, because ACP has no place for them. Empty
    values are omitted."""
    present = {name: value for name, value in members.items() if value not in _EMPTY}
    return part.model_copy(update={w.OWN: {**own_of(part), **present}}) if present else part


_EMPTY: Final[Sequence[object]] = (None, "", {}, [], ())


def own_of(model: BaseModel) -> JsonObject:
    """Return the members under the key `babelgate` of a wire object, which another gateway has added. Return an empty
    object if there are none."""
    members = (model.model_extra or {}).get(w.OWN)
    return cast("JsonObject", members) if isinstance(members, dict) else {}


def wrap_value(value: Json) -> JsonObject:
    """Return the input or output of a tool as an object, which a trajectory requires. A value that is no object becomes
    `{"value": …}`."""
    # `tool_input` and `tool_output` are objects (components.schemas.TrajectoryMetadata).
    return value if isinstance(value, dict) else {"value": value}


def unwrap_value(value: JsonObject) -> Json:
    """Return the value that `wrap_value` has wrapped. Return an object that was not wrapped unchanged."""
    # An object in `value` was not wrapped.
    if set(value) == {"value"} and not isinstance(value["value"], dict):
        return value["value"]
    return value


def trajectory(
    message: str | None = None,
    *,
    tool: str | None = None,
    input: JsonObject | None = None,
    output: JsonObject | None = None,
) -> w.MessagePart:
    """Return a part without content that reports a step of the agent's work: a `message`, or the use of a `tool` with
    its `input` or `output`."""
    return w.MessagePart(
        metadata=w.Trajectory(message=message, tool_name=tool, tool_input=input, tool_output=output),
    )


def encode_part(part: Part, view: EncodingContext) -> w.MessagePart:
    """Return a canonical part as a wire part."""
    wire = _with_extra(as_received(_encode(part, view), part.extra), part.extra)
    return mark(wire, metadata=part.metadata, **_marks(part))


def _marks(part: Part) -> JsonObject:
    """Return the members from which another gateway can restore the kind of a part, such as a refusal. Return none for
    a part of another ACP server, because it is passed through unchanged."""
    if has_part(part.extra):
        return {}
    match part:
        case RefusalPart():
            return {"kind": "refusal"}
        case ToolCallPart():
            exact = json_text(_arguments(part.arguments)) == part.arguments
            side = part.side if part.side == "caller" else None
            members = {"kind": "tool_call", "call_id": part.call_id, "side": side}
            return members if exact else {**members, "arguments": part.arguments}
        case ToolResultPart():
            return {"kind": "tool_result", "call_id": part.call_id, "error": part.error or None}
        case _:
            return {}


def encode_parts(parts: Iterable[Part], view: EncodingContext) -> list[w.MessagePart]:
    """Return the parts of one message as wire parts. The result of a tool call gets the name of its tool."""
    wire_parts: list[w.MessagePart] = []
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, ToolCallPart):
            names[part.call_id] = part.name
        if is_repetition(part.extra):
            continue
        encoded = encode_part(part, view)
        if isinstance(part, ToolResultPart) and isinstance(encoded.metadata, w.Trajectory):
            encoded.metadata.tool_name = names.get(part.call_id)
        wire_parts.append(encoded)
    return wire_parts


def _encode(part: Part, view: EncodingContext) -> w.MessagePart:
    match part:
        case TextPart() | RefusalPart():
            return w.MessagePart(content_type=part.media_type or "text/plain", content=part.text)
        case DataPart():
            content = json_text(part.data)
            return w.MessagePart(content_type=part.media_type or "application/json", content=content)
        case FilePart():
            return _encode_file(part, view)
        case ReasoningPart():
            # ACP has no reasoning: BeeAI's agents report their work in `trajectory`
            # (components.schemas.TrajectoryMetadata).
            return trajectory(part.text)
        case ToolCallPart():
            return trajectory(tool=part.name, input=_arguments(part.arguments))
        case ToolResultPart():
            output = {"error": part.output} if part.error else wrap_value(part.output)
            return trajectory(tool=part.call_id, output=output)
        case AnnotationPart():
            return w.MessagePart(
                metadata=w.Citation(
                    start_index=part.start,
                    end_index=part.end,
                    url=part.url,
                    title=part.title,
                    description=part.description,
                )
            )


def _with_extra(part: w.MessagePart, extra: Extra) -> w.MessagePart:
    """Return a wire part with the members in `extra` that an ACP peer sent and ACP does not define."""
    members = extra_of(extra)
    if not members:
        return part
    unknown = {key: value for key, value in members.items() if key not in w.MessagePart.model_fields}
    if part.metadata is None and isinstance(members.get("metadata"), dict):
        unknown["metadata"] = members["metadata"]
    return part.model_copy(update=unknown)


def _encode_file(part: FilePart, view: EncodingContext) -> w.MessagePart:
    media_type = part.media_type or "application/octet-stream"
    if part.inline is None:
        url = part.url
        if url is None and part.blob is not None:
            url = resource_url(view.base_url, part.blob)
        return w.MessagePart(name=part.name, content_type=media_type, content_url=url)
    text = _text_of(part.inline, media_type, part.extra)
    if text is not None:
        return w.MessagePart(name=part.name, content_type=media_type, content=text)
    content = b64encode(part.inline).decode()
    return w.MessagePart(name=part.name, content_type=media_type, content=content, content_encoding="base64")


def _text_of(data: bytes, media_type: str, extra: Extra) -> str | None:
    """Return the content of a file as text, if it is UTF-8 and of a textual media type. Return None if it must be sent
    as base64. A file that came over ACP keeps its encoding."""
    members: JsonObject = {**extra_of(extra), **(extra.get(_PART) or {})}
    encoding = members.get("content_encoding")
    if encoding == "base64" or not (encoding or _is_text(media_type)):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _arguments(text: str) -> JsonObject:
    """Parse the JSON text of a tool call's arguments. A value that is no object, or text that is no JSON, is wrapped in
    an object."""
    value = parse_text(text)
    return {"arguments": text} if value is ABSENT else wrap_value(value)  # invalid if a model wrote incomplete JSON


def _bare(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _is_json(media_type: str) -> bool:
    bare = _bare(media_type)
    return bare == "application/json" or bare.endswith("+json")


_TEXT_MEDIA_TYPES: Final = frozenset(
    f"application/{name}"
    for name in ("ecmascript", "javascript", "jsonl", "sql", "toml", "x-ndjson", "x-sh", "xml", "yaml")
)
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)


def _is_text(media_type: str) -> bool:
    """Return True if content of this media type is readable text in UTF-8."""
    # A `charset` of another encoding describes the bytes (RFC 9110, section 8.3.2), which JSON can hold only as base64.
    charset = _CHARSET.search(media_type)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        return False
    bare = _bare(media_type)
    return bare.startswith("text/") or _is_json(bare) or bare.endswith("+xml") or bare in _TEXT_MEDIA_TYPES


def decode_part(part: w.MessagePart, index: int = 0) -> list[Part]:
    """Return the canonical parts for one wire part: one for its content, and others for its metadata. `index` is the
    place of the part, from which the ids of tool calls are made. Raises invalid for content that is not valid
    base64."""
    if _is_plain(part):
        return [TextPart(text=part.content or "")]
    members = own_of(part)
    marked = _decode_marked(part, members)
    parts = _decode_native(part, index) if marked is None else [marked]
    # Metadata of an unknown kind, or an empty part.
    first, *others = parts or [TextPart(text="")]
    extra = _extra(part, first)
    if marked is not None:
        extra.pop(_PART, None)
    elif isinstance(first, ToolCallPart | ToolResultPart):
        extra.setdefault(_PART, {})
    if isinstance(members.get("metadata"), dict):
        first = first.replace(metadata=members["metadata"])
    return [
        first.replace(extra=extra) if extra else first,
        *(other.replace(extra=part_extra(None)) for other in others),
    ]


def _decode_marked(part: w.MessagePart, members: JsonObject) -> Part | None:
    """Return the canonical part that another gateway has encoded as this wire part, according to the members that it
    added. Return None if there are no such members."""
    call_id, trajectory_of_call = members.get("call_id"), part.metadata
    if members.get("kind") == "refusal" and part.content is not None:
        return RefusalPart(text=part.content)
    if not isinstance(call_id, str) or not isinstance(trajectory_of_call, w.Trajectory):
        return None
    if members.get("kind") == "tool_call" and trajectory_of_call.tool_name is not None:
        text = members.get("arguments")
        if not isinstance(text, str):
            text = (
                "" if trajectory_of_call.tool_input is None else json_text(unwrap_value(trajectory_of_call.tool_input))
            )
        side = "caller" if members.get("side") == "caller" else "agent"
        return ToolCallPart(call_id=call_id, name=trajectory_of_call.tool_name, arguments=text, side=side)
    if members.get("kind") == "tool_result":
        output, error = trajectory_of_call.tool_output or {}, members.get("error") is True
        return ToolResultPart(
            call_id=call_id, output=output.get("error") if error else unwrap_value(output), error=error
        )
    return None


def _decode_native(part: w.MessagePart, index: int) -> list[Part]:
    parts: list[Part] = []
    content_type = part.content_type or "text/plain"
    if part.content_url is not None:
        parts.append(FilePart(name=part.name, media_type=content_type, url=part.content_url))
    elif part.content is not None:
        parts.append(_decode_content(part, part.content, content_type))
    match part.metadata:
        case w.Citation() as citation:
            parts.append(
                AnnotationPart(
                    start=citation.start_index,
                    end=citation.end_index,
                    url=citation.url,
                    title=citation.title,
                    description=citation.description,
                )
            )
        case w.Trajectory() as step:
            parts.extend(_decode_trajectory(step, f"call-{index}"))
        case _:
            pass
    return parts


def _is_plain(part: w.MessagePart) -> bool:
    """Return True for a part that contains only plain text. Most parts do, because each token of a stream is one."""
    return (
        part.content is not None
        and part.content_type == "text/plain"
        and part.content_encoding == "plain"
        and part.name is None
        and part.metadata is None
        and not part.model_extra
    )


def _extra(part: w.MessagePart, first: Part) -> dict[str, Any]:
    """Return the `extra` for the first canonical part of a wire part: members that ACP does not define, and members
    that differ from the form in which the gateway would write `first`."""
    unknown = {name: value for name, value in (part.model_extra or {}).items() if name != w.OWN}
    extra: dict[str, Any] = {"acp": unknown} if unknown else {}
    if isinstance(first, FilePart) and first.inline is not None:
        encoding = "base64" if _text_of(first.inline, first.media_type or "", {}) is None else "plain"
        canonical = w.MessagePart(
            name=first.name, content_type=first.media_type, content=part.content, content_encoding=encoding
        )
    else:
        canonical = _encode(first, _NOWHERE)
    members = {
        name: _plain(getattr(part, name))
        for name in w.MessagePart.model_fields
        if _plain(getattr(part, name)) != _plain(getattr(canonical, name))
    }
    if members:
        extra[_PART] = members
    return extra


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, w.Citation | w.Trajectory) else value


def _decode_content(part: w.MessagePart, content: str, content_type: str) -> Part:
    if part.content_encoding == "base64":
        data = decode_base64(content)
        return FilePart(name=part.name, media_type=content_type, inline=data, size=len(data))
    if part.name is not None:  # a file whose content is readable
        data = content.encode()
        return FilePart(name=part.name, media_type=content_type, inline=data, size=len(data))
    if _is_json(content_type):
        data = parse_text(content)
        if data is ABSENT:  # declared as JSON, but not valid: the content remains text
            return TextPart(text=content, media_type=content_type)
        return DataPart(data=data, media_type=_unless(content_type, "application/json"))
    return TextPart(text=content, media_type=_unless(content_type, "text/plain"))


def _unless(media_type: str, default: str) -> str | None:
    return None if media_type == default else media_type


def decode_base64(content: str) -> bytes:
    """Return the bytes that a base64 text contains, with or without the line breaks of MIME. Raises invalid for any
    other text."""
    try:
        # RFC 2045, section 6.8: lines of 76 characters.
        return b64decode(content.translate(_SPACE), validate=True)
    except (BinasciiError, ValueError) as error:
        raise FaultError(FaultCode.INVALID, "The content of a part is not base64.") from error


_SPACE: Final = {ord(each): None for each in " \t\r\n"}


def _decode_trajectory(step: w.Trajectory, call_id: str) -> list[Part]:
    parts: list[Part] = []
    if step.message is not None:
        parts.append(ReasoningPart(text=step.message))
    if step.tool_name is not None:
        arguments = "" if step.tool_input is None else json_text(unwrap_value(step.tool_input))
        parts.append(ToolCallPart(call_id=call_id, name=step.tool_name, arguments=arguments))
    if step.tool_output is not None:
        parts.append(ToolResultPart(call_id=call_id, output=unwrap_value(step.tool_output)))
    return parts
