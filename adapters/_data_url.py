"""The bytes in `data:` URLs (RFC 2397)."""

from base64 import b64decode
from binascii import Error as BinasciiError
from urllib.parse import unquote_to_bytes


def decode_data_url(url: str) -> tuple[str, bytes] | None:
    """Return the media type, without parameters, and the bytes. Return None if the URL is not a valid `data:` URL."""
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
