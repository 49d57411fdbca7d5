"""Lookup of the agents, assistants, threads and runs that a request names. Errors have the protocol's texts."""

from functools import partial
from uuid import UUID

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.server.parameters import path_id, principal_of
from babelgate.canonical import (
    AgentInfo,
    Assistant,
    FaultCode,
    FaultError,
    Hub,
    Principal,
    Run,
    RunStatus,
    StateHistory,
    TaskState,
)
from babelgate.canonical.value import is_uuid


def not_found(error: FaultError, message: str) -> FaultError:
    """Return a not_found fault with the text `message` instead of the given not_found; return any other error
    unchanged."""
    return FaultError(FaultCode.NOT_FOUND, message) if error.fault.code is FaultCode.NOT_FOUND else error


def thread_not_found(error: FaultError, thread_id: str) -> FaultError:
    """Return a not_found fault with LangGraph's text for an unknown thread instead of the given not_found. Return any
    other error unchanged."""
    return not_found(error, f"Thread with ID {thread_id} not found")


def find_agent(hub: Hub, principal: Principal, text: str, dialect: Dialect = "langgraph") -> AgentInfo:
    """Return the agent with a name, or with the UUID derived from it. Raises not_found, or invalid for an unknown name
    in LangGraph's dialect."""
    try:
        return hub.agent(principal, text)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        if dialect == "agent-protocol":  # OpenAPI 0.1.6 has 404 for the creation of a run
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {text[:100]!r} not found") from error
        if is_uuid(text):
            # langgraph-api 0.16.7: 404 for an unknown UUID, 422 for an unknown name. The texts are its own.
            raise FaultError(FaultCode.NOT_FOUND, "Thread or assistant not found.") from error
        names = ", ".join(info.name for info in hub.agents(principal))
        excerpt = text if len(text) <= 100 else f"{text[:100]}…"
        raise FaultError(
            FaultCode.INVALID,
            f"Invalid assistant: {excerpt!r}. Must be either:\n- A valid assistant UUID, or\n"
            f"- One of the registered graphs: {names}",
        ) from error


async def find_assistant(
    hub: Hub, principal: Principal, text: str, dialect: Dialect = "langgraph"
) -> tuple[AgentInfo, Assistant | None]:
    """Return an agent by its name, or by the UUID of one of its assistants. Also return the assistant if the owner has
    created or changed it, else None. Raises the faults of `find_agent`."""
    assistant_id_ = str(UUID(text)) if is_uuid(text) else assistant_id(text)
    assistant = await hub.assistants.get(principal, assistant_id_)
    return find_agent(hub, principal, text if assistant is None else assistant.agent, dialect), assistant


async def find_run(hub: Hub, principal: Principal, run_id: str, thread_id: str | None = None) -> Run:
    """Return a run by its id. `thread_id` is the thread that must contain it, or None for any. Raises not_found, also
    for a run that was rolled back or deleted."""
    try:
        run = await hub.reads.run(principal, run_id)
    except FaultError as error:
        raise not_found(error, "Run not found") from error
    if run.removed or thread_id not in (None, run.thread_id):
        raise FaultError(FaultCode.NOT_FOUND, "Run not found")
    return run


async def find_path_run(hub: Hub, request: AnyRequest) -> Run:
    """Return the run in the path of a request. Raises not_found for an unknown run, and invalid for an id that is not a
    UUID."""
    run_id = path_id(request, "run")
    thread_id = path_id(request, "thread") if "thread_id" in request.path_params else None
    return await find_run(hub, principal_of(request), run_id, thread_id)


async def apply_task_cancel(hub: Hub, principal: Principal, run: Run) -> Run:
    """Return the run with the status cancelled if it had stopped for a question and its task was cancelled later.
    Otherwise return it unchanged. Protocols without tasks thereby show that the question is closed."""
    if run.status is not RunStatus.PAUSED:
        return run
    try:
        task = await hub.reads.task(principal, run.task_id)
    except FaultError:  # the thread has been erased
        return run
    return run.replace(status=RunStatus.CANCELLED) if task.state is TaskState.CANCELLED else run


async def read_history(hub: Hub, principal: Principal, thread_id: str, until: int | None = None) -> StateHistory:
    """Return the state history of a thread, up to the record `until` (None: all records). Raises not_found."""
    try:
        return await hub.reads.snapshot(
            principal,
            thread_id,
            StateHistory,
            partial(StateHistory, thread_id, principal.owner),
            until=until,
            inline=True,
        )
    except FaultError as error:
        raise thread_not_found(error, thread_id) from error
