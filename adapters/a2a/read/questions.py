"""What another A2A server asks, as questions, and what it is answered.

A question has a name where a data part `{"id", "value", "schema"?, "response_schema"?}` says so: langgraph-api 0.16.7
and gateways like this one write that, and take `{"resume": [{"id", "value"}, …]}` as answers. Such a gateway has the
schema of a single one in the message's metadata. Questions in other forms are read, and answered, by `codec.asks`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from babelgate.adapters.a2a.codec.asks import Question, Reply, decode_asked, decode_calls, encode_answers, is_answer
from babelgate.adapters.a2a.codec.marks import is_thought
from babelgate.adapters.a2a.read.parts import as_extra, own_of
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.canonical import DataPart, Invocation, Message, Part, Record, TextPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.value import Json, JsonObject

_INTERRUPT: Final = "Interrupt"
"""The artifact in which langgraph-api 0.16.7 puts what it asks."""
_NAMED: Final = frozenset({"id", "value", "schema", "response_schema"})


def _decode_question(part: Part) -> Question | None:
    """The question that a data part names."""
    data = part.data if isinstance(part, DataPart) else None
    if not isinstance(data, dict) or not {"id", "value"} <= set(data) <= _NAMED:
        return None
    # langgraph-api 0.16.7 names the schema `response_schema`; `schema` is the gateway's own.
    question_id, schema = data["id"], data.get("schema") or data.get("response_schema")
    if not isinstance(question_id, str) or not question_id:
        return None
    return Question((), question_id, data["value"], schema if isinstance(schema, dict) else None)


def questions(parts: Sequence[Part], metadata: JsonObject | None = None, *, only_named: bool = False) -> list[Question]:
    """The questions in a status message: each ends with the data part that names it. A message without such parts is
    one question, unless it asks in another form. `only_named`: none, if any part is something else."""
    found: list[Question] = []
    said: list[Part] = []
    for part in parts:
        named = _decode_question(part)
        if named is None:
            if only_named:
                return []
            said.append(part)
        else:
            found.append(Question(tuple(said), named.id, named.value, named.schema))
            said.clear()
    if found and said:
        last = found[-1]
        found[-1] = Question((*last.parts, *said), last.id, last.value, last.schema)
    schema = _schema_in(metadata)
    if len(found) == 1 and found[0].schema is None:
        found[0] = Question(found[0].parts, found[0].id, found[0].value, schema)
    if found or only_named:
        return found
    # google-adk 2.13.0 repeats with its question what it thought before.
    if asked := decode_asked([part for part in parts if not is_thought(part)], metadata):
        return asked
    data = [part.data for part in said if isinstance(part, DataPart)]
    return [Question(tuple(said), value=data[0] if len(data) == 1 else None, schema=schema)]


def _held_questions(name: str | None, parts: Sequence[Part]) -> list[Question]:
    """Those in an artifact, which are asked when the task stops for them: langgraph-api 0.16.7, ag2 1.2.1."""
    named = questions(parts, only_named=True) if name == _INTERRUPT else []
    return named or decode_calls(parts)


class QuestionTracker:
    """Of one run: what was asked before, and what is held back until the task stops for it."""

    def __init__(self) -> None:
        self.held: Sequence[Question] = ()
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
        asked = _held_questions(name, parts)
        if asked:  # calls are an artifact each, and all other questions one
            kept = [each for each in self.held if each.form]
            known = self._asked | {each.id for each in kept}
            self.held = [*kept, *(each for each in asked if each.id not in known)]
        return bool(asked)

    def ask(self, asked: Sequence[Question]) -> Sequence[Question]:
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


def decode_interrupts(status: w.TaskStatus, asked: Sequence[Question], *, auth: bool) -> list[InterruptRaised]:
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


def replies(call: Invocation, past: Sequence[Record]) -> Reply:
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
            return Reply(said)
        return encode_answers(
            (each["form"], answer) for each, answer in zip(own, call.answers, strict=True) if "form" in each
        )
    named = [each.get("id") for each in own]
    if len(call.answers) > 1 and all(named):
        resume: list[Json] = [
            # As langgraph-api 0.16.7 takes answers to several interrupts at once.
            {"id": name, "value": answer.value}
            for name, answer in zip(named, call.answers, strict=True)
        ]
        return Reply((DataPart(data={"resume": resume}),))
    if len(call.answers) == 1 and said and _says(said, call.answers[0]):
        return Reply(said)
    return Reply(
        tuple(
            TextPart(text=answer.value) if isinstance(answer.value, str) else DataPart(data=answer.value)
            for answer in call.answers
        )
    )


def _says(said: Sequence[Part], answer: InterruptAnswered) -> bool:
    """Whether the caller's message is the answer, and not only words for an answer that is data. One that names the
    question does so by an id of ours."""
    if any(isinstance(part, DataPart) and isinstance(part.data, dict) and "resume" in part.data for part in said):
        return False
    return isinstance(answer.value, str) or not all(isinstance(part, TextPart) for part in said)
