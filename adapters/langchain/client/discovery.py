"""Agent discovery: finds the agents of a LangGraph or Agent Protocol server."""

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
"""Number of agents to request in one page of a listing. Chosen."""
MAX_AGENTS: Final = 1000
"""Number of agents of one server at which a listing stops requesting pages. Chosen."""
MAX_DESCRIBED: Final = 50
"""Maximum number of graphs per server whose schemas are fetched during a listing. Chosen."""
MAX_CONCURRENT: Final = 8
"""Maximum number of schemas that one listing fetches at the same time. Chosen."""
SCHEMAS_TIMEOUT: Final = 2.0
"""Seconds that a listing waits for schemas. Chosen: an agent can be called without them."""
SCHEMAS_LIMIT: Final = 512 * 1024
"""Maximum size of the response with one agent's schemas, in bytes. Chosen."""


async def discover(
    url: str,
    http: httpx.AsyncClient,
    headers: Mapping[str, str] | None = None,
    *,
    dialect: Dialect | None = None,
) -> list[AgentInfo]:
    """Return the agents of a server: its LangGraph graphs or, if it has no LangGraph API, its Agent Protocol agents.
    `dialect` restricts the search to one of the two APIs. Raises agent_invalid for a malformed list, else the fault of
    the request."""
    client = HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT)
    if dialect != "agent-protocol":
        try:
            return await _graphs(client)
        except FaultError as error:
            if dialect == "langgraph" or status_of(error.fault) not in NOT_THERE:
                raise
    return await _agents(client)


async def _graphs(http: HttpClient) -> list[AgentInfo]:
    # langgraph-api 0.16.7 creates an assistant for each graph, and marks it like this.
    listed = await _pages(http, "/assistants/search", {"metadata": {"created_by": "system"}})
    listed = listed or await _pages(http, "/assistants/search", {})
    with _check_listing("assistants as LangGraph"):
        agents = decode_assistants(listed)

    http, gate = http.within(SCHEMAS_LIMIT), asyncio.Semaphore(MAX_CONCURRENT)

    async def add_schemas(upstream_id: str, info: AgentInfo) -> AgentInfo:
        try:
            async with gate:
                schemas = decode_schemas(await http.get(f"/assistants/{upstream_id}/schemas"))
        except FaultError:  # a graph whose schemas cannot be fetched can be called all the same
            return info
        return info.replace(schemas=schemas)

    fetches = [asyncio.ensure_future(add_schemas(upstream_id, info)) for upstream_id, info in agents[:MAX_DESCRIBED]]
    try:
        if fetches:
            await asyncio.wait(fetches, timeout=SCHEMAS_TIMEOUT)
        described = [
            fetch.result() if fetch.done() else info for fetch, (_, info) in zip(fetches, agents, strict=False)
        ]
    finally:
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)
    return [*described, *(info for _, info in agents[MAX_DESCRIBED:])]


async def describe(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str], info: AgentInfo
) -> Mapping[str, JsonObject]:
    """Fetch the JSON Schemas of a graph; the keys are those of `decode_schemas`. Raises the fault of the server's error
    response, and invalid."""
    client = HttpClient(url, headers=headers, http=http, timeout=http.timeout).within(SCHEMAS_LIMIT)
    name = upstream_name(info)
    return decode_schemas(await client.get(f"/assistants/{name if is_uuid(name) else assistant_id(name)}/schemas"))


async def _agents(http: HttpClient) -> list[AgentInfo]:
    listed = await _pages(http, "/agents/search", {})
    with _check_listing("agents as the Agent Protocol"):
        return decode_agents(listed)


async def _pages(http: HttpClient, path: str, where: JsonObject) -> list[Any]:
    """Return the items of all pages of a search until a page is not full or `MAX_AGENTS` is reached. `where` is the
    body of the search. Raises agent_invalid if a page is not a list."""
    items: list[Any] = []
    while len(items) < MAX_AGENTS:
        page = await http.post(path, {**where, "limit": PAGE, "offset": len(items)})
        if not isinstance(page, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The server did not answer with a list")
        items += page
        if len(page) < PAGE:
            break
    return items


@contextmanager
def _check_listing(what: str) -> Generator[None]:
    """Convert a fault that is raised in the block into agent_invalid. `what` names the expected list in the message."""
    try:
        yield
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The server does not list {what} does") from error
