"""Types of the requests that the gateway reads over AG-UI, and of the JSON bodies that it sends outside of streams.

Members are written in camelCase and read in either spelling, as the official Python models do. Unknown members are
ignored, and null counts as absent (§ Compatibility of the specification).
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from babelgate.canonical.event import Strategy

SPEC: Final = "https://docs.ag-ui.com"
"""URL of the specification of AG-UI."""
VERSION: Final = "1.0"
"""Version of the protocol that the gateway speaks, as `protocolVersion`."""
OWN: Final = "babelgate"
"""Key of the gateway's own members in `metadata` and `forwardedProps`. Other programs ignore it."""
RESERVED: Final = "ag-ui"
"""Key of `metadata` that the specification reserves. Its value is not stored."""

Role = Literal["developer", "system", "user", "assistant", "tool", "reasoning", "activity"]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, populate_by_name=True)


class Source(_Wire):
    """Content of a file. `value` is its bytes in Base64 (`data`), its URL (`url`), or its id at a model provider
    (`file`)."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None
    provider: str | None = None


class Part(_Wire):
    """Part of a message: text or a file. `binary` is the form of files before 1.0."""

    type: Literal["text", "image", "audio", "video", "document", "binary"]
    text: str | None = None
    source: Source | None = None
    metadata: dict[str, Any] | None = None
    mime_type: str | None = None
    id: str | None = None
    url: str | None = None
    data: str | None = None
    filename: str | None = None


class FunctionCall(_Wire):
    """Name of a tool, and its arguments as JSON text."""

    name: str
    arguments: str = ""


class MessageCall(_Wire):
    """Tool call in a message."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ThreadMessage(_Wire):
    """Message of the conversation in a request. A client sends all its messages with each request."""

    id: str | None = None
    role: Role
    content: str | list[Part] | dict[str, Any] | None = None
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None
    error: str | None = None
    activity_type: str | None = None
    metadata: dict[str, Any] | None = None


class FrontendTool(_Wire):
    """Tool that the caller executes."""

    name: str
    description: str | None = None
    parameters: Any = None
    metadata: dict[str, Any] | None = None


class ContextItem(_Wire):
    """Fact that the front end adds to the agent's prompt, such as the selected document."""

    description: str
    value: str


class ResumeItem(_Wire):
    """Answer to one interrupt: `resolved` with a payload, or `cancelled`."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: dict[str, Any] | None = None


class RunAgentInput(_Wire):
    """Request for one run."""

    thread_id: str
    run_id: str
    protocol_version: str | None = None
    parent_run_id: str | None = None
    messages: list[ThreadMessage]
    state: Any = None
    tools: list[FrontendTool] | None = None
    context: list[ContextItem] | None = None
    forwarded_props: Any = None
    resume: list[ResumeItem] | None = None


class GatewayOptions(_Wire):
    """Options of a run that only the gateway reads, in the member `babelgate` of `forwardedProps`: the effect of a
    disconnect, the multitask strategy, and metadata of the run."""

    on_disconnect: Literal["cancel", "continue"] = "continue"
    strategy: Strategy = "interrupt"
    metadata: dict[str, Any] | None = None


class RunReference(_Wire):
    """Body of the gateway's own requests to reattach or to cancel: a thread, and one of its runs. Other members of a
    `RunAgentInput` are ignored."""

    thread_id: str
    run_id: str | None = None
    protocol_version: str | None = None
    after: str | None = None
    """Cursor: the id of the last frame that the client has received. An empty text requests all frames of the run."""


class CancelAccepted(BaseModel):
    """Response to an accepted cancel."""

    threadId: str
    runId: str


class ErrorBody(BaseModel):
    """Code and text of an error."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorResponse(BaseModel):
    """Body of an error response."""

    error: ErrorBody
