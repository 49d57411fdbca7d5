"""Questions that a completion or a response showed as text, and that the next user message answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from litestar.connection import ASGIConnection

from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.questions import (
    CALLS,
    QUESTIONS_HEADER,
    called_part,
    is_asked_in_words,
    question_text,
)
from babelgate.canonical import FaultCode, FaultError, Hub, Interrupt, Message, RunFilter, Task, TaskFilter
from babelgate.canonical.state import WAITING
from babelgate.canonical.value import JsonObject

_SAID: Final = "said"
"""Member of a run's own data: digest of the conversation that its request sent."""
_MOST: Final = 64
"""Waiting tasks of an agent that are searched for one conversation, newest first. Chosen."""


def is_asked_by_calls(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Return whether the caller takes calls of `ask_caller` that it has not declared."""
    return connection.headers.get(QUESTIONS_HEADER, "").strip().lower() == CALLS


@dataclass(frozen=True, slots=True)
class Question:
    """Oldest open question of a task, all of whose open questions were shown as text."""

    task: Task
    interrupt: Interrupt


def own_of_conversation(messages: Sequence[Message]) -> JsonObject:
    """Return what a run keeps to be found again by the conversation that its caller sends with the next request."""
    return {_SAID: _digest(messages)}


async def find_question_on(hub: Hub, owner: str, agent: str, thread_id: str) -> Question | None:
    """Return the question that waits on a thread."""
    for task in await _waiting_tasks(hub, owner, TaskFilter(agent=agent, thread_id=thread_id, states=WAITING), 1):
        return await _find_question(hub, owner, task)
    return None


async def find_question_in(hub: Hub, owner: str, agent: str, before: Sequence[Message]) -> Question | None:
    """Return the question that ends a conversation without a thread. Callers that send equal conversations have asked
    equal agents the same, so any of their questions is the right one."""
    said = len(before)
    while said and before[said - 1].role == "agent":
        said -= 1
    last = "\n".join(message.text for message in before[said:]).rstrip()
    if not said or not last:
        return None
    digest = _digest(before[:said])
    for task in await _waiting_tasks(hub, owner, TaskFilter(agent=agent, states=WAITING), _MOST):
        question = await _find_question(hub, owner, task, last, digest)
        if question is not None:
            return question
    return None


async def _waiting_tasks(hub: Hub, owner: str, where: TaskFilter, limit: int) -> Sequence[Task]:
    return await (await hub.reads.tasks(owner, where, limit=limit)).tasks.all()


async def _find_question(
    hub: Hub, owner: str, task: Task, last: str | None = None, digest: str | None = None
) -> Question | None:
    """`last`: words that the assistant said last; `digest`: of the conversation before."""
    try:
        asked = await hub.reads.open_interrupts(owner, task.task_id)
        if not asked or any(called_part(each) for each in asked):
            return None
        if last is not None and not last.endswith(question_text(asked[-1]).rstrip()):
            return None
        runs = await (await hub.reads.runs(owner, RunFilter(thread_id=task.thread_id), limit=1)).all()
        given = await hub.reads.run_input(owner, runs[0]) if runs else None
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:  # deleted meanwhile
            raise
        return None
    if given is None or not (is_asked_in_words(given) or digest is None):
        return None
    if digest is not None and object_in(dict(given.extra), "openai").get(_SAID) != digest:
        return None
    return Question(task, asked[0])


def _digest(messages: Sequence[Message]) -> str:
    """Digest of what a user and an agent have said: instructions may change from one request to the next."""
    said = [[each.role, each.text.strip()] for each in messages if each.role in ("user", "agent") and each.text]
    return sha256(json.dumps(said).encode()).hexdigest()
