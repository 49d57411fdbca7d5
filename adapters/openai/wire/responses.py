"""Requests of callers for responses and conversations. Members without a field here are part of the agent's
configuration, or are ignored."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from babelgate.adapters.openai.wire.requests import MAX_MESSAGES, Metadata
from babelgate.canonical.value import JsonObject

KINDS: Final = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "mcp_call",
        "mcp_approval_request",
        "mcp_approval_response",
    }
)
"""Types of input items that have a canonical form."""
BESIDE: Final = frozenset(
    {
        "additional_tools",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_list_tools",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
"""Types of input items that are accepted but passed on only to agents whose server speaks this API. For other agents
they are a declared loss.

From SPEC/responses/response_input_item_param.py, and those that Codex CLI 0.150 sends.
"""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


class Part(_Wire):
    """A content part of a message, or of the output of a call. Its `type` determines which of the members it has."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    input_audio: JsonObject | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class Item(_Wire):
    """An input item. Its `type` determines which of the members it has; without a type it is a message."""

    type: str | None = None
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[Part] | None = None
    phase: Literal["commentary", "final_answer"] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None
    server_label: str | None = None
    approval_request_id: str | None = None
    approve: StrictBool | None = None
    reason: str | None = None
    summary: list[Part] | None = None
    verbatim: JsonObject | None = None
    """Whole item as received, if its type has no canonical form."""

    @model_validator(mode="before")
    @classmethod
    def _set_aside(cls, value: Any) -> Any:
        """Return an item whose type has no canonical form as `{type, verbatim}`. Its members are not validated, because
        they may have any type."""
        if not isinstance(value, dict):
            return value
        members = cast("JsonObject", value)
        kind = members.get("type")
        return {"type": kind, "verbatim": members} if isinstance(kind, str) and kind not in KINDS else members


Items = Annotated[list[Item], Field(max_length=MAX_MESSAGES)]


class Named(_Wire):
    id: str


class Format(_Wire):
    type: Literal["text", "json_object", "json_schema"]
    schema_: JsonObject | None = Field(default=None, alias="schema")


class Text(_Wire):
    format: Format | None = None


class Tool(_Wire):
    type: str


class ResponseCreate(_Wire):
    model: str
    input: str | Items | None = None
    previous_response_id: str | None = None
    conversation: str | Named | None = None
    store: StrictBool | None = None
    background: StrictBool | None = None
    stream: StrictBool | None = None
    metadata: Metadata | None = None
    text: Text | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | JsonObject | None = None
    instructions: str | None = None
    # SPEC/responses/response_create_params.py, temperature: "between 0 and 2".
    temperature: Annotated[int | float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[int | float, Field(ge=0, le=1)] | None = None
    babelgate: Any = None
    """Part of the request for the Babelgate extension."""

    @property
    def items(self) -> Sequence[Item]:
        return self.input if isinstance(self.input, list) else ()

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, Named) else self.conversation

    def config(self) -> JsonObject:
        """Return the members of the request that configure the agent, such as `temperature` and `tools`."""
        members: dict[str, Any] = self.model_dump(exclude_none=True, exclude=_NOT_CONFIG, by_alias=True)
        return members


_NOT_CONFIG: Final = {
    "babelgate",
    "model",
    "input",
    "previous_response_id",
    "conversation",
    "store",
    "background",
    "background_options",
    "stream",
    "stream_options",
    "metadata",
}


STREAM_ID: Final = 64
"""Maximum length of a message's `stream_id`, in characters. Chosen."""


class ResponseMessage(_Wire):
    """Message from the client of a WebSocket: the body of a request for a response, and members that only messages have
    (SPEC/responses/responses_client_event.py, ResponseCreate)."""

    type: Literal["response.create"]
    stream_id: Annotated[str, Field(max_length=STREAM_ID)] | None = None
    generate: StrictBool | None = None
    background: StrictBool | None = None
    input: str | list[Any] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt_cache_options: Any = None

    @property
    def is_generating(self) -> bool:
        """False if the message only prewarms the connection with an input (`generate: false`), for a later response."""
        options = self.prompt_cache_options
        warms: object = cast("JsonObject", options).get("prewarm") if isinstance(options, dict) else None
        # SPEC/responses/responses_client_event.py, prewarm: it "overrides the `generate` field".
        return self.generate is not False and warms is not True


ENVELOPE: Final = frozenset({"type", "stream_id", "generate", "stream", "stream_options", "background"})
"""Members of a WebSocket message that are not part of the request's body. Over a WebSocket, a response always
streams."""


class ResponseCompact(_Wire):
    model: str
    input: str | Items | None = None
    previous_response_id: str | None = None
    instructions: str | None = None


class ConversationCreate(_Wire):
    metadata: Metadata | None = None
    # resources/conversations/conversations.py, create: "up to 20 items at a time".
    items: Annotated[list[Item], Field(max_length=20)] | None = None


class MetadataUpdate(_Wire):
    metadata: Metadata


class ItemsCreate(_Wire):
    items: Annotated[list[Item], Field(min_length=1, max_length=20)]
