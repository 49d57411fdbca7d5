"""Compactions: a conversation as one opaque item, which is fed back in the place of what was said.

Nothing is summarised, since a gateway has no model of its own: `encrypted_content` is a copy of the items, packed, with
a sum over it. What is in it the caller could send as items, so nothing has to be hidden from it. A copy needs nothing
that is kept, and any gateway can read it (Open Responses, POST /responses/compact).
"""

import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast
from uuid import NAMESPACE_OID, uuid5

from pydantic_core import to_json

from adapters._json import parse_json
from canonical import FaultCode, FaultError
from canonical.value import JsonObject

MOST: Final = 10 * 2**20
"""Characters of `encrypted_content` (CompactionSummaryItemParam: maxLength 10485760)."""
_UNPACKED: Final = 64 * 2**20
"""Bytes of the items: what was packed by others may be anything."""
_MARK: Final = "babelgate.1."
_SUM: Final = 16


def encode_compaction(items: Sequence[JsonObject]) -> JsonObject:
    """Raises too_large."""
    raw = to_json(items)
    packed = _sum(raw) + zlib.compress(raw)
    content = _MARK + b64encode(packed).decode()
    if len(raw) > _UNPACKED or len(content) > MOST:
        raise FaultError(
            FaultCode.TOO_LARGE,
            f"The conversation takes more than {MOST} characters: go on from it by previous_response_id, or keep it as "
            "a conversation.",
            limit=MOST,
        )
    return {"type": "compaction", "id": f"cmp_{uuid5(NAMESPACE_OID, content).hex}", "encrypted_content": content}


def is_compaction(item: object) -> bool:
    """Whether it is one that a gateway made: a model's own server makes others."""
    if not isinstance(item, dict):
        return False
    members = cast("JsonObject", item)
    content = members.get("encrypted_content")
    return members.get("type") == "compaction" and isinstance(content, str) and content.startswith(_MARK)


def decode_compaction(item: JsonObject, where: str) -> list[Any]:
    """The items in it. Raises invalid."""
    content = str(item["encrypted_content"])
    if len(content) > MOST:
        _refuse(where)
    try:
        packed = b64decode(content.removeprefix(_MARK), validate=True)
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(packed[_SUM:], _UNPACKED)
    except (ValueError, zlib.error):
        _refuse(where)
    if not unpacking.eof or _sum(raw) != packed[:_SUM]:
        _refuse(where)
    try:
        items = parse_json(raw)
    except FaultError:
        _refuse(where)
    if not isinstance(items, list):
        _refuse(where)
    return cast("list[Any]", items)


def _sum(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()[:_SUM]


def _refuse(where: str) -> NoReturn:
    words = "It is no compaction of this gateway, or was changed."
    raise FaultError(
        FaultCode.INVALID,
        f"{where}: {words}",
        errors=[{"field": where, "description": words}],
        openai={"code": "invalid_compaction"},
    )
