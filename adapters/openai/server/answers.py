"""Error responses, and the conversion of callers' answers to questions for both APIs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from litestar import Response

from babelgate.adapters.kit.extension import Request, take_answer
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.openai.codec.call_id import find_interrupt
from babelgate.adapters.openai.codec.items import ItemAnswer
from babelgate.adapters.openai.codec.messages import ToolAnswer
from babelgate.adapters.openai.errors.encode import encode_fault
from babelgate.adapters.openai.server.lookup import CallWords, why_not_open
from babelgate.canonical import Answers, Fault, Hub, Message, Principal, RunInput, Task
from babelgate.canonical.value import Json, JsonObject


def error_response(
    fault: Fault,
    headers: Mapping[str, str] | None = None,
    *,
    unfinished: JsonObject | None = None,
    name: str = "completion",
) -> Response[Any]:
    """Return the error response for a fault. `unfinished` is the incomplete completion or response, which the error
    then contains as its member `name`."""
    status, error, more = encode_fault(fault)
    members = error.model_dump()
    if unfinished is not None:
        members[name] = unfinished
    return json_response({"error": members}, {**(headers or {}), **more}, status=status)


def make_answers(task_id: str, values: Mapping[str, Json], run_input: RunInput, extension: Request) -> Answers:
    """Return the hub's form of answers to the questions of one task. `values` has them by question id. If the Babelgate
    extension's part of the request declines all of them, the action is `decline`."""
    is_declined = bool(extension.declined) and values.keys() <= extension.declined
    values_ = None if is_declined else values
    return Answers(
        task_id=task_id,
        values=values_,
        input=run_input,
        is_text=not extension.answered,
        action="decline" if is_declined else "answer",
        protocol="openai",
    )


A = TypeVar("A", bound=ToolAnswer | ItemAnswer)


async def collect_answers(
    hub: Hub,
    principal: Principal,
    task: Task,
    answers: Iterable[A],
    decode: Callable[[A, JsonObject | None], tuple[Json, Message]],
    extension: Request,
    words: CallWords,
) -> tuple[Mapping[str, Json], Sequence[Message]]:
    """Return the values of the caller's answers by question id, and the messages that show them. `answers` are the
    results of calls of one task.

    `decode` converts one answer, given the JSON Schema of its question. Raises not_awaiting for a call whose question
    is not open, and invalid for a malformed answer.
    """
    values: dict[str, Json] = {}
    messages: list[Message] = []
    questions = {each.interrupt_id: each for each in await hub.reads.open_interrupts(principal, task.task_id)}
    for answer in answers:
        interrupt_id = find_interrupt(answer.call_id, task.task_id, questions)
        if interrupt_id is None:
            raise await why_not_open(hub, principal, task, answer.call_id, words)
        native = decode(answer, questions[interrupt_id].answer_schema)
        values[interrupt_id], message = take_answer(extension, interrupt_id, *native)
        messages.append(message)
    return values, messages
