"""Types of the response bodies, for the OpenAPI document. `write` builds the bodies themselves from the canonical
model."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from babelgate.adapters.openai.wire.replies import Error
from babelgate.canonical.value import Json, JsonObject


class ErrorBody(TypedDict):
    error: Error


class Choice(TypedDict):
    index: int
    message: JsonObject
    logprobs: JsonObject | None
    finish_reason: str | None


class Completion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: NotRequired[JsonObject]
    metadata: NotRequired[JsonObject]


class ChunkChoice(TypedDict):
    index: int
    delta: JsonObject
    logprobs: JsonObject | None
    finish_reason: str | None


class Chunk(TypedDict):
    """One event of a completion's stream, whose last event has the data `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: NotRequired[JsonObject | None]


class Response(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    model: str
    output: list[JsonObject]
    error: JsonObject | None
    incomplete_details: JsonObject | None
    metadata: JsonObject
    usage: NotRequired[JsonObject | None]


class ResponseEvent(TypedDict):
    type: str
    sequence_number: int


class Compacted(TypedDict):
    id: str
    object: str
    created_at: int
    output: list[JsonObject]
    usage: JsonObject


class DeletedObject(TypedDict):
    id: str
    object: str
    deleted: bool


class Conversation(TypedDict):
    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class ObjectPage(TypedDict):
    """One page of a list of messages or items."""

    object: Literal["list"]
    data: list[JsonObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class CompletionPage(TypedDict):
    object: Literal["list"]
    data: list[Completion]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ConversationItem(TypedDict):
    id: str
    type: str
    status: NotRequired[str]
    content: NotRequired[Json]
