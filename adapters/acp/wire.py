"""Types of ACP messages: OpenAPI 0.2.0 as implemented by SDK 1.0.3. Names are verbatim, and unknown members are kept.

Every null is written, as in the SDK: its TypeScript client distinguishes missing members from null.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

SPEC: Final = "https://github.com/i-am-bee/acp/blob/e8299f8/docs/spec/openapi.yaml"
"""URL of the document that comments cite as OpenAPI 0.2.0. SDK 1.0.3 is in `python/src/acp_sdk` of the same commit."""

OWN: Final = "babelgate"
"""Name of the member in which the gateway writes data that ACP has no place for, in parts, messages, runs, questions
and answers. Other clients ignore it. If the Babelgate extension is active, it also contains the envelopes of runs, and
the extension's members of requests."""

Mode = Literal["sync", "async", "stream"]
Status = Literal["created", "in-progress", "awaiting", "cancelling", "cancelled", "completed", "failed"]
TERMINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})
Object = dict[str, Any]

Uuid = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]
"""UUID in any spelling, normalized to 36 lower-case characters."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


def dump(value: BaseModel) -> bytes:
    """Return an ACP object as JSON."""
    return value.model_dump_json().encode()


class Error(_Wire):
    code: str
    """One of server_error, invalid_input, not_found: the TypeScript client accepts no other code."""
    message: str
    data: Any = None


class Citation(_Wire):
    kind: Literal["citation"] = "citation"
    start_index: int | None = None
    end_index: int | None = None
    url: str | None = None
    title: str | None = None
    description: str | None = None


class Trajectory(_Wire):
    kind: Literal["trajectory"] = "trajectory"
    message: str | None = None
    tool_name: str | None = None
    tool_input: Object | None = None
    tool_output: Object | None = None


class MessagePart(_Wire):
    name: str | None = None
    """Name of an artifact; None for a part that is not an artifact."""
    content_type: str | None = "text/plain"
    content: str | None = None
    content_encoding: Literal["plain", "base64"] | None = "plain"
    content_url: str | None = None
    metadata: Annotated[Citation | Trajectory, Field(discriminator="kind")] | Object | None = None

    @model_validator(mode="after")
    def _one_content(self) -> "MessagePart":
        # "Only one of `content` or `content_url` can be provided." (components.schemas.MessagePart)
        if self.content is not None and self.content_url is not None:
            raise ValueError("Only one of content or content_url can be provided")
        return self


class Message(_Wire):
    # The pattern is components.schemas.Message.role; the default is the SDK's, 1.0.3.
    role: str = Field(default="user", pattern=r"^(user|agent(/[a-zA-Z0-9_\-]+)?)$")
    parts: list[MessagePart]
    """Parts of the message. The OpenAPI document requires at least one; official test suites send none."""
    created_at: str | None = None
    completed_at: str | None = None


class Run(_Wire):
    run_id: str
    agent_name: str
    session_id: str | None = None
    status: Status
    # Free-form in the OpenAPI document; the SDK uses only `{"type": "message", "message": …}`. It never clears the
    # member: only `status` says that a run is awaiting.
    await_request: Object | None = None
    output: list[Message] = []
    error: Error | None = None
    created_at: str | None = None
    finished_at: str | None = None


class Session(_Wire):
    id: Uuid
    history: list[str] = []
    state: str | None = None


class RunCreateRequest(_Wire):
    agent_name: str
    input: list[Message]
    session_id: Uuid | None = None
    session: Session | None = None
    # Required by the OpenAPI document; the default for a new run is the SDK's. Both reject a resume without it.
    mode: Mode = "sync"


class RunResumeRequest(_Wire):
    run_id: Uuid | None = None
    """Id of the run to resume. The OpenAPI document requires it, but no client sends it, because the path identifies
    the run."""
    await_resume: Object
    mode: Mode


class Author(_Wire):
    name: str
    email: str | None = None
    url: str | None = None


class Capability(_Wire):
    name: str
    description: str


class Metadata(_Wire):
    annotations: Object | None = None
    documentation: str | None = None
    license: str | None = None
    programming_language: str | None = None
    natural_languages: list[str] | None = None
    framework: str | None = None
    capabilities: list[Capability] | None = None
    domains: list[str] | None = None
    tags: list[str] | None = None
    created_at: str | None = None
    updated_at: str | None = None
    author: Author | None = None
    contributors: list[Author] | None = None
    links: list[Object] | None = None
    dependencies: list[Object] | None = None
    recommended_models: list[str] | None = None


class AgentManifest(_Wire):
    name: str
    description: str | None = None
    # components.schemas.AgentManifest: at least one (minItems); `*/*` is the SDK's default.
    input_content_types: list[str] = ["*/*"]
    output_content_types: list[str] = ["*/*"]
    metadata: Metadata | None = None


class AgentsListResponse(_Wire):
    agents: list[AgentManifest]


class RunEvent(_Wire):
    """Event that reports a change of a run. `run` is the whole run at that moment."""

    type: Literal["run.created", "run.in-progress", "run.awaiting", "run.completed", "run.failed", "run.cancelled"]
    run: Run


class MessageEvent(_Wire):
    type: Literal["message.created", "message.completed"]
    message: Message


class PartEvent(_Wire):
    type: Literal["message.part"] = "message.part"
    part: MessagePart


class GenericEvent(_Wire):
    type: Literal["generic"] = "generic"
    generic: Object


class ErrorEvent(_Wire):
    type: Literal["error"] = "error"
    error: Error


class NativeEvent(_Wire):
    """Event whose type ACP does not define. All its members but `type` are kept as unknown members, and the canonical
    model stores it as a `Native` event."""

    type: str


Event = RunEvent | MessageEvent | PartEvent | GenericEvent | ErrorEvent | NativeEvent


class RunEventsListResponse(_Wire):
    events: list[Event]


EVENTS: Final[Mapping[str, type[RunEvent | MessageEvent | PartEvent | GenericEvent | ErrorEvent]]] = {
    "run.created": RunEvent,
    "run.in-progress": RunEvent,
    "run.awaiting": RunEvent,
    "run.completed": RunEvent,
    "run.failed": RunEvent,
    "run.cancelled": RunEvent,
    "message.created": MessageEvent,
    "message.completed": MessageEvent,
    "message.part": PartEvent,
    "generic": GenericEvent,
    "error": ErrorEvent,
}
