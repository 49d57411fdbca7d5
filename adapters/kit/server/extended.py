"""The Babelgate extension on HTTP: whether a request activates it, what says so in the answer, and the files that
envelopes name."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from litestar import Request, Response
from litestar.connection import ASGIConnection

from babelgate.adapters.kit.extension import HEADER, URI, is_named
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.listed import Pieces
from babelgate.canonical import FaultCode, FaultError, Hub

_BLOB: Final = re.compile(r"[0-9a-f]{64}\Z")
_NAME_LENGTH: Final = 255
"""Characters of a file's name: more than any file system holds."""
_TYPE_LENGTH: Final = 255
"""Characters. RFC 6838, 4.2: at most 127 for each of the two names of a media type."""


def is_asked(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    return is_named(connection.headers.get(HEADER))


def confirm(*, active: bool) -> Mapping[str, str]:
    """Headers of the answer."""
    return {HEADER: URI} if active else {}


async def answer_file(hub: Hub, request: Request[Any, Any, Any], blob: str) -> Response[Any]:
    """A file by its hash. It comes from an agent or a caller: a browser must not show it as something of ours. Raises
    not_found."""
    if not _BLOB.match(blob):
        raise FaultError(FaultCode.NOT_FOUND, "No such file.")
    part, pieces = await hub.reads.file_pieces(caller(request).owner, blob)
    name = quote((part.name or blob)[:_NAME_LENGTH], safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, immutable, max-age=31536000",
        "ETag": f'"{blob}"',
        "Content-Length": str(part.size),
    }
    return Pieces(pieces, headers, media_type=_media_type(part.media_type))


def _media_type(given: str | None) -> str:
    """The type that the agent or the caller gave, where a header can hold it."""
    is_fit = given is not None and given.isascii() and given.isprintable() and len(given) <= _TYPE_LENGTH
    return given if given and is_fit else "application/octet-stream"
