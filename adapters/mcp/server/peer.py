"""Client of one exchange: what it declares, and the messages that it is sent during a call."""

from collections.abc import Callable
from typing import Any, Final

import mcp_types as types

from babelgate.adapters.kit.extension import Request, decode_request
from babelgate.adapters.mcp.codec.questions import CAPABILITIES, FORM, PAGE
from babelgate.adapters.mcp.codec.session_id import has_pages
from babelgate.adapters.mcp.errors import INVALID_PARAMS
from babelgate.adapters.mcp.server.exchange import (
    MethodError,
    RequestExchange,
    has_tasks,
    is_modern,
    request_meta,
    session_id_of,
)
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.adapters.mcp.write.result import ProgressText
from babelgate.canonical.json import as_object
from babelgate.canonical.value import JsonObject

SESSIONS: Final = 1000
"""Maximum number of open sessions that the SDK stores. Chosen. Only clients to which the gateway can send requests have
such a session."""
_LEVEL: Final = "info"
"""Level of all log messages that clients are sent."""
_LEVELS_WITH_INFO: Final = ("debug", _LEVEL)
"""Levels at which a client receives messages of the level `info` (SPEC/server/utilities/logging, Log Levels)."""
_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
"""Key in `_meta` for the level of one request (NEXT/server/utilities/logging)."""


class LogLevels:
    """Log levels that clients have set for their sessions. Only the newest `SESSIONS` levels are kept."""

    def __init__(self) -> None:
        self._by_session: dict[str, types.LoggingLevel] = {}

    async def set(self, exchange: RequestExchange, params: types.SetLevelRequestParams) -> JsonObject:
        """Store the log level that a client sets for its session (SPEC/server/utilities/logging, Setting Log Level).
        Raises MethodError for a request without a session."""
        session_id = session_id_of(exchange)
        if session_id is None:
            raise MethodError(
                INVALID_PARAMS, "The level is set for a session, and this request has none: send Mcp-Session-Id."
            )
        self._by_session.pop(session_id, None)
        self._by_session[session_id] = params.level
        if len(self._by_session) > SESSIONS:
            del self._by_session[next(iter(self._by_session))]
        return {}

    def is_info_sent(self, exchange: RequestExchange) -> bool:
        """Return True if the client receives log messages of the level `info`. Clients that never set a level receive
        none."""
        if is_modern(exchange):
            return request_meta(exchange).get(_LEVEL_KEY) in _LEVELS_WITH_INFO
        return self._by_session.get(session_id_of(exchange) or "") in _LEVELS_WITH_INFO


class ExchangePeer:
    """Implementation of `calls.Peer` by the exchange of the call."""

    def __init__(self, exchange: RequestExchange, name: str, logs: bool, *, is_tool: bool = True) -> None:
        self._exchange = exchange
        self._name = name
        self._is_tool = is_tool
        self._logs = logs
        self._steps = 0
        self._token: Any = request_meta(exchange).get("progressToken")

    @property
    def version(self) -> str:
        return self._exchange.version

    @property
    def can_be_asked(self) -> bool:
        return self._exchange.can_be_asked

    @property
    def can_repeat_call(self) -> bool:
        return is_modern(self._exchange)

    def can_answer(self, method: str) -> bool:
        capabilities = self._exchange.capabilities
        if capabilities is None:  # a stateless session, or none
            return method == PAGE and has_pages(session_id_of(self._exchange) or "")
        declared = getattr(capabilities, CAPABILITIES[method])
        if declared is None or method not in (FORM, PAGE):
            return declared is not None
        return declared.url is not None if method == PAGE else declared.form is not None or declared.url is None

    @property
    def is_polling(self) -> bool:
        return self._is_tool and is_modern(self._exchange) and has_tasks(self._exchange)

    @property
    def has_extension(self) -> bool:
        capabilities = self._exchange.capabilities
        return RECORDS in request_meta(self._exchange) or (
            capabilities is not None and RECORDS in (capabilities.extensions or {})
        )

    @property
    def extras(self) -> Request:
        meta = request_meta(self._exchange)
        if RECORDS in meta:
            return decode_request(meta[RECORDS])
        mark = as_object(meta.get("babelgate"))
        return decode_request({name: mark[name] for name in ("metadata", "tools") if name in mark} or None)

    async def progress(self, progress: ProgressText) -> None:
        await self._notify_progress(progress.text, {"activity": True} if progress.is_activity else None)
        if self._logs:
            entry: JsonObject = {"level": _LEVEL, "logger": self._name, "data": progress.text}
            await self._exchange.notify("notifications/message", entry)

    async def send_text(self, text: str) -> None:
        await self._notify_progress(text, {"text": True})

    async def _notify_progress(self, text: str, mark: JsonObject | None) -> None:
        """Send a progress notification if the client requested them. The mark distinguishes the answer, and names of
        tools and steps, from progress of the agent."""
        if self._token is None:
            return
        self._steps += 1
        params: JsonObject = {"progressToken": self._token, "progress": float(self._steps), "message": text}
        if mark is not None:
            params["_meta"] = {"babelgate": mark}
        await self._exchange.notify("notifications/progress", params)

    async def ask(self, method: str, params: JsonObject) -> JsonObject | None:
        return await self._exchange.ask(method, params)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self._exchange.on_disconnect(callback)
