"""Open questions of a task, for the writers of both APIs."""

from collections.abc import Iterator

from babelgate.adapters.openai.codec.questions import called_part, has_text_questions
from babelgate.canonical import Event
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, RunCreated


class OpenQuestions:
    """Open questions of one task, and the way in which one of its runs shows them."""

    __slots__ = ("_by_id", "_in_words")

    def __init__(self) -> None:
        self._by_id: dict[str, InterruptRaised] = {}
        self._in_words = False
        """True if the run shows questions as text, unless they are calls of the caller's tools."""

    def __iter__(self) -> Iterator[InterruptRaised]:
        return iter(self._by_id.values())

    def begin(self, created: RunCreated) -> None:
        """Read from the event that created the run whether it shows questions as text."""
        self._in_words = has_text_questions(created)

    def read(self, event: Event) -> None:
        """Update the open questions by an event of any run of the task."""
        if isinstance(event, InterruptRaised):
            self._by_id[event.interrupt_id or ""] = event
        elif isinstance(event, InterruptAnswered):
            self._by_id.pop(event.interrupt_id, None)

    def is_call(self, question: InterruptRaised) -> bool:
        """Return True if the run shows the question as a tool call, and False if it shows it as text."""
        return not self._in_words or called_part(question) is not None

    @property
    def has_call(self) -> bool:
        """True if an open question is a call of one of the caller's tools."""
        return any(called_part(question) for question in self)
