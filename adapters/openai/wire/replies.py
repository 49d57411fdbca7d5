"""What callers are answered."""

from typing import Any, Final, Literal, TypedDict

from pydantic import BaseModel, ConfigDict

from babelgate.canonical.value import JsonObject

COMPLETION: Final = "chat.completion"
"""The name of a `Native` event: its `extra` holds members of another server's completion that canonical has no word
for, as `service_tier` and `system_fingerprint`."""
CHOICE: Final = "openai.choice"
"""The key in `extra` of such an event: members of the choice as it has ended."""
USAGE: Final = "openai.usage"
"""The key in `extra` of such an event: the usage as it was told, where `RunEnded` does not say all of it."""
BESIDE: Final = "openai.beside"
"""The key in `extra` of a piece of a message, and the name of a `Native` event where there was no such: `Beside`."""

ITEM: Final = "openai.item"
"""The key in `extra` of the first piece of an output item, `ItemHead`; the name of a `Native` event, and the key in its
`extra`, where an item is done: `ItemTail`."""
MIRROR: Final = "openai.event"
"""The name of a `Native` event, and the key in its `extra`: an event of another server's stream as it came, of an item
of a kind that only responses have, or of a kind that is unknown here."""
ANNOTATION: Final = "openai.annotation"
"""The same of an annotation that is no page."""
ABOUT: Final = "response"
"""The same of members of another server's response: its `extra` has them under `openai`."""
MIRRORED: Final = "openai.mirrored"
"""The key in `extra` of an event that callers of responses are told by mirrored ones, and of a loss that is none to
them."""


class _Wire(BaseModel):
    pass


class Error(_Wire):
    model_config = ConfigDict(extra="allow")

    # SPEC/shared/error_object.py: all four are there.
    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    """A number of some servers behind."""


class Model(_Wire):
    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class Models(_Wire):
    object: Literal["list"] = "list"
    data: list[Model]


class Deleted(_Wire):
    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True


class ItemHead(TypedDict, total=False):
    id: str
    phase: str
    form: str
    """`reasoning_text`, of a thought that is no summary."""


class ItemTail(TypedDict, total=False):
    """Members of an item, and of its parts, that canonical has no word for."""

    id: str
    own: JsonObject
    parts: list[JsonObject]


class Beside(TypedDict, total=False):
    """What another server says beside a piece of a message that canonical has no word for."""

    logprobs: JsonObject
    choice: JsonObject
    delta: JsonObject


def completion(
    completion_id: str,
    created: int,
    model: str,
    message: JsonObject,
    finish_reason: str | None,
    usage: JsonObject,
    beside: JsonObject | None = None,
) -> JsonObject:
    """SPEC/chat/chat_completion.py. `beside` = more members of the choice."""
    choice = {"index": 0, "message": message, "logprobs": None, **(beside or {}), "finish_reason": finish_reason}
    return {
        "id": completion_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def response(
    response_id: str, *, created_at: int, completed_at: int | None, status: str, settings: JsonObject, **more: Any
) -> JsonObject:
    """SPEC/responses/response.py. All members of Open Responses (components.schemas.ResponseResource) are there."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": completed_at,
        "status": status,
        "incomplete_details": None,
        "error": None,
        **settings,
        **more,
    }


def chunk(completion_id: str, created: int, model: str, choices: list[JsonObject], **more: Any) -> JsonObject:
    """SPEC/chat/chat_completion_chunk.py."""
    return {
        "id": completion_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": choices,
        **more,
    }


def choice(delta: JsonObject, finish_reason: str | None = None, beside: JsonObject | None = None) -> JsonObject:
    """`beside` = more members of it."""
    return {"index": 0, "delta": delta, "logprobs": None, **(beside or {}), "finish_reason": finish_reason}
