"""ACP's message parts ↔ canonical parts.

What a wire part says otherwise than its canonical form would be written (JSON in other spacing, an encoding, text and a
citation in one part) is kept beside it in `extra`, so that from ACP to ACP a part leaves as it came.
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
"""The key in `extra` of a part or an event: members of the wire part that differ from what would be written, or None
for what an earlier one of the same wire part says, too. Beside `acp`, which holds unknown members, and which whoever
writes a part on the wire can therefore fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything but the records that an encoding depends on."""

    run_id: str
    session_id: str
    agent: str
    """The name under which the agent is advertised."""
    base_url: str = ""


_NOWHERE: Final = View(run_id="", session_id="", agent="")


def resource_url(base_url: str, resource_id: str) -> str:
    return f"{base_url}/acp/resources/{resource_id}"


def extra_of(extra: Extra) -> Mapping[str, Any]:
    """What an ACP peer said that canonical has no word for."""
    return extra.get("acp") or {}


def part_extra(members: JsonObject | None, extra: Extra | None = None) -> Extra:
    """`extra` by which a wire part is shown with these members, and those that `extra` names; None = not at all."""
    if members is None or extra is None:
        return {_PART: members}
    return {**extra, _PART: {**members, **(extra.get(_PART) or {})}}


def as_said(made: w.MessagePart, extra: Extra) -> w.MessagePart:
    """The part as its server or caller said it."""
    members: JsonObject = extra.get(_PART) or {}
    if made.content_url is not None:  # what came as bytes, and is too large to leave so
        members = {name: value for name, value in members.items() if name not in ("content", "content_encoding")}
    return made.model_copy(update=members) if members else made


def part_of(extra: Extra) -> w.MessagePart | None:
    """The wire part that an event brings itself; None if it brings none, or another has said it."""
    return _with_extra(as_said(w.MessagePart(), extra), extra) if extra.get(_PART) else None


def has_part(extra: Extra) -> bool:
    """Whether it is known how, and whether, an event or a part is said on the wire."""
    return _PART in extra


def is_said_before(extra: Extra) -> bool:
    return _PART in extra and extra[_PART] is None


def mark(made: w.MessagePart, **told: Any) -> w.MessagePart:
    """The part with what ACP has no place for, as far as there is any."""
    named = {name: value for name, value in told.items() if value not in _NOTHING}
    return made.model_copy(update={w.OWN: {**own_of(made), **named}}) if named else made


_NOTHING: Final[Sequence[object]] = (None, "", {}, [], ())


def own_of(told: BaseModel) -> JsonObject:
    """What another gateway says that ACP has no place for."""
    own = (told.model_extra or {}).get(w.OWN)
    return cast("JsonObject", own) if isinstance(own, dict) else {}


def wrap_value(value: Json) -> JsonObject:
    """A tool's input or output as the object that a trajectory wants."""
    # `tool_input` and `tool_output` are objects (components.schemas.TrajectoryMetadata).
    return value if isinstance(value, dict) else {"value": value}


def unwrap_value(value: JsonObject) -> Json:
    # The way back from `wrap_value`; an object under `value` was one before.
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
    """A part without content that tells of the work."""
    return w.MessagePart(
        metadata=w.Trajectory(message=message, tool_name=tool, tool_input=input, tool_output=output),
    )


def encode_part(part: Part, view: View) -> w.MessagePart:
    made = _with_extra(as_said(_encode(part, view), part.extra), part.extra)
    return mark(made, metadata=part.metadata, **_marks(part))


def _marks(part: Part) -> JsonObject:
    """By which a part is read as what it was. None for one that another ACP server told: it goes on as it came."""
    if has_part(part.extra):
        return {}
    match part:
        case RefusalPart():
            return {"kind": "refusal"}
        case ToolCallPart():
            exact = json_text(_arguments(part.arguments)) == part.arguments
            side = part.side if part.side == "caller" else None
            told = {"kind": "tool_call", "call_id": part.call_id, "side": side}
            return told if exact else {**told, "arguments": part.arguments}
        case ToolResultPart():
            return {"kind": "tool_result", "call_id": part.call_id, "error": part.error or None}
        case _:
            return {}


def encode_parts(parts: Iterable[Part], view: View) -> list[w.MessagePart]:
    """Of one message. The result of a tool call is told under the name of the tool."""
    made: list[w.MessagePart] = []
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, ToolCallPart):
            names[part.call_id] = part.name
        if is_said_before(part.extra):
            continue
        encoded = encode_part(part, view)
        if isinstance(part, ToolResultPart) and isinstance(encoded.metadata, w.Trajectory):
            encoded.metadata.tool_name = names.get(part.call_id)
        made.append(encoded)
    return made


def _encode(part: Part, view: View) -> w.MessagePart:
    match part:
        case TextPart() | RefusalPart():
            return w.MessagePart(content_type=part.media_type or "text/plain", content=part.text)
        case DataPart():
            content = json_text(part.data)
            return w.MessagePart(content_type=part.media_type or "application/json", content=content)
        case FilePart():
            return _encode_file(part, view)
        case ReasoningPart():
            # ACP has no reasoning: `trajectory` is where BeeAI's agents say what they do
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


def _with_extra(made: w.MessagePart, extra: Extra) -> w.MessagePart:
    own = extra_of(extra)
    if not own:
        return made
    kept = {key: value for key, value in own.items() if key not in w.MessagePart.model_fields}
    if made.metadata is None and isinstance(own.get("metadata"), dict):
        kept["metadata"] = own["metadata"]
    return made.model_copy(update=kept)


def _encode_file(part: FilePart, view: View) -> w.MessagePart:
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
    """The content of a file that is shown as it reads: one of a type of text, in UTF-8. None = as base64. One that came
    from ACP leaves as it came."""
    members: JsonObject = {**extra_of(extra), **(extra.get(_PART) or {})}
    came_as = members.get("content_encoding")
    if came_as == "base64" or not (came_as or _is_text(media_type)):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _arguments(text: str) -> JsonObject:
    value = parse_text(text)
    return {"arguments": text} if value is ABSENT else wrap_value(value)  # incomplete, as a model may write it


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
    """Whether what has the type is read by people, and in UTF-8."""
    # A `charset` of another encoding is true of the bytes (RFC 9110, 8.3.2), and JSON can hold them in base64 alone.
    charset = _CHARSET.search(media_type)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        return False
    bare = _bare(media_type)
    return bare.startswith("text/") or _is_json(bare) or bare.endswith("+xml") or bare in _TEXT_MEDIA_TYPES


def decode_part(part: w.MessagePart, index: int = 0) -> list[Part]:
    """What one wire part says: its content, and what its metadata tells. `index` names tool calls, which have no id.
    Raises invalid for content that is not the base64 it says it is."""
    if _is_plain(part):
        return [TextPart(text=part.content or "")]
    own = own_of(part)
    marked = _decode_marked(part, own)
    found = _decode_native(part, index) if marked is None else [marked]
    # Metadata of a kind that is unknown here, or nothing at all.
    first, *others = found or [TextPart(text="")]
    extra = _extra(part, first)
    if marked is not None:
        extra.pop(_PART, None)
    elif isinstance(first, ToolCallPart | ToolResultPart):
        extra.setdefault(_PART, {})
    if isinstance(own.get("metadata"), dict):
        first = first.replace(metadata=own["metadata"])
    return [
        first.replace(extra=extra) if extra else first,
        *(other.replace(extra=part_extra(None)) for other in others),
    ]


def _decode_marked(part: w.MessagePart, own: JsonObject) -> Part | None:
    """What another gateway says that the part is; None if it says nothing of the kind."""
    call_id, about = own.get("call_id"), part.metadata
    if own.get("kind") == "refusal" and part.content is not None:
        return RefusalPart(text=part.content)
    if not isinstance(call_id, str) or not isinstance(about, w.Trajectory):
        return None
    if own.get("kind") == "tool_call" and about.tool_name is not None:
        text = own.get("arguments")
        if not isinstance(text, str):
            text = "" if about.tool_input is None else json_text(unwrap_value(about.tool_input))
        side = "caller" if own.get("side") == "caller" else "agent"
        return ToolCallPart(call_id=call_id, name=about.tool_name, arguments=text, side=side)
    if own.get("kind") == "tool_result":
        output, error = about.tool_output or {}, own.get("error") is True
        return ToolResultPart(
            call_id=call_id, output=output.get("error") if error else unwrap_value(output), error=error
        )
    return None


def _decode_native(part: w.MessagePart, index: int) -> list[Part]:
    found: list[Part] = []
    content_type = part.content_type or "text/plain"
    if part.content_url is not None:
        found.append(FilePart(name=part.name, media_type=content_type, url=part.content_url))
    elif part.content is not None:
        found.append(_decode_content(part, part.content, content_type))
    match part.metadata:
        case w.Citation() as cited:
            found.append(
                AnnotationPart(
                    start=cited.start_index,
                    end=cited.end_index,
                    url=cited.url,
                    title=cited.title,
                    description=cited.description,
                )
            )
        case w.Trajectory() as step:
            found.extend(_decode_trajectory(step, f"call-{index}"))
        case _:
            pass
    return found


def _is_plain(part: w.MessagePart) -> bool:
    """The common case: a token."""
    return (
        part.content is not None
        and part.content_type == "text/plain"
        and part.content_encoding == "plain"
        and part.name is None
        and part.metadata is None
        and not part.model_extra
    )


def _extra(part: w.MessagePart, first: Part) -> dict[str, Any]:
    """Unknown members, and those that the first canonical part would be written with otherwise."""
    unknown = {name: value for name, value in (part.model_extra or {}).items() if name != w.OWN}
    extra: dict[str, Any] = {"acp": unknown} if unknown else {}
    if isinstance(first, FilePart) and first.inline is not None:
        encoding = "base64" if _text_of(first.inline, first.media_type or "", {}) is None else "plain"
        made = w.MessagePart(
            name=first.name, content_type=first.media_type, content=part.content, content_encoding=encoding
        )
    else:
        made = _encode(first, _NOWHERE)
    members = {
        name: _plain(getattr(part, name))
        for name in w.MessagePart.model_fields
        if _plain(getattr(part, name)) != _plain(getattr(made, name))
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
    if part.name is not None:  # a file whose bytes are readable
        data = content.encode()
        return FilePart(name=part.name, media_type=content_type, inline=data, size=len(data))
    if _is_json(content_type):
        data = parse_text(content)
        if data is ABSENT:  # it says JSON and is not: what it holds is text still
            return TextPart(text=content, media_type=content_type)
        return DataPart(data=data, media_type=_unless(content_type, "application/json"))
    return TextPart(text=content, media_type=_unless(content_type, "text/plain"))


def _unless(media_type: str, default: str) -> str | None:
    return None if media_type == default else media_type


def decode_base64(content: str) -> bytes:
    """With line breaks too, as MIME writes it. Raises invalid."""
    try:
        # RFC 2045, 6.8: lines of 76 characters.
        return b64decode(content.translate(_SPACE), validate=True)
    except (BinasciiError, ValueError) as error:
        raise FaultError(FaultCode.INVALID, "The content of a part is not base64.") from error


_SPACE: Final = {ord(each): None for each in " \t\r\n"}


def _decode_trajectory(step: w.Trajectory, call_id: str) -> list[Part]:
    found: list[Part] = []
    if step.message is not None:
        found.append(ReasoningPart(text=step.message))
    if step.tool_name is not None:
        arguments = "" if step.tool_input is None else json_text(unwrap_value(step.tool_input))
        found.append(ToolCallPart(call_id=call_id, name=step.tool_name, arguments=arguments))
    if step.tool_output is not None:
        found.append(ToolResultPart(call_id=call_id, output=unwrap_value(step.tool_output)))
    return found
