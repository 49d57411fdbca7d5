"""Methods of the MCP server for all versions: the handshake, tools, tasks, and those of the catalog."""

from collections.abc import Coroutine, Mapping
from contextlib import closing
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from babelgate.adapters.kit.extension import params as extension_params
from babelgate.adapters.kit.tracing import note_hops
from babelgate.adapters.mcp.codec.tasks import EXTENSION
from babelgate.adapters.mcp.errors import METHOD_NOT_FOUND
from babelgate.adapters.mcp.server.calls import ToolCalls
from babelgate.adapters.mcp.server.catalog import check_single_page, prompt_methods, resource_methods
from babelgate.adapters.mcp.server.exchange import (
    UNCACHED,
    Method,
    MethodError,
    RequestExchange,
    caller_of,
    has_tasks,
    is_modern,
    note_error,
    refuse,
    request_meta,
    retry_of,
    run_method,
)
from babelgate.adapters.mcp.server.peer import ExchangePeer, LogLevels
from babelgate.adapters.mcp.server.prompts import Prompts
from babelgate.adapters.mcp.server.resources import Resources
from babelgate.adapters.mcp.wire import RECORDS
from babelgate.canonical import FaultError
from babelgate.canonical.value import JsonObject

NAME: Final = "babelgate"
VERSION: Final = version("babelgate")
SERVER_INFO: Final[JsonObject] = {"name": NAME, "version": VERSION}
"""Identity of the server (`Implementation` of the schema)."""
EXTENSIONS: Final[JsonObject] = {
    EXTENSION: {},
    RECORDS: extension_params(("tools", "uploads", "metadata", "fork", "state")),
}
"""Extensions that the server declares, with their settings."""
INSTRUCTIONS: Final = (
    "Each tool is an agent. A result with the status `input_required` is a question of the agent's: answer it with "
    "the tool resume_run."
)
_TOOL_ERROR: Final = "tool_error"
"""Value of the attribute `error.type` in traces for a tool that failed (semantic conventions, docs/gen-ai/mcp.md)."""


def methods(calls: ToolCalls, resources: Resources) -> Mapping[str, Method]:
    """Return the methods by name. Which of them a version has is defined by the schema of that version."""
    levels = LogLevels()
    return {
        "initialize": Method(types.InitializeRequestParams, _initialize),
        "server/discover": Method(types.RequestParams, _discover),
        "ping": Method(types.RequestParams, _ping),
        "logging/setLevel": Method(types.SetLevelRequestParams, levels.set),
        **_tool_methods(calls, levels),
        **resource_methods(resources, levels),
        **prompt_methods(Prompts(calls), resources, levels),
        **_task_methods(calls),
    }


def capabilities(*, can_subscribe: bool) -> types.ServerCapabilities:
    """Return the capabilities of the server. `can_subscribe`: the client can follow resources, by a stored session or
    by `subscriptions/listen`. There are no notifications about changed lists."""
    return types.ServerCapabilities(
        prompts=types.PromptsCapability(list_changed=False),
        resources=types.ResourcesCapability(subscribe=can_subscribe, list_changed=False),
        tools=types.ToolsCapability(list_changed=False),
        logging=types.LoggingCapability(),
        completions=types.CompletionsCapability(),
        extensions=EXTENSIONS,
    )


async def _initialize(exchange: RequestExchange, params: types.InitializeRequestParams) -> JsonObject:
    """Return the result of a handshake whose session is not stored (SPEC/basic/lifecycle, Initialization)."""
    requested = params.protocol_version
    return {
        "protocolVersion": requested if requested in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        "capabilities": _encode(capabilities(can_subscribe=False)),
        "serverInfo": SERVER_INFO,
        "instructions": INSTRUCTIONS,
    }


async def _discover(exchange: RequestExchange, params: types.RequestParams) -> JsonObject:
    """Return the versions without a handshake, and the capabilities (NEXT/server/discover)."""
    return {
        **UNCACHED,
        "supportedVersions": list(MODERN_PROTOCOL_VERSIONS),
        "capabilities": _encode(capabilities(can_subscribe=True)),
        "instructions": INSTRUCTIONS,
    }


async def _ping(exchange: RequestExchange, params: types.RequestParams) -> JsonObject:
    return {}


def _encode(declared: types.ServerCapabilities) -> JsonObject:
    return declared.model_dump(by_alias=True, mode="json", exclude_none=True)


def _tool_methods(calls: ToolCalls, levels: LogLevels) -> Mapping[str, Method]:
    """Return the methods that list and call tools (SPEC/server/tools)."""

    async def list_tools(exchange: RequestExchange, params: types.PaginatedRequestParams) -> JsonObject:
        check_single_page(params)
        return {**UNCACHED, "tools": calls.list_tools(caller_of(exchange))}

    async def call_tool(exchange: RequestExchange, params: types.CallToolRequestParams) -> JsonObject:
        note_hops(request_meta(exchange))
        peer = ExchangePeer(exchange, params.name, levels.is_info_sent(exchange))
        retry = retry_of(exchange, params)
        work = calls.call(caller_of(exchange), params.name, params.arguments or {}, peer, retry)
        result = await run_method(exchange, work)
        if result.get("isError"):
            note_error(exchange, _TOOL_ERROR)
        return {"resultType": "complete", **result}

    return {
        "tools/list": Method(types.PaginatedRequestParams, list_tools),
        "tools/call": Method(types.CallToolRequestParams, call_tool),
    }


class _TaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


def _task_methods(calls: ToolCalls) -> Mapping[str, Method]:
    """Return the methods of the tasks extension (SEP-2663). The schemas do not define them, so their parameters are
    validated here only, and their results are sent unchanged."""

    async def get_task(exchange: RequestExchange, params: _TaskParams) -> JsonObject:
        return await _answer_task_call(exchange, params, calls.get_task(caller_of(exchange), params.task_id))

    async def update_task(exchange: RequestExchange, params: _UpdateParams) -> JsonObject:
        work = calls.answer_task(caller_of(exchange), params.task_id, params.input_responses)
        return await _answer_task_call(exchange, params, work)

    async def cancel_task(exchange: RequestExchange, params: _TaskParams) -> JsonObject:
        return await _answer_task_call(exchange, params, calls.cancel_task(caller_of(exchange), params.task_id))

    return {
        "tasks/get": Method(_TaskParams, get_task),
        "tasks/update": Method(_UpdateParams, update_task),
        "tasks/cancel": Method(_TaskParams, cancel_task),
    }


async def _answer_task_call(
    exchange: RequestExchange, params: _TaskParams, work: Coroutine[Any, Any, JsonObject | None]
) -> JsonObject:
    """Await the work of a `tasks/…` method and return its result. Raises MethodError if the request is not valid for
    this client, or for a fault."""
    with closing(work):  # if it was never started
        if not is_modern(exchange):
            raise MethodError(METHOD_NOT_FOUND, "Method not found")
        if not has_tasks(exchange):
            data: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise MethodError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "The client does not declare tasks.", data)
        if exchange.header("mcp-name") != params.task_id:
            raise MethodError(types.HEADER_MISMATCH, "The header Mcp-Name is not the id of the task.")
        try:
            return {"resultType": "complete", **(await work or {})}
        except FaultError as error:
            raise refuse(exchange, error.fault) from error
