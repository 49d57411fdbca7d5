"""Requests of callers for chat completions. Members without a field here are part of the agent's configuration, or are
ignored."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from babelgate.canonical.value import JsonObject

MAX_MESSAGES: Final = 10_000
"""Maximum number of messages in a chat, and of items in an input. Chosen, not measured: SPEC has no limit."""
# SPEC/shared_params/metadata.py: "Set of 16 key-value pairs … Keys are strings with a maximum length of 64 characters.
# Values are strings with a maximum length of 512 characters."
Metadata = Annotated[
    dict[Annotated[str, StringConstraints(max_length=64)], Annotated[str, StringConstraints(max_length=512)]],
    Field(max_length=16),
]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


class Function(_Wire):
    name: str
    arguments: str = ""


class Custom(_Wire):
    name: str
    input: str = ""


class ToolCall(_Wire):
    id: str
    type: str = "function"
    function: Function | None = None
    custom: Custom | None = None


class Part(_Wire):
    """A content part of a message. Its `type` determines which of the members it has."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: JsonObject | str | None = None
    input_audio: JsonObject | None = None
    file: JsonObject | None = None


class ChatMessage(_Wire):
    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Function | None = None
    """Deprecated form of a tool call, whose result has the role `function`
    (SPEC/chat/chat_completion_assistant_message_param.py)."""


class StreamOptions(_Wire):
    include_usage: StrictBool | None = None


class JsonSchema(_Wire):
    name: str = "output"
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: StrictBool | None = None


class ResponseFormat(_Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Tool(_Wire):
    type: str = "function"
    function: JsonObject | None = None
    custom: JsonObject | None = None


class ChatCreate(_Wire):
    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    store: StrictBool | None = None
    metadata: Metadata | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | JsonObject | None = None
    # SPEC/chat/completion_create_params.py, temperature: "between 0 and 2".
    temperature: Annotated[int | float, Field(ge=0, le=2)] | None = None
    babelgate: Any = None
    """Part of the request for the Babelgate extension."""

    def config(self) -> JsonObject:
        """Return the members of the request that configure the agent, such as `temperature` and `tools`."""
        members: dict[str, Any] = self.model_dump(exclude_none=True, exclude=_NOT_CONFIG, by_alias=True)
        return members


_NOT_CONFIG: Final = {"babelgate", "model", "messages", "stream", "stream_options", "n", "store", "metadata"}
