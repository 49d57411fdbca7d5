"""Replies to callers, and the keys under which events hold what only callers of this API receive."""

from typing import Any, Final, Literal, TypedDict

from pydantic import BaseModel, ConfigDict

from babelgate.canonical.value import JsonObject

COMPLETION: Final = "chat.completion"
"""Name of a `Native` event with the members of another server's completion that have no canonical form, such as
`service_tier` and `system_fingerprint`. Its `extra` holds them under `openai`."""
CHOICE: Final = "openai.choice"
"""Key in the `extra` of a `COMPLETION` event: members of the choice at its end."""
USAGE: Final = "openai.usage"
"""Key in the `extra` of a `COMPLETION` event: the usage as the server reported it, if `RunEnded` does not hold all of
it."""
PIECE_EXTRAS: Final = "openai.beside"
"""Key in the `extra` of a piece of a message: its `PieceExtras`. Also the name of a `Native` event that holds them, if
there was no piece."""

ITEM: Final = "openai.item"
"""Key in the `extra` of the first piece of an output item: its `ItemHead`.

Also the name of a `Native` event at the end of an item, and the key in its `extra`: the `ItemTail`.
"""
MIRROR: Final = "openai.event"
"""Name of a `Native` event, and the key in its `extra`: an unchanged event of another server's stream.

Its item has a type that only responses have, or the type of the event or item is unknown here.
"""
ANNOTATION: Final = "openai.annotation"
"""Name of a `Native` event, and the key in its `extra`: an annotation that is not a citation of a page."""
ABOUT: Final = "response"
"""Name of a `Native` event whose `extra` holds, under `openai`, unknown members of another server's response."""
MIRRORED: Final = "openai.mirrored"
"""Key in the `extra` of an event that repeats a mirrored one: callers of responses receive only the mirrored event.
Also the key in the `extra` of a loss that does not concern these callers."""


class _Wire(BaseModel):
    pass


class Error(_Wire):
    model_config = ConfigDict(extra="allow")

    # SPEC/shared/error_object.py requires all four.
    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    """Code of the error. Some upstreams send a number."""


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
    """Members of an output item that are known when it begins."""

    id: str
    phase: str
    form: str
    """`reasoning_text` for reasoning that is not a summary."""


class ItemTail(TypedDict, total=False):
    """Members of an output item, and of its parts, that have no canonical form."""

    id: str
    own: JsonObject
    parts: list[JsonObject]


class PieceExtras(TypedDict, total=False):
    """Members that another server sent with a piece of a message and that have no canonical form."""

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
    extras: JsonObject | None = None,
) -> JsonObject:
    """Return a whole completion (SPEC/chat/chat_completion.py). `extras` holds further members of its only choice."""
    choice = {"index": 0, "message": message, "logprobs": None, **(extras or {}), "finish_reason": finish_reason}
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
    """Return a response (SPEC/responses/response.py) with every member that Open Responses requires
    (components.schemas.ResponseResource)."""
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
    """Return one chunk of a completion's stream (SPEC/chat/chat_completion_chunk.py)."""
    return {
        "id": completion_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": choices,
        **more,
    }


def choice(delta: JsonObject, finish_reason: str | None = None, extras: JsonObject | None = None) -> JsonObject:
    """Return the choice of a chunk. `extras` holds further members."""
    return {"index": 0, "delta": delta, "logprobs": None, **(extras or {}), "finish_reason": finish_reason}
