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
    """The start of one of the agent's own tool calls or, if `ended`, the end of the call."""

    call_id: str | None
    """Id of the call; None if the framework sends none. An end without an id belongs to the last call of the same
    tool."""
    name: str
    ended: bool = False
    value: Json = None
    """Arguments of the call, or, if `ended`, its result."""
    error: str | None = None


@dataclass(slots=True)
class DecodedContent:
    """Content of one message, artifact or update of a server, sorted by kind."""

    parts: list[Part] = field(default_factory=list[Part])
    """Text, data, files and thoughts, in the order of the message."""
    tools: list[ToolUse] = field(default_factory=list[ToolUse])
    citations: list[AnnotationPart] = field(default_factory=list[AnnotationPart])
    progress: list[Part] = field(default_factory=list[Part])
    """Progress reports, which the framework marks as such. They are in addition to `parts`."""
    says: Literal["answer", "progress", None] = None
    """Role of `parts`, as the framework declares it: an answer, or progress. None if it declares nothing."""
    is_all_thought: bool = False
    """True if the framework declares that all text in `parts` is thoughts."""
    is_marked: bool = False
    """True if the message's own parts contain thoughts or tool calls. Then those in its trajectory or trace are
    repetitions, and are skipped."""
    steps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Changes of named steps: for each, the name of the step, and `started`, `completed` or `error`."""
    groups: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Groups to which the progress reports belong: for each, its id and its title. A group is shown as a step that ends
    with the run."""
    output: Json = None
    """Structured output of the run, if the framework declares one. `parts` contains it, too."""
    states: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    """Changes of the agent's state: for each, the key of metadata that reports it, and the changed values."""

    @property
    def is_thought(self) -> bool:
        """True if `parts` is not empty and contains only thoughts."""
        return bool(self.parts) and all(isinstance(part, ReasoningPart) for part in self.parts)

    def take_data(self) -> list[JsonObject]:
        """Remove all data parts from `parts`, and return their data. Data that is not an object becomes an empty
        object."""
        data = [as_object(part.data) for part in self.parts if isinstance(part, DataPart)]
        self.parts = [part for part in self.parts if not isinstance(part, DataPart)]
        return data


@dataclass(frozen=True, slots=True)
class FrameworkQuestion:
    """A question of the agent to its caller, read from the form of a framework."""

    parts: tuple[Part, ...]
    id: str | None = None
    """Id that the agent's server has given to the question. An answer with this id answers it alone."""
    value: Json = None
    schema: JsonObject | None = None
    ask: Literal["input", "approval", "auth"] = "input"
    form: JsonObject | None = None
    """Description of the form in which the framework expects the answer: `as`, a key of `Framework.answers`, and the
    members that this writer needs, such as `id`. None if the answer is plain parts."""


MetadataReader = Callable[[DecodedContent, Json, JsonObject], None]
"""Function that adds the content of one key of metadata to the decoded content: (content, the key's value, all
metadata)."""
QuestionReader = Callable[[str, JsonObject], list[FrameworkQuestion]]
"""Function that returns the questions under one key in the metadata of a status message: (key, value) → questions."""
AnswerWriter = Callable[[JsonObject, Json], DataPart | JsonObject]
"""Function that encodes the answer to a question: (the question's `form`, value or None if the caller declined) →
answer. The answer is a data part, or an object for the message's metadata under `form["uri"]`."""
ErrorReader = Callable[[Json, JsonObject], tuple[str, JsonObject]]
"""Function that reads a failure from one key of metadata: (the key's value, all metadata) → (text, details)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The dialect of one framework: where its agents put content that A2A has no form for. A field that is not set
    means that the framework adds nothing of that kind."""

    # Content
    thoughts: Mapping[str, Sequence[Json]] = field(default_factory=dict[str, Sequence[Json]])
    """Keys of a part's metadata that mark its text as a thought, each with the values that do so."""
    genai_marks: Sequence[str] = ()
    """Keys of a part's metadata whose value names the type of a Google GenAI part, such as `function_call`, which the
    data represents."""
    read_data: Callable[[DecodedContent, DataPart], bool] | None = None
    """Function that adds a data part of the framework to the content. It returns False for a part that the framework
    does not define."""
    metadata: Mapping[str, MetadataReader] = field(default_factory=dict[str, MetadataReader])
    """Readers of the metadata of messages, artifacts and updates, by key."""
    metadata_endings: Mapping[str, MetadataReader] = field(default_factory=dict[str, MetadataReader])
    """Readers of metadata by the end of the key, for keys that are URIs with several origins."""
    read_artifact: Callable[[DecodedContent, str, str | None], None] | None = None
    """Function that changes the content of an artifact according to the artifact's id: (content, artifact id, task id
    or None)."""
    read_author: Callable[[JsonObject], tuple[str, str] | None] | None = None
    """Function that returns the name of the inner agent that wrote an update, and its branch, from the update's
    metadata. The name is empty for the called agent. It returns None if the metadata name no agent."""

    # Questions
    is_waiting: Callable[[DataPart], bool] | None = None
    """Function that returns True for a data part with a tool call that waits for the caller."""
    read_question: Callable[[DataPart], list[FrameworkQuestion]] | None = None
    """Function that returns the questions in a data part of a status message."""
    read_artifact_questions: Callable[[str | None, Sequence[Part]], list[FrameworkQuestion]] | None = None
    """Function that returns the questions in an artifact: (name or None, parts) → questions. They are raised when the
    task stops."""
    question_endings: Mapping[str, QuestionReader] = field(default_factory=dict[str, QuestionReader])
    """Readers of questions, by the end of a key in the metadata of a status message."""
    announcements: frozenset[str] = frozenset()
    """Texts of status messages that only announce a question. Then the question is shown with the words in the metadata
    instead."""
    answers: Mapping[str, AnswerWriter] = field(default_factory=dict[str, AnswerWriter])
    """Writers of answers, by the member `as` of `FrameworkQuestion.form`."""
    is_answer: Callable[[DataPart], bool] | None = None
    """Function that returns True for a data part in which a caller has already answered in the framework's form."""

    # Failures and usage
    errors: Mapping[str, ErrorReader] = field(default_factory=dict[str, ErrorReader])
    """Readers of failures, by the key of metadata that contains the failure."""
    error_endings: Mapping[str, ErrorReader] = field(default_factory=dict[str, ErrorReader])
    """Readers of failures, by the end of the key of metadata that contains the failure."""
    task_usage: Sequence[tuple[str, ...]] = ()
    """Paths in the metadata of a final status under which the token usage of the whole task is."""
    message_usage: Sequence[str] = ()
    """Keys in the metadata of a message under which the token usage of one model call is."""

    # Habits
    event_id: str = ""
    """Key in the metadata of an update for the framework's id of the event. A framework with such ids sends an answer
    in messages, and then repeats it in an artifact."""
    late_task: Sequence[str] = ()
    """Keys of metadata that identify an agent of this framework. Such an agent sends the whole task after its final
    status."""
    is_on_card: Callable[[str], bool] | None = None
    """Function that returns True for the URI of an extension that only the agents of this framework have on their
    cards."""
    answers_in_status: bool = False
    """True if the agents send answers as the messages of their status, and not as artifacts."""
    repeats_answer: bool = False
    """True if each status message of an agent repeats the whole answer so far."""
    private_extensions: frozenset[str] = frozenset()
    """URIs of extensions on the agents' cards that the gateway's card omits, because they have no effect through the
    gateway."""


def cite(content: DecodedContent, citation: JsonObject, start: str, end: str, url: str) -> None:
    """Add a citation to the content. `start`, `end` and `url` are the keys under which the citation has these
    values."""
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
    """Return a value as an integer if it is a whole number of at least 0. Return None otherwise.

    Floats such as 1.0 are accepted, because a2a-sdk 1.3.0 keeps metadata as a protobuf Struct, which turns 1 into 1.0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        return None
    return int(value)


def parse_json(text: str) -> Json:
    """Return the JSON object or array that a text contains. Return the text itself if it contains neither."""
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def as_words(value: object) -> str:
    """Return a text unchanged, and any other value as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def error_words(error: Json) -> str:
    """Return the message of an error that is a text, or an object with a `message`. Return an empty text for anything
    else."""
    return as_text(error) or as_text(as_object(error).get("message"))


def read_error(error: Json, _: JsonObject) -> tuple[str, JsonObject]:
    """Return the message of the member `error` of an object, and no details. This is an `ErrorReader`."""
    return error_words(as_object(error).get("error")), {}


def error_in_result(value: Json) -> str | None:
    """Return the error that a tool's result contains, as text. Return None if it contains none.

    `error` is what google-adk 2.13.0 passes to the model for a failed tool, `isError` what MCP servers return.
    """
    if isinstance(value, dict):
        if value.get("error"):
            return as_words(value["error"])
        if value.get("isError") is True:
            return as_words(value.get("content") or value.get("result"))
    return None


def text_parts(text: str) -> tuple[Part, ...]:
    """Return a text as the only part of a message. Return no parts if the text is empty."""
    return (TextPart(text=text),) if text else ()


def describe_call(name: object, arguments: object) -> str:
    """Return a tool call as text, such as `search({"q": "weather"})`. Return an empty text if the call has no name."""
    return f"{name}({json.dumps(arguments, ensure_ascii=False)})" if isinstance(name, str) and name else ""


def enum_schema(name: str, *values: str) -> JsonObject:
    """Return the JSON Schema of an object whose only member, `name`, has one of the values."""
    return {"type": "object", "properties": {name: {"type": "string", "enum": list(values)}}, "required": [name]}


CONFIRMED: Final[JsonObject] = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}},
    "required": ["confirmed"],
}
"""JSON Schema of the answer to a question that the caller can only confirm or refuse."""
