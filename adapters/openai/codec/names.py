"""Encoding and decoding of the ids of responses, conversations and items."""

import re
from hashlib import sha256
from typing import Final
from uuid import UUID

from babelgate.canonical.value import Extra, JsonObject

RESPONSE: Final = "resp_"
CONVERSATION: Final = "conv_"
COMPLETION: Final = "chatcmpl-"
RECORDS: Final = "babelgate.events"
"""Stream event that holds an envelope of the Babelgate extension."""
EXTENSION: Final = "babelgate"
"""Request member that the Babelgate extension defines."""
_API: Final = "api"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,56}")
"""Ids that an item's id can hold unchanged, because item ids have at most 64 characters (Open Responses 2026-04-24)."""


def api_extra(version: str, members: JsonObject | None = None) -> Extra:
    """Return the `extra` of a run's input that is configured in terms of one of the two APIs. `version` names that API,
    and `members` are further members."""
    return {"openai": {_API: version, **(members or {})}}


def is_of_api(extra: Extra, version: str) -> bool:
    """Return True if a run's input is configured in terms of this API."""
    members: JsonObject = extra.get("openai") or {}
    return members.get(_API) == version


def encode_id(prefix: str, uuid: str) -> str:
    """Return a run's id as a response id, or a thread's as a conversation id."""
    return prefix + UUID(uuid).hex


def decode_id(prefix: str, encoded: str) -> str | None:
    """Return the UUID in an id, or None if the gateway did not issue it."""
    text = encoded.removeprefix(prefix)
    if not encoded.startswith(prefix) or not re.fullmatch("[0-9a-f]{32}", text):
        return None
    return str(UUID(hex=text))


def completion_id(run_id: str) -> str:
    """Return the id of a run's chat completion."""
    return COMPLETION + run_id


def encode_item_id(prefix: str, source_id: str) -> str:
    """Return an item's id from the id of a message or call, which the gateway or the agent chose."""
    return prefix + (
        source_id
        if _PLAIN.fullmatch(source_id)
        else sha256(source_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    )
