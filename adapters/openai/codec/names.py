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
"""Name of the stream event that holds an envelope of the Babelgate extension."""
EXTENSION: Final = "babelgate"
"""Name of the request member that holds the request's part for the Babelgate extension."""
_API: Final = "api"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,56}")
"""Pattern of message and call ids that an item id can contain unchanged. Item ids have at most 64 characters (Open
Responses 2026-04-24)."""


def api_extra(version: str, members: JsonObject | None = None) -> Extra:
    """Return the `extra` of a run's input whose `config` has request parameters as one of OpenAI's APIs names them.

    `version` is that API: `CHAT_VERSION` or `RESPONSES_VERSION`. `members` are stored in addition.
    """
    return {"openai": {_API: version, **(members or {})}}


def is_of_api(extra: Extra, version: str) -> bool:
    """Return True if a run's input came from the API `version`, `CHAT_VERSION` or `RESPONSES_VERSION`, so that its
    `config` has that API's parameters. `extra` is that of the input (`api_extra`)."""
    members: JsonObject = extra.get("openai") or {}
    return members.get(_API) == version


def encode_id(prefix: str, uuid: str) -> str:
    """Return the UUID of a run or thread as an id with a prefix, such as `resp_…` or `conv_…`."""
    return prefix + UUID(uuid).hex


def decode_id(prefix: str, encoded: str) -> str | None:
    """Return the UUID in an id with this prefix, or None if the id has not the form that `encode_id` produces."""
    text = encoded.removeprefix(prefix)
    if not encoded.startswith(prefix) or not re.fullmatch("[0-9a-f]{32}", text):
        return None
    return str(UUID(hex=text))


def completion_id(run_id: str) -> str:
    """Return the id of the chat completion that shows a run."""
    return COMPLETION + run_id


def encode_item_id(prefix: str, source_id: str) -> str:
    """Return an item id with a prefix for the id of a message or call. A source id with unusual characters, or too
    long, is replaced by its digest."""
    return prefix + (
        source_id
        if _PLAIN.fullmatch(source_id)
        else sha256(source_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    )
