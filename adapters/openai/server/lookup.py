"""Lookup of agents, runs, threads and questions by the names and ids in requests."""

from collections.abc import Container, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel

from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.codec.call_id import changed_id, find_interrupt
from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.names import COMPLETION, CONVERSATION, RESPONSE, completion_id, decode_id
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Message, Principal, Run, Scope, Task
from babelgate.canonical.event import InterruptRaised, RunCreated
from babelgate.canonical.thread import Thread

M = TypeVar("M", bound=BaseModel)


def find_agent(hub: Hub, principal: Principal, model: str) -> AgentInfo:
    """Return the agent with the name that a request has as its `model`. Raises not_found."""
    try:
        return hub.agent(principal, model)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        # OpenAI's code. By it, official clients and the gateway's own client recognize that the path is right.
        words = f"The model {model[:100]!r} does not exist."
        raise FaultError(
            FaultCode.NOT_FOUND,
            words,
            openai={"code": "model_not_found"},
            errors=[{"field": "model", "description": words}],
        ) from error


@dataclass(frozen=True, slots=True)
class FoundRun:
    """A run, with its task and thread."""

    run: Run
    task: Task
    thread: Thread


async def find_run(hub: Hub, principal: Principal, run_id: str, lost: FaultError) -> FoundRun:
    """Return a run that is stored, by its id. Raises the fault `lost` if there is no such run, or if its thread is not
    stored."""
    found = await _find_any(hub, principal, run_id, lost)
    if found.thread.ephemeral:
        raise lost
    return found


async def _find_any(hub: Hub, principal: Principal, run_id: str, lost: FaultError) -> FoundRun:
    try:
        run = await hub.reads.run(principal, run_id)
        thread = await hub.reads.thread(principal, run.thread_id)
        task = await hub.reads.task(principal, run.task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise lost from error
    if run.removed:
        raise lost
    return FoundRun(run, task, thread)


async def find_response(hub: Hub, principal: Principal, run_id: str, lost: FaultError) -> FoundRun:
    """Return a run that is stored as a response. Raises the fault `lost` if there is no such run, or if its request had
    `store: false`."""
    found = await find_run(hub, principal, run_id, lost)
    run_input = await hub.reads.run_input(principal, found.run)
    # SPEC/responses/response_create_params.py, store: "for later retrieval via API", unless it is false.
    if object_in(dict(run_input.extra), "openai").get("store") is False:
        raise lost
    return found


async def find_previous(
    hub: Hub, principal: Principal, response_id: str, unstored_ids: Container[str] = ()
) -> FoundRun:
    """Return the run whose response a request continues. `unstored_ids` are ids of unstored responses that this caller
    may continue. Raises invalid if there is no such response, or if it was not stored."""
    words = f"Previous response with id {response_id[:100]!r} not found."
    lost = FaultError(
        FaultCode.INVALID,
        words,
        errors=[{"field": "previous_response_id", "description": words}],
        # Open Responses, WebSocket.
        openai={"code": "previous_response_not_found"},
    )
    run_id = decode_id(RESPONSE, response_id)
    if run_id is None:
        raise lost
    return await (_find_any if response_id in unstored_ids else find_response)(hub, principal, run_id, lost)


def decode_request_of_model(model: type[M], raw_body: Any) -> M:
    """Return a parsed body validated as a request with a member `model`. Raises invalid for a missing `model`, and for
    other malformed members."""
    if isinstance(raw_body, dict) and "model" not in raw_body:
        words = "Missing required parameter: 'model'."
        errors: list[Mapping[str, str]] = [{"field": "model", "description": words}]
        raise FaultError(FaultCode.INVALID, words, errors=errors, openai={"code": "missing_required_parameter"})
    return validate(model, cast("object", raw_body))


async def find_conversation(hub: Hub, principal: Principal, conversation_id: str) -> Thread:
    """Return the thread that is shown as a conversation. Raises not_found."""
    words = f"Conversation with id {conversation_id[:100]!r} not found."
    lost = FaultError(FaultCode.NOT_FOUND, words, errors=[{"field": "conversation", "description": words}])
    thread_id = decode_id(CONVERSATION, conversation_id)
    if thread_id is None:
        raise lost
    try:
        thread = await hub.reads.thread(principal, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise lost from error
    if thread.ephemeral:
        raise lost
    return thread


@dataclass(frozen=True, slots=True)
class CallWords:
    """Terms of one API for error texts: a call of a caller's tool, its result, and the field of the request that
    contains the results."""

    call: str
    result: str
    field: str


async def find_asking_task(hub: Hub, principal: Principal, task_id: str, words: CallWords) -> Task:
    """Return the task whose id was in a call id, because it asked the question. Raises not_found."""
    try:
        return await hub.reads.task(principal, task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise FaultError(
            FaultCode.NOT_FOUND,
            f"No run waits for the {words.result} of this {words.call}: its task does not exist, or was deleted.",
            openai={"code": "tool_call_not_found"},
        ) from error


async def why_not_open(hub: Hub, principal: Principal, task: Task, call_id: str, words: CallWords) -> FaultError:
    """Return the fault for a call id that belongs to no open question of the task: invalid if it was changed,
    not_awaiting if the question was answered."""
    records = await hub.reads.records(principal, Scope.task(task), task.first_seq - 1)
    ids = [each.event.interrupt_id or "" for each in records if isinstance(each.event, InterruptRaised)]
    if find_interrupt(call_id, task.task_id, ids) is None:
        return changed_id(call_id, words.field)
    return FaultError(FaultCode.NOT_AWAITING, f"The {words.call} was already answered, or its run has ended.")


async def read_inputs(hub: Hub, principal: Principal, run: Run) -> Sequence[Message]:
    """Return the input messages of a run, with the bytes of their files loaded."""
    scope = Scope(run.thread_id, "run", run.run_id)
    async with aclosing(hub.reads.log(principal, scope, run.first_seq - 1, inline=True)) as batches:
        async for batch in batches:
            for record in batch:
                if isinstance(record.event, RunCreated):
                    return record.event.messages
    return ()


def response_run(response_id: str) -> str:
    """Return the id of the run that a response id names. Raises not_found."""
    run_id = decode_id(RESPONSE, response_id)
    if run_id is None:
        raise no_response(response_id)
    return run_id


def no_response(response_id: str) -> FaultError:
    """Return the fault not_found for a response id."""
    # OpenAI's text.
    return FaultError(FaultCode.NOT_FOUND, f"Response with id {response_id[:100]!r} not found.")


def run_of(stored_id: str) -> str:
    """Return the id of the run that a completion id names. Raises not_found."""
    try:
        run_id = str(UUID(stored_id.removeprefix(COMPLETION)))
    except ValueError as error:
        raise no_completion(stored_id) from error
    if stored_id != completion_id(run_id):
        raise no_completion(stored_id)
    return run_id


def no_completion(stored_id: str) -> FaultError:
    """Return the fault not_found for a completion id."""
    return FaultError(FaultCode.NOT_FOUND, f"No completion is stored under the id {stored_id[:100]!r}.")


def has_openai_api(agent: AgentInfo) -> bool:
    """Return True if the agent's own server speaks OpenAI's API."""
    return "openai" in agent.metadata
