"""Messages and their parts: what callers and agents say to each other."""

from typing import ClassVar, Final, Literal, Self

from babelgate.canonical.value import Extra, Json, JsonObject, Value

Role = Literal["user", "agent", "system", "tool"]
Phase = Literal["answer", "progress"]
"""Phase of a message. `progress` reports the work on the way and is not part of the answer."""


class _Part(Value):
    media_type: str | None = None
    metadata: JsonObject = {}
    extra: Extra = {}


class TextPart(_Part):
    kind: ClassVar[Literal["text"]] = "text"
    text: str


class DataPart(_Part):
    kind: ClassVar[Literal["data"]] = "data"
    data: Json


class FilePart(_Part, weakref=True):
    """File, identified by the hash of its bytes in the artifact store (`blob`) or by a URL. The log never holds the
    bytes. `inline` holds them only before the hub has stored them, and for readers that request them."""

    kind: ClassVar[Literal["file"]] = "file"
    name: str | None = None
    blob: str | None = None
    """SHA-256 of the bytes, in hexadecimal; None for a file at a URL, or before the hub has stored the bytes."""
    size: int | None = None
    """Size of the file in bytes; None if it is not known."""
    url: str | None = None
    inline: bytes | None = None

    def members(self) -> JsonObject:
        """Return the members as the log stores them: all but `inline`."""
        members = super().members()
        del members["inline"]
        return members

    def __repr__(self) -> str:
        return f"FilePart({', '.join(f'{name}={value!r}' for name, value in self.members().items())})"


class ReasoningPart(_Part):
    kind: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str


class RefusalPart(_Part):
    kind: ClassVar[Literal["refusal"]] = "refusal"
    text: str


class ToolCallPart(_Part):
    """Call of a tool. `side` names who executes it: the agent itself, or the caller. The caller's result is the answer
    to an interrupt."""

    kind: ClassVar[Literal["tool_call"]] = "tool_call"
    call_id: str
    name: str
    arguments: str = ""
    """JSON text as the model wrote it. It may be incomplete while it streams."""
    side: Literal["agent", "caller"] = "agent"


class ToolResultPart(_Part):
    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    call_id: str
    output: Json = None
    error: bool = False


class AnnotationPart(_Part):
    """Citation, or another note on a text. `start` and `end` delimit the annotated text, in characters from the
    beginning of all text parts of the message joined together."""

    kind: ClassVar[Literal["annotation"]] = "annotation"
    start: int | None = None
    end: int | None = None
    url: str | None = None
    title: str | None = None
    description: str | None = None


Part = TextPart | DataPart | FilePart | ReasoningPart | RefusalPart | ToolCallPart | ToolResultPart | AnnotationPart


class Message(Value):
    message_id: str | None = None
    """Id of the message. None only before the hub has appended it: the hub gives every message an id."""
    role: Role = "agent"
    name: str | None = None
    """Name of the agent that sent the message, if several agents send messages; otherwise None."""
    phase: Phase = "answer"
    parts: tuple[Part, ...] = ()
    metadata: JsonObject = {}
    extra: Extra = {}

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def has_bytes(self) -> bool:
        """True if the message contains the bytes of a file."""
        return any(isinstance(part, FilePart) and part.inline is not None for part in self.parts)

    def without_bytes(self) -> Self:
        """Return the message as it is stored: files without their bytes."""
        parts = tuple(part.replace(inline=None) if isinstance(part, FilePart) else part for part in self.parts)
        return self.replace(parts=parts)

    @classmethod
    def of(cls, text: str, role: Role = "agent", *, phase: Phase = "answer") -> "Message":
        return cls(role=role, phase=phase, parts=(TextPart(text=text),))


def text_of(parts: "tuple[Part, ...] | list[Part]") -> str:
    """Return the plain text of some parts. Text parts are joined without a separator, because streamed answers are
    split at any character."""
    return "".join(part.text for part in parts if isinstance(part, TextPart))


_FIRST_WORDS: Final = 120
"""Maximum length of the result of `first_words`, in characters. Chosen: one line of a list."""


def first_words(messages: "tuple[Message, ...]") -> str:
    """Return the beginning of the last message with text, on one line. Return an empty text if no message has any."""
    for message in reversed(messages):
        for part in message.parts:
            if isinstance(part, TextPart) and (words := part.text[: 4 * _FIRST_WORDS].split()):
                line = " ".join(words)
                return line if len(line) <= _FIRST_WORDS else line[: _FIRST_WORDS - 1].rstrip() + "…"
    return ""
