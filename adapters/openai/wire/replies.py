"""What callers are answered."""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from canonical.value import JsonObject

COMPLETION: Final = "chat.completion"
"""The name of a `Native` event: its `extra` holds members of another server's completion that canonical has no word
for, as `service_tier` and `system_fingerprint`."""


class _Wire(BaseModel):
    pass


class Error(_Wire):
    # SPEC/shared/error_object.py: all four are there.
    message: str
    type: str
    param: str | None = None
    code: str | None = None


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


def completion(
    completion_id: str, created: int, model: str, message: JsonObject, finish_reason: str | None, usage: JsonObject
) -> JsonObject:
    """SPEC/chat/chat_completion.py."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
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


def choice(delta: JsonObject, finish_reason: str | None = None) -> JsonObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
