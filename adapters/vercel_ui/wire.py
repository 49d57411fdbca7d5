"""Requests of the Vercel AI SDK's transports, and the chunks of a UI message stream.

There is no specification. The names are those of `ai` 7.0.173, src/ui-message-stream/ui-message-chunks.ts and
src/ui/ui-messages.ts.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from babelgate.canonical.value import Json, JsonObject

SPEC: Final = "https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol"

SDKS: Final = (5, 6, 7)
"""Major versions of the AI SDK in a page. Nothing in a request names one."""
DEFAULT_SDK: Final = 6

STREAM_HEADER: Final = "x-vercel-ai-ui-message-stream"
STREAM_VERSION: Final = "v1"
RUN_HEADER: Final = "x-workflow-run-id"
"""Header without which `WorkflowChatTransport` of @ai-sdk/workflow 2.0.43 rejects a response."""

RESUMABLE_HEADER: Final = "x-resumable-stream-id"
"""Header from which `AssistantChatTransport` of @assistant-ui/ai-sdk 0.0.7 takes the id of a stream to resume."""

OWN: Final = "babelgate"
"""Name of the gateway's own members in metadata. The SDKs 5.0.200 and 6.0.200 reject unknown members anywhere else."""

APPROVED: Final = "approval-responded"
TOOL_ENDS: Final = frozenset({"output-available", "output-error", "output-denied", APPROVED})
"""States of a tool part that the page has answered."""

Chunk = JsonObject
"""One chunk of a stream. Optional members are left out, because the schemas of all versions reject null."""


class UIMessage(BaseModel):
    """One message of the page."""

    model_config = ConfigDict(extra="allow")

    id: str = ""
    role: Literal["system", "user", "assistant"]
    parts: list[JsonObject] | None = None
    metadata: Json = None

    @property
    def all_parts(self) -> list[JsonObject]:
        return self.parts or []


class ChatRequest(BaseModel):
    """Body of a request for an answer. An app may add members at the top, or send only the last message."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    messages: list[UIMessage] | None = None
    message: UIMessage | None = None
    trigger: str | None = None
    message_id: str | None = Field(default=None, alias="messageId")
    system: str | None = None
    prompt: str | None = None
    """Text of a request of `useCompletion`."""
    tools: dict[str, Any] | list[Any] | None = None
    metadata: JsonObject | None = None

    @property
    def is_regenerate(self) -> bool:
        return self.trigger == "regenerate-message"


class ChatHistory(BaseModel):
    """Messages of a chat, for `useChat({messages})`."""

    id: str
    messages: list[JsonObject]


class Stopped(BaseModel):
    """Result of a stop."""

    success: bool = True
