"""Questions of another A2A server, and the replies that answer them.

A question can have an id, in a data part that langgraph-api and other gateways write
(`frameworks.langgraph_api`). A gateway puts the schema of a single question in the message's metadata. `codec.asks`
reads and answers questions in other forms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from babelgate.adapters.a2a.codec.asks import AnswerMessage, decode_asked, decode_calls, encode_answers, is_answer
from babelgate.adapters.a2a.codec.marks import is_thought
from babelgate.adapters.a2a.frameworks.framework import FrameworkQuestion
from babelgate.adapters.a2a.frameworks.langgraph_api import INTERRUPT, is_resume, read_question, write_answers
from babelgate.adapters.a2a.read.parts import a2a_members, as_extra
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.canonical import DataPart, Invocation, Message, Part, Record, TextPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.value import Json, JsonObject


def questions(
    parts: Sequence[Part], metadata: JsonObject | None = None, *, only_named: bool = False
) -> list[FrameworkQuestion]:
    """Return the questions in a status message with these parts and metadata.

    Each question with an id ends with the data part that contains the id. A message without ids is one question, unless
    it has a framework's form. With `only_named`, the result is empty if a part is not the data part of a question with
    an id.
    """
    with_ids: list[FrameworkQuestion] = []
    words: list[Part] = []
    for part in parts:
        named = read_question(part)
        if named is None:
            if only_named:
                return []
            words.append(part)
        else:
            with_ids.append(replace(named, parts=tuple(words)))
            words.clear()
    if with_ids and words:
        with_ids[-1] = replace(with_ids[-1], parts=(*with_ids[-1].parts, *words))
    schema = _schema_in(metadata)
    if len(with_ids) == 1 and with_ids[0].schema is None:
        with_ids[0] = replace(with_ids[0], schema=schema)
    if with_ids or only_named:
        return with_ids
    # google-adk 2.13.0 repeats its earlier thoughts with its question.
    if in_form := decode_asked([part for part in parts if not is_thought(part)], metadata):
        return in_form
    data = [part.data for part in words if isinstance(part, DataPart)]
    return [FrameworkQuestion(tuple(words), value=data[0] if len(data) == 1 else None, schema=schema)]


def _questions_in_artifact(name: str | None, parts: Sequence[Part]) -> list[FrameworkQuestion]:
    """Return the questions in an artifact, by its name and parts. Return an empty list for an artifact that contains
    something else."""
    named = questions(parts, only_named=True) if name == INTERRUPT else []
    return named or decode_calls(name, parts)


class QuestionTracker:
    """State of reading the questions of one task: those that were raised before, and those in artifacts, which are held
    until the task stops for them."""

    def __init__(self) -> None:
        self.held: Sequence[FrameworkQuestion] = ()
        """Questions that artifacts contain, and for which the task has not yet stopped."""
        self.marks: set[str] = set()
        """Timestamps and message ids of the statuses whose questions were raised before."""
        self._asked_before = False
        self._asked: set[str] = set()
        """Server's ids of the questions that were raised before."""

    def recall(self, event: InterruptRaised) -> None:
        """Restore a question that was raised before from its recorded event."""
        members = a2a_members(event.extra)
        self._asked_before = True
        self.marks |= {members[name] for name in ("messageId", "timestamp") if name in members}
        self._asked |= {members[name] for name in ("id",) if name in members}

    def is_stale(self, status: w.TaskStatus) -> bool:
        """Return True if a status still shows a question that was raised before, and was answered since.

        Servers show the old status until their agent sends something, some of them without the message.
        """
        if status.message is not None and status.message.messageId:
            return status.message.messageId in self.marks
        # The timestamp is optional in 1.0, too (`TaskStatus.timestamp`).
        return self._asked_before and (status.timestamp is None or status.timestamp in self.marks)

    def hold(self, name: str | None, parts: Sequence[Part]) -> bool:
        """Store the questions in an artifact until the task stops for them. Return False if the artifact contains no
        questions."""
        new = _questions_in_artifact(name, parts)
        if new:  # each call is a separate artifact, and all other questions are in one, which replaces them
            calls = [each for each in self.held if each.form]
            known_ids = self._asked | {each.id for each in calls}
            self.held = [*calls, *(each for each in new if each.id not in known_ids)]
        return bool(new)

    def ask(self, in_status: Sequence[FrameworkQuestion]) -> Sequence[FrameworkQuestion]:
        """Return the questions to raise when the task stops: those held from artifacts, or those in the status if they
        have ids or none are held.

        The text of the status becomes part of the first held question.
        """
        held, self.held = self.held, ()
        if not held or in_status[0].id is not None:
            return in_status
        texts = [in_status[0].parts, *(() for _ in held[1:])]
        return [
            replace(each, parts=(*text, *each.parts) or as_parts(each.value))
            for text, each in zip(texts, held, strict=True)
        ]


def _schema_in(metadata: JsonObject | None) -> JsonObject | None:
    members: Json = (metadata or {}).get("babelgate")
    schema = cast("JsonObject", members).get("schema") if isinstance(members, dict) else None
    return cast("JsonObject", schema) if isinstance(schema, dict) else None


def as_parts(value: Json) -> tuple[Part, ...]:
    """Return the value of a question as the parts of a message. Return no parts for None."""
    if isinstance(value, str):
        return (TextPart(text=value),)
    return () if value is None else (DataPart(data=value),)


def decode_interrupts(
    status: w.TaskStatus, asking: Sequence[FrameworkQuestion], *, auth: bool
) -> list[InterruptRaised]:
    """Return the events that raise the questions of a status. Each stores the message id and the timestamp by which the
    status is recognized again. With `auth`, the task requires authentication, so every question asks for that."""
    message = status.message or w.Message()
    mark: JsonObject = {}
    if message.messageId:
        mark["messageId"] = message.messageId
    if status.timestamp:
        mark["timestamp"] = status.timestamp
    ids: set[str | None] = set()
    events: list[InterruptRaised] = []
    for each in asking:
        extra = {**mark, **({"id": each.id} if each.id else {}), **({"form": each.form} if each.form else {})}
        event = InterruptRaised(
            interrupt_id=None if each.id in ids else each.id,
            ask="auth" if auth else each.ask,
            message=Message(parts=each.parts, metadata=message.metadata or {}, extra=as_extra(message)),
            value=each.value,
            answer_schema=each.schema,
            takes_text=each.form is not None,  # the framework's writer of answers reads texts
            extra={PROTOCOL: extra} if extra else {},
        )
        events.append(event)
        ids.add(each.id)
    return events


def replies(call: Invocation, past: Sequence[Record]) -> AnswerMessage:
    """Return the content of the message that answers the questions of a task. `past` are the records of the task.

    If a question has a framework's form, the answers have that form, unless the caller's message already has it.
    Otherwise, a single answer is the caller's own message if possible, and several answers name the ids of their
    questions.
    """
    by_id: dict[str | None, Mapping[str, Any]] = {}
    for record in past:
        if isinstance(record.event, InterruptRaised):
            by_id[record.event.interrupt_id] = record.event.extra.get(PROTOCOL) or {}
    questions_asked = [by_id.get(answer.interrupt_id, {}) for answer in call.answers]
    caller_parts = tuple(part for message in call.messages for part in message.parts)
    if any("form" in each for each in questions_asked):
        if any(map(is_answer, caller_parts)):
            return AnswerMessage(caller_parts)
        return encode_answers(
            (each["form"], answer) for each, answer in zip(questions_asked, call.answers, strict=True) if "form" in each
        )
    ids = [each.get("id") for each in questions_asked]
    if len(call.answers) > 1 and all(ids):
        values = ((str(question_id), answer.value) for question_id, answer in zip(ids, call.answers, strict=True))
        return AnswerMessage((write_answers(values),))
    if len(call.answers) == 1 and caller_parts and _is_whole_answer(caller_parts, call.answers[0]):
        return AnswerMessage(caller_parts)
    return AnswerMessage(
        tuple(
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        )
    )


def _is_whole_answer(caller_parts: Sequence[Part], answer: InterruptAnswered) -> bool:
    """Return True if the caller's message can be sent to the server unchanged as the answer.

    Return False if the message names questions by ids of the gateway, which the server does not know, or if it is only
    text and the answer is data.
    """
    if any(map(is_resume, caller_parts)):
        return False
    return isinstance(answer.value, str) or not all(isinstance(part, TextPart) for part in caller_parts)
