"""Questions of another A2A server, and the replies that answer them.

A question can have an id, in a data part that langgraph-api and gateways like this one write
(`frameworks.langgraph_api`). Such a gateway puts the schema of a single question in the message's metadata. Questions
in other forms are read, and answered, by `codec.asks`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from babelgate.adapters.a2a.codec.asks import AnswerMessage, decode_asked, decode_calls, encode_answers, is_answer
from babelgate.adapters.a2a.codec.marks import is_thought
from babelgate.adapters.a2a.frameworks.framework import FrameworkQuestion
from babelgate.adapters.a2a.frameworks.langgraph_api import INTERRUPT, is_resume, read_question, write_answers
from babelgate.adapters.a2a.read.parts import as_extra, own_of
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.canonical import DataPart, Invocation, Message, Part, Record, TextPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.value import Json, JsonObject


def questions(
    parts: Sequence[Part], metadata: JsonObject | None = None, *, only_named: bool = False
) -> list[FrameworkQuestion]:
    """Return the questions in a status message.

    Each question with an id ends with the data part that names it. A message without ids is one question, unless it has
    a framework's form. With `only_named`, the list is empty if any part belongs to no id.
    """
    found: list[FrameworkQuestion] = []
    words: list[Part] = []
    for part in parts:
        named = read_question(part)
        if named is None:
            if only_named:
                return []
            words.append(part)
        else:
            found.append(replace(named, parts=tuple(words)))
            words.clear()
    if found and words:
        found[-1] = replace(found[-1], parts=(*found[-1].parts, *words))
    schema = _schema_in(metadata)
    if len(found) == 1 and found[0].schema is None:
        found[0] = replace(found[0], schema=schema)
    if found or only_named:
        return found
    # google-adk 2.13.0 repeats its earlier thoughts with its question.
    if in_form := decode_asked([part for part in parts if not is_thought(part)], metadata):
        return in_form
    data = [part.data for part in words if isinstance(part, DataPart)]
    return [FrameworkQuestion(tuple(words), value=data[0] if len(data) == 1 else None, schema=schema)]


def _questions_in_artifact(name: str | None, parts: Sequence[Part]) -> list[FrameworkQuestion]:
    """Return the questions in an artifact, which are asked when the task stops for them; none in most artifacts."""
    named = questions(parts, only_named=True) if name == INTERRUPT else []
    return named or decode_calls(name, parts)


class QuestionTracker:
    """Of one run: what was asked before, and what is held back until the task stops for it."""

    def __init__(self) -> None:
        self.held: Sequence[FrameworkQuestion] = ()
        self.marks: set[str] = set()
        """Times and message ids of questions that were asked before."""
        self._asked_before = False
        self._asked: set[str] = set()
        """The server's ids of questions."""

    def recall(self, event: InterruptRaised) -> None:
        own = own_of(event.extra)
        self._asked_before = True
        self.marks |= {own[name] for name in ("messageId", "timestamp") if name in own}
        self._asked |= {own[name] for name in ("id",) if name in own}

    def is_stale(self, status: w.TaskStatus) -> bool:
        """Whether the task asks what was answered by now: servers show it so until their agent says something, some of
        them without the message."""
        if status.message is not None and status.message.messageId:
            return status.message.messageId in self.marks
        # The timestamp is optional in 1.0, too (`TaskStatus.timestamp`).
        return self._asked_before and (status.timestamp is None or status.timestamp in self.marks)

    def hold(self, name: str | None, parts: Sequence[Part]) -> bool:
        """Whether the parts of an artifact are questions, which are asked when the task stops for them."""
        asked = _questions_in_artifact(name, parts)
        if asked:  # calls are an artifact each, and all other questions one
            kept = [each for each in self.held if each.form]
            known = self._asked | {each.id for each in kept}
            self.held = [*kept, *(each for each in asked if each.id not in known)]
        return bool(asked)

    def ask(self, asked: Sequence[FrameworkQuestion]) -> Sequence[FrameworkQuestion]:
        """What is asked by a status that names no question: those that came before it in artifacts."""
        held, self.held = self.held, ()
        if not held or asked[0].id is not None:
            return asked
        words = [asked[0].parts, *(() for _ in held[1:])]
        return [
            replace(each, parts=(*said, *each.parts) or in_words(each.value))
            for said, each in zip(words, held, strict=True)
        ]


def _schema_in(metadata: JsonObject | None) -> JsonObject | None:
    own: Json = (metadata or {}).get("babelgate")
    schema = cast("JsonObject", own).get("schema") if isinstance(own, dict) else None
    return cast("JsonObject", schema) if isinstance(schema, dict) else None


def in_words(value: Json) -> tuple[Part, ...]:
    if isinstance(value, str):
        return (TextPart(text=value),)
    return () if value is None else (DataPart(data=value),)


def decode_interrupts(status: w.TaskStatus, asked: Sequence[FrameworkQuestion], *, auth: bool) -> list[InterruptRaised]:
    """The events. What tells the question from the next one, its message and its time, goes along."""
    message = status.message or w.Message()
    mark: JsonObject = {}
    if message.messageId:
        mark["messageId"] = message.messageId
    if status.timestamp:
        mark["timestamp"] = status.timestamp
    ids: set[str | None] = set()
    events: list[InterruptRaised] = []
    for each in asked:
        extra = {**mark, **({"id": each.id} if each.id else {}), **({"form": each.form} if each.form else {})}
        event = InterruptRaised(
            interrupt_id=None if each.id in ids else each.id,
            ask="auth" if auth else each.ask,
            message=Message(parts=each.parts, metadata=message.metadata or {}, extra=as_extra(message)),
            value=each.value,
            answer_schema=each.schema,
            extra={PROTOCOL: extra} if extra else {},
        )
        events.append(event)
        ids.add(each.id)
    return events


def replies(call: Invocation, past: Sequence[Record]) -> AnswerMessage:
    """The message that answers the task. A single answer is what the caller said; of several, each names its
    question; and one to a question in another form has that form, unless the caller spoke it."""
    asked: dict[str | None, Mapping[str, Any]] = {}
    for record in past:
        if isinstance(record.event, InterruptRaised):
            asked[record.event.interrupt_id] = record.event.extra.get(PROTOCOL) or {}
    own = [asked.get(answer.interrupt_id, {}) for answer in call.answers]
    said = tuple(part for message in call.messages for part in message.parts)
    if any("form" in each for each in own):
        if any(map(is_answer, said)):
            return AnswerMessage(said)
        return encode_answers(
            (each["form"], answer) for each, answer in zip(own, call.answers, strict=True) if "form" in each
        )
    named = [each.get("id") for each in own]
    if len(call.answers) > 1 and all(named):
        values = ((str(name), answer.value) for name, answer in zip(named, call.answers, strict=True))
        return AnswerMessage((write_answers(values),))
    if len(call.answers) == 1 and said and _says(said, call.answers[0]):
        return AnswerMessage(said)
    return AnswerMessage(
        tuple(
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        )
    )


def _says(said: Sequence[Part], answer: InterruptAnswered) -> bool:
    """Whether the caller's message is the answer, and not only words for an answer that is data. One that names the
    question does so by an id of ours."""
    if any(map(is_resume, said)):
        return False
    return isinstance(answer.value, str) or not all(isinstance(part, TextPart) for part in said)
