"""Search for the open question that a caller's user message answers, if the caller saw the question as text."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from litestar.connection import ASGIConnection

from babelgate.adapters.openai.codec.messages import decode_answer
from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.questions import (
    CALLS,
    QUESTIONS_HEADER,
    called_part,
    has_text_questions,
    question_text,
)
from babelgate.canonical import (
    FaultCode,
    FaultError,
    Hub,
    Interrupt,
    Message,
    Principal,
    RunFilter,
    Task,
    TaskFilter,
    TextPart,
)
from babelgate.canonical.state import WAITING
from babelgate.canonical.value import Json, JsonObject

_DIGEST: Final = "said"
"""Key in the `extra` of a run's input: digest of the conversation that its request contained."""
_MOST: Final = 64
"""Maximum number of waiting tasks of an agent that are searched for one conversation, newest first. Chosen."""


def can_receive_question_calls(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Return True if the caller accepts calls of `ask_caller` without declaring this tool, as its header
    `QUESTIONS_HEADER` says."""
    return connection.headers.get(QUESTIONS_HEADER, "").strip().lower() == CALLS


class SentMessages:
    """History and new messages of one request, decoded when first needed and only once, because their files may be
    large."""

    def __init__(self, before: Callable[[], Sequence[Message]], news: Callable[[], Sequence[Message]]) -> None:
        self._decode_before = before
        self._decode_news = news

    @cached_property
    def before(self) -> Sequence[Message]:
        """Messages of the history."""
        return self._decode_before()

    @cached_property
    def new_messages(self) -> Sequence[Message]:
        """Messages of the request that are new to the gateway: those after the history."""
        return self._decode_news()

    def stored_members(self) -> JsonObject:
        """Return members for the `extra` of the run's input: a digest of all messages of the request.

        A later request whose history has the same digest continues this conversation.
        """
        return {_DIGEST: _digest((*self.before, *self.new_messages))}


@dataclass(frozen=True, slots=True)
class TextQuestion:
    """Oldest open question of a task whose open questions were all shown as text."""

    task: Task
    interrupt: Interrupt

    def answer(self, new_messages: Sequence[Message]) -> tuple[dict[str, Json], Sequence[Message]]:
        """Return the answer in the user messages, as its value by question id, and the messages to pass to the
        agent."""
        value, message = decode_answer("\n".join(each.text for each in new_messages), self.interrupt.answer_schema)
        is_text = all(isinstance(part, TextPart) for each in new_messages for part in each.parts)
        return {self.interrupt.interrupt_id: value}, (message,) if is_text else new_messages


async def find_question_on(hub: Hub, principal: Principal, agent: str, thread_id: str) -> TextQuestion | None:
    """Return the text question of an agent's newest waiting task on a thread. Return None if no task waits, or if its
    questions were not shown as text."""
    for task in await _waiting_tasks(hub, principal, TaskFilter(agent=agent, thread_id=thread_id, states=WAITING), 1):
        return await _find_question(hub, principal, task)
    return None


async def find_question_in(
    hub: Hub, principal: Principal, agent: str, before: Sequence[Message]
) -> TextQuestion | None:
    """Return the text question at the end of the history `before`, for a request that names no thread. Return None if
    the history does not end with an open question.

    If an owner has several waiting conversations with the same messages, the newest one is used.
    """
    history_end = len(before)
    while history_end and before[history_end - 1].role == "agent":
        history_end -= 1
    last = "\n".join(message.text for message in before[history_end:]).rstrip()
    if not history_end or not last:
        return None
    digest = _digest(before[:history_end])
    for task in await _waiting_tasks(hub, principal, TaskFilter(agent=agent, states=WAITING), _MOST):
        question = await _find_question(hub, principal, task, last, digest)
        if question is not None:
            return question
    return None


async def _waiting_tasks(hub: Hub, principal: Principal, where: TaskFilter, limit: int) -> Sequence[Task]:
    return await (await hub.reads.tasks(principal, where, limit=limit)).tasks.all()


async def _find_question(
    hub: Hub, principal: Principal, task: Task, last: str | None = None, digest: str | None = None
) -> TextQuestion | None:
    """Return the oldest open question of a task if all of its open questions were shown as text, else None.

    `last`: the assistant's last text, which must end with the question. `digest`: digest of the conversation before
    that text. None skips the check.
    """
    try:
        questions = await hub.reads.open_interrupts(principal, task.task_id)
        if not questions or any(called_part(each) for each in questions):
            return None
        if last is not None and not last.endswith(question_text(questions[-1]).rstrip()):
            return None
        runs = await (await hub.reads.runs(principal, RunFilter(thread_id=task.thread_id), limit=1)).all()
        run_input = await hub.reads.run_input(principal, runs[0]) if runs else None
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
            raise
        return None
    if run_input is None or not (has_text_questions(run_input) or digest is None):
        return None
    if digest is not None and object_in(dict(run_input.extra), "openai").get(_DIGEST) != digest:
        return None
    return TextQuestion(task, questions[0])


def _digest(messages: Sequence[Message]) -> str:
    """Return a digest of the texts of users and the agent. Instructions are left out, because clients may change them
    from request to request."""
    texts = [[each.role, each.text.strip()] for each in messages if each.role in ("user", "agent") and each.text]
    return sha256(json.dumps(texts).encode()).hexdigest()
