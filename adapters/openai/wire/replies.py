"""Response bodies for callers. Also names and keys under which the log stores data that only callers of OpenAI's APIs
receive."""

from typing import Any, Final, Literal, TypedDict

from pydantic import BaseModel, ConfigDict

from babelgate.canonical.value import JsonObject

COMPLETION: Final = "chat.completion"
"""Name of a `Native` event with members of an upstream's chat completion that have no canonical form, such as
`system_fingerprint`. They are in its `extra` under `openai`."""
CHOICE: Final = "openai.choice"
"""Key in the `extra` of a `COMPLETION` event: members of the choice in the chunk that ended it."""
USAGE: Final = "openai.usage"
"""Key in the `extra` of a `COMPLETION` event: the token counts as the server reported them, if those in `RunEnded`
differ."""
PIECE_EXTRAS: Final = "openai.beside"
"""Key in the `extra` of a `PartAdded` or `PartDelta`: a `PieceExtras`. Also the name of a `Native` event that stores
one without such a piece."""

ITEM: Final = "openai.item"
"""Key in the `extra` of the first piece of an output item: an `ItemHead`.

Also the name of a `Native` event at the end of an item, and the key in its `extra`: an `ItemTail`.
"""
MIRROR: Final = "openai.event"
"""Name of a `Native` event, and the key in its `extra`: an event of an upstream's response stream, unchanged.

Such events have a type that canonical events do not represent, or concern an item of such a type.
"""
ANNOTATION: Final = "openai.annotation"
"""Name of a `Native` event, and the key in its `extra`: an annotation other than a citation of a web page."""
ABOUT: Final = "response"
"""Name of a `Native` event with members of an upstream's response that have no canonical form. They are in its `extra`
under `openai`."""
MIRRORED: Final = "openai.mirrored"
"""Key in the `extra` of a canonical event, with the value true: a `MIRROR` event has the same content, and callers of
the Responses API receive that one instead. In a `LossNoted` it means that these callers have no loss."""


class _Wire(BaseModel):
    pass


class Error(_Wire):
    model_config = ConfigDict(extra="allow")

    # SPEC/shared/error_object.py requires all four.
    message: str
    type: str
    param: str | None = None
    code: str | int | None = None
    """Code of the error. Some upstream servers send a number."""


class Model(_Wire):
    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    # Members of Anthropic's API, which official clients of both read.
    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    lifecycle: str = "active"


class Models(_Wire):
    object: Literal["list"] = "list"
    data: list[Model]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class Deleted(_Wire):
    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True


class ItemHead(TypedDict, total=False):
    """Members of an upstream's output item that are known when it begins."""

    id: str
    phase: str
    form: str
    """`reasoning_text` for the text of reasoning itself; missing for a summary of it."""


class ItemTail(TypedDict, total=False):
    """Members of an upstream's output item, and of its content parts, that have no canonical form."""

    id: str
    own: JsonObject
    parts: list[JsonObject]


class PieceExtras(TypedDict, total=False):
    """Members without a canonical form that an upstream sent together with a piece of a message."""

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
    """Return a whole chat completion (SPEC/chat/chat_completion.py). `extras` are further members of its only
    choice."""
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
    """Return a response object (SPEC/responses/response.py) with every member that Open Responses requires
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
    """Return the choice of a chunk. `extras` are further members of the choice."""
    return {"index": 0, "delta": delta, "logprobs": None, **(extras or {}), "finish_reason": finish_reason}
