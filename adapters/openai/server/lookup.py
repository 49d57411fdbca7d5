"""What the names and ids of requests lead to."""

from collections.abc import Container, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel

from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.codec.call_id import changed_id, find_interrupt
from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.codec.names import CONVERSATION, RESPONSE, decode_id
from babelgate.canonical import AgentInfo, FaultCode, FaultError, Hub, Message, Run, Scope, Task
from babelgate.canonical.event import InterruptRaised, RunCreated
from babelgate.canonical.thread import Thread

_PREFIX: Final = "chatcmpl-"
M = TypeVar("M", bound=BaseModel)


def find_agent(hub: Hub, model: str) -> AgentInfo:
    """Raises not_found."""
    try:
        return hub.agent(model)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        # OpenAI's code; official clients and this gateway's own tell by it that the path is right.
        words = f"The model {model[:100]!r} does not exist."
        raise FaultError(
            FaultCode.NOT_FOUND,
            words,
            openai={"code": "model_not_found"},
            errors=[{"field": "model", "description": words}],
        ) from error


@dataclass(frozen=True, slots=True)
class FoundRun:
    run: Run
    task: Task
    thread: Thread


async def find_run(hub: Hub, owner: str, run_id: str, lost: FaultError) -> FoundRun:
    """A run that can be come back to. Raises `lost` where there is none."""
    found = await _find_any(hub, owner, run_id, lost)
    if found.thread.ephemeral:
        raise lost
    return found


async def _find_any(hub: Hub, owner: str, run_id: str, lost: FaultError) -> FoundRun:
    try:
        run = await hub.reads.run(owner, run_id)
        thread = await hub.reads.thread(owner, run.thread_id)
        task = await hub.reads.task(owner, run.task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise lost from error
    if run.removed:
        raise lost
    return FoundRun(run, task, thread)


async def find_response(hub: Hub, owner: str, run_id: str, lost: FaultError) -> FoundRun:
    """The same, and no response that was not to be kept, in a conversation that is. Raises `lost`."""
    found = await find_run(hub, owner, run_id, lost)
    given = await hub.reads.run_input(owner, found.run)
    # SPEC/responses/response_create_params.py, store: "for later retrieval via API", unless it is false.
    if object_in(dict(given.extra), "openai").get("store") is False:
        raise lost
    return found


async def find_previous(hub: Hub, owner: str, named: str, known: Container[str] = ()) -> FoundRun:
    """A response to go on from. `known` = ids of some that are not kept, which this caller may go on from all the same.
    Raises invalid."""
    words = f"Previous response with id {named[:100]!r} not found."
    lost = FaultError(
        FaultCode.INVALID,
        words,
        errors=[{"field": "previous_response_id", "description": words}],
        # Open Responses, WebSocket.
        openai={"code": "previous_response_not_found"},
    )
    run_id = decode_id(RESPONSE, named)
    if run_id is None:
        raise lost
    return await (_find_any if named in known else find_response)(hub, owner, run_id, lost)


def decode_request_of_model(model: type[M], given: Any) -> M:
    """A body that names a model. Raises invalid."""
    if isinstance(given, dict) and "model" not in given:
        words = "Missing required parameter: 'model'."
        errors: list[Mapping[str, str]] = [{"field": "model", "description": words}]
        raise FaultError(FaultCode.INVALID, words, errors=errors, openai={"code": "missing_required_parameter"})
    return validate(model, cast("object", given))


async def find_conversation(hub: Hub, owner: str, named: str) -> Thread:
    """Raises not_found."""
    words = f"Conversation with id {named[:100]!r} not found."
    lost = FaultError(FaultCode.NOT_FOUND, words, errors=[{"field": "conversation", "description": words}])
    thread_id = decode_id(CONVERSATION, named)
    if thread_id is None:
        raise lost
    try:
        thread = await hub.reads.thread(owner, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise lost from error
    if thread.ephemeral:
        raise lost
    return thread


@dataclass(frozen=True, slots=True)
class CallWords:
    """What an API calls a call of a caller's tool, and what it is given back, in which field of a request."""

    call: str
    result: str
    field: str


async def find_asking_task(hub: Hub, owner: str, task_id: str, words: CallWords) -> Task:
    """Raises not_found."""
    try:
        return await hub.reads.task(owner, task_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        raise FaultError(
            FaultCode.NOT_FOUND,
            f"No run waits for the {words.result} of this {words.call}: its task does not exist, or was deleted.",
            openai={"code": "tool_call_not_found"},
        ) from error


async def why_not_open(hub: Hub, owner: str, task: Task, call_id: str, words: CallWords) -> FaultError:
    """Of an id that names no open question."""
    records = await hub.reads.records(owner, Scope.task(task), task.first_seq - 1)
    ids = [each.event.interrupt_id or "" for each in records if isinstance(each.event, InterruptRaised)]
    if find_interrupt(call_id, task.task_id, ids) is None:
        return changed_id(call_id, words.field)
    return FaultError(FaultCode.NOT_AWAITING, f"The {words.call} was already answered, or its run has ended.")


async def read_inputs(hub: Hub, owner: str, run: Run) -> Sequence[Message]:
    """What a run was started with, and the bytes of its files."""
    scope = Scope(run.thread_id, "run", run.run_id)
    async with aclosing(hub.reads.log(owner, scope, run.first_seq - 1, inline=True)) as batches:
        async for batch in batches:
            for record in batch:
                if isinstance(record.event, RunCreated):
                    return record.event.messages
    return ()


def response_run(found: str) -> str:
    """The run's id in a response's. Raises not_found."""
    run_id = decode_id(RESPONSE, found)
    if run_id is None:
        raise no_response(found)
    return run_id


def no_response(found: str) -> FaultError:
    # OpenAI's words.
    return FaultError(FaultCode.NOT_FOUND, f"Response with id {found[:100]!r} not found.")


def completion_id(run_id: str) -> str:
    return _PREFIX + run_id


def run_of(found: str) -> str:
    """Raises not_found."""
    try:
        run_id = str(UUID(found.removeprefix(_PREFIX)))
    except ValueError as error:
        raise no_completion(found) from error
    if found != completion_id(run_id):
        raise no_completion(found)
    return run_id


def no_completion(found: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"No completion is stored under the id {found[:100]!r}.")
