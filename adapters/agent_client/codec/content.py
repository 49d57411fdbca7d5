"""Content blocks of the protocol ↔ parts of canonical messages."""

from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from urllib.parse import quote, unquote, urlsplit

from babelgate.adapters.agent_client.wire import OWN
from babelgate.adapters.kit.json import ABSENT, parse_text
from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Message, Part, TextPart
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

PROTOCOL: Final = "agent-client"

BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
"""Types of content blocks."""

_NAME: Final = 200
"""Maximum length of a caller's text that an error repeats, and of a whole URI that is used as a file name, in
characters. Chosen."""
_TEXT: Final = "text/plain"
_BYTES: Final = "application/octet-stream"


def invalid(field: str, words: str) -> FaultError:
    """Return the fault `invalid` for a member of a request, for example `prompt.0.text`. `words` says what is wrong
    with it."""
    return FaultError(FaultCode.INVALID, f"{field}: {words}", field=field)


def decode_prompt(blocks: Sequence[JsonObject]) -> Message:
    """Return the content blocks of a prompt as one user message. Raises invalid."""
    parts = [decode_block(block, f"prompt.{number}") for number, block in enumerate(blocks)]
    return Message(role="user", parts=tuple(parts))


def decode_block(block: JsonObject, where: str) -> Part:
    """Return a content block as a part. `where` is its place in the request for error texts, for example `prompt.0`.
    Raises invalid."""
    match block.get("type"):
        case "text":
            text = _text(block, "text", where)
            data = parse_text(text) if own_member(block, "kind") == "data" else ABSENT
            return TextPart(text=text) if data is ABSENT else DataPart(data=data)
        case "image" | "audio":
            uri = block.get("uri")
            name = own_member(block, "name") or (name_of(uri) if isinstance(uri, str) else None)
            return _bytes_part(_text(block, "data", where), _optional(block, "mimeType"), name, f"{where}.data")
        case "resource_link":
            return _decode_link(block, where)
        case "resource":
            resource: object = block.get("resource")
            if not isinstance(resource, dict):
                raise invalid(f"{where}.resource", "Input should be an object")
            return _decode_resource(cast("JsonObject", resource), own_member(block, "name"), f"{where}.resource")
        case kind:
            raise invalid(
                f"{where}.type", f"expected text, image, audio, resource or resource_link, got {str(kind)[:_NAME]!r}"
            )


def _decode_link(block: JsonObject, where: str) -> Part:
    """Return a `resource_link` block as a file part with its URL. A link to a file on the client's machine becomes a
    text part that names the file, because neither the gateway nor the agent can read it."""
    uri = _text(block, "uri", where)
    name = _optional(block, "name") or name_of(uri)
    if urlsplit(uri).scheme not in ("http", "https", "data"):
        return TextPart(text=f"[@{name}]({uri})")
    return FilePart(name=name, media_type=_optional(block, "mimeType"), url=uri)


def _decode_resource(resource: JsonObject, name: str | None, where: str) -> Part:
    """Return an embedded resource as a file part with its bytes. Without a `name`, the file gets the last segment of
    the resource's URI as its name. Raises invalid."""
    uri = _text(resource, "uri", where)
    name = name or name_of(uri)
    if isinstance(resource.get("blob"), str):
        return _bytes_part(resource["blob"], _optional(resource, "mimeType"), name, f"{where}.blob")
    raw = _text(resource, "text", where).encode()
    return FilePart(name=name, media_type=_optional(resource, "mimeType") or _TEXT, inline=raw, size=len(raw))


def _bytes_part(text: str, media_type: str | None, name: str | None, where: str) -> FilePart:
    try:
        raw = b64decode(text, validate=True)
    except (BinasciiError, ValueError) as error:
        raise invalid(where, "Input should be Base64") from error
    return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw))


def name_of(uri: str) -> str:
    """Return the last segment of a URI's path, or the first 200 characters of the URI if there is none."""
    try:
        path = urlsplit(uri).path
    except ValueError:
        path = ""
    return unquote(path.rstrip("/").rpartition("/")[2]) or uri[:_NAME]


def own_members(members: JsonObject) -> JsonObject:
    """Return the object `_meta.babelgate` of a block, an update or a result. Empty if it has none."""
    return as_object(as_object(members.get("_meta")).get(OWN))


def own_member(block: JsonObject, member: str) -> str | None:
    """Return the text in `_meta.babelgate` of a block under the name `member`, for example the `name` of a file. Return
    None if it is missing."""
    value = own_members(block).get(member)
    return value if isinstance(value, str) else None


def _text(members: JsonObject, name: str, where: str) -> str:
    value: object = members.get(name)
    if not isinstance(value, str):
        raise invalid(f"{where}.{name}", "Input should be a valid string")
    return value


def _optional(members: JsonObject, name: str) -> str | None:
    value: object = members.get(name)
    return value if isinstance(value, str) else None


def text_block(text: str) -> JsonObject:
    """Return a content block with a text."""
    return {"type": "text", "text": text}


def encode_file(part: FilePart, url_of: Callable[[str], str]) -> JsonObject:
    """Return a file as a content block: an image, an audio or a resource with the file's bytes, or a link. `url_of`
    returns the URL of a stored file by its hash, for a file larger than `limits.inline`."""
    if part.url is not None:
        link: JsonObject = {"type": "resource_link", "uri": part.url, "name": part.name or name_of(part.url)}
        return {**link, **_description_of(part)}
    if part.inline is None:
        link = {"type": "resource_link", "uri": url_of(part.blob or ""), "name": part.name or part.blob or "file"}
        return {**link, **_description_of(part)}
    data, media_type = b64encode(part.inline).decode(), part.media_type or _BYTES
    name: JsonObject = {} if part.name is None else {"_meta": {OWN: {"name": part.name}}}
    family = media_type.partition("/")[0]
    if family in ("image", "audio"):
        return {"type": family, "data": data, "mimeType": media_type, **name}
    uri = f"file:///{quote(part.name or 'file', safe='')}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": data}, **name}


def _description_of(part: FilePart) -> JsonObject:
    members: dict[str, Any] = {"mimeType": part.media_type, "size": part.size}
    return {name: value for name, value in members.items() if value is not None}


def encode_parts(message: Message, url_of: Callable[[str], str]) -> list[JsonObject]:
    """Return the text parts and file parts of a user message as content blocks. Other parts are left out."""
    blocks: list[JsonObject] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            blocks.append(text_block(part.text))
        elif isinstance(part, FilePart):
            blocks.append(encode_file(part, url_of))
    return blocks
