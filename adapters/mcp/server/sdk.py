"""Sessions that the official MCP SDK stores: those of clients with a version before 2026-07-28 that the gateway can
ask. Only this module imports the SDK."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing
from typing import Any, Final

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, ValidationError

from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.mcp.codec.questions import FORM
from babelgate.adapters.mcp.errors import INVALID_PARAMS
from babelgate.adapters.mcp.server.calls import CHALLENGE, DISCONNECT, ToolCalls
from babelgate.adapters.mcp.server.catalog import SUBSCRIPTIONS, open_changes
from babelgate.adapters.mcp.server.exchange import Method, MethodError, log
from babelgate.adapters.mcp.server.methods import EXTENSIONS, INSTRUCTIONS, NAME, VERSION, capabilities, methods
from babelgate.adapters.mcp.server.peer import SESSIONS
from babelgate.adapters.mcp.server.resources import Resources
from babelgate.canonical import Fault, Hub
from babelgate.canonical.value import JsonObject

logging.getLogger("mcp").setLevel(logging.ERROR)

Context = ServerRequestContext[Any, Any]

_BODY: Final = 2**40
"""Limit on a body that is set in the SDK, in bytes. It has no effect, because the gateway enforces its own limit
first."""
_BUILT_IN: Final = frozenset({"initialize", "ping", "server/discover", "subscriptions/listen"})
"""Methods that the SDK implements itself, or that sessions do not have."""


class Endpoint:
    """Server of the SDK, with its session manager, for one gateway."""

    def __init__(self, hub: Hub, calls: ToolCalls) -> None:
        self._hub = hub
        self._server = _server(hub, calls)
        self._sessions: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None

    async def serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve one request of a session, or one that opens a session, by the SDK."""
        who: Caller = scope["state"]["caller"]
        # The SDK binds a session to the client, issuer and subject that opened it.
        principal = who.principal
        claims = {"iss": principal.issuer}
        token = AccessToken(token="", client_id=who.owner, scopes=[], subject=principal.subject, claims=claims)
        scope["user"] = AuthenticatedUser(token)
        await (await self._open_sessions()).handle_request(scope, receive, send)

    async def _open_sessions(self) -> StreamableHTTPSessionManager:
        """Return the manager of stored sessions. Start it if it is not running."""
        async with self._opening:
            if self._sessions is None or self._running is None or self._running.done():
                self._sessions = StreamableHTTPSessionManager(
                    self._server,
                    # The middleware has already checked Host and Origin.
                    security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
                    max_request_body_size=_BODY,
                    max_sessions=SESSIONS,
                )
                started = asyncio.Event()
                self._running = asyncio.ensure_future(self._run(self._sessions, started))
                await started.wait()
            return self._sessions

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        """Run a session manager until the gateway shuts down. Sets `started` when it is ready."""
        async with manager.run():
            started.set()
            await self._hub.stopping


class _SessionServer(Server[Any]):
    """Server of the SDK with the gateway's capabilities."""

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        return capabilities(can_subscribe=True)


def _server(hub: Hub, calls: ToolCalls) -> Server[Any]:
    """Return the SDK's server with the handlers of all methods of sessions."""
    server: Server[Any] = _SessionServer(NAME, version=VERSION, instructions=INSTRUCTIONS)
    server.middleware.clear()  # the SDK's tracing trusts the context of any caller; the gateway has its own
    server.extensions.update(EXTENSIONS)
    resources = Resources(hub, calls)
    for name, method in {**methods(calls, resources), **_subscription_methods(resources)}.items():
        if name not in _BUILT_IN:
            server.add_request_handler(name, method.params, _handler(method))
    return server


def _handler(method: Method) -> Any:
    """Return the implementation of a method as a handler of the SDK."""

    async def handle(context: Context, params: Any) -> JsonObject:
        try:
            return await method.handler(SessionExchange(context), params)
        except MethodError as error:
            raise MCPError(error.code, str(error), error.data) from error

    return handle


_REQUESTS: Final[Mapping[str, tuple[Any, type[BaseModel]]]] = {
    FORM: (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResultWithTools),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
"""Types of a request to the client and of its result, by method."""
_NOTIFICATIONS: Final[Mapping[str, Any]] = {
    "notifications/message": types.LoggingMessageNotification,
    "notifications/progress": types.ProgressNotification,
    "notifications/resources/updated": types.ResourceUpdatedNotification,
}
"""Types of the notifications to the client, by method."""


class SessionExchange:
    """Implementation of `RequestExchange` for a request in a stored session, by the SDK's request context."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def scope(self) -> Mapping[str, Any]:
        return self._context.request.scope  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def version(self) -> str:
        return self._context.protocol_version

    @property
    def request_id(self) -> str | int:
        return self._context.request_id if self._context.request_id is not None else ""

    @property
    def params(self) -> JsonObject:
        return dict(self._context.params or {})

    @property
    def capabilities(self) -> types.ClientCapabilities | None:
        return self._context.session.client_capabilities

    @property
    def can_be_asked(self) -> bool:
        return self._context.session.can_send_request

    def header(self, name: str) -> str | None:
        return self._context.request.headers.get(name)  # pyright: ignore[reportOptionalMemberAccess]

    async def notify(self, method: str, params: JsonObject) -> None:
        notification = _NOTIFICATIONS[method].model_validate({"params": params})
        await self._context.session.send_notification(notification, self._context.request_id)

    async def notify_session(self, method: str, params: JsonObject) -> None:
        """Send a notification on the stream of the session, which continues after the response."""
        await self._context.session.send_notification(_NOTIFICATIONS[method].model_validate({"params": params}))

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        request, result = _REQUESTS[method]
        message = {"method": method, "params": params}
        related = ServerMessageMetadata(related_request_id=self._context.request_id)
        session = self._context.session
        try:
            response = await session.send_request(request.model_validate(message), result, metadata=related)
        except (MCPError, ValidationError) as error:
            log.debug("client rejected a request that it declared to support error=%s", error)
            return None
        return response.model_dump(mode="json", by_alias=True, exclude_none=True)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self.scope["state"][DISCONNECT].add(callback)

    def challenge(self, fault: Fault) -> None:
        self.scope["state"][CHALLENGE](fault)

    def subscriptions(self) -> dict[str, asyncio.Future[None]]:
        """Return the tasks that follow resources for the session, by URI. They end with the session."""
        # The SDK has no public accessor for the connection's state and exit stack, which both end with the session.
        connection = self._context.session._connection  # pyright: ignore[reportPrivateUsage]
        followed: dict[str, asyncio.Future[None]] | None = connection.state.get("followed")
        if followed is None:
            followed = connection.state["followed"] = {}

            def stop(tasks: dict[str, asyncio.Future[None]] = followed) -> None:
                _cancel_all(list(tasks.values()))

            connection.exit_stack.callback(stop)
        return followed


def _subscription_methods(resources: Resources) -> Mapping[str, Method]:
    """Return the methods that follow resources in a session (SPEC/server/resources, Subscriptions)."""

    async def subscribe(exchange: SessionExchange, params: types.SubscribeRequestParams) -> JsonObject:
        followed = exchange.subscriptions()
        if params.uri in followed:
            return {}
        if len(followed) >= SUBSCRIPTIONS:
            raise MethodError(INVALID_PARAMS, f"A session can follow at most {SUBSCRIPTIONS} resources.")
        changes = await open_changes(resources, exchange, params.uri)
        followed[params.uri] = asyncio.ensure_future(_notify(exchange, params.uri, changes))
        return {}

    async def unsubscribe(exchange: SessionExchange, params: types.UnsubscribeRequestParams) -> JsonObject:
        task = exchange.subscriptions().pop(params.uri, None)
        if task is not None:
            task.cancel()
        return {}

    return {
        "resources/subscribe": Method(types.SubscribeRequestParams, subscribe),
        "resources/unsubscribe": Method(types.UnsubscribeRequestParams, unsubscribe),
    }


async def _notify(exchange: SessionExchange, uri: str, changes: AsyncGenerator[None]) -> None:
    """Send a notification for each change of a resource."""
    async with aclosing(changes):
        async for _ in changes:
            await exchange.notify_session("notifications/resources/updated", {"uri": uri})


def _cancel_all(tasks: Sequence[asyncio.Future[None]]) -> None:
    for each in tasks:
        each.cancel()
