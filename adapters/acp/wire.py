"""The wire types of ACP: OpenAPI 0.2.0 as the SDK 1.0.3 speaks it. Names are verbatim; unknown fields are kept.

Every null is written out, as the SDK does: its TypeScript client tells absent from null.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

SPEC: Final = "https://github.com/i-am-bee/acp/blob/e8299f8/docs/spec/openapi.yaml"
"""What comments call OpenAPI 0.2.0. The SDK beside it, 1.0.3, is in `python/src/acp_sdk` of the same commit."""

OWN: Final = "babelgate"
"""A member of parts, messages, runs, questions and answers, for what ACP has no place for: others look past it. Where
the Babelgate extension is active runs and requests for them have its envelopes there, too."""

Mode = Literal["sync", "async", "stream"]
Status = Literal["created", "in-progress", "awaiting", "cancelling", "cancelled", "completed", "failed"]
TERMINAL: Final[frozenset[Status]] = frozenset({"completed", "failed", "cancelled"})
Object = dict[str, Any]

Uuid = Annotated[str, AfterValidator(lambda text: str(UUID(text)))]
"""In whatever spelling it comes, it goes on as 36 lower-case characters."""


class _Wire(BaseModel):
    model_config = ConfigDict(extra="allow")


def dump(value: BaseModel) -> bytes:
    return value.model_dump_json().encode()


class Error(_Wire):
    code: str
    """One of server_error, invalid_input, not_found: the TypeScript client takes no other."""
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
    """Not null: the part is an artifact."""
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
    """The OpenAPI wants one at least; official suites send none."""
    created_at: str | None = None
    completed_at: str | None = None


class Run(_Wire):
    run_id: str
    agent_name: str
    session_id: str | None = None
    status: Status
    # Free in the OpenAPI; the SDK has `{"type": "message", "message": …}` and nothing else. It never clears it, either:
    # that a run awaits is said by `status` alone.
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
    # The OpenAPI requires it; the SDK's default for a new run. A resume without it is refused by both.
    mode: Mode = "sync"


class RunResumeRequest(_Wire):
    run_id: Uuid | None = None
    """Required by the OpenAPI, sent by no client: the path says it."""
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
    """`run` is a whole snapshot of that moment."""

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
    """An event of a type that is not known here."""

    type: str


Event = RunEvent | MessageEvent | PartEvent | GenericEvent | ErrorEvent | NativeEvent

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
