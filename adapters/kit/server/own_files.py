"""Resolution of file URLs whose bytes need no download: URLs of files that the gateway itself stores, and `data:`
URLs."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from babelgate.adapters.kit.data_url import decode_data_url
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import FaultCode, FaultError, FilePart, Hub, Message, Part

_HASH: Final = re.compile(r"/([0-9a-f]{64})")


async def resolve_own_files(hub: Hub, caller: Caller, messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages of a caller with their files resolved. The URL of a file that the gateway stores for the
    caller is replaced by the file's hash, and a `data:` URL by its bytes. Other URLs remain, including those of another
    owner's files."""
    return tuple([await _message(hub, caller, message) for message in messages])


async def _message(hub: Hub, caller: Caller, message: Message) -> Message:
    if not any(isinstance(part, FilePart) and part.url for part in message.parts):
        return message
    return message.replace(parts=tuple([await _part(hub, caller, part) for part in message.parts]))


async def _part(hub: Hub, caller: Caller, part: Part) -> Part:
    if not isinstance(part, FilePart) or not part.url:
        return part
    if (decoded := decode_data_url(part.url)) is not None:
        media_type, raw = decoded
        return part.replace(media_type=part.media_type or media_type, url=None, inline=raw, size=len(raw))
    blob = _own_blob(caller, part.url)
    if blob is None:
        return part
    try:
        stored, _ = await hub.reads.file_pieces(caller.principal, blob)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return part
    missing = {name: getattr(stored, name) for name in ("name", "media_type") if getattr(part, name) is None}
    return part.replace(**missing, url=None, blob=blob, size=stored.size)


def _own_blob(caller: Caller, url: str) -> str | None:
    """Return the hash at the end of a file's URL on this gateway, or None for any other URL. The servers of all
    protocols name files by hash, each below its own path."""
    try:
        target, gateway = urlsplit(url), urlsplit(caller.base_url)
    except ValueError:
        return None
    match = _HASH.fullmatch(target.path[-65:])
    return match[1] if match and (target.scheme, target.netloc) == (gateway.scheme, gateway.netloc) else None
