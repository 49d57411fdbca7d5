"""Routes that join an existing run: `/join` and `/wait` respond when it has ended, `/stream` follows it. Another route
follows a thread from run to run."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.disconnect import DisconnectNotifier, canceller
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.fanout import FanoutCache
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import Pieces
from babelgate.adapters.kit.server.sse import frame
from babelgate.adapters.langchain.codec.stream_modes import (
    Dialect,
    StreamParameters,
    parse_event_id,
    parse_modes,
    parse_thread_modes,
)
from babelgate.adapters.langchain.server.answers import answer, ids, run_paths
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.lookup import find_path_run, thread_not_found
from babelgate.adapters.langchain.server.parameters import flag, path_id, principal_of, words
from babelgate.adapters.langchain.server.stream import EventId, RunFrameStream, stream_response
from babelgate.adapters.langchain.server.wait import body_of, error_body, keep_alive, outcome
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Run
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

_NOT_FOUND: Final = frame(b'{"error":"HTTPException","message":"404: Run not found"}', event="error")
"""Body of the stream for an unknown run: one event `error`."""


def routes(hub: Hub, lines: FanoutCache) -> Sequence[ControllerRouterHandler]:
    server = JoinHandlers(hub, lines)
    run = "/threads/{thread_id:str}/runs/{run_id:str}"
    alone = "/runs/{run_id:str}"
    return [
        get(both(f"{run}/join"))(server.join),
        get([*both(f"{run}/wait"), *both(f"{alone}/wait")])(server.wait),
        get([*both(f"{run}/stream"), *both(f"{alone}/stream")])(server.stream),
        get(both("/threads/{thread_id:str}/stream"))(server.stream_thread),
    ]


class JoinHandlers(Handlers):
    def __init__(self, hub: Hub, lines: FanoutCache) -> None:
        self._hub = hub
        self._lines = lines

    async def join(self, request: AnyRequest) -> Response[Any]:
        """Wait for the end of a run, and return its final values. In LangGraph's dialect, an unknown run is an error in
        the body, with status 200. Raises invalid, and not_found in the Agent Protocol."""
        try:
            run = await find_path_run(self._hub, request)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND or dialect_of(request) == "agent-protocol":
                raise
            # langgraph-api 0.16.7: the status is 200, and the error is in the body.
            return answer(error_body("HTTPException", "404: Run not found"))
        return await self._join_run(request, run, dialect_of(request), "join")

    async def wait(self, request: AnyRequest) -> Response[Any]:
        """Wait for the end of a run, and return the Agent Protocol's result, because LangGraph has no such path. Raises
        not_found for an unknown run, and invalid for an id that is not a UUID."""
        return await self._join_run(request, await find_path_run(self._hub, request), "agent-protocol", "wait")

    async def _join_run(self, request: AnyRequest, run: Run, dialect: Dialect, below: str) -> Response[Any]:
        principal, extended = principal_of(request), is_activated(request)
        paths = {**run_paths(run.thread_id, run.run_id, below), **confirm(active=extended)}
        if run.has_ended:
            # Nothing to wait for: one response, whose headers include the losses.
            body, losses = await self._wait_for_run(principal, run, dialect, extended=extended)
            return answer(body, headers=ids(run.replace(loss=(*run.loss, *losses))) | paths)
        on_disconnect = canceller(self._hub, principal, run.run_id, _cancels(request))
        pieces = keep_alive(lambda: body_of(self._wait_for_run(principal, run, dialect, extended=extended)))
        return Pieces(DisconnectNotifier(pieces, on_disconnect), ids(run) | paths)

    async def _wait_for_run(
        self, principal: Principal, run: Run, dialect: Dialect, *, extended: bool
    ) -> tuple[JsonObject, Sequence[Loss]]:
        after = run.first_seq - 1
        return await outcome(self._hub, run.thread_id, run.run_id, principal, dialect, after=after, extended=extended)

    async def stream(self, request: AnyRequest) -> Response[Any]:
        """Respond with a run's stream. Its modes are those in the query, or else those with which the run was created.
        In LangGraph's dialect, an unknown run is an event `error`. Raises not_found for an unknown run, and invalid for
        wrong query parameters."""
        principal = principal_of(request)
        cancels = _cancels(request)
        try:
            run = await find_path_run(self._hub, request)
        except FaultError as error:
            is_platform = dialect_of(request) == "langgraph" and "thread_id" in request.path_params
            if error.fault.code is not FaultCode.NOT_FOUND or not is_platform:
                raise
            # langgraph-api 0.16.7: a stream with one event, for which langgraph-sdk 0.4.14 raises an error.
            return Response(_NOT_FOUND, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        view = await self._view(request, run)
        run_stream, after = (
            RunFrameStream(self._hub, principal, view, self._lines, run.first_seq - 1),
            _last_event_id(request),
        )
        frames, begins = await run_stream.enter(after)
        cancelling_frames = DisconnectNotifier(frames, canceller(self._hub, principal, run.run_id, cancels))
        paths = run_paths(run.thread_id, run.run_id, _reconnect_path(begins))
        headers = {**ids(run), **paths, **confirm(active=view.extended)}
        return stream_response(cancelling_frames, headers)

    async def _view(self, request: AnyRequest, run: Run) -> StreamParameters:
        principal, dialect = principal_of(request), dialect_of(request)
        created = await self._hub.reads.run_input(principal, run)
        request_extra: JsonObject = created.extra.get("langgraph") or {}
        kwargs: JsonObject = request_extra.get("kwargs") or {}
        modes: Any = words(request, "stream_mode") or None
        if modes is None:
            # A client that reconnects requests the path without its parameters, and expects the same frames.
            modes = kwargs.get("stream_mode")
            dialect = request_extra.get("dialect") or dialect
        return StreamParameters(
            thread_id=run.thread_id,
            owner=principal.owner,
            run_id=run.run_id,
            modes=parse_modes(modes, dialect),
            created_at=run.created_at,
            dialect=dialect,
            subgraphs=bool(kwargs.get("subgraphs")),
            extended=is_activated(request),
        )

    async def stream_thread(self, request: AnyRequest) -> Response[Any]:
        """Respond with a stream that follows a thread from run to run. Raises invalid for an unknown mode or a wrong
        `last-event-id`, and not_found for an unknown thread."""
        principal, thread_id = principal_of(request), path_id(request, "thread")
        # The parameter's documented name, and the one that langgraph-sdk 0.4.14 sends.
        modes = parse_thread_modes([*words(request, "stream_modes"), *words(request, "stream_mode")])
        after = _last_event_id(request)
        # langgraph-api 0.16.7: 422 on a thread's stream, and an empty stream of a run.
        if after is None and request.headers.get("last-event-id"):
            raise FaultError(FaultCode.INVALID, "Invalid last-event-id: must be <seq>-<n>, or -1")
        try:
            thread = await self._hub.reads.thread(principal, thread_id)
        except FaultError as error:
            raise thread_not_found(error, thread_id) from error
        view = StreamParameters(
            thread_id=thread_id,
            owner=principal.owner,
            run_id=None,
            modes=modes,
            created_at=thread.created_at,
            dialect=dialect_of(request),
        )
        path = f"/threads/{thread_id}"
        frames, begins = await RunFrameStream(self._hub, principal, view, self._lines).enter(after)
        location = f"{path}/{_reconnect_path(begins)}"
        headers = {"Babelgate-Thread": thread_id, "Location": location, "Content-Location": path}
        return stream_response(frames, headers)


def _cancels(request: AnyRequest) -> bool:
    """Return True if the run is to be cancelled when the client disconnects: the query parameter `cancel_on_disconnect`
    of langgraph-sdk 0.4.14, unless the caller may only read."""
    return flag(request, "cancel_on_disconnect") and not caller(request).reads_only


def _reconnect_path(begins: EventId) -> str:
    """Return a path `stream?last-event-id=…` that continues after the frame `begins`, for the header `Location`.

    langgraph-sdk 0.4.14 connects to `Location` without a Last-Event-ID if its connection breaks before the first event.
    Without the parameter it would get only future frames.
    """
    seq, n = begins
    return "stream?last-event-id=" + ("-1" if n < 0 else f"{seq}-{n}")


def _last_event_id(request: AnyRequest) -> EventId | None:
    """Return the frame id in the header `Last-Event-ID` or the query. Return None if it is missing or has another form,
    which means only future frames."""
    text = request.headers.get("last-event-id") or request.query_params.get("last-event-id")
    # Without the header, langgraph-api 0.16.7 sends only new frames, and none of a run that has ended.
    return None if not text else parse_event_id(text)
