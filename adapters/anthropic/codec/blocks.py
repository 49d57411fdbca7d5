"""Content blocks of requests → parts of canonical messages."""

from base64 import b64decode
from binascii import Error as BinasciiError
from typing import Final, NoReturn

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Extra, Json, JsonObject

_RESULTS: Final = ("tool_result", "mcp_tool_result")
_KNOWN: Final = frozenset(w.Block.model_fields) - {"babelgate"}


def refuse(where: str, words: str) -> NoReturn:
    """Raise invalid for a request. `where` is the path of the field at fault, such as `messages.0.content`."""
    raise FaultError(FaultCode.INVALID, f"{where}: {words}", errors=[{"field": where, "description": words}])


def decode_content(content: str | list[w.Block], where: str) -> list[Part]:
    """Return the content of a message as parts. `where` is its path in error texts. Raises invalid for a malformed
    block, and unsupported for a file that only the API's own server has."""
    if isinstance(content, str):
        return [TextPart(text=content)]
    parts: list[Part] = []
    for number, block in enumerate(content):
        parts += _decode_block(block, f"{where}.{number}")
    return parts


def text_of(content: str | list[w.Block] | None) -> str:
    """Return the text of a system prompt or of a result, from all of its text blocks."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(block.text for block in content if block.text is not None)


def _decode_block(block: w.Block, where: str) -> list[Part]:
    match block.type:
        case "text":
            return [_decode_text(block, where)]
        case "image" | "document":
            return [_decode_file(block, where)]
        case "thinking":
            return [ReasoningPart(text=block.thinking or "", extra=_extra(block, {"signature": block.signature}))]
        case "redacted_thinking":
            return [ReasoningPart(text="", extra=_extra(block, {"redacted": block.data}))]
        case "tool_use" | "mcp_tool_use":
            if block.id is None or block.name is None:
                refuse(where, "The fields id and name are required.")
            side = "caller" if block.type == "tool_use" else "agent"
            arguments = json_text(block.input if block.input is not None else {})
            extra = _extra(block, {"type": None if side == "caller" else block.type})
            return [ToolCallPart(call_id=block.id, name=block.name, arguments=arguments, side=side, extra=extra)]
        case kind if kind in _RESULTS:
            return _decode_result(block, where)
        case _:
            # A block that the API's own server makes, such as a search result. Agents see its JSON.
            members: JsonObject = block.model_dump(exclude_unset=True, mode="json")
            return [DataPart(data=members, extra={PROTOCOL: {"block": True}})]


def _decode_text(block: w.Block, where: str) -> Part:
    if block.text is None:
        refuse(f"{where}.text", "Field required")
    marks = as_object(block.babelgate)
    if "data" in marks:
        return DataPart(data=marks["data"])
    return TextPart(text=block.text, extra=_extra(block))


def _extra(block: w.Block, members: JsonObject | None = None) -> Extra:
    """Return the `extra` of a part. It contains `members` without their None values, and under `own` the members of the
    block without a canonical form, such as `cache_control`. They are passed on only to agents whose server speaks this
    API."""
    unknown: JsonObject = dict(block.model_extra or {})
    extra = {name: value for name, value in (members or {}).items() if value is not None}
    extra |= {"own": unknown} if unknown else {}
    return {PROTOCOL: extra} if extra else {}


def _decode_file(block: w.Block, where: str) -> FilePart:
    source = block.source
    if not isinstance(source, w.Source):
        refuse(f"{where}.source", "Field required")
    own_name = as_object(block.babelgate).get("name")
    name = block.title or (as_text(own_name) or None)
    extra = _extra(block, {"type": block.type})
    match source.type:
        case "base64" if source.data is not None:
            raw = _decode_base64(source.data, f"{where}.source.data")
            return FilePart(name=name, media_type=source.media_type, inline=raw, size=len(raw), extra=extra)
        case "text" if source.data is not None:
            raw = source.data.encode()
            media_type = source.media_type or "text/plain"
            return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw), extra=extra)
        case "content" if source.content is not None:
            raw = text_of(source.content).encode()
            return FilePart(name=name, media_type="text/plain", inline=raw, size=len(raw), extra=extra)
        case "url" if source.url is not None:
            media_type = source.media_type or ("image/*" if block.type == "image" else "application/pdf")
            return FilePart(name=name, media_type=media_type, url=source.url, extra=extra)
        case "file":
            words = f"{where}.source: the gateway has no uploaded files; send the bytes as base64, or a url"
            raise FaultError(FaultCode.UNSUPPORTED, words)
        case kind:
            refuse(f"{where}.source", f"The type {kind[:40]!r} is unknown, or the source lacks required fields.")


def _decode_base64(text: str, where: str) -> bytes:
    try:
        return b64decode(text.encode("ascii"), validate=True)
    except (BinasciiError, UnicodeEncodeError, ValueError):
        refuse(where, "It must be base64.")


def _decode_result(block: w.Block, where: str) -> list[Part]:
    if block.tool_use_id is None:
        refuse(f"{where}.tool_use_id", "Field required")
    content = result_content(block, where)
    files = [] if isinstance(content, str) else [each for each in content if each.type in ("image", "document")]
    extra = _extra(block, {"type": None if block.type == "tool_result" else block.type})
    result = ToolResultPart(
        call_id=block.tool_use_id, output=_output(content), error=block.is_error is True, extra=extra
    )
    return [result, *(_decode_file(each, f"{where}.content") for each in files)]


def result_content(block: w.Block, where: str = "messages") -> str | list[w.Block]:
    """Return the content of a `tool_result`. Raises invalid for a malformed one."""
    if block.content is None or isinstance(block.content, str):
        return block.content or ""
    try:
        return w.ResultBlocks.model_validate({"content": block.content}).content
    except ValueError:
        refuse(f"{where}.content", "It must be a string, or a list of content blocks.")


def _output(content: str | list[w.Block]) -> Json:
    """Return a result as the agent sees it: its text, or its blocks if it has others than text and files."""
    if isinstance(content, str):
        return content
    others = [each for each in content if each.type not in ("text", "image", "document")]
    if not others:
        return text_of(content)
    return [
        each.model_dump(exclude_unset=True, mode="json") for each in content if each.type not in ("image", "document")
    ]
