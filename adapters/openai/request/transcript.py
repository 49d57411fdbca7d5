"""Transcript (chat history) for a model that remembers nothing: the conversation so far, with every call of a tool and
its result.

The thread's history holds messages only. A model's call of a caller's tool is a question in the log, and its result the
answer, so both are put back in their places from the task's records: the model gets what it said, in its own ids.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from babelgate.adapters.openai.codec.model import text_of_json
from babelgate.canonical import Fold, Invocation, Message, Part, Record, ToolCallPart, ToolResultPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, MessageStarted, RunCreated, RunRemoved
from babelgate.canonical.message import Role

DECLINED: Final = "The caller declined to answer."

Results = tuple[tuple[ToolCallPart, ToolResultPart], ...]


def input_of(call: Invocation) -> tuple[Message, ...]:
    """The input of a run that is no answer. Data without a message reaches a model as its text."""
    return call.messages or (Message.of(call.text, "user"),)


def results_of(call: Invocation, past: Sequence[Record]) -> Results:
    """The calls that this run has the results of."""
    asked = _question_calls(past)
    return tuple(
        (asked[answer.interrupt_id], _result(asked[answer.interrupt_id], answer))
        for answer in call.answers
        if answer.interrupt_id in asked
    )


def _question_calls(past: Sequence[Record]) -> dict[str, ToolCallPart]:
    """Interrupt id → the call that it is."""
    found: dict[str, ToolCallPart] = {}
    for record in past:
        if isinstance(record.event, InterruptRaised):
            for part in record.event.message.parts:
                if isinstance(part, ToolCallPart):
                    found[record.event.interrupt_id or ""] = part
            # A question that a gateway told by its records: the call that it is to others.
            interrupt_id = record.event.interrupt_id or ""
            own: Mapping[str, Any] = record.event.extra.get("openai") or {}
            if isinstance(own.get("call_id"), str):
                called = found.get(interrupt_id) or ToolCallPart(call_id="", name=own.get("name", ""), side="caller")
                found[interrupt_id] = called.replace(call_id=own["call_id"])
    return found


def _result(asked: ToolCallPart, answer: InterruptAnswered) -> ToolResultPart:
    if answer.action == "answer":
        return ToolResultPart(call_id=asked.call_id, output=answer.value)
    return ToolResultPart(call_id=asked.call_id, output=DECLINED, error=True)


def transcript(call: Invocation, past: Sequence[Record] = ()) -> tuple[Message, ...]:
    """The whole conversation up to and with this run's input. `past` = the task's records."""
    told = tuple(_task(call, past))
    known = {message.message_id for message in told} | _ids(past)
    before = [message for message in call.history if message.message_id is None or message.message_id not in known]
    now = [_tool_message(results_of(call, past))] if call.answers else [*input_of(call)]
    return tuple(_pair_calls([*before, *told, *now]))


def _ids(past: Sequence[Record]) -> set[str | None]:
    """Of all that was said on the task."""
    found: set[str | None] = set()
    for record in past:
        match record.event:
            case MessageStarted(message_id=message_id):
                found.add(message_id)
            case RunCreated(messages=messages):
                found |= {message.message_id for message in messages}
            case InterruptRaised(message=message):
                found.add(message.message_id)
            case _:
                pass
    return found


def _task(call: Invocation, past: Sequence[Record]) -> Iterator[Message]:
    """What the task's earlier runs said and heard, run by run."""
    said = Fold(call.thread_id, call.owner, past).messages_by_run()
    asked = _question_calls(past)
    removed = {record.event.run_id for record in past if isinstance(record.event, RunRemoved)}
    answered = {answer.interrupt_id for answer in call.answers}
    """By this run: an earlier one that answered some of the same questions woke nobody."""
    for record in past:
        event, run_id = record.event, record.run_id
        if not isinstance(event, RunCreated) or run_id is None or run_id == call.run_id or run_id in removed:
            continue
        if event.cause != "answer":
            yield from event.messages
        elif results := tuple(
            (asked[r.event.interrupt_id], _result(asked[r.event.interrupt_id], r.event))
            for r in past
            if isinstance(r.event, InterruptAnswered) and r.run_id == run_id
            if r.event.interrupt_id in asked and r.event.interrupt_id not in answered
        ):
            yield _tool_message(results)
        spoken = said.get(run_id, [])[len(event.messages) :]
        yield from _append_calls([m for m in spoken if m.phase == "answer"], _calls(past, run_id))


def _calls(past: Sequence[Record], run_id: str) -> tuple[ToolCallPart, ...]:
    return tuple(_question_calls([record for record in past if record.run_id == run_id]).values())


def _append_calls(messages: list[Message], calls: tuple[ToolCallPart, ...]) -> Iterator[Message]:
    """The messages of one run, its calls in the last of them: a model says words and calls in one breath
    (SPEC/chat/chat_completion_message.py: `content` beside `tool_calls`)."""
    if calls:
        last = messages.pop() if messages else Message()
        messages.append(last.replace(parts=(*last.parts, *calls)))
    yield from messages


def _tool_message(results: Results) -> Message:
    return Message(role="tool", parts=tuple(result for _, result in results))


def _pair_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """The same with calls and results in pairs: a call is followed by the message with its results, and what has no
    counterpart is left out, or said in words. Models refuse anything else."""
    pieces = _join_results(piece for message in messages for piece in _pieces(message))
    for index, message in enumerate(pieces):
        if message.role == "tool":
            called = (
                {p.call_id for p in pieces[index - 1].parts if isinstance(p, ToolCallPart)} if index else set[str]()
            )
            results = tuple(p for p in message.parts if isinstance(p, ToolResultPart) and p.call_id in called)
            strays = [p for p in message.parts if isinstance(p, ToolResultPart) and p.call_id not in called]
            if results:
                yield message.replace(parts=results)
            if strays:
                yield Message.of("\n".join(text_of_json(part.output) for part in strays), "user")
            continue
        after = pieces[index + 1].parts if index + 1 < len(pieces) else ()
        answered = {part.call_id for part in after if isinstance(part, ToolResultPart)}
        parts = tuple(p for p in message.parts if not isinstance(p, ToolCallPart) or p.call_id in answered)
        if parts or message.role == "user" or message.extra:
            yield message.replace(parts=parts)


def _join_results(pieces: Iterable[Message]) -> list[Message]:
    """Results that follow each other are those of one turn: a message of chat has one `tool_call_id`
    (SPEC/chat/chat_completion_tool_message_param.py)."""
    joined: list[Message] = []
    for piece in pieces:
        if joined and piece.role == joined[-1].role == "tool":
            joined[-1] = joined[-1].replace(parts=(*joined[-1].parts, *piece.parts))
        else:
            joined.append(piece)
    return joined


def _pieces(message: Message) -> Iterator[Message]:
    """One message as words and calls, then results, then words: in the order in which they stand in it."""
    parts: list[Part] = []
    for part in message.parts:
        if parts and isinstance(part, ToolResultPart) != isinstance(parts[-1], ToolResultPart):
            yield _piece(message, parts)
            parts = []
        parts.append(part)
    if parts or not message.parts:
        yield _piece(message, parts)


def _piece(message: Message, parts: Sequence[Part]) -> Message:
    role: Role = message.role
    if parts and isinstance(parts[-1], ToolResultPart):
        role = "tool"
    elif role == "tool":
        role = "user"
    return message.replace(role=role, parts=tuple(parts))
