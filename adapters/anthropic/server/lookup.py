"""Lookup of agents, runs and questions by the names and ids in requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from babelgate.adapters.anthropic.codec.messages import CallAnswer, decode_answer
from babelgate.adapters.anthropic.codec.names import changed_id, find_interrupt, run_id_of
from babelgate.adapters.anthropic.codec.questions import called_part
from babelgate.adapters.kit.server.caller import Caller
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Message, Principal, Run, Scope, Task
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.value import Json


def find_agent(hub: Hub, who: Caller, model: str) -> AgentInfo:
    """Return the agent that a request names as its `model`. Below the base URL of a single agent it is that agent,
    even if the model has another name, because clients such as Claude Code ask for several models. Raises
    not_found."""
    name = who.need_agent() if who.has_single_agent else model
    try:
        return hub.agent(who.principal, name)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        words = f"model: {model[:100]}"  # the text of the API's own server
        raise FaultError(FaultCode.NOT_FOUND, words, errors=[{"field": "model", "description": words}]) from error


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A run, with its task."""

    run: Run
    task: Task


async def find_run(hub: Hub, principal: Principal, message_id: str) -> FoundMessage:
    """Return the run that a message shows. Raises not_found."""
    lost = FaultError(FaultCode.NOT_FOUND, f"No message has the id {message_id[:100]!r}.")
    run_id = run_id_of(message_id)
    if run_id is None:
        raise lost
    try:
        run = await hub.reads.run(principal, run_id)
        task = await hub.reads.task(principal, run.task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise lost from error
    if run.removed:
        raise lost
    return FoundMessage(run, task)


async def find_asking_task(hub: Hub, principal: Principal, task_id: str) -> Task:
    """Return the task whose id was in the id of a call, because it asked the question. Raises not_found."""
    try:
        return await hub.reads.task(principal, task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        words = "No run waits for this tool_result: its task does not exist, or was deleted."
        raise FaultError(FaultCode.NOT_FOUND, words) from error


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """Answers of a caller to the questions of one task: values by question id, and the messages that show them."""

    values: Mapping[str, Json]
    messages: Sequence[Message]
    is_declined: bool
    """True if all results are errors, and all questions were shown as calls of `ask_caller`. The caller's client then
    does not have this tool and has shown no question, so the questions are declined."""


async def collect_answers(hub: Hub, principal: Principal, task: Task, answers: Sequence[CallAnswer]) -> FoundAnswers:
    """Return the answers in the results of tool calls. Raises not_awaiting for a call whose question is not open."""
    values: dict[str, Json] = {}
    messages: list[Message] = []
    declined: list[bool] = []
    questions = {each.interrupt_id: each for each in await hub.reads.open_interrupts(principal, task.task_id)}
    for answer in answers:
        interrupt_id = find_interrupt(answer.call_id, task.task_id, questions)
        if interrupt_id is None:
            raise await _why_not_open(hub, principal, task, answer.call_id)
        question = questions[interrupt_id]
        values[interrupt_id], message = decode_answer(answer.text, question.answer_schema)
        messages.append(message)
        declined.append(answer.is_error and called_part(question) is None)
    return FoundAnswers(values, messages, all(declined))


async def _why_not_open(hub: Hub, principal: Principal, task: Task, call_id: str) -> FaultError:
    """Return the fault for a call id that belongs to no open question of the task: invalid if it was changed,
    not_awaiting if the question was answered."""
    records = await hub.reads.records(principal, Scope.task(task), task.first_seq - 1)
    ids = [each.event.interrupt_id or "" for each in records if isinstance(each.event, InterruptRaised)]
    if find_interrupt(call_id, task.task_id, ids) is None:
        return changed_id(call_id)
    return FaultError(FaultCode.NOT_AWAITING, "The tool call was already answered, or its run has ended.")
