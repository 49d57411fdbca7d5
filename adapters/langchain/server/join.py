"""Joining a run that somebody began: wait for its end, follow its stream; and follow a thread from run to run."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

from litestar import Response, get
from litestar.types import ControllerRouterHandler

from adapters._shared import Lines
from adapters._sse import frame
from adapters.langchain.modes import Dialect, View, parse_event_id, parse_modes, parse_thread_modes
from adapters.langchain.server.call import (
    Asked,
    answer,
    both,
    dialect_of,
    flag,
    found_run,
    ids,
    owner_of,
    path_id,
    run_paths,
    thread_missing,
    words,
)
from adapters.langchain.server.stream import EventId, Leaving, Reading, canceller, streamed
from adapters.langchain.server.wait import Waiting, error_body, kept_alive, result
from canonical import FaultCode, FaultError, Hub, Run
from canonical.value import JsonObject

__all__ = ("routes",)


def routes(hub: Hub, lines: Lines) -> Sequence[ControllerRouterHandler]:
    server = Joins(hub, lines)
    run = "/threads/{thread_id:str}/runs/{run_id:str}"
    alone = "/runs/{run_id:str}"
    return [
        get(both(f"{run}/join"))(server.join),
        get([*both(f"{run}/wait"), *both(f"{alone}/wait")])(server.wait),
        get([*both(f"{run}/stream"), *both(f"{alone}/stream")])(server.stream),
        get(both("/threads/{thread_id:str}/stream"))(server.stream_thread),
    ]


class Joins:
    def __init__(self, hub: Hub, lines: Lines) -> None:
        self._hub = hub
        self._lines = lines

    def __deepcopy__(self, _: object) -> "Joins":
        return self  # as in `runs`

    async def join(self, request: Asked) -> Response[Any]:
        """The final values. An unknown run is told in the body, as LangGraph Platform does."""
        try:
            run = await found_run(self._hub, request)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND or dialect_of(request) == "agent-protocol":
                raise
            return answer(error_body("HTTPException", "404: Run not found"))
        return self._joined(request, run, dialect_of(request), "join")

    async def wait(self, request: Asked) -> Response[Any]:
        """A path of the Agent Protocol, so answered in its form everywhere."""
        return self._joined(request, await found_run(self._hub, request), "agent-protocol", "wait")

    def _joined(self, request: Asked, run: Run, dialect: Dialect, below: str) -> Response[Any]:
        owner = owner_of(request)
        left = canceller(self._hub, owner, run.run_id, flag(request, "cancel_on_disconnect"))
        waited = partial(result, self._hub, run.thread_id, run.run_id, owner, dialect)
        pieces = kept_alive(partial(waited, after=run.first_seq - 1))
        return Waiting(Leaving(pieces, left), ids(run) | run_paths(run.thread_id, run.run_id, below))

    async def stream(self, request: Asked) -> Response[Any]:
        """Join a run's stream. What was asked for when the run was made is shown, unless the caller says otherwise."""
        owner = owner_of(request)
        cancels = flag(request, "cancel_on_disconnect")
        try:
            run = await found_run(self._hub, request)
        except FaultError as error:
            platform = dialect_of(request) == "langgraph" and "thread_id" in request.path_params
            if error.fault.code is not FaultCode.NOT_FOUND or not platform:
                raise
            return streamed(_not_found(), {})
        view = await self._view(request, run)
        reading, after = Reading(self._hub, view, self._lines, run.first_seq - 1), _last_event_id(request)
        frames = await (reading.from_now() if after is None else reading.after(after))
        leaving = Leaving(frames, canceller(self._hub, owner, run.run_id, cancels))
        return streamed(leaving, ids(run) | run_paths(run.thread_id, run.run_id, "stream"))

    async def _view(self, request: Asked, run: Run) -> View:
        owner, dialect = owner_of(request), dialect_of(request)
        created = await self._hub.created(owner, run)
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
            dialect=dialect,
            subgraphs=bool(kwargs.get("subgraphs")),
        )

    async def stream_thread(self, request: Asked) -> Response[Any]:
        owner, thread_id = owner_of(request), path_id(request, "thread")
        # The parameter's documented name, and the one that the SDK sends.
        modes = parse_thread_modes([*words(request, "stream_modes"), *words(request, "stream_mode")])
        after = _last_event_id(request)
        if after is None and request.headers.get("last-event-id"):
            raise FaultError(FaultCode.INVALID, "Invalid last-event-id: must be <seq>-<n>, or -1")
        try:
            await self._hub.thread(owner, thread_id)
        except FaultError as error:
            raise thread_missing(error, thread_id) from error
        view = View(thread_id=thread_id, owner=owner, run_id=None, modes=modes, dialect=dialect_of(request))
        path = f"/threads/{thread_id}"
        headers = {"Babelgate-Thread": thread_id, "Location": f"{path}/stream", "Content-Location": path}
        reading = Reading(self._hub, view, self._lines)
        return streamed(await (reading.from_now() if after is None else reading.after(after)), headers)


async def _not_found() -> AsyncGenerator[bytes]:
    yield frame(b'{"error":"HTTPException","message":"404: Run not found"}', event="error")


def _last_event_id(request: Asked) -> EventId | None:
    """None = from now on: without the header, and with one that is no id of ours."""
    text = request.headers.get("last-event-id")
    return None if not text else parse_event_id(text)
