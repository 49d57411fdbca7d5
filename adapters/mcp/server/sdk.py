"""Adapter of the official MCP SDK, whose server offers the agents as tools. No other module imports the SDK."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from contextlib import closing
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, ValidationError

from babelgate.adapters.kit.extension import Request, decode_request, params
from babelgate.adapters.kit.headers import read_line
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.tracing import note_failure
from babelgate.adapters.kit.tracing import note_hops
from babelgate.adapters.mcp.codec.questions import CAPABILITIES, FORM, PAGE
from babelgate.adapters.mcp.codec.session_id import SESSION, has_pages
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND
from babelgate.adapters.mcp.server.calls import (
    CHALLENGE,
    DISCONNECT,
    MissingCapability,
    PagesRequired,
    Retry,
    ToolCalls,
)
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import Fault, FaultError, Hub
from babelgate.canonical.value import JsonObject

Context = ServerRequestContext[Any, Any]

log = logging.getLogger("babelgate.mcp")
logging.getLogger("mcp").setLevel(logging.ERROR)

_SESSIONS: Final = 1000
"""Maximum number of open sessions. Chosen. Clients to which no requests can be sent need none."""
_BODY: Final = 2**40
"""Limit on a body that is set in the SDK, in bytes. It has no effect, because the gateway enforces its own limit
first."""
_LEVEL: Final = "info"
"""Level of all log messages that clients are sent."""
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
        self._server = _server(calls)
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
                self._sessions = _manager(self._server, stateless=False)
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
        max_sessions=_SESSIONS,
    )


def _era(scope: MutableMapping[str, Any]) -> str:
    """Return whether the protocol version of a request is `stateless` (2026-07-28) or has a `handshake`."""
    requested = read_line(scope["headers"], "mcp-protocol-version")
    return "stateless" if requested in MODERN_PROTOCOL_VERSIONS else "handshake"


class _LogLevels:
    """Log levels that clients have set for their sessions. Only the newest `_SESSIONS` levels are kept."""

    def __init__(self) -> None:
        self._by_session: dict[str, types.LoggingLevel] = {}

    async def set(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Store the log level that a client sets for its session (SPEC/server/utilities/logging, Setting Log Level).
        Raises MCPError for a request without a session."""
        session_id = _session_id(ctx)
        if session_id is None:
            raise MCPError(
                INVALID_PARAMS, "The level is set for a session, and this request has none: send Mcp-Session-Id."
            )
        self._by_session.pop(session_id, None)
        self._by_session[session_id] = params.level
        if len(self._by_session) > _SESSIONS:
            del self._by_session[next(iter(self._by_session))]
        return types.EmptyResult()

    def is_info_sent(self, ctx: Context) -> bool:
        """Return True if the client receives log messages of the level `info`. Clients that never set a level receive
        none."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return _LEVEL in allowed_log_levels(ctx.protocol_version, (ctx.params or {}).get("_meta"))
        return self._by_session.get(_session_id(ctx) or "") in ("debug", _LEVEL)


def _session_id(ctx: Context) -> str | None:
    return ctx.request.headers.get(SESSION)  # pyright: ignore[reportOptionalMemberAccess]


def _server(calls: ToolCalls) -> Server[Any]:
    """Return the SDK's server with the handlers of all methods, which call `calls`."""
    levels = _LogLevels()

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")
        # The list is not cacheable, because the settings of the gateway may change.
        caching = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {**caching, "tools": calls.list_tools(_caller(ctx))}

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        try:
            note_hops((ctx.params or {}).get("_meta"))
            retry = _retry(ctx, params)
            peer = _Peer(ctx, params.name, levels.is_info_sent(ctx))
            result = await calls.call(_caller(ctx), params.name, params.arguments or {}, peer, retry)
            if result.get("isError"):
                _note_failure(ctx, _TOOL_ERROR)
            return {"resultType": "complete", **result}
        except FaultError as error:
            raise _refuse(ctx, error.fault) from error
        except MissingCapability as error:
            data: JsonObject = {"requiredCapabilities": error.capabilities}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from error
        except PagesRequired as error:
            raise MCPError(types.URL_ELICITATION_REQUIRED, str(error), {"elicitations": error.pages}) from error
        except MCPError:
            raise
        except Exception as error:
            log.exception("request failed")
            raise MCPError(INTERNAL, "The gateway failed to answer this.") from error

    server: Server[Any] = Server("babelgate", version=version("babelgate"), instructions=_INSTRUCTIONS)
    server.middleware.clear()  # the SDK's tracing trusts the context of any caller; the gateway has its own
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, levels.set)
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
        return await _answer_task_call(ctx, params, calls.get_task(_caller(ctx), params.task_id))

    async def update_task(ctx: Context, params: _UpdateParams) -> dict[str, Any]:
        return await _answer_task_call(
            ctx, params, calls.answer_task(_caller(ctx), params.task_id, params.input_responses)
        )

    async def cancel_task(ctx: Context, params: _TaskParams) -> dict[str, Any]:
        return await _answer_task_call(ctx, params, calls.cancel_task(_caller(ctx), params.task_id))

    server.add_request_handler("tasks/get", _TaskParams, get_task)
    server.add_request_handler("tasks/update", _UpdateParams, update_task)
    server.add_request_handler("tasks/cancel", _TaskParams, cancel_task)


async def _answer_task_call(ctx: Context, params: _TaskParams, work: Coroutine[Any, Any, dict[str, Any] | None]) -> Any:
    """Await the work of a `tasks/…` method and return its result. Raises MCPError if the request is not valid for this
    client, or for a fault."""
    with closing(work):  # if it was never started
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        if not _has_tasks(ctx):
            data: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client does not declare tasks.", data)
        task_name = ctx.request.headers.get("mcp-name")  # pyright: ignore[reportOptionalMemberAccess]
        if task_name != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "The header Mcp-Name is not the id of the task.")
        try:
            return {"resultType": "complete", **(await work or {})}
        except FaultError as error:
            raise _refuse(ctx, error.fault) from error


def _has_tasks(ctx: Context) -> bool:
    """Return True if the client declares the tasks extension."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _retry(ctx: Context, params: types.CallToolRequestParams) -> Retry | None:
    """Return the state and answers of a repeated tool call, or None for a first call."""
    if params.request_state is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return None
    # Raw responses: several of the SDK's models may match one.
    return Retry(params.request_state, (ctx.params or {}).get("inputResponses") or {})


def _refuse(ctx: Context, fault: Fault) -> MCPError:
    """Return the error for the fault of a method, and note it in traces. If the token needs more scopes, the transport
    replaces the response."""
    _note_failure(ctx, str(fault.code))
    if fault.is_scope_missing:
        ctx.request.scope["state"][CHALLENGE](fault)  # pyright: ignore[reportOptionalMemberAccess]
    return MCPError(INVALID_PARAMS, fault.message)


def _note_failure(ctx: Context, code: str) -> None:
    """Note the error of a method in the request's trace."""
    note_failure(ctx.request.scope, code)  # pyright: ignore[reportOptionalMemberAccess]


def _caller(ctx: Context) -> Caller:
    return ctx.request.scope["state"]["caller"]  # pyright: ignore[reportOptionalMemberAccess]


_REQUESTS: Final[Mapping[str, tuple[Any, type[BaseModel]]]] = {
    FORM: (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResultWithTools),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
"""Types of a request to the client and of its result, by method."""


class _Peer:
    """Implementation of `calls.Peer` by the SDK's request context."""

    def __init__(self, ctx: Context, tool: str, logs: bool) -> None:
        self._ctx = ctx
        self._tool = tool
        self._logs = logs
        self._steps = 0

    @property
    def version(self) -> str:
        return self._ctx.protocol_version

    @property
    def can_be_asked(self) -> bool:
        return self._ctx.session.can_send_request

    @property
    def can_repeat_call(self) -> bool:
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def can_answer(self, method: str) -> bool:
        capabilities = self._ctx.session.client_capabilities
        if capabilities is None:  # a stateless session, or none
            return method == PAGE and has_pages(_session_id(self._ctx) or "")
        declared = getattr(capabilities, CAPABILITIES[method])
        if declared is None or method not in (FORM, PAGE):
            return declared is not None
        return declared.url is not None if method == PAGE else declared.form is not None or declared.url is None

    @property
    def is_polling(self) -> bool:
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and _has_tasks(self._ctx)

    @property
    def has_extension(self) -> bool:
        capabilities = self._ctx.session.client_capabilities
        meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        return RECORDS in meta or (capabilities is not None and RECORDS in (capabilities.extensions or {}))

    @property
    def extras(self) -> Request:
        meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        return decode_request(meta.get(RECORDS))

    async def progress(self, words: str) -> None:
        self._steps += 1
        await self._ctx.session.report_progress(self._steps, message=words)
        if self._logs:
            entry = types.LoggingMessageNotificationParams(level=_LEVEL, logger=self._tool, data=words)
            notification = types.LoggingMessageNotification(params=entry)
            await self._ctx.session.send_notification(notification, self._ctx.request_id)

    async def send_text(self, text: str) -> None:
        request_meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        token: object = request_meta.get("progressToken")
        if token is None:
            return
        self._steps += 1
        # The `_meta` distinguishes text from progress of the agent.
        meta = {"babelgate": {"text": True}}
        params = {"progressToken": token, "progress": self._steps, "message": text, "_meta": meta}
        notification = types.ProgressNotification.model_validate({"params": params})
        await self._ctx.session.send_notification(notification, self._ctx.request_id)

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        request, result = _REQUESTS[method]
        message = {"method": method, "params": params}
        related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            response = await self._ctx.session.send_request(request.model_validate(message), result, metadata=related)
        except (MCPError, ValidationError) as error:
            log.debug("client rejected a request that it declared to support error=%s", error)
            return None
        return response.model_dump(mode="json", by_alias=True, exclude_none=True)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self._ctx.request.scope["state"][DISCONNECT].add(callback)  # pyright: ignore[reportOptionalMemberAccess]
