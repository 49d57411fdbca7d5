"""Event streaming of a thread over one connection: Server-Sent Events, or a WebSocket that also accepts commands.

The stream of a thread that does not exist yet is silent until the first `run.start` creates the thread (CDDL 0.0.13,
section 4). A stream continues from run to run. It ends when the reader disconnects, when the thread is erased, and when
the gateway stops.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final
from uuid import uuid4

from litestar import Response, WebSocket, post, websocket
from litestar.exceptions import WebSocketDisconnect
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.adapters.kit.json import ABSENT, most_values, parse, read_json
from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.encoding import as_bytes, encode
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.sse import LargeFrame, frame_of, pieces_of
from babelgate.adapters.kit.server.websocket import FAILED, GOING_AWAY, POLICY, Disconnected, detect_disconnect, release
from babelgate.adapters.langchain.codec.stream_modes import StreamParameters
from babelgate.adapters.langchain.codec.subscription import Subscription, get_member, parse_subscription
from babelgate.adapters.langchain.server.answers import answer
from babelgate.adapters.langchain.server.create_run import bad_request
from babelgate.adapters.langchain.server.dialect import both, dialect_of
from babelgate.adapters.langchain.server.event_commands import Commands, Refused, error_reply
from babelgate.adapters.langchain.server.lookup import read_history
from babelgate.adapters.langchain.server.parameters import Connection, path_id, principal_of
from babelgate.adapters.langchain.server.stream import stream_response
from babelgate.adapters.langchain.write.thread_events import EVENTS_PER_RECORD, ThreadEvent, ThreadEvents
from babelgate.canonical import FaultCode, FaultError, Hub, Principal, Record, Scope, StateHistory
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

log = logging.getLogger("babelgate.langchain")

_MAX_SUBSCRIPTIONS: Final = 100
"""Maximum number of subscriptions per connection. Chosen: every event is compared with each of them."""


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = EventHandlers(hub)
    thread = "/threads/{thread_id:str}"
    streams = [*both(f"{thread}/stream/events"), *both(f"{thread}/stream")]
    return [
        post(streams, status_code=200)(server.stream),
        post(both(f"{thread}/commands"), status_code=200)(server.command),
        websocket(streams)(server.talk),
    ]


class EventHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def stream(self, request: AnyRequest) -> Response[Any]:
        """Respond with the thread's events as Server-Sent Events. The body of the request is the subscription. Raises
        invalid for a malformed subscription."""
        view, body = _view(request), await read_json(request)
        try:
            # langgraph-api 0.16.7 responds with 400 here, and with 422 elsewhere.
            subscription = parse_subscription(as_object(None if body is ABSENT else body))
        except FaultError as error:
            raise error if view.dialect == "agent-protocol" else bad_request(error.fault.message) from error
        return stream_response(
            self._frames(principal_of(request), view, subscription), {"Babelgate-Thread": view.thread_id}
        )

    async def _frames(
        self, principal: Principal, view: StreamParameters, subscription: Subscription
    ) -> AsyncGenerator[bytes]:
        if not await self._hub.reads.await_thread(principal, view.thread_id):
            return
        history, time_slice = await _history_before(self._hub, principal, view, subscription.since), TimeSlice()
        events = ThreadEvents(view, subscription.is_subscribed, history)
        async with aclosing(_batches(self._hub, principal, view, history.seq)) as batches:
            async for batch in batches:
                ready: list[bytes | LargeFrame] = []
                for record in batch:
                    ready += [frame_of(e.data, id=str(e.seq), event=e.method) for e in events.encode(record)]
                    if time_slice.is_used_up:
                        async with aclosing(pieces_of(ready)) as pieces:
                            async for piece in pieces:
                                yield piece
                        ready.clear()
                        await time_slice.pause()
                async with aclosing(pieces_of(ready)) as pieces:
                    async for piece in pieces:
                        yield piece

    async def command(self, request: AnyRequest) -> Response[Any]:
        """Execute the command in the body, and return its response. Raises invalid for a body that is not JSON, and
        too_large."""
        body = await read_json(request)
        commands = Commands(self._hub, request, path_id(request, "thread"))
        try:
            return answer(await commands.answer(None if body is ABSENT else body, _WEBSOCKET_COMMANDS))
        except Refused as error:
            status = 422 if commands.camel else 400
            return answer(error_reply(as_object(body).get("id"), error.code, str(error)), status=status)

    async def talk(self, socket: WebSocket[Any, Any, Any]) -> None:
        """Accept a WebSocket, and serve it until either side closes it. A path without a valid thread id closes it at
        once."""
        with release(socket):
            await self._talk(socket)

    async def _talk(self, socket: WebSocket[Any, Any, Any]) -> None:
        try:
            view = _view(socket)
        except FaultError as error:
            await socket.close(POLICY, error.fault.message)
            return
        await socket.accept()
        try:
            await _Conversation(self._hub, socket, view).run()
        except Exception:  # no caller of this method logs it
            log.exception("a WebSocket failed")
            with suppress(Disconnected), detect_disconnect():
                await socket.close(FAILED, "The gateway failed.")


async def _refuse_over_http(_: JsonObject) -> tuple[JsonObject, int]:
    """Refuse a command for subscriptions that was sent as an HTTP request. Raises Refused."""
    raise Refused("not_supported", "Over HTTP a stream is its own subscription: POST to /threads/{thread_id}/stream.")


_WEBSOCKET_COMMANDS: Final = {
    f"subscription.{name}": _refuse_over_http for name in ("subscribe", "unsubscribe", "reconnect")
}
"""Handlers that refuse, over HTTP, the commands that exist only on a WebSocket."""


def _view(connection: Connection) -> StreamParameters:
    return StreamParameters(
        thread_id=path_id(connection, "thread"),
        owner=principal_of(connection).owner,
        run_id=None,
        modes=(),
        dialect=dialect_of(connection),
        subgraphs=True,
    )


async def _history_before(hub: Hub, principal: Principal, view: StreamParameters, since: int | None) -> StateHistory:
    """Return the thread's history at a point where no run was active: the end of the last run before the event `since`.
    None for `since` means the end of the run before the newest one.

    A writer can derive all later events from there. The history is empty for a thread with no such run, and for a
    thread that is too large to be held in memory.
    """
    empty = StateHistory(view.thread_id, view.owner)
    try:
        newest = await hub.reads.last_begun(principal, view.thread_id)
        if newest is None:
            return empty
        before = newest.last_seq if since is None else min(since // EVENTS_PER_RECORD, newest.last_seq)
        run = await hub.reads.last_begun(principal, view.thread_id, ended_before=before)
        return empty if run is None else await read_history(hub, principal, view.thread_id, run.last_seq)
    except FaultError as error:
        if error.fault.code not in (FaultCode.NOT_FOUND, FaultCode.TOO_LARGE):
            raise
        return empty


async def _batches(
    hub: Hub, principal: Principal, view: StreamParameters, after: int
) -> AsyncGenerator[Sequence[Record]]:
    """Yield batches of the thread's records after the seq `after`, as they are committed. End if the thread was
    erased."""
    async with aclosing(hub.reads.follow(principal, Scope(view.thread_id), after, inline=True)) as batches:
        try:
            async for batch in batches:
                yield batch
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:  # the thread was erased before the first read
                raise


async def _text_of(event: ThreadEvent) -> str:
    """Return an event as the text of one WebSocket message. Large events are joined, because a message is sent in one
    piece."""
    return (await as_bytes(event.data)).decode()


def _is_subscribed(
    subscriptions: Mapping[str, Subscription], seq: int, channel: str, ns: Sequence[str], name: str
) -> bool:
    """Return True if any of a connection's subscriptions includes an event. `name` is the name of a custom event."""
    return any(subscription.is_subscribed(seq, channel, ns, name) for subscription in subscriptions.values())


class _Conversation:
    """One WebSocket connection: receives commands, and sends their responses and the thread's events.

    An event is sent once, even if several subscriptions include it. A new subscription first receives the earlier
    events.
    """

    def __init__(self, hub: Hub, socket: WebSocket[Any, Any, Any], view: StreamParameters) -> None:
        self._hub = hub
        self._socket = socket
        self._principal = principal_of(socket)
        self._view = view
        self._commands = Commands(hub, socket, view.thread_id)
        self._subscriptions: dict[str, Subscription] = {}
        self._events = ThreadEvents(view, partial(_is_subscribed, self._subscriptions))
        self._sent_seq = 0
        """Seq of the newest record whose events were sent. A new subscription replays events up to this record."""
        self._send_lock = asyncio.Lock()
        """Lock for writing to the socket, so that a replay is not mixed with the events of a new record."""

    async def run(self) -> None:
        # No subscription exists yet, so the events before the newest run are read only by subscriptions that request
        # them.
        """Serve the WebSocket until either side closes it."""
        history = await _history_before(self._hub, self._principal, self._view, None)
        self._events = ThreadEvents(self._view, partial(_is_subscribed, self._subscriptions), history)
        self._sent_seq = history.seq
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send_events())
            with suppress(Disconnected, WebSocketDisconnect):
                while True:
                    await self._answer((await self._socket.receive_data(mode="text")).encode())
            sending.cancel()

    async def _send_events(self) -> None:
        """Send the events of the thread as they are committed. Close the WebSocket when the thread is erased or the
        gateway stops."""
        with suppress(Disconnected):
            if await self._hub.reads.await_thread(self._principal, self._view.thread_id):
                async with aclosing(_batches(self._hub, self._principal, self._view, self._sent_seq)) as batches:
                    async for batch in batches:
                        async with self._send_lock:
                            for record in batch:
                                for event in self._events.encode(record):
                                    await self._send(await _text_of(event))
                                self._sent_seq = record.seq
            with detect_disconnect():
                await self._socket.close(GOING_AWAY, "The thread was deleted, or the gateway stops.")

    async def _send(self, text: str) -> None:
        with detect_disconnect():
            await self._socket.send_data(text)

    async def _answer(self, raw: bytes) -> None:
        """Execute a command that was received as text, send its response, and then replay earlier events for a new
        subscription."""
        command: Any = None
        replays: list[Subscription] = []

        async def subscribe(params: JsonObject) -> tuple[JsonObject, int]:
            return await self._subscribe(params, replays)

        async def reconnect(params: JsonObject) -> tuple[JsonObject, int]:
            return await self._reconnect(params, replays)

        async with self._send_lock:
            try:
                command = await parse(raw, most_values(self._socket))
                others = {
                    "subscription.subscribe": subscribe,
                    "subscription.unsubscribe": self._unsubscribe,
                    "subscription.reconnect": reconnect,
                }
                response = await self._commands.answer(command, others)
            except FaultError:
                response = error_reply(None, "invalid_argument", "Protocol commands must be valid JSON.")
            except Refused as error:
                response = error_reply(as_object(command).get("id"), error.code, str(error))
            except Exception:  # over HTTP it would be a 500; here the connection stays open
                log.exception("a command over a WebSocket failed")
                response = error_reply(
                    as_object(command).get("id"), "unknown_error", "The gateway failed to answer this."
                )
            await self._send((await as_bytes(encode(response))).decode())
            for subscription in replays:
                async with aclosing(self._replay_events(subscription)) as texts:
                    async for text in texts:
                        await self._send(text)

    # Subscriptions

    async def _subscribe(self, params: JsonObject, replays: list[Subscription]) -> tuple[JsonObject, int]:
        """Add a subscription, and append it to `replays` so that its earlier events are sent after the response. Return
        the result and 0. Raises Refused, invalid."""
        subscription = parse_subscription(params)
        requested_id: Any = get_member(params, "subscription_id")
        subscription_id = requested_id if isinstance(requested_id, str) and requested_id else str(uuid4())
        if subscription_id not in self._subscriptions and len(self._subscriptions) == _MAX_SUBSCRIPTIONS:
            raise Refused("invalid_argument", f"A connection has at most {_MAX_SUBSCRIPTIONS} subscriptions.")
        # The response contains the number of replayed events, and precedes them.
        async with aclosing(self._replay_events(subscription)) as texts:
            count = len([None async for _ in texts])
        replays.append(subscription)
        self._subscriptions[subscription_id] = subscription
        return {"subscription_id": subscription_id, "replayed_events": count}, 0

    async def _reconnect(self, params: JsonObject, replays: list[Subscription]) -> tuple[JsonObject, int]:
        """Add a subscription for events after `since`, as LangGraph Platform does, and return the result and 0. The
        CDDL would restore subscriptions by id, but the gateway forgets them when a connection ends. Raises Refused,
        invalid."""
        if not isinstance(params.get("since"), int):
            raise Refused("invalid_argument", "subscription.reconnect requires since, the last seq that was received.")
        result, seq = await self._subscribe(params, replays)
        return {**result, "restored": True, "missed_events": result["replayed_events"]}, seq

    async def _unsubscribe(self, params: JsonObject) -> tuple[JsonObject, int]:
        subscription_id: Any = get_member(params, "subscription_id")
        if not isinstance(subscription_id, str):
            raise Refused("invalid_argument", "subscription.unsubscribe requires a subscription_id.")
        if self._subscriptions.pop(subscription_id, None) is None:
            raise Refused("no_such_subscription", f"Unknown subscription: {subscription_id[:100]}")
        return {}, 0

    async def _replay_events(self, subscription: Subscription) -> AsyncGenerator[str]:
        """Yield the earlier events that a subscription includes, as texts of WebSocket messages."""
        if not self._sent_seq:
            return
        history, time_slice = (
            await _history_before(self._hub, self._principal, self._view, subscription.since),
            TimeSlice(),
        )
        events = ThreadEvents(self._view, subscription.is_subscribed, history)
        log = self._hub.reads.log(self._principal, Scope(self._view.thread_id), history.seq, inline=True)
        try:
            async with aclosing(log) as batches:
                async for batch in batches:
                    for record in batch:
                        if record.seq > self._sent_seq:
                            return
                        for event in events.encode(record):
                            yield await _text_of(event)
                        if time_slice.is_used_up:
                            await time_slice.pause()
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
