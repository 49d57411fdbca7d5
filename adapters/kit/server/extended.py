"""The Babelgate extension over HTTP: its activation in a request, its confirmation in the response, and the files that
envelopes reference."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from litestar import Response
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.extension import HEADER, URI, is_named
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.listed import Pieces
from babelgate.canonical import FaultCode, FaultError, Hub

_BLOB: Final = re.compile(r"[0-9a-f]{64}\Z")
"""Pattern of the hash of a file in a URL: the SHA-256 of its bytes, in lower-case hexadecimal digits."""
_NAME_LENGTH: Final = 255
"""Maximum length of a file's name, in characters. No file system holds longer names."""
_TYPE_LENGTH: Final = 255
"""Maximum length of a media type, in characters. RFC 6838, section 4.2: at most 127 for each of its two names."""


def is_activated(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Return True if the request's header `Babelgate-Extensions` activates the extension."""
    return is_named(connection.headers.get(HEADER))


def confirm(*, active: bool) -> Mapping[str, str]:
    """Return the response header that confirms the extension, or no header if the extension is not active."""
    return {HEADER: URI} if active else {}


async def answer_file(hub: Hub, request: AnyRequest, blob: str) -> Response[Any]:
    """Return a response with the bytes of the file whose hash is `blob`. It is always a download, because a browser
    must not show a file of an agent or a caller as content of the gateway. Raises not_found if there is no such
    file."""
    if not _BLOB.match(blob):
        raise FaultError(FaultCode.NOT_FOUND, "No such file")
    part, pieces = await hub.reads.file_pieces(caller(request).principal, blob)
    name = quote((part.name or blob)[:_NAME_LENGTH], safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, immutable, max-age=31536000",
        "ETag": f'"{blob}"',
        "Content-Length": str(part.size),
    }
    return Pieces(pieces, headers, media_type=_media_type(part.media_type))


def _media_type(declared: str | None) -> str:
    """Return the media type that the agent or caller has declared for a file, if it can be sent in a header. Return the
    generic type `application/octet-stream` otherwise."""
    is_fit = declared is not None and declared.isascii() and declared.isprintable() and len(declared) <= _TYPE_LENGTH
    return declared if declared and is_fit else "application/octet-stream"
