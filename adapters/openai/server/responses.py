"""Responses that are kept: runs, whichever protocol began them. A run of a call that keeps no thread is not kept."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from litestar import Request, Response

from babelgate.adapters.kit.server.caller import Caller, caller, run_headers
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.extended import confirm, is_asked
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

AnyRequest = Request[Any, Any, Any]


class Responses(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_response(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found, invalid."""
        who = caller(request)
        query = request.query_params
        streams = query.get("stream", "false").lower()
        if streams not in ("true", "false"):
            refuse("stream", "It must be true or false.")
        after = _number(query.get("starting_after"))
        found = await self._find(who, request)
        extended = is_asked(request)
        reading = self._read(who, found, extended=extended)
        headers = {**run_headers(found.task, found.run.run_id), **confirm(active=extended)}
        if streams == "true":
            headers = {"Cache-Control": "no-store", **headers}
            return event_stream(reading.frames(after), ping=HEARTBEAT, headers=headers)
        await reading.read()
        return reading.answer(headers)

    def _read(self, who: Caller, found: FoundRun, *, extended: bool = False) -> Reading:
        reading = Reading(self._hub, who.owner, found.task, found.run.run_id, extended=extended)
        reading.writer.metadata = found.run.metadata  # they may have been changed since
        return reading

    async def _find(self, who: Caller, request: AnyRequest) -> FoundRun:
        named: str = request.path_params["response_id"]
        return await find_response(self._hub, who.owner, response_run(named), no_response(named))

    async def cancel_response(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found; invalid for one whose caller waits for it, and can hang up. Again is the same."""
        who = caller(request)
        found = await self._find(who, request)
        given = await self._hub.reads.run_input(who.owner, found.run)
        waits = object_in(dict(given.extra), "openai").get("background") is False
        if waits and found.run.status is not RunStatus.PAUSED:
            refuse("response_id", "Only a response that was made in the background can be cancelled.")
        await self._stop(who, found)
        reading = self._read(who, found)
        await reading.read()
        return reading.answer(run_headers(found.task, found.run.run_id))

    async def _stop(self, who: Caller, found: FoundRun) -> None:
        """Returns when the run has ended, and with it its task if that waits for an answer."""
        with _suppress_ended():
            if not found.run.has_ended:
                await self._hub.cancel_run(who.owner, found.run.run_id)
        await self._read(who, found).follow()
        task = await self._hub.reads.task(who.owner, found.task.task_id)
        with _suppress_ended():
            if task.is_waiting:
                await self._hub.cancel(who.owner, task.task_id)

    async def delete_response(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found, conflict (another run of its task is at work)."""
        who = caller(request)
        found = await self._find(who, request)
        await self._stop(who, found)
        await self._hub.remove_run(who.owner, found.run.run_id)
        told: JsonObject = {"id": request.path_params["response_id"], "object": "response", "deleted": True}
        return json_response(told)

    async def list_input_items(self, request: AnyRequest) -> Response[Any]:
        """Raises not_found, invalid."""
        who = caller(request)
        found = await self._find(who, request)
        items = encode_inputs(await read_inputs(self._hub, who.owner, found.run))
        return json_response(page_of(items, request.query_params))


@contextmanager
def _suppress_ended() -> Generator[None]:
    """What was to be cancelled may have ended meanwhile."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.TASK_ENDED:
            raise


def _number(text: str | None) -> int:
    if text is None:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        refuse("starting_after", "It must be the number of an event.")
    return int(text)
