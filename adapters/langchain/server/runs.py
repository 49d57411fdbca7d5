"""Routes that create runs and read them.

LangGraph Platform and the README of the Agent Protocol have these routes below a thread. OpenAPI 0.1.6 of the Agent
Protocol has them at `/runs`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import TypeAdapter

from babelgate.adapters.kit.json import read_json, validate
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces, list_response
from babelgate.adapters.langchain.codec import agent_protocol, state
from babelgate.adapters.langchain.codec.stream_modes import Dialect, StreamParameters
from babelgate.adapters.langchain.server.answers import answer, ids, pagination, run_paths, select_members
from babelgate.adapters.langchain.server.create_run import Started, prepare
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import (
    apply_task_cancel,
    find_agent,
    find_path_run,
    find_run,
    thread_not_found,
)
from babelgate.adapters.langchain.server.parameters import (
    check_selection,
    number,
    path_id,
    principal_of,
    read_body,
    uuid,
    words,
)
from babelgate.adapters.langchain.server.stream import RunFrameStream, stream_response
from babelgate.adapters.langchain.server.wait import body_of, keep_alive, outcome
from babelgate.adapters.langchain.wire.requests import MAX_PAGE, RunCreate, RunSearch
from babelgate.canonical import FaultCode, FaultError, Hub, Run, RunFilter, RunStatus
from babelgate.canonical.event import RunCreated
from babelgate.canonical.listed import Listed
from babelgate.canonical.value import JsonObject

_BATCH: Final[TypeAdapter[list[RunCreate]]] = TypeAdapter(list[RunCreate])

_FIELDS: Final = frozenset(
    {
        "run_id",
        "thread_id",
        "assistant_id",
        "agent_id",
        "created_at",
        "updated_at",
        "status",
        "metadata",
        "kwargs",
        "multitask_strategy",
    }
)


def routes(hub: Hub, lines: FanoutCache) -> Sequence[ControllerRouterHandler]:
    server = RunHandlers(hub, lines)
    runs = "/threads/{thread_id:str}/runs"
    return [
        post([*both(runs), *both("/runs")], status_code=200)(server.create),
        post([*both(f"{runs}/wait"), *both("/runs/wait")], status_code=200)(server.create_wait),
        post([*both(f"{runs}/stream"), *both("/runs/stream")], status_code=200)(server.create_stream),
        post(both("/runs/batch"), status_code=200)(server.create_batch),
        post(both("/runs/search"), status_code=200)(server.search),
        get(both(runs))(server.list_runs),
        get([*both(f"{runs}/{{run_id:str}}"), *both("/runs/{run_id:str}")])(server.get),
    ]


class RunHandlers(Handlers):
    def __init__(self, hub: Hub, lines: FanoutCache) -> None:
        self._hub = hub
        self._lines = lines

    # Creating

    async def _start_run(self, request: AnyRequest) -> Started:
        thread_id = path_id(request, "thread") if "thread_id" in request.path_params else None
        return await (await prepare(self._hub, request, await read_body(request, RunCreate), thread_id)).start()

    async def create(self, request: AnyRequest) -> Response[Any]:
        started = await self._start_run(request)
        receipt = started.receipt
        # langgraph-api 0.16.7 responds with the run as it was created, `pending`.
        return answer(await self._new(started), headers=started.headers | run_paths(receipt.thread_id, receipt.run_id))

    async def _new(self, started: Started) -> JsonObject:
        principal, dialect = started.launch.principal, started.launch.dialect
        run = await find_run(self._hub, principal, started.receipt.run_id)
        created = await self._hub.reads.run_input(principal, run)
        return _encode_run(_as_created(run, created), created, dialect)

    async def create_wait(self, request: AnyRequest) -> Response[Any]:
        started = await self._start_run(request)
        launch, receipt = started.launch, started.receipt
        extended = launch.extended or is_activated(request)
        wait = partial(outcome, self._hub, receipt.thread_id, receipt.run_id, launch.principal, launch.dialect)
        pieces = keep_alive(lambda: body_of(wait(after=receipt.seq, extended=extended)))
        # langgraph-sdk 0.4.14 requests `Location` when its connection breaks.
        below = "wait" if launch.dialect == "agent-protocol" else "join"
        paths = run_paths(receipt.thread_id, receipt.run_id, below)
        headers = {**started.headers, **paths, **confirm(active=extended)}
        return Pieces(
            DisconnectNotifier(pieces, canceller(self._hub, launch.principal, receipt.run_id, launch.cancels)), headers
        )

    async def create_stream(self, request: AnyRequest) -> Response[Any]:
        started = await self._start_run(request)
        launch, receipt = started.launch, started.receipt
        extended = launch.extended or is_activated(request)
        view = StreamParameters(
            thread_id=receipt.thread_id,
            owner=launch.principal.owner,
            run_id=receipt.run_id,
            modes=launch.modes,
            created_at=receipt.created_at,
            dialect=launch.dialect,
            subgraphs=launch.subgraphs,
            extended=extended,
        )
        frames = await RunFrameStream(self._hub, launch.principal, view, self._lines, receipt.seq).after(
            (0, -1), started_run=True
        )
        cancelling_frames = DisconnectNotifier(
            frames, canceller(self._hub, launch.principal, receipt.run_id, launch.cancels)
        )
        headers = {**started.headers, **run_paths(receipt.thread_id, receipt.run_id, "stream")}
        return stream_response(cancelling_frames, {**headers, **confirm(active=extended)})

    async def create_batch(self, request: AnyRequest) -> Response[Any]:
        """Create the runs in a list of bodies, each on a new thread. All are validated before the first one starts.
        Raises invalid, and the faults of `prepare` and of the hub."""
        bodies = validate(_BATCH, await read_json(request))
        # langgraph-api 0.16.7 refuses an empty list as well (422).
        if not 1 <= len(bodies) <= MAX_PAGE:
            raise FaultError(FaultCode.INVALID, f"A batch has 1 to {MAX_PAGE} runs.")
        if dialect_of(request) == "langgraph" and any(body.assistant_id is None for body in bodies):
            raise FaultError(FaultCode.INVALID, "assistant_id: required for every run of a batch")
        launches = [await prepare(self._hub, request, body) for body in bodies]
        return answer([await self._new(await launch.start()) for launch in launches])

    # Reading

    async def get(self, request: AnyRequest) -> Response[Any]:
        run = await find_path_run(self._hub, request)
        return answer(await self._run_body(request, run), headers=ids(run))

    async def _run_body(self, request: AnyRequest, run: Run) -> JsonObject:
        principal = principal_of(request)
        created = await self._hub.reads.run_input(principal, run)
        run = await apply_task_cancel(self._hub, principal, run)
        if dialect_of(request) == "agent-protocol":
            return _encode_run(run, created, "agent-protocol")
        body = _encode_run(run, created, "langgraph")
        if "thread_id" not in request.path_params:  # only the Agent Protocol has this path
            return _encode_run(run, created, "agent-protocol") | body
        return body

    async def list_runs(self, request: AnyRequest) -> Response[Any]:
        """Return a page of the runs on the thread in the path, newest first. Raises invalid for wrong query parameters,
        and not_found for an unknown thread."""
        principal, thread_id = principal_of(request), path_id(request, "thread")
        limit, offset = number(request, "limit", 10, 1, MAX_PAGE), number(request, "offset", 0, 0)
        names = check_selection(words(request, "select"), _FIELDS, "select")
        where = RunFilter(thread_id=thread_id, status=_statuses(request, request.query_params.get("status")))
        try:
            await self._hub.reads.thread(principal, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        return await self._page(request, where, limit, offset, names, {"Babelgate-Thread": thread_id})

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_body(request, RunSearch)
        agent = None
        if body.agent_id is not None:
            agent = find_agent(self._hub, principal_of(request), body.agent_id, dialect_of(request)).name
        where = RunFilter(
            thread_id=None if body.thread_id is None else uuid(body.thread_id, "thread"),
            agent=agent,
            status=_statuses(request, body.status),
            metadata=body.metadata or {},
        )
        return await self._page(request, where, body.limit, body.offset)

    async def _page(
        self,
        request: AnyRequest,
        where: RunFilter,
        limit: int,
        offset: int,
        names: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Response[Any]:
        page = await self._hub.reads.runs(principal_of(request), where, limit=limit + 1, offset=offset)
        pagination_headers = pagination(offset, min(page.count, limit), more=page.count > limit)
        return await list_response(
            b"[]", self._encode_runs(request, page, limit, names), headers={**(headers or {}), **pagination_headers}
        )

    async def _encode_runs(
        self, request: AnyRequest, page: Listed[Run], limit: int, names: Sequence[str]
    ) -> AsyncGenerator[bytes | LargeJson]:
        remaining = limit
        async with aclosing(aiter(page)) as runs:
            async for run in runs:
                if not remaining:
                    return
                remaining -= 1
                yield encode(select_members(await self._run_body(request, run), names))


def _as_created(run: Run, created: RunCreated) -> Run:
    """Return the run with the status and values that it had when it was created. The response to its creation is then
    the same even if it has already started."""
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


def _encode_run(run: Run, created: RunCreated, dialect: Dialect) -> JsonObject:
    if dialect == "agent-protocol":
        return agent_protocol.encode_run(run, created)
    return state.encode_run(run, created)


def _statuses(request: AnyRequest, text: str | None) -> frozenset[RunStatus] | None:
    """Return the canonical statuses that correspond to a protocol's status. None, no filter, stays None. Raises invalid
    for an unknown status."""
    if text is None:
        return None
    statuses = _by_status(dialect_of(request)).get(text)
    if statuses is None:
        raise FaultError(
            FaultCode.INVALID, f"status: {text[:50]!r} is not one of {', '.join(_by_status(dialect_of(request)))}"
        )
    return statuses


@lru_cache(2)
def _by_status(dialect: Dialect) -> Mapping[str, frozenset[RunStatus]]:
    """Return the canonical statuses that a dialect shows as each of its statuses, such as `pending` → {PENDING,
    RUNNING} in the Agent Protocol."""
    encode_status = agent_protocol.run_status if dialect == "agent-protocol" else state.run_status
    table: dict[str, frozenset[RunStatus]] = {}
    for status in RunStatus:
        probe = Run(run_id="", task_id="", status=status, cause="input", created_at=0, first_seq=0, last_seq=0)
        table[encode_status(probe)] = table.get(encode_status(probe), frozenset()) | {status}
    return table
