"""File upload as multipart/form-data (RFC 7578), the only request whose body is not JSON."""

import re
from dataclasses import dataclass
from email.message import Message as Headers
from typing import Final
from urllib.parse import unquote

# Litestar's own multipart parser, but here the content is never written to disk.
from multipart import MultipartError, MultipartSegment, PushMultipartParser

from babelgate.adapters.aief.codec import clean_folder, clean_name
from babelgate.canonical import FaultCode, FaultError, FilePart

_FIELDS: Final = 16
"""Maximum number of parts of a form. Chosen: more than the protocol has names."""
_TYPE_LENGTH: Final = 1024
"""Maximum length of a header `Content-Type`, in characters. Chosen, because parsing time grows with the square of the
length."""
_KEY: Final = 255
"""Maximum length of an `Idempotency-Key`, in characters. Chosen, not measured."""
_FIELD_BYTES: Final = 64 * 1024
"""Maximum size of a form field that is not a file, in bytes. Chosen."""
_BOUNDARY: Final = 70
"""Maximum length of a boundary, in characters (RFC 2046, section 5.1.1)."""
_PIECE: Final = 64 * 1024
"""Number of bytes that are parsed at once. Chosen, so that other threads get the interpreter lock in between."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file, and the folder that the caller names for it."""

    file: FilePart
    folder: str | None


def decode_key(header: str | None) -> str | None:
    """Return the key in a header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header-07, section 2.1), with or
    without quotes. Return None for None. Raises invalid for a key that is empty, too long or not printable ASCII."""
    key = None if header is None else header.strip().removeprefix('"').removesuffix('"')
    if key is not None and not (0 < len(key) <= _KEY and key.isascii() and key.isprintable()):
        raise _invalid(f"An Idempotency-Key has 1 to {_KEY} printable characters of ASCII.")
    return key


def decode_upload(content_type: str, raw: bytes) -> Upload:
    """Return the file in the body of a form. It may take long, so it runs in a thread, and releases the interpreter
    lock regularly. Raises invalid for a malformed form, and for one without a file."""
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
    """Return the parts of a form, each with its content. Raises invalid for a malformed or incomplete body."""
    segments: list[tuple[MultipartSegment, bytes]] = []
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
                    segments.append((segment, b"".join(content)))
    except (MultipartError, UnicodeError) as error:
        raise _invalid("The body is not complete multipart/form-data.") from error
    return segments


def _name(segment: MultipartSegment) -> str | None:
    """Return the file name in a part of a form, or None. Names that are not ASCII are also read in the form
    `filename*=`, which RFC 7578 forbids but some clients send."""
    if segment.filename is not None:
        return segment.filename
    header = next((value for name, value in segment.headerlist if name == "Content-Disposition"), "")
    encoded = re.search(r"filename\*=utf-8''([^;\s]+)", header, re.IGNORECASE)
    return None if encoded is None else unquote(encoded[1])


def _is_plain(media_type: str | None) -> bool:
    """Return True if a media type is safe to send in a header: printable ASCII of at most 200 characters."""
    return media_type is not None and len(media_type) <= 200 and media_type.isascii() and media_type.isprintable()


def _invalid(words: str, field: str | None = None) -> FaultError:
    errors = [] if field is None else [{"field": field, "description": words}]
    return FaultError(FaultCode.INVALID, words if field is None else f"{field}: {words}", errors=errors)
