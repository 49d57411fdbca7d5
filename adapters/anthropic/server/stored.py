"""Routes that read and cancel runs by the ids of their messages. They are additions of the gateway: the API has only
POST /v1/messages."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from litestar import Response

from babelgate.adapters.anthropic.codec.blocks import refuse
from babelgate.adapters.anthropic.server.answers import message_headers
from babelgate.adapters.anthropic.server.create_message import HEARTBEAT
from babelgate.adapters.anthropic.server.follow import MessageReading
from babelgate.adapters.anthropic.server.lookup import FoundMessage, find_run
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import Caller, caller
from babelgate.adapters.kit.server.extended import answer_file
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import event_stream
from babelgate.canonical import FaultCode, FaultError, Hub


class StoredMessages(Handlers):
    """Handlers of the routes for the messages of runs, of any protocol."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def get_message(self, request: AnyRequest) -> Response[Any]:
        """Return the message in the path as it is now, or with `stream=true` its stream from the first event on. Raises
        not_found for an unknown message, and invalid for a wrong query parameter."""
        who, found = await self._find(request)
        streams = request.query_params.get("stream", "false").lower()
        if streams not in ("true", "false"):
            refuse("stream", "It must be true or false.")
        reading = MessageReading(self._hub, who, found.task, found.run.run_id)
        headers = message_headers(found.task, found.run.run_id)
        if streams == "true":
            headers = {"Cache-Control": "no-store", **headers}
            return event_stream(reading.frames(restates=True), ping=HEARTBEAT, headers=headers)
        await reading.read()
        return await reading.present(headers)

    async def cancel_message(self, request: AnyRequest) -> Response[Any]:
        """Cancel the run of the message in the path, or its task if that waits for an answer. Return the message as it
        is now, without waiting for the end of the run. Cancelling again has no effect. Raises not_found."""
        who, found = await self._find(request)
        with _suppress_ended():
            if found.task.is_waiting:
                await self._hub.cancel(who.principal, found.task.task_id)
            else:
                await self._hub.cancel_run(who.principal, found.run.run_id)
        reading = MessageReading(self._hub, who, found.task, found.run.run_id)
        await reading.read()
        return reading.snapshot(message_headers(found.task, found.run.run_id))

    async def get_file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a file that a message links to, by its hash. Raises not_found."""
        return await answer_file(self._hub, request, request.path_params["blob"])

    async def _find(self, request: AnyRequest) -> tuple[Caller, FoundMessage]:
        who = caller(request)
        return who, await find_run(self._hub, who.principal, request.path_params["message_id"])


@contextmanager
def _suppress_ended() -> Generator[None]:
    """Ignore the fault task_ended in the block, raised if a run or task ended before it could be cancelled."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.TASK_ENDED:
            raise
