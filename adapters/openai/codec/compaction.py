"""Compactions: a conversation as one opaque item, which a caller sends back instead of the conversation.

The gateway has no model, so it summarizes nothing. `encrypted_content` is a compressed copy of the items with a
checksum. It hides nothing, because the caller could send the same items itself. Reading it needs no stored data, so any
gateway can do it (Open Responses, POST /responses/compact).
"""

import hashlib
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final, NoReturn, cast
from uuid import NAMESPACE_OID, uuid5

from pydantic_core import to_json

from babelgate.adapters.kit.json import parse_json
from babelgate.adapters.kit.values import count_values
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject

MOST: Final = 10 * 2**20
"""Maximum length of `encrypted_content`, in characters. From CompactionSummaryItemParam: maxLength 10485760."""
_UNPACKED: Final = 64 * 2**20
"""Maximum size of the items as JSON before compression, in bytes. Chosen."""
_MARK: Final = "babelgate.1."
_SUM: Final = 16


def encode_compaction(items: Sequence[JsonObject]) -> JsonObject:
    """Return a compaction item that contains the given items. Raises too_large if they have too many bytes."""
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
    """Return True if the item is a compaction that a Babelgate created. Those of a model's own server have a different
    content."""
    if not isinstance(item, dict):
        return False
    members = cast("JsonObject", item)
    content = members.get("encrypted_content")
    return members.get("type") == "compaction" and isinstance(content, str) and content.startswith(_MARK)


def expand_items(items: Sequence[Any], *, most: int, values: int) -> list[Any]:
    """Return the items of an input, with each compaction replaced by the items inside it.

    `most` and `values` limit all compactions together, in bytes of JSON and in number of JSON values, because a short
    text can expand a thousandfold. Raises invalid for a malformed compaction, and too_large beyond these limits.
    """
    expanded: list[Any] = []
    for number, item in enumerate(items):
        if not is_compaction(item):
            expanded.append(item)
            continue
        raw = _unpack(item, f"input.{number}", most)
        most -= len(raw)
        expanded += _parse(raw, f"input.{number}", values)
        values -= count_values(raw, values)
    return expanded


def _unpack(item: JsonObject, where: str, most: int) -> bytes:
    content = str(item["encrypted_content"])
    if len(content) > MOST:
        _refuse(where)
    try:
        packed = b64decode(content.removeprefix(_MARK), validate=True)
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(packed[_SUM:], most + 1)
    except (ValueError, zlib.error):
        _refuse(where)
    if len(raw) > most:
        raise FaultError(FaultCode.TOO_LARGE, f"{where}: The compactions hold more than the input may.")
    if not unpacking.eof or _sum(raw) != packed[:_SUM]:
        _refuse(where)
    return raw


def _parse(raw: bytes, where: str, values: int) -> list[Any]:
    try:
        items = parse_json(raw, values)
    except FaultError as error:
        if error.fault.code is FaultCode.TOO_LARGE:
            raise
        _refuse(where)
    if not isinstance(items, list):
        _refuse(where)
    return cast("list[Any]", items)


def _sum(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()[:_SUM]


def _refuse(where: str) -> NoReturn:
    words = "It must be a compaction made by this gateway, unchanged."
    raise FaultError(
        FaultCode.INVALID,
        f"{where}: {words}",
        errors=[{"field": where, "description": words}],
        openai={"code": "invalid_compaction"},
    )
