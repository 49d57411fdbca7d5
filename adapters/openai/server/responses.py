"""Routes of stored responses. Every run on a stored thread, of any protocol, is shown as a response."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from litestar import Response

from babelgate.adapters.kit.integer import parse_integer
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.adapters.openai.codec.items import encode_inputs
from babelgate.adapters.openai.codec.messages import refuse
from babelgate.adapters.openai.codec.model import object_in
from babelgate.adapters.openai.server.create_response import HEARTBEAT
from babelgate.adapters.openai.server.follow import Reading
from babelgate.adapters.openai.server.lookup import FoundRun, find_response, no_response, read_inputs, response_run
from babelgate.adapters.openai.server.page import page_of
from babelgate.canonical import FaultCode, FaultError, Hub, RunStatus
from babelgate.canonical.value import JsonObject


class Responses(Handlers):
    """Handlers of the routes for stored responses."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_response(self, request: AnyRequest) -> Response[Any]:
        """Return the response in the path, or its stream after the event number `starting_after`. Raises not_found for
        an unknown response, and invalid for wrong query parameters."""
        who = caller(request)
        query = request.query_params
        streams = query.get("stream", "false").lower()
        if streams not in ("true", "false"):
            refuse("stream", "It must be true or false.")
        after = _number(query.get("starting_after"))
        found = await self._find(who, request)
        extended = is_activated(request)
        reading = self._read(who, found, extended=extended)
        headers = {**run_headers(found.task, found.run.run_id), **confirm(active=extended)}
        if streams == "true":
            headers = {"Cache-Control": "no-store", **headers}
            return event_stream(reading.frames(after), ping=HEARTBEAT, headers=headers)
        await reading.read()
        return reading.answer(headers)

    def _read(self, who: Caller, found: FoundRun, *, extended: bool = False) -> Reading:
        reading = Reading(self._hub, who.principal, found.task, found.run.run_id, extended=extended)
        reading.writer.metadata = found.run.metadata  # may have been changed after the run
        return reading

    async def _find(self, who: Caller, request: AnyRequest) -> FoundRun:
        response_id: str = request.path_params["response_id"]
        return await find_response(self._hub, who.principal, response_run(response_id), no_response(response_id))

    async def cancel_response(self, request: AnyRequest) -> Response[Any]:
        """Cancel the run of the response in the path, wait for its end, and return the response. Cancelling again has
        no effect.

        Raises not_found, and invalid for a response that is not in the background: its caller waits for it, and can
        disconnect instead.
        """
        who = caller(request)
        found = await self._find(who, request)
        run_input = await self._hub.reads.run_input(who.principal, found.run)
        is_awaited = object_in(dict(run_input.extra), "openai").get("background") is False
        if is_awaited and found.run.status is not RunStatus.PAUSED:
            refuse("response_id", "Only a response that was made in the background can be cancelled.")
        await self._stop(who, found)
        reading = self._read(who, found)
        await reading.read()
        return reading.answer(run_headers(found.task, found.run.run_id))

    async def _stop(self, who: Caller, found: FoundRun) -> None:
        """Cancel a run and wait for its end. Then cancel its task, too, if the task waits for an answer."""
        with _suppress_ended():
            if not found.run.has_ended:
                await self._hub.cancel_run(who.principal, found.run.run_id)
        await self._read(who, found).follow()
        task = await self._hub.reads.task(who.principal, found.task.task_id)
        with _suppress_ended():
            if task.is_waiting:
                await self._hub.cancel(who.principal, task.task_id)

    async def delete_response(self, request: AnyRequest) -> Response[Any]:
        """Delete the response in the path; an active run is cancelled first. Raises not_found, and conflict if another
        run of its task is active."""
        who = caller(request)
        found = await self._find(who, request)
        await self._stop(who, found)
        await self._hub.remove_run(who.principal, found.run.run_id)
        members: JsonObject = {"id": request.path_params["response_id"], "object": "response", "deleted": True}
        return json_response(members)

    async def list_input_items(self, request: AnyRequest) -> Response[Any]:
        """Return a page of the response's input items. Raises not_found for an unknown response, and invalid for wrong
        query parameters."""
        who = caller(request)
        found = await self._find(who, request)
        items = encode_inputs(await read_inputs(self._hub, who.principal, found.run))
        return json_response(page_of(items, request.query_params))


@contextmanager
def _suppress_ended() -> Generator[None]:
    """Ignore the fault task_ended in the block, raised if a run or task ended before it could be cancelled."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.TASK_ENDED:
            raise


def _number(text: str | None) -> int:
    if text is None:
        return -1
    if (number := parse_integer(text, 15)) is None:
        refuse("starting_after", "It must be the number of an event.")
    return number
