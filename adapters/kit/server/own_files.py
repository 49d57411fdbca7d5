"""Resolution of file URLs whose bytes are here: the gateway's own URLs, and `data:` URLs."""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from babelgate.adapters.kit.data_url import decode_data_url
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import FaultCode, FaultError, FilePart, Hub, Message, Part

_HASH: Final = re.compile(r"/([0-9a-f]{64})")


async def resolve_own_files(hub: Hub, who: Caller, messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with the caller's files of the store in place of their URLs, and the bytes of `data:` URLs. Any
    other URL is handed on as it is, one that leads to somebody else's file among them."""
    return tuple([await _message(hub, who, message) for message in messages])


async def _message(hub: Hub, who: Caller, message: Message) -> Message:
    if not any(isinstance(part, FilePart) and part.url for part in message.parts):
        return message
    return message.replace(parts=tuple([await _part(hub, who, part) for part in message.parts]))


async def _part(hub: Hub, who: Caller, part: Part) -> Part:
    if not isinstance(part, FilePart) or not part.url:
        return part
    if (found := decode_data_url(part.url)) is not None:
        media_type, raw = found
        return part.replace(media_type=part.media_type or media_type, url=None, inline=raw, size=len(raw))
    blob = _own(who, part.url)
    if blob is None:
        return part
    try:
        stored, _ = await hub.reads.file_pieces(who.owner, blob)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return part
    told = {name: getattr(stored, name) for name in ("name", "media_type") if getattr(part, name) is None}
    return part.replace(**told, url=None, blob=blob, size=stored.size)


def _own(who: Caller, url: str) -> str | None:
    """The hash that a URL of this gateway ends in. Every server names files by it, each below a path of its own."""
    try:
        parts, own = urlsplit(url), urlsplit(who.base_url)
    except ValueError:
        return None
    found = _HASH.fullmatch(parts.path[-65:])
    return found[1] if found and (parts.scheme, parts.netloc) == (own.scheme, own.netloc) else None
