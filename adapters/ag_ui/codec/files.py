"""Files: parts of messages and contents of activities ↔ file parts."""

from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from typing import Final
from urllib.parse import quote

from babelgate.adapters.ag_ui import wire as w
from babelgate.adapters.kit.data_url import decode_data_url
from babelgate.canonical import DataPart, FaultCode, FaultError, FilePart, Part, TextPart
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject

_KINDS: Final = ("image", "audio", "video")
"""Main types, such as `image` in `image/png`, that are also a `type` of message parts. A file of any other media type
is a `document`."""
_NAME: Final = "filename"
"""Member of a part's metadata with the name of the file. The specification has none; CopilotKit uses this one."""


def file_url(base_url: str, agent: str, blob: str) -> str:
    """Return the URL at which the gateway serves a stored file to callers of the agent. `blob` is the hash of its
    content."""
    return f"{base_url}/ag-ui/{quote(agent, safe='')}/files/{blob}"


def encode_source(part: FilePart, base_url: str = "", agent: str = "") -> JsonObject | None:
    """Return the `source` of a file: its bytes in Base64 if they are loaded, the URL at which the gateway serves them
    if they are stored, or the file's own URL. Return None if it has none of these."""
    media_type: JsonObject = {} if part.media_type is None else {"mimeType": part.media_type}
    if part.inline is not None:
        value = b64encode(part.inline).decode()
        return {"type": "data", "value": value, "mimeType": part.media_type or "application/octet-stream"}
    if part.blob is not None:
        return {"type": "url", "value": file_url(base_url, agent, part.blob), **media_type}
    return None if part.url is None else {"type": "url", "value": part.url, **media_type}


def encode_file(part: FilePart, base_url: str = "", agent: str = "") -> JsonObject:
    """Return a file as the `content` of an activity: its name, media type, size, source and metadata, without those
    that are unknown."""
    members = {
        "name": part.name,
        "mimeType": part.media_type,
        "size": part.size,
        "source": encode_source(part, base_url, agent),
        "metadata": part.metadata or None,
    }
    return {name: value for name, value in members.items() if value is not None}


def decode_file(content: JsonObject) -> FilePart | None:
    """Return the file that the `content` of an activity describes, or None if it has no source, or invalid Base64."""
    source = as_object(content.get("source"))
    name, media_type = as_text(content.get("name")) or None, as_text(content.get("mimeType")) or None
    metadata = as_object(content.get("metadata"))
    value = source.get("value")
    if not isinstance(value, str):
        return None
    if source.get("type") == "data":
        raw = _decode_bytes(value)
        if raw is None:
            return None
        return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw), metadata=metadata)
    return FilePart(name=name, media_type=media_type, url=value, metadata=metadata)


def encode_content(part: Part, base_url: str, agent: str) -> JsonObject:
    """Return a part of an artifact as an item of the list `parts` in its activity. The member `type` is `file`, `data`
    or `text`."""
    match part:
        case FilePart():
            return {"type": "file", **encode_file(part, base_url, agent)}
        case DataPart():
            return {"type": "data", "data": part.data}
        case _:
            return {"type": "text", "text": getattr(part, "text", "")}


def decode_content(value: Json) -> Part | None:
    """Return the part of an artifact that an item of the list `parts` describes, or None if it cannot be read."""
    members = as_object(value)
    match members.get("type"):
        case "file":
            return decode_file(members)
        case "data":
            return DataPart(data=members.get("data"))
        case "text":
            return TextPart(text=as_text(members.get("text")))
        case _:
            return None


def encode_message_part(part: FilePart, base_url: str = "", agent: str = "") -> JsonObject | None:
    """Return a file as a part of a message, or None if the file has neither bytes nor a URL."""
    source = encode_source(part, base_url, agent)
    if source is None:
        return None
    kind = (part.media_type or "").partition("/")[0]
    metadata = {**part.metadata, **({_NAME: part.name} if part.name is not None else {})}
    encoded: JsonObject = {"type": kind if kind in _KINDS else "document", "source": source}
    return {**encoded, "metadata": metadata} if metadata else encoded


def decode_message_part(part: w.Part, field: str) -> TextPart | FilePart:
    """Return a part of a message in a request as text or a file. `field` is its path in error texts, such as
    `messages.0.content.1`. Raises invalid, and unsupported if the file is stored at a model provider."""
    if part.type == "text":
        if part.text is None:
            raise FaultError(FaultCode.INVALID, f"{field}.text: Field required")
        return TextPart(text=part.text, metadata=part.metadata or {})
    metadata = dict(part.metadata or {})
    name = metadata.pop(_NAME, None)
    name = name if isinstance(name, str) else part.filename
    if part.type == "binary":
        return _decode_binary(part, name, field)
    source = part.source
    if source is None:
        raise FaultError(FaultCode.INVALID, f"{field}.source: Field required")
    if source.type == "file":
        words = f"{field}.source: a file of {source.provider or 'another provider'} cannot be read; send data or url"
        raise FaultError(FaultCode.UNSUPPORTED, words)
    media_type = source.mime_type or part.mime_type
    if source.type == "url":
        return _from_url(source.value, name, media_type, metadata)
    return _from_data(source.value, name, media_type, metadata, f"{field}.source.value")


def _decode_binary(part: w.Part, name: str | None, field: str) -> FilePart:
    """Return the file of a `binary` part, which was the form of files before protocol version 1.0. Raises invalid, and
    unsupported if the part has only an id."""
    if part.data is not None:
        return _from_data(part.data, name, part.mime_type, {}, f"{field}.data")
    if part.url is not None:
        return _from_url(part.url, name, part.mime_type, {})
    raise FaultError(FaultCode.UNSUPPORTED, f"{field}: a binary part needs data or url; the gateway stores no ids")


def _from_data(value: str, name: str | None, media_type: str | None, metadata: JsonObject, field: str) -> FilePart:
    raw = _decode_bytes(value)
    if raw is None:
        raise FaultError(FaultCode.INVALID, f"{field}: must be Base64")
    return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw), metadata=metadata)


def _from_url(value: str, name: str | None, media_type: str | None, metadata: JsonObject) -> FilePart:
    decoded = decode_data_url(value)
    if decoded is not None:
        found, raw = decoded
        return FilePart(name=name, media_type=media_type or found, inline=raw, size=len(raw), metadata=metadata)
    return FilePart(name=name, media_type=media_type, url=value, metadata=metadata)


def _decode_bytes(value: str) -> bytes | None:
    """Return the bytes of a Base64 text, or None if it is invalid."""
    try:
        return b64decode(value.encode("ascii"), validate=True)
    except (BinasciiError, UnicodeEncodeError, ValueError):
        return None
