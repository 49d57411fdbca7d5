"""File upload: multipart/form-data (RFC 7578), the one body that is not JSON."""

import re
from dataclasses import dataclass
from email.message import Message as Headers
from typing import Final
from urllib.parse import unquote

# Litestar's own parser of the same bodies; here what is in them never touches a disk on its way.
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from babelgate.adapters.aief.codec import clean_folder, clean_name
from babelgate.canonical import FaultCode, FaultError, FilePart

_FIELDS: Final = 16
"""More parts than the protocol has a name for."""
_TYPE_LENGTH: Final = 1024
"""Characters of a Content-Type: the time to parse one grows with the square of its length."""
_KEY: Final = 255
"""Characters of an Idempotency-Key. Chosen, not measured."""
_FIELD_BYTES: Final = 64 * 1024
_BOUNDARY: Final = 70
"""Characters (RFC 2046, 5.1.1)."""
_PIECE: Final = 64 * 1024
"""Bytes that are parsed at once, so that whoever waits for the interpreter gets it in between."""


@dataclass(frozen=True, slots=True)
class Upload:
    file: FilePart
    folder: str | None


def decode_key(header: str | None) -> str | None:
    """Of `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07, 2.1), quoted or not. Raises invalid."""
    key = None if header is None else header.strip().removeprefix('"').removesuffix('"')
    if key is not None and not (0 < len(key) <= _KEY and key.isascii() and key.isprintable()):
        raise _invalid(f"An Idempotency-Key has 1 to {_KEY} printable characters of ASCII.")
    return key


def decode_upload(content_type: str, raw: bytes) -> Upload:
    """Takes a while for a large body, in small steps. Raises invalid."""
    header = Headers()
    header["content-type"] = content_type[:_TYPE_LENGTH]
    boundary = header.get_boundary()
    if boundary and len(boundary) > _BOUNDARY:
        raise _invalid(f"The boundary of a form has at most {_BOUNDARY} characters.")
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise _invalid("The body of an upload is multipart/form-data with a boundary.")
    file: FilePart | None = None
    folder: str | None = None
    for segment, content in _segments(boundary, raw):
        if segment.name == "file":
            media_type = segment.content_type if _is_plain(segment.content_type) else "application/octet-stream"
            file = FilePart(name=clean_name(_name(segment)), media_type=media_type, inline=content, size=len(content))
        elif segment.name == "relative_path":
            if len(content) > _FIELD_BYTES:
                raise _invalid("The value is too long.", "relative_path")
            try:
                folder = clean_folder(content.decode())
            except UnicodeDecodeError as error:
                raise _invalid("The value must be UTF-8.", "relative_path") from error
    if file is None:
        raise _invalid("Field required", "file")
    return Upload(file, folder)


def _segments(boundary: str, raw: bytes) -> list[tuple[MultipartSegment, bytes]]:
    found: list[tuple[MultipartSegment, bytes]] = []
    content: list[bytes] = []
    segment: MultipartSegment | None = None
    pieces = (raw[at : at + _PIECE] for at in range(0, len(raw), _PIECE))
    try:
        with PushMultipartParser(boundary.encode(), max_segment_count=_FIELDS) as parser:
            for event in (event for piece in pieces if not parser.closed for event in parser.parse(piece)):
                if isinstance(event, MultipartSegment):
                    segment, content = event, []
                elif event is not None:
                    content.append(bytes(event))
                elif segment is not None:
                    found.append((segment, b"".join(content)))
    except (MultipartError, UnicodeError) as error:
        raise _invalid("The body is not complete multipart/form-data.") from error
    return found


def _name(segment: MultipartSegment) -> str | None:
    """Some clients give names beyond ASCII in the form that RFC 7578 forbids, and in no other."""
    if segment.filename is not None:
        return segment.filename
    header = next((value for name, value in segment.headerlist if name == "Content-Disposition"), "")
    encoded = re.search(r"filename\*=utf-8''([^;\s]+)", header, re.IGNORECASE)
    return None if encoded is None else unquote(encoded[1])


def _is_plain(media_type: str | None) -> bool:
    return media_type is not None and len(media_type) <= 200 and media_type.isascii() and media_type.isprintable()


def _invalid(words: str, field: str | None = None) -> FaultError:
    errors = [] if field is None else [{"field": field, "description": words}]
    return FaultError(FaultCode.INVALID, words if field is None else f"{field}: {words}", errors=errors)
