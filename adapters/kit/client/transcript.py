"""Transcript for a stateless model, in any protocol: the conversation so far, with every tool call and its result.

The thread's history contains messages only. In the log, a model's call of a caller's tool is a question, and the result
is the answer. The transcript inserts both where they occurred, from the task's records, under the ids that the model
used.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from babelgate.canonical import Fold, Invocation, Message, Part, Record, ToolCallPart, ToolResultPart
from babelgate.canonical.event import InterruptAnswered, InterruptRaised, MessageStarted, RunCreated, RunRemoved
from babelgate.canonical.message import Role
from babelgate.canonical.value import Json

DECLINED: Final = "The caller declined to answer."

Results = tuple[tuple[ToolCallPart, ToolResultPart], ...]
"""Calls of a caller's tools, each with its result."""


def input_of(call: Invocation) -> tuple[Message, ...]:
    """Return the input messages of a run that answers no question. Input that is only data becomes a message with its
    JSON as text."""
    return call.messages or (Message.of(call.text, "user"),)


def results_of(call: Invocation, past: Sequence[Record], protocol: str) -> Results:
    """Return the tool calls that the answers in `call` belong to, each with its result. `past` are the task's records.
    `protocol` is the key in `extra` under which the protocol's reader stores the id of a call."""
    calls = _question_calls(past, protocol)
    return tuple(
        (calls[answer.interrupt_id], _result(calls[answer.interrupt_id], answer))
        for answer in call.answers
        if answer.interrupt_id in calls
    )


def _question_calls(past: Sequence[Record], protocol: str) -> dict[str, ToolCallPart]:
    """Return the calls of callers' tools in the records, by the id of the question as which the log stores each
    call."""
    calls: dict[str, ToolCallPart] = {}
    for record in past:
        if isinstance(record.event, InterruptRaised):
            for part in record.event.message.parts:
                if isinstance(part, ToolCallPart):
                    calls[record.event.interrupt_id or ""] = part
            # A question that arrived in another gateway's records names the call that it is in this API.
            interrupt_id = record.event.interrupt_id or ""
            extra: Mapping[str, Any] = record.event.extra.get(protocol) or {}
            if isinstance(extra.get("call_id"), str):
                known_call = calls.get(interrupt_id) or ToolCallPart(
                    call_id="", name=extra.get("name", ""), side="caller"
                )
                calls[interrupt_id] = known_call.replace(call_id=extra["call_id"])
    return calls


def _result(call: ToolCallPart, answer: InterruptAnswered) -> ToolResultPart:
    """Return the result of a tool call: the caller's answer, or an error text if the caller declined."""
    if answer.action == "answer":
        return ToolResultPart(call_id=call.call_id, output=answer.value)
    return ToolResultPart(call_id=call.call_id, output=DECLINED, error=True)


def transcript(call: Invocation, past: Sequence[Record], protocol: str) -> tuple[Message, ...]:
    """Return the messages of the whole conversation, including this run's input. `past` are the task's records, and
    `protocol` is the key in `extra` as in `results_of`."""
    task_messages = tuple(_task(call, past, protocol))
    logged_ids = {message.message_id for message in task_messages} | _ids(past)
    earlier = [
        message for message in call.history if message.message_id is None or message.message_id not in logged_ids
    ]
    new = [_tool_message(results_of(call, past, protocol))] if call.answers else [*input_of(call)]
    return tuple(_pair_calls([*earlier, *task_messages, *new]))


def _ids(past: Sequence[Record]) -> set[str | None]:
    """Return the ids of all messages in the task's records."""
    ids: set[str | None] = set()
    for record in past:
        match record.event:
            case MessageStarted(message_id=message_id):
                ids.add(message_id)
            case RunCreated(messages=messages):
                ids |= {message.message_id for message in messages}
            case InterruptRaised(message=message):
                ids.add(message.message_id)
            case _:
                pass
    return ids


def _task(call: Invocation, past: Sequence[Record], protocol: str) -> Iterator[Message]:
    """Yield the messages of the task's earlier runs, in order, with tool calls and their results."""
    messages_by_run = Fold(call.thread_id, call.owner, past).messages_by_run()
    calls = _question_calls(past, protocol)
    removed = {record.event.run_id for record in past if isinstance(record.event, RunRemoved)}
    answered = {answer.interrupt_id for answer in call.answers}
    # Questions that this run answers. An earlier run that answered only some of them did not resume the agent.
    for record in past:
        event, run_id = record.event, record.run_id
        if not isinstance(event, RunCreated) or run_id is None or run_id == call.run_id or run_id in removed:
            continue
        if event.cause != "answer":
            yield from event.messages
        elif results := tuple(
            (calls[r.event.interrupt_id], _result(calls[r.event.interrupt_id], r.event))
            for r in past
            if isinstance(r.event, InterruptAnswered) and r.run_id == run_id
            if r.event.interrupt_id in calls and r.event.interrupt_id not in answered
        ):
            yield _tool_message(results)
        output = messages_by_run.get(run_id, [])[len(event.messages) :]
        yield from _append_calls([m for m in output if m.phase == "answer"], _calls(past, run_id, protocol))


def _calls(past: Sequence[Record], run_id: str, protocol: str) -> tuple[ToolCallPart, ...]:
    return tuple(_question_calls([record for record in past if record.run_id == run_id], protocol).values())


def _append_calls(messages: list[Message], calls: tuple[ToolCallPart, ...]) -> Iterator[Message]:
    """Yield the messages of one run, with its tool calls added to the last message. A model sends text and calls in one
    message (SPEC/chat/chat_completion_message.py: `content` and `tool_calls`)."""
    if calls:
        last = messages.pop() if messages else Message()
        messages.append(last.replace(parts=(*last.parts, *calls)))
    yield from messages


def _tool_message(results: Results) -> Message:
    return Message(role="tool", parts=tuple(result for _, result in results))


def _pair_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with every call directly followed by its result, because models refuse anything else.

    A call without a result is left out, and a result without a call becomes a user's text.
    """
    pieces = _join_results(piece for message in messages for piece in _pieces(message))
    for index, message in enumerate(pieces):
        if message.role == "tool":
            call_ids = (
                {p.call_id for p in pieces[index - 1].parts if isinstance(p, ToolCallPart)} if index else set[str]()
            )
            results = tuple(p for p in message.parts if isinstance(p, ToolResultPart) and p.call_id in call_ids)
            strays = [p for p in message.parts if isinstance(p, ToolResultPart) and p.call_id not in call_ids]
            if results:
                yield message.replace(parts=results)
            if strays:
                yield Message.of("\n".join(_text_of(part.output) for part in strays), "user")
            continue
        after = pieces[index + 1].parts if index + 1 < len(pieces) else ()
        answered = {part.call_id for part in after if isinstance(part, ToolResultPart)}
        parts = tuple(p for p in message.parts if not isinstance(p, ToolCallPart) or p.call_id in answered)
        if parts or message.role == "user" or message.extra:
            yield message.replace(parts=parts)


def _join_results(pieces: Iterable[Message]) -> list[Message]:
    """Return the messages with consecutive messages of results joined into one, so that `_pair_calls` finds all results
    of a message's calls together."""
    joined: list[Message] = []
    for piece in pieces:
        if joined and piece.role == joined[-1].role == "tool":
            joined[-1] = joined[-1].replace(parts=(*joined[-1].parts, *piece.parts))
        else:
            joined.append(piece)
    return joined


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message, split so that each piece consists only of tool results or of other parts. The order of the parts
    is kept."""
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


def _text_of(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
