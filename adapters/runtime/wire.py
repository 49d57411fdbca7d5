"""Request bodies of the minimal runtime, and types of its responses. `codec` builds the responses.

The specification is docs/protocols/runtime.md. There is no other, so this module has no `SPEC`.

Models refuse unknown members: there are no existing clients to be compatible with.
"""

from base64 import b64decode
from typing import Annotated, Final, Literal, NotRequired

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from babelgate.canonical.value import Json, JsonObject

MAX_MESSAGES: Final = 1000
"""Maximum number of messages in one input. Chosen."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Part(_Model):
    media_type: str | None = None
    metadata: JsonObject = {}


def decode_base64(text: object) -> object:
    """Return the bytes of a text in Base64 (RFC 4648, section 4). Raises ValueError for invalid characters, which would
    otherwise be dropped."""
    if not isinstance(text, str):
        raise ValueError("Input should be a text in Base64")
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("Input should be a text in Base64") from error


class TextPart(_Part):
    kind: Literal["text"]
    text: str


class ReasoningPart(_Part):
    kind: Literal["reasoning"]
    text: str


class RefusalPart(_Part):
    kind: Literal["refusal"]
    text: str


class DataPart(_Part):
    kind: Literal["data"]
    data: Json


class FilePart(_Part):
    """A file, given by its bytes (Base64), its URL, or the hash of a file that the gateway stores."""

    kind: Literal["file"]
    name: str | None = None
    inline: Annotated[bytes, BeforeValidator(decode_base64)] | None = None
    url: str | None = None
    blob: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _need_one_source(self) -> "FilePart":
        if sum(source is not None for source in (self.inline, self.url, self.blob)) != 1:
            raise ValueError("a file has one of inline, url and blob")
        return self


class ToolCallPart(_Part):
    kind: Literal["tool_call"]
    call_id: str
    name: str
    arguments: str = ""


class ToolResultPart(_Part):
    kind: Literal["tool_result"]
    call_id: str
    output: Json = None
    error: bool = False


Part = Annotated[
    TextPart | ReasoningPart | RefusalPart | DataPart | FilePart | ToolCallPart | ToolResultPart,
    Field(discriminator="kind"),
]


class Message(_Model):
    """One message. It has either `parts`, or `content` as its only text."""

    role: Literal["user", "agent", "assistant", "system", "tool"] = "user"
    name: str | None = None
    content: str | None = None
    parts: list[Part] | None = None
    metadata: JsonObject = {}

    @model_validator(mode="after")
    def _need_one_body(self) -> "Message":
        if (self.content is None) == (self.parts is None):
            raise ValueError("a message has either content or parts")
        return self


class Messages(_Model):
    """List of messages in an input."""

    messages: Annotated[list[Message], Field(max_length=MAX_MESSAGES)]


class ThreadCreate(_Model):
    thread_id: str | None = None
    metadata: JsonObject = {}
    if_exists: Literal["raise", "return"] = "raise"


class ThreadChange(_Model):
    """Change of a thread. Members of `metadata` and `values` replace those of the thread with the same name; the
    thread's other members stay."""

    metadata: JsonObject = {}
    values: JsonObject | None = None
    """Members to change in the values of the thread's state."""

    @model_validator(mode="after")
    def _need_one_member(self) -> "ThreadChange":
        if not self.model_fields_set:
            raise ValueError("a change has metadata or values")
        return self


class RunCreate(_Model):
    assistant_id: str | None = None
    """Name of the agent. None: the default agent."""
    input: Json
    metadata: JsonObject = {}
    config: JsonObject = {}
    tools: list[JsonObject] | None = None
    """Declarations of tools that the caller can run, for agents that support them."""
    output_schema: JsonObject | None = None
    """JSON Schema that the structured output must match."""
    checkpoint_id: str | None = None
    """Id of the checkpoint to start from. None: the thread's newest one."""
    multitask_strategy: Literal["reject", "enqueue", "interrupt", "rollback"] = "enqueue"
    on_completion: Literal["keep", "delete"] = "keep"
    """Retention of the thread of a run without a `thread_id`: `delete` erases it after the run."""
    background: bool = False
    """True to respond at once, and not when the run has stopped."""


class Resume(_Model):
    task_id: str | None = None
    run_id: str | None = None
    """Run whose questions are answered. If several tasks of the thread wait, either this or `task_id` is required."""
    input: Json = None
    """Answer to the oldest open question of the task."""
    answers: dict[str, Json] | None = None
    """Answers to several questions, by their `resume_state_pointer`."""
    decline: bool = False
    config: JsonObject = {}
    tools: list[JsonObject] | None = None
    """Declarations of the caller's tools for the run that continues, as in `RunCreate`."""
    background: bool = False
    stream: bool = False

    @model_validator(mode="after")
    def _need_one_answer(self) -> "Resume":
        if ("input" in self.model_fields_set) + (self.answers is not None) + self.decline != 1:
            raise ValueError("give exactly one of input, answers and decline")
        if self.stream and self.background:
            raise ValueError("background cannot be combined with stream")
        return self


# Responses. They are encoded from the canonical model (`codec`), so these types only describe them.


class Timestamps(TypedDict):
    created_at: str
    started_at: NotRequired[str | None]
    ended_at: NotRequired[str | None]
    updated_at: NotRequired[str]


class Interrupt(TypedDict):
    """An open question, as part of a run."""

    task_id: str
    run_id: str
    thread_id: str
    type: Literal["input", "approval", "auth"]
    message: JsonObject | None
    value: Json
    expected_input_schema: JsonObject | None
    resume_state_pointer: str


class RunInput(TypedDict):
    messages: list[JsonObject]
    data: Json


class RunOutput(TypedDict):
    messages: list[JsonObject]
    data: Json
    artifacts: list[JsonObject]


class RunError(TypedDict):
    code: str
    message: str


class Run(TypedDict):
    run_id: str
    thread_id: str
    task_id: str
    assistant_id: str
    status: Literal["pending", "running", "cancelling", "input_required", "success", "error", "timeout", "cancelled"]
    input: RunInput
    output: RunOutput
    error: RunError | None
    interrupt_state: list[Interrupt] | None
    event_log_reference: str
    multitask_strategy: str
    metadata: JsonObject
    usage: JsonObject | None
    timestamps: Timestamps


class StateSnapshot(TypedDict):
    checkpoint_id: str
    created_at: str
    values: JsonObject
    next: list[str]


class Thread(TypedDict):
    thread_id: str
    status: Literal["idle", "busy", "interrupted", "error"]
    metadata: JsonObject
    state_snapshot: StateSnapshot | None
    last_run_id: str | None
    timestamps: Timestamps


class Event(TypedDict):
    """One record of a run's log, as an event."""

    event_id: int
    run_id: str
    event_type: str
    attempt: int
    timestamp: str
    payload: JsonObject


class FieldError(TypedDict):
    field: str
    description: str


class ErrorDetail(RunError):
    errors: NotRequired[list[FieldError]]


class Error(TypedDict):
    error: ErrorDetail
