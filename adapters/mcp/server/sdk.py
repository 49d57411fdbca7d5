"""The SDK's server, with the agents as its tools. The only importer of the SDK."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from contextlib import closing
from importlib.metadata import version
from typing import Any, Final
from uuid import uuid4

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
from babelgate.adapters.mcp.codec.questions import CAPABILITIES, FORM
from babelgate.adapters.mcp.codec.session_id import SESSION
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import INTERNAL, INVALID_PARAMS, METHOD_NOT_FOUND
from babelgate.adapters.mcp.server.calls import DEPARTURE, Calls, MissingCapability, Retry
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import FaultError, Hub
from babelgate.canonical.value import JsonObject

Context = ServerRequestContext[Any, Any]

log = logging.getLogger("babelgate.mcp")
logging.getLogger("mcp").setLevel(logging.ERROR)

_SESSIONS: Final = 1000
"""Open ones. Who cannot be asked needs none."""
_BODY: Final = 2**40
"""Bytes. The gateway has a limit of its own, and has read the body by then."""
_LEVEL: Final = "info"
"""Of all that is logged."""
_INSTRUCTIONS: Final = (
    "Each tool is an agent. A result with the status `input_required` is a question of the agent's: answer it with "
    "the tool resume_run."
)


class Endpoint:
    """Of one gateway."""

    def __init__(self, hub: Hub, calls: Calls) -> None:
        self._hub = hub
        self._server = _server(calls)
        self._sessions: StreamableHTTPSessionManager | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None

    async def serve(
        self, scope: MutableMapping[str, Any], receive: Any, send: Any, *, in_session: bool, streams: bool
    ) -> None:
        """`streams`: the caller takes a stream of events."""
        who: Caller = scope["state"]["caller"]
        # The SDK binds a session to whom it was opened by.
        token = AccessToken(token="", client_id=who.owner, scopes=[])
        scope["user"] = AuthenticatedUser(token)
        if in_session and _era(scope) == "handshake":
            await (await self._open_sessions()).handle_request(scope, receive, send)
            return
        manager = _manager(self._server, stateless=True, streams=streams)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _open_sessions(self) -> StreamableHTTPSessionManager:
        async with self._opening:
            if self._sessions is None or self._running is None or self._running.done():
                self._sessions = _manager(self._server, stateless=False)
                begun = asyncio.Event()
                self._running = asyncio.ensure_future(self._run(self._sessions, begun))
                await begun.wait()
            return self._sessions

    async def _run(self, manager: StreamableHTTPSessionManager, begun: asyncio.Event) -> None:
        """Sessions end with the gateway, which is when it stops to wait for a thread that will never be."""
        async with manager.run():
            begun.set()
            await self._hub.reads.await_thread("", str(uuid4()))


def _manager(server: Server[Any], *, stateless: bool, streams: bool = True) -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(
        server,
        stateless=stateless,
        json_response=not streams,
        # Host and Origin were looked at by the middleware.
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=_BODY,
        max_sessions=_SESSIONS,
    )


def _era(scope: MutableMapping[str, Any]) -> str:
    asked = read_line(scope["headers"], "mcp-protocol-version")
    return "stateless" if asked in MODERN_PROTOCOL_VERSIONS else "handshake"


class _LogLevels:
    """Of which levels callers are sent logs."""

    def __init__(self) -> None:
        self._of_sessions: dict[str, types.LoggingLevel] = {}

    async def set(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """SPEC/server/utilities/logging, Setting Log Level: of a session, until the process ends."""
        session_id = _session_id(ctx)
        if session_id is None:
            raise MCPError(INVALID_PARAMS, "The level is kept for a session, and this request has none.")
        self._of_sessions.pop(session_id, None)
        self._of_sessions[session_id] = params.level
        if len(self._of_sessions) > _SESSIONS:
            del self._of_sessions[next(iter(self._of_sessions))]
        return types.EmptyResult()

    def is_info_sent(self, ctx: Context) -> bool:
        """Whether those of the level `info` are sent. Who never named a level gets none."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return _LEVEL in allowed_log_levels(ctx.protocol_version, (ctx.params or {}).get("_meta"))
        return self._of_sessions.get(_session_id(ctx) or "") in ("debug", _LEVEL)


def _session_id(ctx: Context) -> str | None:
    return ctx.request.headers.get(SESSION)  # pyright: ignore[reportOptionalMemberAccess]


def _server(calls: Calls) -> Server[Any]:
    levels = _LogLevels()

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        if params.cursor is not None:
            raise MCPError(INVALID_PARAMS, "cursor: The list has one page; leave cursor out.")
        # What it says may be another thing after the gateway was told other settings.
        fresh = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return {**fresh, "tools": calls.list_tools(_caller(ctx))}

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        try:
            retry = _retry(ctx, params)
            peer = _Peer(ctx, params.name, levels.is_info_sent(ctx))
            result = await calls.call(_caller(ctx), params.name, params.arguments or {}, peer, retry)
            return {"resultType": "complete", **result}
        except FaultError as error:
            raise MCPError(INVALID_PARAMS, error.fault.message) from error
        except MissingCapability as error:
            data: JsonObject = {"requiredCapabilities": error.capabilities}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, str(error), data) from error
        except MCPError:
            raise
        except Exception as error:
            log.exception("a call failed")
            raise MCPError(INTERNAL, "The gateway failed to answer this.") from error

    server: Server[Any] = Server("babelgate", version=version("babelgate"), instructions=_INSTRUCTIONS)
    server.middleware.clear()  # of spans that nobody looks at
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


def _add_tasks(server: Server[Any], calls: Calls) -> None:
    """SEP-2663. The SDK knows neither the methods nor the results, and hands both on."""

    async def get_task(ctx: Context, params: _TaskParams) -> dict[str, Any]:
        return await _of_task(ctx, params, calls.get_task(_caller(ctx), params.task_id))

    async def update_task(ctx: Context, params: _UpdateParams) -> dict[str, Any]:
        return await _of_task(ctx, params, calls.answer_task(_caller(ctx), params.task_id, params.input_responses))

    async def cancel_task(ctx: Context, params: _TaskParams) -> dict[str, Any]:
        return await _of_task(ctx, params, calls.cancel_task(_caller(ctx), params.task_id))

    server.add_request_handler("tasks/get", _TaskParams, get_task)
    server.add_request_handler("tasks/update", _UpdateParams, update_task)
    server.add_request_handler("tasks/cancel", _TaskParams, cancel_task)


async def _of_task(ctx: Context, params: _TaskParams, work: Coroutine[Any, Any, dict[str, Any] | None]) -> Any:
    with closing(work):  # where it is not begun
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        if not _has_tasks(ctx):
            data: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client does not declare tasks.", data)
        named = ctx.request.headers.get("mcp-name")  # pyright: ignore[reportOptionalMemberAccess]
        if named != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "The header Mcp-Name is not the id of the task.")
        try:
            return {"resultType": "complete", **(await work or {})}
        except FaultError as error:
            raise MCPError(INVALID_PARAMS, error.fault.message) from error


def _has_tasks(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def _retry(ctx: Context, params: types.CallToolRequestParams) -> Retry | None:
    if params.request_state is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return None
    # As they were sent: of the SDK's models of responses more than one may fit.
    return Retry(params.request_state, (ctx.params or {}).get("inputResponses") or {})


def _caller(ctx: Context) -> Caller:
    return ctx.request.scope["state"]["caller"]  # pyright: ignore[reportOptionalMemberAccess]


_REQUESTS: Final[Mapping[str, tuple[Any, type[BaseModel]]]] = {
    FORM: (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResultWithTools),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
"""Of each method that a client is asked by, the request and its result."""


class _Peer:
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
    def can_call_again(self) -> bool:
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    def can_answer(self, method: str) -> bool:
        capabilities = self._ctx.session.client_capabilities
        told = None if capabilities is None else getattr(capabilities, CAPABILITIES[method])
        return told is not None and (method != FORM or told.form is not None or told.url is None)

    @property
    def is_polling(self) -> bool:
        return self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and _has_tasks(self._ctx)

    @property
    def has_extension(self) -> bool:
        capabilities = self._ctx.session.client_capabilities
        asked: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        return RECORDS in asked or (capabilities is not None and RECORDS in (capabilities.extensions or {}))

    @property
    def extras(self) -> Request:
        asked: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        return decode_request(asked.get(RECORDS))

    async def progress(self, words: str) -> None:
        self._steps += 1
        await self._ctx.session.report_progress(self._steps, message=words)
        if self._logs:
            told = types.LoggingMessageNotificationParams(level=_LEVEL, logger=self._tool, data=words)
            logged = types.LoggingMessageNotification(params=told)
            await self._ctx.session.send_notification(logged, self._ctx.request_id)

    async def say(self, text: str) -> None:
        asked: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        token: object = asked.get("progressToken")
        if token is None:
            return
        self._steps += 1
        # By its `_meta` a program tells text from what the agent is at work on.
        meta = {"babelgate": {"text": True}}
        params = {"progressToken": token, "progress": self._steps, "message": text, "_meta": meta}
        told = types.ProgressNotification.model_validate({"params": params})
        await self._ctx.session.send_notification(told, self._ctx.request_id)

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        request, result = _REQUESTS[method]
        asked = {"method": method, "params": params}
        related = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        try:
            given = await self._ctx.session.send_request(request.model_validate(asked), result, metadata=related)
        except (MCPError, ValidationError) as error:
            log.debug("a client that says it can be asked cannot: %s", error)
            return None
        return given.model_dump(mode="json", by_alias=True, exclude_none=True)

    def on_leave(self, left: Callable[[], None]) -> None:
        self._ctx.request.scope["state"][DEPARTURE].add(left)  # pyright: ignore[reportOptionalMemberAccess]
