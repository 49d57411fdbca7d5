"""Agent discovery: which agents a LangGraph or Agent Protocol server has."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from babelgate.adapters._client.answers import LISTING_LIMIT
from babelgate.adapters.langchain.agents import decode_agents, decode_assistants, decode_schemas
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.resume import NOT_THERE
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.decode import status_of
from babelgate.canonical import AgentInfo, FaultCode, FaultError
from babelgate.canonical.value import JsonObject

PAGE: Final = 100
MOST: Final = 1000
"""Agents of one server that are listed."""
DESCRIBED: Final = 50
"""Of them, those whose schemas are asked for."""
AT_ONCE: Final = 8
"""Of these."""
SCHEMAS_LIMIT: Final = 512 * 1024
"""Bytes."""


async def discover(
    url: str,
    http: httpx.AsyncClient,
    headers: Mapping[str, str] | None = None,
    *,
    dialect: Dialect | None = None,
) -> list[AgentInfo]:
    """The agents of a server: the graphs of a LangGraph server, else those of the Agent Protocol.
    `description.upstream_name` tells what it calls them itself."""
    client = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    if dialect != "agent-protocol":
        try:
            return await _graphs(client)
        except FaultError as error:
            if dialect == "langgraph" or status_of(error.fault) not in NOT_THERE:
                raise
    return await _agents(client)


async def _graphs(http: HttpClient) -> list[AgentInfo]:
    # langgraph-api 0.16.7 makes an assistant of each graph, and marks it so.
    listed = await _pages(http, "/assistants/search", {"metadata": {"created_by": "system"}})
    listed = listed or await _pages(http, "/assistants/search", {})
    with _check_listing("assistants as LangGraph"):
        found = decode_assistants(listed)

    http, gate = http.within(SCHEMAS_LIMIT), asyncio.Semaphore(AT_ONCE)

    async def add_schemas(called: str, info: AgentInfo) -> AgentInfo:
        try:
            async with gate:
                schemas = decode_schemas(await http.get(f"/assistants/{called}/schemas"))
        except FaultError:  # a graph that cannot be drawn can be called all the same
            return info
        return info.replace(schemas=schemas)

    some = await asyncio.gather(*(add_schemas(called, info) for called, info in found[:DESCRIBED]))
    return [*some, *(info for _, info in found[DESCRIBED:])]


async def _agents(http: HttpClient) -> list[AgentInfo]:
    listed = await _pages(http, "/agents/search", {})
    with _check_listing("agents as the Agent Protocol"):
        return decode_agents(listed)


async def _pages(http: HttpClient, path: str, where: JsonObject) -> list[Any]:
    found: list[Any] = []
    while len(found) < MOST:
        page = await http.post(path, {**where, "limit": PAGE, "offset": len(found)})
        if not isinstance(page, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The server did not answer with a list")
        found += page
        if len(page) < PAGE:
            break
    return found


@contextmanager
def _check_listing(what: str) -> Generator[None]:
    try:
        yield
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The server does not list {what} does") from error
