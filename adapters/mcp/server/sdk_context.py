"""Context of one request in the MCP SDK: its caller, its errors, and the client behind it."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from babelgate.adapters.kit.extension import Request, decode_request
from babelgate.adapters.kit.server.caller import Caller
from babelgate.adapters.kit.server.tracing import note_failure
from babelgate.adapters.mcp.codec.questions import CAPABILITIES, FORM, PAGE
from babelgate.adapters.mcp.codec.session_id import SESSION, has_pages
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import INTERNAL, INVALID_PARAMS, RESOURCE_NOT_FOUND
from babelgate.adapters.mcp.server.calls import CHALLENGE, DISCONNECT, MissingCapability, PagesRequired, Retry
from babelgate.adapters.mcp.server.resources import ResourceNotFound
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.adapters.mcp.write.result import ProgressText
from babelgate.canonical import Fault, FaultError
from babelgate.canonical.fault import BLAME
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

Context = ServerRequestContext[Any, Any]

log = logging.getLogger("babelgate.mcp")

SESSIONS: Final = 1000
"""Maximum number of open sessions that the SDK stores. Chosen. Only clients to which the gateway can send requests have
such a session."""
UNCACHED: Final[Mapping[str, Any]] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""Members of lists and contents, which are not cacheable: they depend on the caller, and the settings of the gateway
may change (NEXT/server/utilities/caching)."""
_LEVEL: Final = "info"
"""Level of all log messages that clients are sent."""


class LogLevels:
    """Log levels that clients have set for their sessions. Only the newest `SESSIONS` levels are kept."""

    def __init__(self) -> None:
        self._by_session: dict[str, types.LoggingLevel] = {}

    async def set(self, ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Store the log level that a client sets for its session (SPEC/server/utilities/logging, Setting Log Level).
        Raises MCPError for a request without a session."""
        session_id = session_id_of(ctx)
        if session_id is None:
            raise MCPError(
                INVALID_PARAMS, "The level is set for a session, and this request has none: send Mcp-Session-Id."
            )
        self._by_session.pop(session_id, None)
        self._by_session[session_id] = params.level
        if len(self._by_session) > SESSIONS:
            del self._by_session[next(iter(self._by_session))]
        return types.EmptyResult()

    def is_info_sent(self, ctx: Context) -> bool:
        """Return True if the client receives log messages of the level `info`. Clients that never set a level receive
        none."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return _LEVEL in allowed_log_levels(ctx.protocol_version, (ctx.params or {}).get("_meta"))
        return self._by_session.get(session_id_of(ctx) or "") in ("debug", _LEVEL)


def session_id_of(ctx: Context) -> str | None:
    return ctx.request.headers.get(SESSION)  # pyright: ignore[reportOptionalMemberAccess]


def has_tasks(ctx: Context) -> bool:
    """Return True if the client declares the tasks extension."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and EXTENSION in (capabilities.extensions or {})


def retry_of(ctx: Context, params: types.InputResponseRequestParams) -> Retry | None:
    """Return the state and answers of a repeated request, or None for a first one."""
    if params.request_state is None or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return None
    # Raw responses: several of the SDK's models may match one.
    return Retry(params.request_state, (ctx.params or {}).get("inputResponses") or {})


async def run_method(ctx: Context, work: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """Await the result of a method. Raises MCPError for a fault, an unknown resource, and an unexpected exception."""
    try:
        return await work
    except FaultError as error:
        raise refuse(ctx, error.fault) from error
    except ResourceNotFound as error:
        raise MCPError(not_found_code(ctx), str(error), {"uri": error.uri}) from error
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


def not_found_code(ctx: Context) -> int:
    """Return the error code for an unknown resource (SPEC/server/resources and NEXT/server/resources, Error
    Handling)."""
    return INVALID_PARAMS if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else RESOURCE_NOT_FOUND


def refuse(ctx: Context, fault: Fault) -> MCPError:
    """Return the MCP error for the fault of a method, and record the fault in the request's trace. If the token needs
    more scopes, the transport replaces the response by a request for them."""
    note_error(ctx, str(fault.code))
    if fault.is_scope_missing:
        ctx.request.scope["state"][CHALLENGE](fault)  # pyright: ignore[reportOptionalMemberAccess]
    return MCPError(INTERNAL if BLAME[fault.code] != "caller" else INVALID_PARAMS, fault.message)


def note_error(ctx: Context, code: str) -> None:
    """Record the error code of a method in the request's trace."""
    note_failure(ctx.request.scope, code)  # pyright: ignore[reportOptionalMemberAccess]


def caller_of(ctx: Context) -> Caller:
    return ctx.request.scope["state"]["caller"]  # pyright: ignore[reportOptionalMemberAccess]


_REQUESTS: Final[Mapping[str, tuple[Any, type[BaseModel]]]] = {
    FORM: (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResultWithTools),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}
"""Types of a request to the client and of its result, by method."""


class SdkPeer:
    """Implementation of `calls.Peer` by the SDK's request context."""

    def __init__(self, ctx: Context, name: str, logs: bool, *, is_tool: bool = True) -> None:
        self._ctx = ctx
        self._name = name
        self._is_tool = is_tool
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
            return method == PAGE and has_pages(session_id_of(self._ctx) or "")
        declared = getattr(capabilities, CAPABILITIES[method])
        if declared is None or method not in (FORM, PAGE):
            return declared is not None
        return declared.url is not None if method == PAGE else declared.form is not None or declared.url is None

    @property
    def is_polling(self) -> bool:
        return self._is_tool and self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and has_tasks(self._ctx)

    @property
    def has_extension(self) -> bool:
        capabilities = self._ctx.session.client_capabilities
        meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        return RECORDS in meta or (capabilities is not None and RECORDS in (capabilities.extensions or {}))

    @property
    def extras(self) -> Request:
        meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        if RECORDS in meta:
            return decode_request(meta[RECORDS])
        mark = as_object(meta.get("babelgate"))
        return decode_request({name: mark[name] for name in ("metadata", "tools") if name in mark} or None)

    async def progress(self, progress: ProgressText) -> None:
        await self._notify_progress(progress.text, {"activity": True} if progress.is_activity else None)
        if self._logs:
            entry = types.LoggingMessageNotificationParams(level=_LEVEL, logger=self._name, data=progress.text)
            notification = types.LoggingMessageNotification(params=entry)
            await self._ctx.session.send_notification(notification, self._ctx.request_id)

    async def send_text(self, text: str) -> None:
        await self._notify_progress(text, {"text": True})

    async def _notify_progress(self, text: str, mark: JsonObject | None) -> None:
        """Send a progress notification if the client requested them. The mark distinguishes the answer, and names of
        tools and steps, from progress of the agent."""
        request_meta: JsonObject = (self._ctx.params or {}).get("_meta") or {}
        token: object = request_meta.get("progressToken")
        if token is None:
            return
        self._steps += 1
        params: JsonObject = {"progressToken": token, "progress": self._steps, "message": text}
        if mark is not None:
            params["_meta"] = {"babelgate": mark}
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
