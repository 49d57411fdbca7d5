"""Adapter of the official MCP SDK, whose server offers the agents as tools. Only the modules `sdk…` import the SDK."""

import asyncio
import logging
from collections.abc import Coroutine, MutableMapping
from contextlib import closing
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from babelgate.adapters.kit.extension import params
from babelgate.adapters.kit.headers import read_line
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.tracing import note_hops
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from babelgate.adapters.mcp.server.calls import ToolCalls
from babelgate.adapters.mcp.server.prompts import Prompts
from babelgate.adapters.mcp.server.resources import Resources
from babelgate.adapters.mcp.server.sdk_catalog import add_prompts, add_resources, add_subscriptions
from babelgate.adapters.mcp.server.sdk_context import (
    SESSIONS,
    UNCACHED,
    Context,
    LogLevels,
    SdkPeer,
    caller_of,
    has_tasks,
    note_error,
    refuse,
    retry_of,
    run_method,
)
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import FaultError, Hub
from babelgate.canonical.value import JsonObject

logging.getLogger("mcp").setLevel(logging.ERROR)

_BODY: Final = 2**40
"""Limit on a body that is set in the SDK, in bytes. It has no effect, because the gateway enforces its own limit
first."""
_TOOL_ERROR: Final = "tool_error"
"""Value of the attribute `error.type` in traces for a tool that failed (semantic conventions, docs/gen-ai/mcp.md)."""
_INSTRUCTIONS: Final = (
    "Each tool is an agent. A result with the status `input_required` is a question of the agent's: answer it with "
    "the tool resume_run."
)


class Endpoint:
    """Server of the SDK, with its session managers, for one gateway."""

    def __init__(self, hub: Hub, calls: ToolCalls) -> None:
        self._hub = hub
        self._server = _server(hub, calls, in_session=False)
        self._session_server = _server(hub, calls, in_session=True)
        self._sessions: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None

    async def serve(
        self, scope: MutableMapping[str, Any], receive: Any, send: Any, *, in_session: bool, streams: bool
    ) -> None:
        """Serve one request by the SDK. `in_session`: the request belongs to a session that the SDK stores. `streams`:
        the caller accepts an event stream as the response."""
        who: Caller = scope["state"]["caller"]
        # The SDK binds a session to the client, issuer and subject that opened it.
        principal = who.principal
        claims = {"iss": principal.issuer}
        token = AccessToken(token="", client_id=who.owner, scopes=[], subject=principal.subject, claims=claims)
        scope["user"] = AuthenticatedUser(token)
        if in_session and _era(scope) == "handshake":
            await (await self._open_sessions()).handle_request(scope, receive, send)
            return
        manager = _manager(self._server, stateless=True, streams=streams)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _open_sessions(self) -> StreamableHTTPSessionManager:
        """Return the manager of stored sessions. Start it if it is not running."""
        async with self._opening:
            if self._sessions is None or self._running is None or self._running.done():
                self._sessions = _manager(self._session_server, stateless=False)
                started = asyncio.Event()
                self._running = asyncio.ensure_future(self._run(self._sessions, started))
                await started.wait()
            return self._sessions

    async def _run(self, manager: StreamableHTTPSessionManager, started: asyncio.Event) -> None:
        """Run a session manager until the gateway shuts down. Sets `started` when it is ready."""
        async with manager.run():
            started.set()
            await self._hub.stopping


def _manager(server: Server[Any], *, stateless: bool, streams: bool = True) -> StreamableHTTPSessionManager:
    """Return a session manager of the SDK. `stateless`: it stores no sessions. `streams`: it responds with event
    streams, otherwise with JSON."""
    return StreamableHTTPSessionManager(
        server,
        stateless=stateless,
        json_response=not streams,
        # The middleware has already checked Host and Origin.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=_BODY,
        max_sessions=SESSIONS,
    )


def _era(scope: MutableMapping[str, Any]) -> str:
    """Return whether the protocol version of a request is `stateless` (2026-07-28) or has a `handshake`."""
    requested = read_line(scope["headers"], "mcp-protocol-version")
    return "stateless" if requested in MODERN_PROTOCOL_VERSIONS else "handshake"


class _CatalogServer(Server[Any]):
    """Server of the SDK that does not promise notifications about changed lists. The SDK would promise them if the
    method `subscriptions/listen` exists. Here that method reports only changed resources."""

    def get_capabilities(self, *args: Any, **kwargs: Any) -> types.ServerCapabilities:
        capabilities = super().get_capabilities(*args, **kwargs)
        for each in (capabilities.tools, capabilities.prompts, capabilities.resources):
            if each is not None:
                each.list_changed = False
        return capabilities


def _server(hub: Hub, calls: ToolCalls, *, in_session: bool) -> Server[Any]:
    """Return the SDK's server with the handlers of all methods, which call `calls`. `in_session`: it serves sessions
    that the SDK stores, and so can send notifications between requests."""
    levels = LogLevels()

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")
        return {**UNCACHED, "tools": calls.list_tools(caller_of(ctx))}

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        note_hops((ctx.params or {}).get("_meta"))
        peer = SdkPeer(ctx, params.name, levels.is_info_sent(ctx))
        work = calls.call(caller_of(ctx), params.name, params.arguments or {}, peer, retry_of(ctx, params))
        result = await run_method(ctx, work)
        if result.get("isError"):
            note_error(ctx, _TOOL_ERROR)
        return {"resultType": "complete", **result}

    server: Server[Any] = _CatalogServer("babelgate", version=version("babelgate"), instructions=_INSTRUCTIONS)
    server.middleware.clear()  # the SDK's tracing trusts the context of any caller; the gateway has its own
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, levels.set)
    resources = Resources(hub, calls)
    add_resources(server, resources, levels)
    add_subscriptions(server, resources, in_session=in_session)
    add_prompts(server, Prompts(calls), resources, levels)
    server.extensions[EXTENSION] = {}
    server.extensions[RECORDS] = params(("tools", "uploads", "metadata", "fork", "state"))
    _add_tasks(server, calls)
    return server


class _TaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


def _add_tasks(server: Server[Any], calls: ToolCalls) -> None:
    """Register the methods of the tasks extension (SEP-2663). The SDK does not define them, and passes params and
    results through."""

    async def get_task(ctx: Context, params: _TaskParams) -> dict[str, Any]:
        return await _answer_task_call(ctx, params, calls.get_task(caller_of(ctx), params.task_id))

    async def update_task(ctx: Context, params: _UpdateParams) -> dict[str, Any]:
        return await _answer_task_call(
            ctx, params, calls.answer_task(caller_of(ctx), params.task_id, params.input_responses)
        )

    async def cancel_task(ctx: Context, params: _TaskParams) -> dict[str, Any]:
        return await _answer_task_call(ctx, params, calls.cancel_task(caller_of(ctx), params.task_id))

    server.add_request_handler("tasks/get", _TaskParams, get_task)
    server.add_request_handler("tasks/update", _UpdateParams, update_task)
    server.add_request_handler("tasks/cancel", _TaskParams, cancel_task)


async def _answer_task_call(ctx: Context, params: _TaskParams, work: Coroutine[Any, Any, dict[str, Any] | None]) -> Any:
    """Await the work of a `tasks/…` method and return its result. Raises MCPError if the request is not valid for this
    client, or for a fault."""
    with closing(work):  # if it was never started
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        if not has_tasks(ctx):
            data: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client does not declare tasks.", data)
        task_name = ctx.request.headers.get("mcp-name")  # pyright: ignore[reportOptionalMemberAccess]
        if task_name != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "The header Mcp-Name is not the id of the task.")
        try:
            return {"resultType": "complete", **(await work or {})}
        except FaultError as error:
            raise refuse(ctx, error.fault) from error
