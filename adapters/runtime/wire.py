"""Requests of the minimal runtime, and what their input may hold. Answers are made by `codec`.

The contract is docs/protocols/runtime.md: nobody else specifies these resources, so there is no `SPEC` here.

Models refuse members that they do not know: a runtime of one's own has no clients that must be put up with.
"""

from base64 import b64decode
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from babelgate.canonical.value import Json, JsonObject

MAX_MESSAGES: Final = 1000
"""Of one input."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Part(_Model):
    media_type: str | None = None
    metadata: JsonObject = {}


def decode_base64(text: object) -> object:
    """RFC 4648, section 4. Raises ValueError for what is none, instead of making a shorter file of it."""
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
    """A file by its bytes (Base64), by URL, or by the hash under which the gateway has it."""

    kind: Literal["file"]
    name: str | None = None
    inline: Annotated[bytes, BeforeValidator(decode_base64)] | None = None
    url: str | None = None
    blob: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _need_one_source(self) -> "FilePart":
        if sum(given is not None for given in (self.inline, self.url, self.blob)) != 1:
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
    """`content` is one text, in place of `parts`."""

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
    """The messages of an input, wherever they stand in it."""

    messages: Annotated[list[Message], Field(max_length=MAX_MESSAGES)]


class ThreadCreate(_Model):
    thread_id: str | None = None
    metadata: JsonObject = {}
    if_exists: Literal["raise", "return"] = "raise"


class ThreadChange(_Model):
    """Members replace those of the thread, whole."""

    metadata: JsonObject = {}
    values: JsonObject | None = None
    """Of its state."""

    @model_validator(mode="after")
    def _need_one_member(self) -> "ThreadChange":
        if not self.model_fields_set:
            raise ValueError("a change has metadata or values")
        return self


class RunCreate(_Model):
    assistant_id: str | None = None
    """The agent; without one the default agent."""
    input: Json
    metadata: JsonObject = {}
    config: JsonObject = {}
    tools: list[JsonObject] | None = None
    """Of the caller, for agents that take them."""
    output_schema: JsonObject | None = None
    """What the structured output has to fit."""
    checkpoint_id: str | None = None
    """The state of the thread to start from; without one the newest."""
    multitask_strategy: Literal["reject", "enqueue", "interrupt", "rollback"] = "enqueue"
    on_completion: Literal["keep", "delete"] = "keep"
    """Of a run without a thread: whether what was said stays."""
    background: bool = False
    """Answer at once, and not when the run has stopped."""


class Resume(_Model):
    task_id: str | None = None
    run_id: str | None = None
    """Which question is answered, where several tasks of the thread wait."""
    input: Json = None
    """The answer to the oldest open question."""
    answers: dict[str, Json] | None = None
    """Or answers by `resume_state_pointer`."""
    decline: bool = False
    config: JsonObject = {}
    tools: list[JsonObject] | None = None
    """Of the run that goes on, as of one that is created."""
    background: bool = False
    stream: bool = False

    @model_validator(mode="after")
    def _need_one_answer(self) -> "Resume":
        if ("input" in self.model_fields_set) + (self.answers is not None) + self.decline != 1:
            raise ValueError("give exactly one of input, answers and decline")
        if self.stream and self.background:
            raise ValueError("background cannot be combined with stream")
        return self
