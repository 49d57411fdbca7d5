"""Request context of all LangGraph routes: who calls in which dialect, ids and numbers of a request, answers and their
headers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from litestar import Request, Response
from litestar.connection import ASGIConnection
from pydantic_core import to_json

from adapters._server.caller import caller, is_uuid, loss_header
from adapters._server.encoding import json_response
from adapters.langchain.codec.stream_modes import Dialect
from canonical import AgentInfo, FaultCode, FaultError, Hub, Receipt, Run, RunStatus, StateHistory, TaskState
from canonical.event import RunCreated
from canonical.value import JsonObject

Asked = Request[Any, Any, Any]
Connection = ASGIConnection[Any, Any, Any, Any]
"""A request or a WebSocket."""

PREFIX: Final = "/agent-protocol"
"""Below it everything is said in the Agent Protocol's own dialect."""
MAX_PAGE: Final = 1000


def both(path: str) -> list[str]:
    """A path of both dialects."""
    return [path, PREFIX + path]


def dialect_of(connection: Connection) -> Dialect:
    path: str = connection.scope["path"]
    return "agent-protocol" if path == PREFIX or path.startswith(f"{PREFIX}/") else "langgraph"


def owner_of(connection: Connection) -> str:
    return caller(connection).owner


# Answers


def answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[Any]:
    if status == 200:
        return json_response(value, headers)
    return Response(to_json(value), status_code=status, media_type="application/json", headers=dict(headers or {}))


def nothing(status: int, headers: Mapping[str, str] | None = None) -> Response[Any]:
    """An answer without a body."""
    return Response(b"", status_code=status, media_type="application/json", headers=dict(headers or {}))


def ids(made: Run | Receipt) -> dict[str, str]:
    """The gateway's own ids of a run: they lead to it in every other protocol."""
    headers = {"Babelgate-Thread": made.thread_id, "Babelgate-Task": made.task_id, "Babelgate-Run": made.run_id}
    return headers | (loss_header(made.loss) if isinstance(made, Run) else {})


def run_paths(thread_id: str, run_id: str, below: str = "") -> dict[str, str]:
    """Where the run is, and with `below` where the answer can be had again: paths without host and prefix, because
    clients join them to their base URL; they read the ids from them."""
    run = f"/threads/{thread_id}/runs/{run_id}"
    headers = {"Content-Location": run}
    return headers | ({"Location": f"{run}/{below}"} if below else {})


def pagination(offset: int, shown: int, *, more: bool) -> dict[str, str]:
    """The total is a hint: with another page to come it says that there is at least one more."""
    end = offset + shown
    if more:
        return {"X-Pagination-Total": str(end + 1), "X-Pagination-Next": str(end)}
    return {"X-Pagination-Total": str(end)}


def select_members(body: JsonObject, select: Sequence[str] | None) -> JsonObject:
    """The members that the caller selected."""
    return body if not select else {name: body[name] for name in select if name in body}


# Questions


def uuid(text: object, what: str) -> str:
    """As the hub keeps it. Raises invalid."""
    if not isinstance(text, str) or not is_uuid(text):
        raise FaultError(FaultCode.INVALID, f"Invalid {what} ID: must be a UUID")
    return str(UUID(text))


def path_id(connection: Connection, what: str) -> str:
    return uuid(connection.path_params[f"{what}_id"], what)


def number(request: Asked, name: str, default: int, least: int, most: int | None = None) -> int:
    """Raises invalid."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= (most or int(text)):
        range_ = f"from {least}" + (f" to {most}" if most else "")
        raise FaultError(FaultCode.INVALID, f"{name}: it is not an integer {range_}")
    return int(text)


def flag(request: Asked, name: str) -> bool:
    """Raises invalid."""
    text = str(request.query_params.get(name, "")).lower()
    if text not in ("", "0", "1", "true", "false"):
        raise FaultError(FaultCode.INVALID, f"{name}: it is neither true nor false")
    return text in ("1", "true")


def words(request: Asked, name: str) -> list[str]:
    """A query parameter that may be given several times, or once with commas."""
    given: list[str] = request.query_params.getall(name, [])
    return [word for text in given for word in text.split(",") if word]


def contains(value: Any, part: Any) -> bool:
    """Whether the objects of `part` are within those of `value`, all the way down."""
    if isinstance(part, dict):
        members: JsonObject = part  # pyright: ignore[reportUnknownVariableType]
        return isinstance(value, dict) and all(
            name in value and contains(value[name], inner) for name, inner in members.items()
        )
    return value == part and isinstance(value, bool) == isinstance(part, bool)


# Things of the hub


def missing(error: FaultError, message: str) -> FaultError:
    """A not-found in the protocol's words."""
    return FaultError(FaultCode.NOT_FOUND, message) if error.fault.code is FaultCode.NOT_FOUND else error


def thread_missing(error: FaultError, thread_id: str) -> FaultError:
    return missing(error, f"Thread with ID {thread_id} not found")


def find_agent(hub: Hub, text: str, dialect: Dialect = "langgraph") -> AgentInfo:
    """By name, or by the UUID that follows from it. Raises not_found, invalid."""
    try:
        return hub.agent(text)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        if dialect == "agent-protocol":  # OpenAPI 0.1.6 has 404 where a run is created
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {text[:100]!r} not found") from error
        if is_uuid(text):
            raise FaultError(FaultCode.NOT_FOUND, "Thread or assistant not found.") from error
        names = ", ".join(info.name for info in hub.agents())
        shown = text if len(text) <= 100 else f"{text[:100]}…"
        raise FaultError(
            FaultCode.INVALID,
            f"Invalid assistant: {shown!r}. Must be either:\n- A valid assistant UUID, or\n"
            f"- One of the registered graphs: {names}",
        ) from error


async def find_run(hub: Hub, owner: str, run_id: str, thread_id: str | None = None) -> Run:
    """A run that is there, on the thread where the caller looks for it. Raises not_found."""
    try:
        run = await hub.run(owner, run_id)
    except FaultError as error:
        raise missing(error, "Run not found") from error
    if run.removed or thread_id not in (None, run.thread_id):
        raise FaultError(FaultCode.NOT_FOUND, "Run not found")
    return run


async def find_path_run(hub: Hub, request: Asked) -> Run:
    """The run that the path names."""
    run_id = path_id(request, "run")
    thread_id = path_id(request, "thread") if "thread_id" in request.path_params else None
    return await find_run(hub, owner_of(request), run_id, thread_id)


async def apply_task_cancel(hub: Hub, owner: str, run: Run) -> Run:
    """A run whose questions nobody will answer any more, because its task was cancelled since, was cancelled itself:
    this protocol knows runs and no tasks."""
    if run.status is not RunStatus.PAUSED:
        return run
    try:
        task = await hub.task(owner, run.task_id)
    except FaultError:  # its thread was erased meanwhile
        return run
    return replace(run, status=RunStatus.CANCELLED) if task.state is TaskState.CANCELLED else run


def as_created(run: Run, created: RunCreated) -> Run:
    """The run as it was when the call that made it was answered, however fast it has been since."""
    return Run(
        run_id=run.run_id,
        task_id=run.task_id,
        thread_id=run.thread_id,
        agent=run.agent,
        assistant=run.assistant,
        status=RunStatus.PENDING,
        cause=run.cause,
        created_at=run.created_at,
        first_seq=run.first_seq,
        last_seq=run.first_seq,
        strategy=run.strategy,
        start_after=run.start_after,
        metadata=created.metadata,
    )


async def read_history(hub: Hub, owner: str, thread_id: str, until: int | None = None) -> StateHistory:
    """The thread's state and all that led to it, or as it was at a seq. Raises not_found."""
    try:
        return await hub.snapshot(
            owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner), until=until, inline=True
        )
    except FaultError as error:
        raise thread_missing(error, thread_id) from error


def check_selection(names: Iterable[str], known: frozenset[str], what: str) -> list[str]:
    """A selection of members by name. Raises invalid for one that there is not."""
    found = list(names)
    for name in found:
        if name not in known:
            raise FaultError(FaultCode.INVALID, f"{what}: {name[:100]!r} is not one of {', '.join(sorted(known))}")
    return found
