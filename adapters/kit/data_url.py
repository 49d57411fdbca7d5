"""Decoding of `data:` URLs (RFC 2397), which contain the bytes of a file."""

from base64 import b64decode
from binascii import Error as BinasciiError
from urllib.parse import unquote_to_bytes

from babelgate.canonical import Event, FilePart
from babelgate.canonical.event import ArtifactAdded, PartAdded


def decode_data_url(url: str) -> tuple[str, bytes] | None:
    """Return the media type, without parameters, and the bytes that a `data:` URL contains. Return None if `url` is not
    a valid `data:` URL."""
    if url[:5].lower() != "data:":
        return None
    head, comma, body = url[5:].partition(",")
    if not comma:
        return None
    media_type, *parameters = (each.strip() for each in head.split(";"))
    raw = unquote_to_bytes(body)
    if any(each.lower() == "base64" for each in parameters):
        try:
            raw = b64decode(raw, validate=True)
        except (BinasciiError, ValueError):
            return None
    return media_type.lower() or "text/plain", raw


def inline_data_url(event: Event) -> Event:
    """Return an agent's event with the bytes of its file instead of a `data:` URL, and any other event unchanged.
    Otherwise some callers would get the whole file as a URL, and all others would get no bytes."""
    if not isinstance(event, PartAdded | ArtifactAdded):
        return event
    part = event.part
    if not isinstance(part, FilePart) or part.url is None or (decoded := decode_data_url(part.url)) is None:
        return event
    media_type, raw = decoded
    part = part.replace(media_type=part.media_type or media_type, url=None, inline=raw, size=len(raw))
    return event.replace(part=part)
