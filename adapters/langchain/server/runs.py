"""Runs: create them and look at them.

Under a thread as LangGraph Platform and the README of the Agent Protocol have them, and without one as the Agent
Protocol's OpenAPI 0.1.6 has them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.types import ControllerRouterHandler
from pydantic import TypeAdapter

from adapters._body import read_json, validate
from adapters._shared import Lines
from adapters.langchain import codec, codec_agent_protocol
from adapters.langchain.modes import Dialect, View
from adapters.langchain.server.ask import RunCreate, RunSearch, read_body
from adapters.langchain.server.call import (
    MAX_PAGE,
    Asked,
    answer,
    as_created,
    both,
    chosen,
    dialect_of,
    find_agent,
    find_run,
    found_run,
    ids,
    number,
    owner_of,
    pagination,
    path_id,
    picked,
    run_paths,
    settled,
    thread_missing,
    uuid,
    words,
)
from adapters.langchain.server.launch import Started, prepare
from adapters.langchain.server.stream import Leaving, Reading, canceller, streamed
from adapters.langchain.server.wait import Waiting, kept_alive, result
from canonical import FaultCode, FaultError, Hub, Run, RunFilter, RunStatus
from canonical.event import RunCreated
from canonical.value import JsonObject

__all__ = ("routes",)

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


def routes(hub: Hub, lines: Lines) -> Sequence[ControllerRouterHandler]:
    server = Runs(hub, lines)
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


class Runs:
    def __init__(self, hub: Hub, lines: Lines) -> None:
        self._hub = hub
        self._lines = lines

    def __deepcopy__(self, _: object) -> "Runs":
        # NB: Litestar copies every handler that it registers, and a bound method with its object: there is one hub.
        return self

    # Creating

    async def _started(self, request: Asked) -> Started:
        thread_id = path_id(request, "thread") if "thread_id" in request.path_params else None
        return await (await prepare(self._hub, request, await read_body(request, RunCreate), thread_id)).start()

    async def create(self, request: Asked) -> Response[Any]:
        started = await self._started(request)
        receipt = started.receipt
        return answer(await self._new(started), headers=started.headers | run_paths(receipt.thread_id, receipt.run_id))

    async def _new(self, started: Started) -> JsonObject:
        owner, dialect = started.launch.owner, started.launch.dialect
        run = await find_run(self._hub, owner, started.receipt.run_id)
        created = await self._hub.created(owner, run)
        return _encoded(as_created(run, created), created, dialect)

    async def create_wait(self, request: Asked) -> Response[Any]:
        started = await self._started(request)
        launch, receipt = started.launch, started.receipt
        waited = partial(result, self._hub, receipt.thread_id, receipt.run_id, launch.owner, launch.dialect)
        pieces = kept_alive(partial(waited, after=receipt.seq))
        below = "wait" if launch.dialect == "agent-protocol" else "join"
        headers = started.headers | run_paths(receipt.thread_id, receipt.run_id, below)
        return Waiting(Leaving(pieces, canceller(self._hub, launch.owner, receipt.run_id, launch.cancels)), headers)

    async def create_stream(self, request: Asked) -> Response[Any]:
        started = await self._started(request)
        launch, receipt = started.launch, started.receipt
        view = View(
            thread_id=receipt.thread_id,
            owner=launch.owner,
            run_id=receipt.run_id,
            modes=launch.modes,
            dialect=launch.dialect,
            subgraphs=launch.subgraphs,
        )
        frames = await Reading(self._hub, view, self._lines, receipt.seq).after((0, -1))
        leaving = Leaving(frames, canceller(self._hub, launch.owner, receipt.run_id, launch.cancels))
        return streamed(leaving, started.headers | run_paths(receipt.thread_id, receipt.run_id, "stream"))

    async def create_batch(self, request: Asked) -> Response[Any]:
        """All or none of them is well-formed; which is looked at before the first is begun."""
        bodies = validate(_BATCH, await read_json(request))
        if not 1 <= len(bodies) <= MAX_PAGE:
            raise FaultError(FaultCode.INVALID, f"A batch has 1 to {MAX_PAGE} runs.")
        if dialect_of(request) == "langgraph" and any(body.assistant_id is None for body in bodies):
            raise FaultError(FaultCode.INVALID, "assistant_id: every run of a batch names its assistant")
        launches = [await prepare(self._hub, request, body) for body in bodies]
        return answer([await self._new(await launch.start()) for launch in launches])

    # Looking

    async def get(self, request: Asked) -> Response[Any]:
        run = await found_run(self._hub, request)
        return answer(await self._shown(request, run), headers=ids(run))

    async def _shown(self, request: Asked, run: Run) -> JsonObject:
        owner = owner_of(request)
        created = await self._hub.created(owner, run)
        run = await settled(self._hub, owner, run)
        if dialect_of(request) == "agent-protocol":
            return _encoded(run, created, "agent-protocol")
        body = _encoded(run, created, "langgraph")
        if "thread_id" not in request.path_params:  # a path that only the Agent Protocol has
            return _encoded(run, created, "agent-protocol") | body
        return body

    async def list_runs(self, request: Asked) -> Response[Any]:
        owner, thread_id = owner_of(request), path_id(request, "thread")
        limit, offset = number(request, "limit", 10, 1, MAX_PAGE), number(request, "offset", 0, 0)
        names = chosen(words(request, "select"), _FIELDS, "select")
        where = RunFilter(thread_id=thread_id, status=_statuses(request, request.query_params.get("status")))
        try:
            await self._hub.thread(owner, thread_id)
        except FaultError as error:
            raise thread_missing(error, thread_id) from error
        bodies, more = await self._page(request, where, limit, offset)
        headers = {"Babelgate-Thread": thread_id, **pagination(offset, len(bodies), more=more)}
        return answer([picked(body, names) for body in bodies], headers=headers)

    async def search(self, request: Asked) -> Response[Any]:
        body = await read_body(request, RunSearch)
        where = RunFilter(
            thread_id=None if body.thread_id is None else uuid(body.thread_id, "thread"),
            agent=None if body.agent_id is None else find_agent(self._hub, body.agent_id, dialect_of(request)).name,
            status=_statuses(request, body.status),
            metadata=body.metadata or {},
        )
        bodies, more = await self._page(request, where, body.limit, body.offset)
        return answer(bodies, headers=pagination(body.offset, len(bodies), more=more))

    async def _page(
        self, request: Asked, where: RunFilter, limit: int, offset: int
    ) -> tuple[Sequence[JsonObject], bool]:
        found = await self._hub.runs(owner_of(request), where, limit=limit + 1, offset=offset)
        return [await self._shown(request, run) for run in found[:limit]], len(found) > limit


def _encoded(run: Run, created: RunCreated, dialect: Dialect) -> JsonObject:
    if dialect == "agent-protocol":
        return codec_agent_protocol.encode_run(run, created)
    return codec.encode_run(run, created)


def _statuses(request: Asked, text: str | None) -> frozenset[RunStatus] | None:
    if text is None:
        return None
    found = _by_status(dialect_of(request)).get(text)
    if found is None:
        raise FaultError(FaultCode.INVALID, f"status: {text[:50]!r} is none that a run can have")
    return found


@lru_cache(2)
def _by_status(dialect: Dialect) -> Mapping[str, frozenset[RunStatus]]:
    """Which of ours a status of theirs is: the codec's table, read the other way."""
    named = codec_agent_protocol.run_status if dialect == "agent-protocol" else codec.run_status
    table: dict[str, frozenset[RunStatus]] = {}
    for status in RunStatus:
        probe = Run(run_id="", task_id="", status=status, cause="input", created_at=0, first_seq=0, last_seq=0)
        table[named(probe)] = table.get(named(probe), frozenset()) | {status}
    return table
