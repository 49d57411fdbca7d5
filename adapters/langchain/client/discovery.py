"""Agent discovery: which agents a LangGraph or Agent Protocol server has."""

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from babelgate.adapters.kit.client.answers import LISTING_LIMIT
from babelgate.adapters.langchain.agents import decode_agents, decode_assistants, decode_schemas, upstream_name
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.resume import NOT_THERE
from babelgate.adapters.langchain.codec.state import assistant_id
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.errors.decode import status_of
from babelgate.canonical import AgentInfo, FaultCode, FaultError
from babelgate.canonical.value import JsonObject, is_uuid

PAGE: Final = 100
MOST: Final = 1000
"""Agents of one server that are listed."""
DESCRIBED: Final = 50
"""Of them, those whose schemas are asked for."""
AT_ONCE: Final = 8
"""Of these."""
PATIENCE: Final = 2.0
"""Seconds that a listing waits for schemas. Chosen: an agent can be called without them."""
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

    looks = [asyncio.ensure_future(add_schemas(called, info)) for called, info in found[:DESCRIBED]]
    try:
        if looks:
            await asyncio.wait(looks, timeout=PATIENCE)
        some = [look.result() if look.done() else info for look, (_, info) in zip(looks, found, strict=False)]
    finally:
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
    return [*some, *(info for _, info in found[DESCRIBED:])]


async def describe(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str], info: AgentInfo
) -> Mapping[str, JsonObject]:
    """Fetch the schemas of a graph. Raises what the server answers instead."""
    client = HttpClient(url, headers=headers, http=http, timeout=http.timeout).within(SCHEMAS_LIMIT)
    called = upstream_name(info)
    return decode_schemas(
        await client.get(f"/assistants/{called if is_uuid(called) else assistant_id(called)}/schemas")
    )


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
