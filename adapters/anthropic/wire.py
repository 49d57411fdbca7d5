"""Types of the Messages API: requests of callers, and the bodies of responses. Names of members are verbatim.

Members without a field here are part of the agent's configuration, or are ignored.
"""

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, StrictBool
from typing_extensions import TypedDict

from babelgate.canonical.value import Json, JsonObject

SPEC: Final = "https://platform.claude.com/docs/en/api/messages"
VERSION: Final = "2023-06-01"
"""Value of the header `anthropic-version` that the gateway's client sends. The server answers all versions alike, and
does not require the header."""
VERSION_HEADER: Final = "anthropic-version"
OWN: Final = "babelgate"
"""Name of the member in which the gateway adds to a message, block or event what the API has no form for. Its value is
called a mark. Clients ignore unknown members."""
MAX_MESSAGES: Final = 100_000
"""Maximum number of messages in a request (SPEC, messages: "a limit of 100,000 messages in a single request")."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


class Source(_Wire):
    """Content of an image or a document: bytes, text, content blocks, a URL, or the id of an uploaded file."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: "str | list[Block] | None" = None


class Block(_Wire):
    """A content block. Its `type` determines which of the members it has."""

    type: str
    text: str | None = None
    source: Source | str | None = None
    title: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Json = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: StrictBool | None = None
    babelgate: Any = None


class ResultBlocks(_Wire):
    """Content of a `tool_result` that is a list of blocks."""

    content: list[Block]


class Message(_Wire):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(_Wire):
    """A tool of the caller, or of the API's own server. Only the latter has another `type` than `custom`."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: JsonObject | None = None


class ToolChoice(_Wire):
    type: str
    name: str | None = None
    disable_parallel_tool_use: StrictBool | None = None


class OutputFormat(_Wire):
    type: str
    schema_: JsonObject | None = Field(default=None, alias="schema")


class OutputConfig(_Wire):
    format: OutputFormat | None = None


class MessageCreate(_Wire):
    """Body of POST /v1/messages."""

    model: str
    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | list[Block] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    stream: StrictBool | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    output_config: OutputConfig | None = None
    metadata: JsonObject | None = None
    # SPEC, temperature: "Ranges from 0.0 to 1.0".
    temperature: Annotated[int | float, Field(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None


NOT_SETTINGS: Final = frozenset({"model", "messages", "system", "stream", "metadata"})
"""Members of a request that do not configure the agent."""


# Responses


class Usage(TypedDict):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int


class MessageBody(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[JsonObject]
    stop_reason: str | None
    stop_sequence: str | None
    usage: Usage


class StreamEvent(TypedDict):
    type: str
    index: NotRequired[int]


class ErrorObject(TypedDict):
    type: str
    message: str


class ErrorBody(TypedDict):
    type: Literal["error"]
    error: ErrorObject
    request_id: str | None


class Model(TypedDict):
    id: str
    type: Literal["model"]
    display_name: str
    created_at: str


class Models(TypedDict):
    data: list[Model]
    has_more: bool
    first_id: str | None
    last_id: str | None


def message_body(message_id: str, model: str, content: list[JsonObject], usage: JsonObject) -> JsonObject:
    """Return a message without a stop reason. All members that the schema of the API requires are present."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": usage,
    }


# Answers of another server


class AnswerUsage(_Wire):
    input_tokens: int | None = None
    output_tokens: int | None = None


class AnswerError(_Wire):
    type: str = ""
    message: str = ""


class Answer(_Wire):
    """Message that another server sends, as a whole or as the start of a stream."""

    id: str | None = None
    content: list[JsonObject] = Field(default_factory=list[JsonObject])
    stop_reason: str | None = None
    usage: JsonObject | None = None
    babelgate: Any = None


class AnswerEvent(_Wire):
    """Event of another server's stream."""

    type: str
    index: int = 0
    message: Answer | None = None
    content_block: JsonObject | None = None
    delta: JsonObject | None = None
    usage: JsonObject | None = None
    error: AnswerError | None = None
    babelgate: Any = None


class ListedModel(_Wire):
    id: str
    display_name: str | None = None


class ListedModels(_Wire):
    data: list[ListedModel]
    has_more: bool
