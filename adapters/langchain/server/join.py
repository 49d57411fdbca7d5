"""Join a run (`/join`, `/stream`): wait for its end, follow its stream; and follow a thread from run to run."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller
from babelgate.adapters.kit.server.extended import confirm, is_asked
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces
from babelgate.adapters.kit.server.sse import frame
from babelgate.adapters.langchain.codec.stream_modes import (
    Dialect,
    View,
    parse_event_id,
    parse_modes,
    parse_thread_modes,
)
from babelgate.adapters.langchain.server.answers import answer, ids, run_paths
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import find_path_run, thread_not_found
from babelgate.adapters.langchain.server.parameters import AnyRequest, flag, owner_of, path_id, words
from babelgate.adapters.langchain.server.stream import EventId, RunStream, stream_response
from babelgate.adapters.langchain.server.wait import body_of, error_body, keep_alive, outcome
from babelgate.canonical import FaultCode, FaultError, Hub, Run
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_NOT_FOUND: Final = frame(b'{"error":"HTTPException","message":"404: Run not found"}', event="error")
"""The whole stream of an unknown run."""


def routes(hub: Hub, lines: FanoutCache) -> Sequence[ControllerRouterHandler]:
    server = Joins(hub, lines)
    run = "/threads/{thread_id:str}/runs/{run_id:str}"
    alone = "/runs/{run_id:str}"
    return [
        get(both(f"{run}/join"))(server.join),
        get([*both(f"{run}/wait"), *both(f"{alone}/wait")])(server.wait),
        get([*both(f"{run}/stream"), *both(f"{alone}/stream")])(server.stream),
        get(both("/threads/{thread_id:str}/stream"))(server.stream_thread),
    ]


class Joins(Handlers):
    def __init__(self, hub: Hub, lines: FanoutCache) -> None:
        self._hub = hub
        self._lines = lines

    async def join(self, request: AnyRequest) -> Response[Any]:
        """The final values. An unknown run is told in the body, as LangGraph Platform does."""
        try:
            run = await find_path_run(self._hub, request)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND or dialect_of(request) == "agent-protocol":
                raise
            # langgraph-api 0.16.7: the status is 200, and the body says it.
            return answer(error_body("HTTPException", "404: Run not found"))
        return await self._join_run(request, run, dialect_of(request), "join")

    async def wait(self, request: AnyRequest) -> Response[Any]:
        """A path of the Agent Protocol, so answered in its form everywhere."""
        return await self._join_run(request, await find_path_run(self._hub, request), "agent-protocol", "wait")

    async def _join_run(self, request: AnyRequest, run: Run, dialect: Dialect, below: str) -> Response[Any]:
        owner, extended = owner_of(request), is_asked(request)
        paths = {**run_paths(run.thread_id, run.run_id, below), **confirm(active=extended)}
        if run.has_ended:
            # In one piece, with headers that are known by now: nobody waits.
            body, unsaid = await self._wait_for_run(owner, run, dialect, extended=extended)
            return answer(body, headers=ids(run.replace(loss=(*run.loss, *unsaid))) | paths)
        left = canceller(self._hub, owner, run.run_id, _cancels(request))
        pieces = keep_alive(lambda: body_of(self._wait_for_run(owner, run, dialect, extended=extended)))
        return Pieces(DisconnectNotifier(pieces, left), ids(run) | paths)

    async def _wait_for_run(
        self, owner: str, run: Run, dialect: Dialect, *, extended: bool
    ) -> tuple[JsonObject, Sequence[Loss]]:
        after = run.first_seq - 1
        return await outcome(self._hub, run.thread_id, run.run_id, owner, dialect, after=after, extended=extended)

    async def stream(self, request: AnyRequest) -> Response[Any]:
        """Join a run's stream. What was asked for when the run was made is shown, unless the caller says otherwise."""
        owner = owner_of(request)
        cancels = _cancels(request)
        try:
            run = await find_path_run(self._hub, request)
        except FaultError as error:
            platform = dialect_of(request) == "langgraph" and "thread_id" in request.path_params
            if error.fault.code is not FaultCode.NOT_FOUND or not platform:
                raise
            # langgraph-api 0.16.7: a stream with one event; langgraph-sdk 0.4.14 raises for it.
            return Response(_NOT_FOUND, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        view = await self._view(request, run)
        reading, after = RunStream(self._hub, view, self._lines, run.first_seq - 1), _last_event_id(request)
        frames, begins = await reading.enter(after)
        leaving = DisconnectNotifier(frames, canceller(self._hub, owner, run.run_id, cancels))
        paths = run_paths(run.thread_id, run.run_id, _again(begins))
        headers = {**ids(run), **paths, **confirm(active=view.extended)}
        return stream_response(leaving, headers)

    async def _view(self, request: AnyRequest, run: Run) -> View:
        owner, dialect = owner_of(request), dialect_of(request)
        created = await self._hub.reads.run_input(owner, run)
        own: JsonObject = created.extra.get("langgraph") or {}
        kwargs: JsonObject = own.get("kwargs") or {}
        asked: Any = words(request, "stream_mode") or None
        if asked is None:
            # A client that was cut off comes back to the path without its parameters, for the same frames.
            asked = kwargs.get("stream_mode")
            dialect = own.get("dialect") or dialect
        return View(
            thread_id=run.thread_id,
            owner=owner,
            run_id=run.run_id,
            modes=parse_modes(asked, dialect),
            created_at=run.created_at,
            dialect=dialect,
            subgraphs=bool(kwargs.get("subgraphs")),
            extended=is_asked(request),
        )

    async def stream_thread(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid."""
        owner, thread_id = owner_of(request), path_id(request, "thread")
        # The parameter's documented name, and the one that langgraph-sdk 0.4.14 sends.
        modes = parse_thread_modes([*words(request, "stream_modes"), *words(request, "stream_mode")])
        after = _last_event_id(request)
        # langgraph-api 0.16.7: 422 on a thread's stream, and an empty stream of a run.
        if after is None and request.headers.get("last-event-id"):
            raise FaultError(FaultCode.INVALID, "Invalid last-event-id: must be <seq>-<n>, or -1")
        try:
            thread = await self._hub.reads.thread(owner, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        view = View(
            thread_id=thread_id,
            owner=owner,
            run_id=None,
            modes=modes,
            created_at=thread.created_at,
            dialect=dialect_of(request),
        )
        path = f"/threads/{thread_id}"
        frames, begins = await RunStream(self._hub, view, self._lines).enter(after)
        location = f"{path}/{_again(begins)}"
        headers = {"Babelgate-Thread": thread_id, "Location": location, "Content-Location": path}
        return stream_response(frames, headers)


def _cancels(request: AnyRequest) -> bool:
    """Whether the run ends with the request, as `cancel_on_disconnect` of langgraph-sdk 0.4.14 asks for."""
    return flag(request, "cancel_on_disconnect") and not caller(request).reads_only


def _again(begins: EventId) -> str:
    """The path by which a client whose connection is lost before the first event gets the same stream: langgraph-sdk
    0.4.14 then connects to `Location` without a Last-Event-ID, which means from now on."""
    seq, n = begins
    return "stream?last-event-id=" + ("-1" if n < 0 else f"{seq}-{n}")


def _last_event_id(request: AnyRequest) -> EventId | None:
    """None = from now on: without the header, and with one that is no id of ours."""
    text = request.headers.get("last-event-id") or request.query_params.get("last-event-id")
    # Without it langgraph-api 0.16.7 shows what is new alone, and of a run that has ended nothing.
    return None if not text else parse_event_id(text)
