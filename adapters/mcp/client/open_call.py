"""Calls of a tool whose responses separate asyncio tasks read.

- In versions up to 2025-11-25, the server may ask its client a question during a call. While the question waits for its
  answer, the call stays open, and no run reads it.
- In 2026-07-28, the caller may cancel a call after the server has created a task, and before the client has read the id
  of the task.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.adapters.mcp.client.server_client import ServerClient, Session
from babelgate.adapters.mcp.errors import METHOD_NOT_FOUND
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject

_WAITING: Final = 256
"""Maximum number of unread messages of one call. Chosen. While there are that many, the client reads nothing from the
server."""
_LIMIT: Final = 1000
"""Maximum number of calls that wait for answers. Chosen. A further call ends the oldest one."""
_LONGEST: Final = 3600.0
"""Maximum time for which a call waits for an answer, in seconds. Chosen: one hour."""
_CLOSING: Final = 3.0
"""Maximum time of the requests that end a call, in seconds. Chosen."""
_GRACE: Final = 0.3
"""Seconds for which the client still waits for the response of a cancelled call of 2026-07-28. Chosen."""


class _ReadCall:
    """One call of a tool. An asyncio task reads the response and queues its messages."""

    def __init__(self, server: ServerClient, session: Session | None, params: JsonObject) -> None:
        self._server = server
        self._request_id = server.next_id()
        self._messages: asyncio.Queue[JsonObject | Exception] = asyncio.Queue(_WAITING)
        messages = server.messages("tools/call", params, session, self._request_id)
        self._reading = asyncio.ensure_future(self._read(messages))
        self._has_ended = False

    async def _read(self, messages: AsyncGenerator[JsonObject]) -> None:
        try:
            async with aclosing(messages):
                async for message in messages:
                    await self._messages.put(message)
            error = FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's stream ended before its result")
            await self._messages.put(error)
        except Exception as error:  # such as AuthorizationNeeded; else the run waits without a limit
            await self._messages.put(error)


class StatelessCall(_ReadCall):
    """One call of a tool in 2026-07-28. The end of its connection cancels it (NEXT/basic/utilities/cancellation)."""

    def __init__(self, server: ServerClient, params: JsonObject) -> None:
        super().__init__(server, None, params)

    async def next(self) -> JsonObject:
        """Return the next message of the server: a notification or the response. Raises the exception that ended
        the stream."""
        message = await self._messages.get()
        if isinstance(message, Exception):
            self._has_ended = True
            raise message
        self._has_ended = "method" not in message
        return message

    async def close(self) -> JsonObject | None:
        """Cancel the call, and return None. If the server responds within `_GRACE`, return its response: it may have
        created a task already, which is not cancelled with the connection."""
        try:
            async with asyncio.timeout(_GRACE):
                while not self._has_ended:
                    message = await self.next()
                    if self._has_ended:
                        return message
        except (FaultError, AuthorizationNeeded, TimeoutError):
            pass
        finally:
            self.drop()
        return None

    def drop(self) -> None:
        """Close the connection at once."""
        self._reading.cancel()


class OpenCall(_ReadCall):
    """One call of a tool in a version up to 2025-11-25, in a separate session. The asyncio task continues to read it
    between two runs."""

    def __init__(self, server: ServerClient, session: Session, params: JsonObject) -> None:
        super().__init__(server, session, params)
        self.session = session
        self._question_id: object = None

    async def next(self) -> JsonObject:
        """Return the next message of the server: a notification, a question, or the response. Other requests of the
        server are answered. Raises the exception that ended the stream."""
        while True:
            message = await self._messages.get()
            if isinstance(message, Exception):
                self._has_ended = True
                raise message
            method = message.get("method")
            if method == "ping" and "id" in message:
                await self._server.respond(message["id"], {"result": {}}, self.session)
            elif method is not None and "id" in message and method != "elicitation/create":
                error = {"code": METHOD_NOT_FOUND, "message": "Method not found"}
                await self._server.respond(message["id"], {"error": error}, self.session)
            else:
                if method == "elicitation/create":
                    self._question_id = message["id"]
                self._has_ended = method is None
                return message

    async def answer(self, result: JsonObject) -> None:
        """Send the result of the open question. Raises agent_invalid if there is none."""
        question_id, self._question_id = self._question_id, None
        if question_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server waits for no answer")
        await self._server.respond(question_id, {"result": result}, self.session)

    async def cancel(self) -> None:
        """Cancel the call on its server (SPEC/basic/utilities/cancellation)."""
        await self._server.notify("notifications/cancelled", {"requestId": self._request_id}, self.session)

    async def aclose(self) -> None:
        """Cancel the call unless it has ended, stop reading, and end its session. Errors are ignored."""
        try:
            async with asyncio.timeout(_CLOSING):
                if not self._has_ended:
                    await self.cancel()
                await self._server.close_session(self.session)
        except (FaultError, AuthorizationNeeded, TimeoutError):
            pass
        finally:
            self._reading.cancel()


class ParkedCalls:
    """Calls that wait for answers, by the id of the gateway's task."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[OpenCall, asyncio.TimerHandle]] = {}
        self._closing: set[asyncio.Future[None]] = set()

    def park(self, task_id: str, call: OpenCall) -> None:
        """Keep a call until `take` removes it, for at most `_LONGEST` seconds. After that, end it."""
        timer = asyncio.get_running_loop().call_later(_LONGEST, self._drop, task_id)
        self._calls[task_id] = call, timer
        if len(self._calls) > _LIMIT:
            self._drop(next(iter(self._calls)))

    def take(self, task_id: str) -> OpenCall | None:
        """Remove the call of a task and return it, or None if it waits no longer."""
        call, timer = self._calls.pop(task_id, (None, None))
        if timer is not None:
            timer.cancel()
        return call

    def _drop(self, task_id: str) -> None:
        call = self.take(task_id)
        if call is not None:
            closing = asyncio.ensure_future(call.aclose())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """End all calls."""
        for task_id in list(self._calls):
            self._drop(task_id)
        if self._closing:
            await asyncio.wait(self._closing)
