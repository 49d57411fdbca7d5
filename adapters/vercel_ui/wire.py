"""Requests of the Vercel AI SDK's transports, and the chunks of a UI message stream.

There is no specification. The names are those of `ai` 7.0.173, src/ui-message-stream/ui-message-chunks.ts and
src/ui/ui-messages.ts.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelgate.canonical.value import Json, JsonObject

SPEC: Final = "https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol"

SDKS: Final = (5, 6, 7)
"""Supported major versions of the page's AI SDK. An SDK does not name its version, so a query parameter or a header of
the gateway does."""
DEFAULT_SDK: Final = 6
CITING_SDK: Final = 7
"""First major version whose `text-end` has citations. It shows them from 7.0.138 on, and ignores them before."""

STREAM_HEADER: Final = "x-vercel-ai-ui-message-stream"
STREAM_VERSION: Final = "v1"
RUN_HEADER: Final = "x-workflow-run-id"
"""Response header with the run id. `WorkflowChatTransport` of @ai-sdk/workflow 2.0.43 rejects a response without it."""

RESUMABLE_HEADER: Final = "x-resumable-stream-id"
"""Response header with the run id. `AssistantChatTransport` of @assistant-ui/ai-sdk 0.0.7 resumes the stream with this
id."""

OWN: Final = "babelgate"
"""Key of the gateway's own members in message metadata and provider metadata. The SDKs 5.0.200 and 6.0.200 reject
unknown members anywhere else."""

APPROVED: Final = "approval-responded"
TOOL_ENDS: Final = frozenset({"output-available", "output-error", "output-denied", APPROVED})
"""Values of `state` in a tool part that the page has answered."""

Chunk = JsonObject
"""One chunk of a stream. Optional members are left out, because the schemas of all versions reject null."""


class UIMessage(BaseModel):
    """One message of a chat, in the form of the SDK. The parts are raw JSON objects."""

    model_config = ConfigDict(extra="allow")

    id: str = ""
    role: Literal["system", "user", "assistant"]
    parts: list[JsonObject] | None = None
    metadata: Json = None

    @property
    def all_parts(self) -> list[JsonObject]:
        return self.parts or []


class ChatRequest(BaseModel):
    """Body of a POST to a chat. An app may add members at the top, or send only the last message, as `message`."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    messages: list[UIMessage] | None = None
    message: UIMessage | None = None
    trigger: str | None = None
    message_id: str | None = Field(default=None, alias="messageId")
    system: str | None = None
    prompt: str | None = None
    """Text of a request of `useCompletion`, which has no messages."""
    tools: dict[str, Any] | list[Any] | None = None
    metadata: JsonObject | None = None

    @property
    def is_regenerate(self) -> bool:
        return self.trigger == "regenerate-message"


class ChatHistory(BaseModel):
    """Response with the messages of a chat, for `useChat({messages})`."""

    id: str
    messages: list[JsonObject]


class Stopped(BaseModel):
    """Response to a request that stops a chat."""

    success: bool = True
