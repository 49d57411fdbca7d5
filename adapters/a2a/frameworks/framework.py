"""Interface of one framework's dialect of A2A: what its agents add to the protocol, and what they accept.

A2A has messages, artifacts and states. Frameworks add thoughts, tool calls, citations, usage and questions, each in its
own keys of metadata or in data parts. A `Framework` names these forms and the functions that read and write them; the
codec asks every framework in turn (`babelgate.adapters.a2a.frameworks`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from babelgate.canonical import AnnotationPart, DataPart, Part, ReasoningPart, TextPart
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.value import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The start of one of the agent's own tool calls or, if `ended`, its end."""

    call_id: str | None
    """Id of the call; None if the framework sends none. An end without an id belongs to the last call of its name."""
    name: str
    ended: bool = False
    value: Json = None
    """Arguments of the call, or its result."""
    error: str | None = None


@dataclass(slots=True)
class DecodedContent:
    """Content of one message, artifact or update, sorted by kind."""

    parts: list[Part] = field(default_factory=list[Part])
    """Text, data, files, and thoughts between them."""
    tools: list[ToolUse] = field(default_factory=list[ToolUse])
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    progress: list[Part] = field(default_factory=list[Part])
    """Progress reports, independent of what the parts are."""
    says: Literal["answer", "progress", None] = None
    """Kind of the parts, as the framework declares it; None if it declares nothing."""
    is_all_thought: bool = False
    """True if the framework declares all text to be thoughts."""
    is_marked: bool = False
    """True if the parts contain thoughts or calls. A trajectory then repeats them, and is skipped."""
    steps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Name of a step, and `started`, `completed` or `error`."""
    groups: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Id and title of groups of progress reports. Each is a step without an explicit end."""
    output: Json = None
    """Structured output, if the framework declares one. It is among the parts, too."""
    states: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    """Changes of the agent's state: the name of the source, and the changed values."""

    @property
    def is_thought(self) -> bool:
        """True if the content consists of thoughts only."""
        return bool(self.parts) and all(isinstance(part, ReasoningPart) for part in self.parts)

    def take_data(self) -> list[JsonObject]:
        """Remove all data parts, and return their objects."""
        data = [as_object(part.data) for part in self.parts if isinstance(part, DataPart)]
        self.parts = [part for part in self.parts if not isinstance(part, DataPart)]
        return data


@dataclass(frozen=True, slots=True)
class FrameworkQuestion:
    """A question of the agent to its caller."""

    parts: tuple[Part, ...]
    id: str | None = None
    """Id by which the question can be answered alone."""
    value: Json = None
    schema: JsonObject | None = None
    ask: Literal["input", "approval", "auth"] = "input"
    form: JsonObject | None = None
    """Form of the answer, unless it is plain parts: `as`, a key of `Framework.answers`, and what that answer needs."""


MetadataReader = Callable[[DecodedContent, Json, JsonObject], None]
"""Adds to the content what one key of metadata says. Receives the content, the key's value and all of the metadata."""
QuestionReader = Callable[[str, JsonObject], list[FrameworkQuestion]]
"""Returns the questions in one key of a status message's metadata. Receives the key and its value."""
AnswerWriter = Callable[[JsonObject, Json], DataPart | JsonObject]
"""Returns the answer to a question. Receives its `form` and the value, which is None if the caller declined. The result
is a data part, or an object for the message's metadata under `form["uri"]`."""
ErrorReader = Callable[[Json, JsonObject], tuple[str, JsonObject]]
"""Returns the words and the details of a failure in one key of metadata. Receives its value and all of the metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The dialect of one framework. A field that is not set means that the framework adds nothing there."""

    # Content
    thoughts: Mapping[str, Sequence[Json]] = field(default_factory=dict[str, Sequence[Json]])
    """Keys of a part's metadata, with the values that turn its text into a thought."""
    genai_marks: Sequence[str] = ()
    """Keys of a part's metadata whose value names the type of the genai part that the data represents."""
    read_data: Callable[[DecodedContent, DataPart], bool] | None = None
    """Adds a data part to the content in the framework's own form; False if it has another form."""
    metadata: Mapping[str, MetadataReader] = field(default_factory=dict[str, MetadataReader])
    """Readers by metadata key of messages, artifacts and updates."""
    metadata_endings: Mapping[str, MetadataReader] = field(default_factory=dict[str, MetadataReader])
    """Readers by the end of a metadata key, for keys that are URIs with several origins."""
    read_artifact: Callable[[DecodedContent, str, str | None], None] | None = None
    """Adds to the content what the id of its artifact says. Receives the content, the artifact's and the task's id."""
    read_author: Callable[[JsonObject], tuple[str, str] | None] | None = None
    """Returns the inner agent that wrote an update (empty for the called one) and its branch, from the metadata."""

    # Questions
    is_waiting: Callable[[DataPart], bool] | None = None
    """True for a tool call that waits for the caller."""
    read_question: Callable[[DataPart], list[FrameworkQuestion]] | None = None
    """Returns the questions in a data part of a status message."""
    read_artifact_questions: Callable[[str | None, Sequence[Part]], list[FrameworkQuestion]] | None = None
    """Returns the questions in an artifact, by its name and parts. They are asked when the task stops."""
    question_endings: Mapping[str, QuestionReader] = field(default_factory=dict[str, QuestionReader])
    """Readers of questions, by the end of a key in the metadata of a status message."""
    announcements: frozenset[str] = frozenset()
    """Texts of status messages that only announce a question which the metadata words better."""
    answers: Mapping[str, AnswerWriter] = field(default_factory=dict[str, AnswerWriter])
    """Writers of answers, by the `as` of a question's form."""
    is_answer: Callable[[DataPart], bool] | None = None
    """True for a data part in which a caller has answered in the framework's own form."""

    # Failures and usage
    errors: Mapping[str, ErrorReader] = field(default_factory=dict[str, ErrorReader])
    """Readers of failures, by key of metadata."""
    error_endings: Mapping[str, ErrorReader] = field(default_factory=dict[str, ErrorReader])
    """Readers of failures, by the end of a metadata key."""
    task_usage: Sequence[tuple[str, ...]] = ()
    """Paths in metadata to the usage of the whole task."""
    message_usage: Sequence[str] = ()
    """Keys of metadata with the usage of one model call."""

    # Habits
    event_id: str = ""
    """Key of metadata with the id of the event. Answers in messages that have it are repeated in an artifact."""
    late_task: Sequence[str] = ()
    """Metadata keys of agents that send the whole task after its final status."""
    is_on_card: Callable[[str], bool] | None = None
    """True for the URI of an extension by which the agent's card reveals the framework."""
    answers_in_status: bool = False
    """True if the agent answers in the messages of its status, and not in artifacts."""
    repeats_answer: bool = False
    """True if each status message contains the whole answer so far."""
    private_extensions: frozenset[str] = frozenset()
    """Extensions of the card that are meaningless behind a gateway."""


def cite(content: DecodedContent, citation: JsonObject, start: str, end: str, url: str) -> None:
    """Add a citation, whose start, end and URL have these keys."""
    content.citations.append(
        AnnotationPart(
            start=as_count(citation.get(start)),
            end=as_count(citation.get(end)),
            url=as_text(citation.get(url)) or None,
            title=as_text(citation.get("title")) or None,
            description=as_text(citation.get("description")) or None,
        )
    )


def as_count(value: object) -> int | None:
    """Return the value if it is a whole number of at least 0, else None.

    Floats count: a2a-sdk 1.3.0 keeps metadata as a protobuf Struct, which turns 1 into 1.0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        return None
    return int(value)


def parse_json(text: str) -> Json:
    """Return the JSON object or array in a text, or the text itself."""
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def as_words(value: object) -> str:
    """Return a text, or any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def error_words(error: Json) -> str:
    """Return the words of an error that is a text, or an object with a `message`."""
    return as_text(error) or as_text(as_object(error).get("message"))


def read_error(error: Json, _: JsonObject) -> tuple[str, JsonObject]:
    """Return the words of the `error` in an object, and no details: an `ErrorReader`."""
    return error_words(as_object(error).get("error")), {}


def error_in_result(value: Json) -> str | None:
    """Return the words of the error in a tool's result; None if it has none.

    `error` is what google-adk 2.13.0 passes to the model for a failed tool, `isError` what MCP servers return.
    """
    if isinstance(value, dict):
        if value.get("error"):
            return as_words(value["error"])
        if value.get("isError") is True:
            return as_words(value.get("content") or value.get("result"))
    return None


def text_parts(text: str) -> tuple[Part, ...]:
    """Return the text as the parts of a message; none if it is empty."""
    return (TextPart(text=text),) if text else ()


def describe_call(name: object, arguments: object) -> str:
    """Return a tool call in words; empty if it has no name."""
    return f"{name}({json.dumps(arguments, ensure_ascii=False)})" if isinstance(name, str) and name else ""


def enum_schema(name: str, *values: str) -> JsonObject:
    """Return the schema of an object with one member, which is one of the values."""
    return {"type": "object", "properties": {name: {"type": "string", "enum": list(values)}}, "required": [name]}


CONFIRMED: Final[JsonObject] = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}},
    "required": ["confirmed"],
}
"""Schema of the answer to a question that can only be confirmed or not."""
