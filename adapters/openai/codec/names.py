"""Ids of responses, conversations and items: what stands in them, and what they lead to."""

import re
from hashlib import sha256
from typing import Final
from uuid import UUID

from babelgate.canonical.value import Extra, JsonObject

RESPONSE: Final = "resp_"
CONVERSATION: Final = "conv_"
RECORDS: Final = "babelgate.events"
"""The event of a stream that holds an envelope of the Babelgate extension."""
EXTENSION: Final = "babelgate"
"""The member of a request that says something by it."""
_API: Final = "api"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,56}")
"""An id that may stand in an item's: these have at most 64 characters (Open Responses 2026-04-24)."""


def api_extra(version: str, own: JsonObject | None = None) -> Extra:
    """`extra` of a run's input that a caller configures in the words of one of the two APIs; `own` = more of it."""
    return {"openai": {_API: version, **(own or {})}}


def is_of_api(extra: Extra, version: str) -> bool:
    own: JsonObject = extra.get("openai") or {}
    return own.get(_API) == version


def encode_id(prefix: str, uuid: str) -> str:
    """The id under which a run is a response, or a thread a conversation."""
    return prefix + UUID(uuid).hex


def decode_id(prefix: str, found: str) -> str | None:
    """The UUID in an id; None where it is none of ours."""
    text = found.removeprefix(prefix)
    if not found.startswith(prefix) or not re.fullmatch("[0-9a-f]{32}", text):
        return None
    return str(UUID(hex=text))


def encode_item_id(prefix: str, own: str) -> str:
    """`own` = the gateway's or the agent's, of a message or a call."""
    return prefix + (own if _PLAIN.fullmatch(own) else sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:32])
