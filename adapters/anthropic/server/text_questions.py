"""Search for the open question that a caller's user message answers, if the caller saw the question as text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from babelgate.adapters.anthropic.codec.messages import decode_answer, is_text
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.questions import called_part, question_text
from babelgate.adapters.anthropic.write.message import WORDS
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
)
from babelgate.canonical.json import as_object
from babelgate.canonical.state import WAITING
from babelgate.canonical.value import Json, JsonObject

_DIGEST: Final = "said"
"""Key in the `extra` of a run's input: digest of the conversation that its request contained."""
_MOST: Final = 64
"""Maximum number of waiting tasks of an agent that are searched for one conversation, newest first. Chosen."""


@dataclass(frozen=True, slots=True)
class MessageQuestion:
    """Oldest open question of a task whose open questions were all shown as text."""

    task: Task
    interrupt: Interrupt

    def answer(self, new_messages: Sequence[Message]) -> tuple[dict[str, Json], Sequence[Message]]:
        """Return the answer in the user messages, as its value by question id, and the messages to pass to the
        agent."""
        value, message = decode_answer("\n".join(each.text for each in new_messages), self.interrupt.answer_schema)
        messages = (message,) if all(map(is_text, new_messages)) else new_messages
        return {self.interrupt.interrupt_id: value}, messages


def stored_members(messages: Sequence[Message]) -> JsonObject:
    """Return members for the `extra` of a run's input: a digest of all messages of its request. A later request
    continues this conversation if the messages before its last answer have the same digest."""
    return {_DIGEST: _digest(messages)}


async def find_question_on(hub: Hub, principal: Principal, agent: str, thread_id: str) -> MessageQuestion | None:
    """Return the text question of an agent's newest waiting task on a thread. Return None if no task waits, or if its
    questions were not shown as text."""
    where = TaskFilter(agent=agent, thread_id=thread_id, states=WAITING)
    for task in await _waiting_tasks(hub, principal, where, 1):
        return await _find_question(hub, principal, task)
    return None


async def find_question_in(
    hub: Hub, principal: Principal, agent: str, before: Sequence[Message]
) -> MessageQuestion | None:
    """Return the text question at the end of the history `before`, for a request that names no thread. Return None if
    the history does not end with an open question. If several waiting conversations have the same messages, the newest
    one is used."""
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
) -> MessageQuestion | None:
    """Return the oldest open question of a task if all of its open questions were shown as text, else None.

    - `last`: the assistant's last text. It must end with the text of the newest open question. None skips this check.
    - `digest`: digest of the conversation before that text. It must be that of the task's newest run. None skips this
      check.
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
    if run_input is None:
        return None
    members = as_object(run_input.extra.get(PROTOCOL))
    if digest is not None and (members.get(WORDS) is not True or members.get(_DIGEST) != digest):
        return None
    return MessageQuestion(task, questions[0])


def _digest(messages: Sequence[Message]) -> str:
    """Return a digest of the texts of users and the agent. Instructions are left out, because clients may change them
    from request to request."""
    texts = [[each.role, each.text.strip()] for each in messages if each.role in ("user", "agent") and each.text]
    return sha256(json.dumps(texts).encode()).hexdigest()
