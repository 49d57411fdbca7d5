"""Routes for agents of the Agent Protocol, and for graphs and assistants of LangGraph. Each agent is shown as a graph,
with its own assistant and those that callers have configured."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.extended import answer_file, confirm, is_activated
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.langchain.codec.agent_protocol import encode_agent, encode_schemas
from babelgate.adapters.langchain.codec.state import assistant_id, format_time
from babelgate.adapters.langchain.server.answers import answer, empty_answer, pagination, select_members
from babelgate.adapters.langchain.server.create_run import bad_request
from babelgate.adapters.langchain.server.dialect import both
from babelgate.adapters.langchain.server.parameters import (
    check_selection,
    flag,
    principal_of,
    read_body,
    read_optional_body,
    uuid,
)
from babelgate.adapters.langchain.wire import assistants as w
from babelgate.adapters.langchain.wire.requests import MAX_PAGE
from babelgate.canonical import (
    AgentInfo,
    Assistant,
    AssistantChange,
    AssistantQuery,
    FaultCode,
    FaultError,
    Hub,
    Listed,
    Principal,
    ThreadFilter,
)
from babelgate.canonical.assistant import AssistantOrder
from babelgate.canonical.json import as_object, has_members
from babelgate.canonical.value import JsonObject, is_uuid

_SCHEMAS: Final = ("input_schema", "output_schema", "state_schema", "config_schema")
_ORDERS: Final[Mapping[str, AssistantOrder]] = {
    "assistant_id": "assistant_id",
    "graph_id": "agent",
    "name": "name",
    "created_at": "created_at",
    "updated_at": "updated_at",
}
_FLAGS: Final = {"true": True, "True": True, "false": False, "False": False}
"""Values of the query parameter `xray` that are booleans. Any other value is a depth."""
_FIELDS: Final = frozenset(
    {
        "assistant_id",
        "graph_id",
        "config",
        "context",
        "created_at",
        "updated_at",
        "metadata",
        "version",
        "name",
        "description",
    }
)


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = AssistantHandlers(hub)
    one = "/assistants/{assistant_id:str}"
    return [
        post(both("/agents/search"), status_code=200)(server.search_agents),
        get(both("/agents/{agent_id:str}"))(server.get_agent),
        get(both("/agents/{agent_id:str}/schemas"))(server.agent_schemas),
        get(both("/agents/{agent_id:str}/files/{blob:str}"))(server.file),
        post("/assistants/search", status_code=200)(server.search),
        post("/assistants/count", status_code=200)(server.count),
        get(one)(server.get),
        get(f"{one}/graph")(server.graph),
        get(f"{one}/schemas")(server.schemas),
        get([f"{one}/subgraphs", f"{one}/subgraphs/{{namespace:str}}"])(server.subgraphs),
        post(f"{one}/versions", status_code=200)(server.versions),
        post("/assistants", status_code=200)(server.create),
        patch(one)(server.change),
        delete(one, status_code=200)(server.delete),
        post(f"{one}/latest", status_code=200)(server.use_version),
    ]


class AssistantHandlers(Handlers):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    # The Agent Protocol's

    async def search_agents(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.AgentSearch)
        agents = [
            agent
            for agent in map(encode_agent, self._visible_agents(request))
            if _is_name_match(agent["name"], body.name) and has_members(agent.get("metadata", {}), body.metadata or {})
        ]
        return _page(agents, body)

    async def get_agent(self, request: AnyRequest) -> Response[Any]:
        return answer(encode_agent(self._agent(request)), headers=confirm(active=is_activated(request)))

    async def file(self, request: AnyRequest) -> Response[Any]:
        """Return the bytes of a file by its hash, for clients of the Babelgate extension: records name files by hash.
        Raises not_found."""
        self._agent(request)
        return await answer_file(self._hub, request, request.path_params["blob"])

    async def agent_schemas(self, request: AnyRequest) -> Response[Any]:
        return answer(encode_schemas(self._agent(request)))

    def _agent(self, request: AnyRequest) -> AgentInfo:
        """Return the agent that the path of an Agent Protocol request names. Raises not_found."""
        text = request.path_params["agent_id"]
        agent = self._find(request, text)
        if agent is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {text[:100]} not found")
        return agent

    # LangGraph's

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Create an assistant of an agent. Raises invalid for a malformed body, not_found for an unknown graph,
        conflict if the id is taken, and too_large."""
        body = await read_body(request, w.AssistantCreate)
        info = next((agent for agent in self._visible_agents(request) if agent.name == body.graph_id), None)
        if info is None:
            names = ", ".join(agent.name for agent in self._visible_agents(request))
            # langgraph-api 0.16.7: 404.
            message = f"Graph {body.graph_id[:100]!r} not found. Expected one of: {names}"
            raise FaultError(FaultCode.NOT_FOUND, message)
        assistant_id_ = str(uuid4()) if body.assistant_id is None else uuid(body.assistant_id, "assistant")
        assistant = Assistant(
            assistant_id=assistant_id_,
            agent=info.name,
            # langgraph-api 0.16.7 has the same default.
            name="Untitled" if body.name is None else body.name,
            description=body.description,
            config=_config_of(body) or {},
            context=body.context or {},
            metadata=body.metadata or {},
            created_at=0,
            updated_at=0,
        )
        try:
            if self._system_agent(principal_of(request), assistant_id_) is not None:
                raise FaultError(FaultCode.CONFLICT, f"Assistant {assistant_id_} already exists")
            assistant = await self._hub.assistants.create(principal_of(request), assistant)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT or body.if_exists != "do_nothing":
                raise
            assistant = await self._assistant(request, assistant_id_)
        return answer(_encode_assistant(assistant))

    async def change(self, request: AnyRequest) -> Response[Any]:
        """Create the next version of the assistant in the path. Raises invalid for a malformed body, not_found for an
        unknown assistant or graph, and too_large."""
        current = await self._path_assistant(request)
        body = await read_body(request, w.AssistantPatch)
        if body.graph_id is not None and self._find(request, body.graph_id) is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Graph {body.graph_id[:100]!r} not found.")
        config, context = _config_of(body), body.context
        if context is not None and config is None:  # the context replaces the configurable of the configuration
            config = {name: value for name, value in current.config.items() if name != "configurable"}
        elif config is not None and context is None:
            context = {}
        change = AssistantChange(
            agent=body.graph_id,
            name=body.name,
            description=body.description,
            config=config,
            context=context,
            metadata=body.metadata,
        )
        system = self._system_agent(principal_of(request), current.assistant_id)
        base = None if system is None else _system_assistant(system)
        changed = await self._hub.assistants.change(principal_of(request), current.assistant_id, change, base)
        return answer(_encode_assistant(changed))

    async def use_version(self, request: AnyRequest) -> Response[Any]:
        """Make an existing version the current one of the assistant in the path. Raises invalid for a malformed body,
        and not_found for an unknown assistant or version."""
        current = await self._path_assistant(request)
        body = await read_body(request, w.Latest)
        if not await self._hub.assistants.versions(principal_of(request), current.assistant_id) and body.version == 1:
            return answer(_encode_assistant(current))
        changed = await self._hub.assistants.use_version(principal_of(request), current.assistant_id, body.version)
        return answer(_encode_assistant(changed))

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Delete the assistant in the path. For an agent's own assistant, only the caller's changes of it are deleted.
        Raises invalid, not_found, and method_not_allowed if there is nothing to delete."""
        principal, with_threads = principal_of(request), flag(request, "delete_threads")
        assistant = await self._path_assistant(request)
        if not await self._hub.assistants.delete(principal, assistant.assistant_id):
            message = f"The default assistant of agent {assistant.agent} cannot be deleted."
            # RFC 9110, 15.5.6: a 405 names the allowed methods.
            raise FaultError(FaultCode.METHOD_NOT_ALLOWED, message, allow=["GET", "PATCH"])
        if with_threads:
            await self._delete_threads(principal, assistant.assistant_id)
        return empty_answer(204)

    async def _delete_threads(self, principal: Principal, assistant_id: str) -> None:
        """Delete the owner's threads whose metadata member `assistant_id` is the assistant."""
        where = ThreadFilter(metadata={"assistant_id": assistant_id})
        while (page := await self._hub.reads.threads(principal, where, limit=MAX_PAGE)).count:
            async for view in page:
                try:
                    await self._hub.delete_thread(principal, view.thread.thread_id)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:
                        raise

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.AssistantSearch)
        select = None if body.select is None else check_selection(body.select, _FIELDS, "select")
        order = _ORDERS[body.sort_by or "created_at"]
        descending = body.sort_order != "asc"
        query = self._query(request, body, order, limit=body.limit + 1, offset=body.offset, descending=descending)
        page = await self._hub.assistants.search(principal_of(request), query)
        count = min(page.count, body.limit)
        headers = pagination(body.offset, count, more=page.count > count)
        return await list_response(b"[]", _encode_assistants(page, count, select), headers=headers)

    async def count(self, request: AnyRequest) -> Response[Any]:
        query = self._query(request, await read_optional_body(request, w.AssistantCount))
        return answer(await self._hub.assistants.count(principal_of(request), query))

    def _query(
        self, request: AnyRequest, filter_: w.AssistantCount, order: AssistantOrder = "created_at", **page: Any
    ) -> AssistantQuery:
        infos = self._visible_agents(request)
        agents = (
            None
            if len(infos) == len(self._hub.agents(principal_of(request)))
            else frozenset(info.name for info in infos)
        )
        if filter_.graph_id is not None:
            agents = (agents or frozenset({filter_.graph_id})) & {filter_.graph_id}
        # Without another order, system assistants are in the order of the configuration: the last one is the oldest.
        system_assistants = tuple(
            _system_assistant(info).replace(created_at=-position if order == "created_at" else 0)
            for position, info in enumerate(infos)
        )
        return AssistantQuery(
            agents=agents,
            name=filter_.name,
            metadata=filter_.metadata or {},
            defaults=system_assistants,
            order=order,
            **page,
        )

    async def get(self, request: AnyRequest) -> Response[Any]:
        return answer(_encode_assistant(await self._path_assistant(request)))

    async def versions(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.Page)
        assistant = await self._path_assistant(request)
        numbers = await self._hub.assistants.versions(principal_of(request), assistant.assistant_id)
        versions = _each_version(self._hub, principal_of(request), assistant, numbers)
        return await list_response(b"[]", _encode_versions(versions, body))

    async def graph(self, request: AnyRequest) -> Response[Any]:
        """Return the nodes and edges of the assistant's graph. An agent that is not a graph is shown as one node."""
        depth, info = _depth(request.query_params.get("xray") or "false"), await self._path_agent(request)
        agent = self._hub.introspectable_agent(principal_of(request), info.name)
        if agent is not None and (graph := await agent.draw(depth)) is not None:
            return answer(graph)
        path = ("__start__", info.name, "__end__")
        single_node_graph: JsonObject = {
            "nodes": [{"id": name, "type": "runnable", "data": {"name": name}} for name in path],
            "edges": [{"source": source, "target": target} for source, target in pairwise(path)],
        }
        return answer(single_node_graph)

    async def schemas(self, request: AnyRequest) -> Response[Any]:
        info = await self._path_agent(request)
        own_schemas = encode_schemas(info)
        schemas = {name: own_schemas.get(name) for name in _SCHEMAS}
        # Agents of the gateway have a `config_schema`, which `context_schema` replaced in langgraph 0.6.
        body = {"graph_id": info.name, **schemas, "context_schema": None}
        return answer(body, headers=confirm(active=is_activated(request)))

    async def subgraphs(self, request: AnyRequest) -> Response[Any]:
        agent = self._hub.introspectable_agent(principal_of(request), (await self._path_agent(request)).name)
        if agent is None:
            return answer({})
        return answer(await agent.subgraphs(request.path_params.get("namespace"), flag(request, "recurse")) or {})

    # Both dialects

    def _visible_agents(self, request: AnyRequest) -> Sequence[AgentInfo]:
        """Return the agents that the caller can see. If the base URL of the request is that of one agent, return only
        this agent."""
        who = caller(request)
        infos = self._hub.agents(who.principal)
        if who.has_single_agent:
            return [info for info in infos if info.name == who.agent]
        return infos

    def _find(self, request: AnyRequest, text: str) -> AgentInfo | None:
        """Return the agent with a name, or with the UUID that `assistant_id` derives from the name. Return None if the
        caller cannot see such an agent. Agents that currently fail are included."""
        names = (text, text.lower() if is_uuid(text) else text)
        infos = self._visible_agents(request)
        return next((info for info in infos if info.name in names or assistant_id(info.name) in names), None)

    def _system_agent(self, principal: Principal, assistant_id_: str) -> AgentInfo | None:
        return next((info for info in self._hub.agents(principal) if assistant_id(info.name) == assistant_id_), None)

    async def _path_assistant(self, request: AnyRequest) -> Assistant:
        return await self._assistant(request, uuid(request.path_params["assistant_id"], "assistant"))

    async def _assistant(self, request: AnyRequest, assistant_id_: str) -> Assistant:
        """Return an assistant of the owner or of an agent by its UUID. Raises not_found."""
        assistant = await self._hub.assistants.get(principal_of(request), assistant_id_)
        if assistant is None and (system := self._find(request, assistant_id_)) is not None:
            return _system_assistant(system)
        if assistant is None or assistant.agent not in [info.name for info in self._shown_agents(request, assistant)]:
            raise FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {assistant_id_} not found")
        return assistant

    def _shown_agents(self, request: AnyRequest, assistant: Assistant) -> Sequence[AgentInfo]:
        """Return the agents whose assistants the caller can see. Unless the base URL is that of one agent, the
        assistant's agent is included even if it was removed from the configuration."""
        infos = self._visible_agents(request)
        return (
            [*infos, AgentInfo(name=assistant.agent)]
            if len(infos) == len(self._hub.agents(principal_of(request)))
            else infos
        )

    async def _path_agent(self, request: AnyRequest) -> AgentInfo:
        """Return the agent that the path names: by its name, or by the UUID of one of its assistants. Raises not_found
        for an unknown UUID, and invalid for an unknown name."""
        text = request.path_params["assistant_id"]
        agent = self._find(request, text)
        if agent is None and is_uuid(text):
            agent = self._find(request, (await self._assistant(request, uuid(text, "assistant"))).agent)
        # langgraph-api 0.16.7: 404 for an unknown UUID, 422 for anything that is not a UUID.
        if agent is None and is_uuid(text):
            raise FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {text[:100]} not found")
        if agent is None:
            names = ", ".join(info.name for info in self._visible_agents(request))
            message = (
                f"Invalid assistant: {text[:100]!r}. It is neither a UUID nor one of the registered graphs: {names}"
            )
            raise FaultError(FaultCode.INVALID, message)
        return agent


def _config_of(settings: w.AssistantWords) -> JsonObject | None:
    """Return the member `config` of a body as an object, or None without it. Raises bad_request if the body has both
    `configurable` and `context`."""
    if settings.config is None:
        return None
    if settings.config.configurable and settings.context:
        # langgraph-api 0.16.7: 400, with this text.
        raise bad_request("Cannot specify both configurable and context: use one of them.")
    return settings.config.model_dump(exclude_unset=True)


def _page(items: Sequence[JsonObject], search: w.Page) -> Response[Any]:
    end = search.offset + search.limit
    page = items[search.offset : end]
    return answer(page, headers=pagination(search.offset, len(page), more=len(items) > end))


def _depth(text: str) -> int | bool:
    """Return the query parameter `xray` as a boolean, or as the number of levels of subgraphs to expand. Raises invalid
    for any other text."""
    if text in _FLAGS:
        return _FLAGS[text]
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise FaultError(FaultCode.INVALID, "xray: must be true, false or a number above 0")
    return int(text[:9])


def _is_name_match(name: str, part: str | None) -> bool:
    return part is None or part.casefold() in name.casefold()


def _system_assistant(info: AgentInfo) -> Assistant:
    """Return the assistant that every agent has, under the agent's name. Its times are 0, because the gateway does not
    record when an agent was configured."""
    return Assistant(
        assistant_id=assistant_id(info.name),
        agent=info.name,
        name=info.name,
        description=info.description or None,
        # langgraph-api 0.16.7 marks the assistants of its graphs the same way.
        metadata={**encode_agent(info).get("metadata", {}), "created_by": "system"},
        created_at=0,
        updated_at=0,
    )


def _encode_assistant(assistant: Assistant) -> JsonObject:
    """Return an assistant in LangGraph's form. `context` and `config.configurable` have the same value, as in
    langgraph-api 0.16.7."""
    context = assistant.context or as_object(assistant.config.get("configurable"))
    return {
        "assistant_id": assistant.assistant_id,
        "graph_id": assistant.agent,
        "config": {**assistant.config, "configurable": context} if context else assistant.config,
        "context": context,
        "created_at": format_time(max(0, assistant.created_at)),
        "updated_at": format_time(assistant.updated_at),
        "metadata": assistant.metadata,
        "version": assistant.version,
        "name": assistant.name,
        "description": assistant.description,
    }


async def _encode_assistants(
    page: Listed[Assistant], limit: int, select: Sequence[str] | None
) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(aiter(page)) as assistants:
        async for assistant in assistants:
            if not limit:
                return
            limit -= 1
            yield encode(select_members(_encode_assistant(assistant), select))


async def _each_version(
    hub: Hub, principal: Principal, assistant: Assistant, numbers: Sequence[int]
) -> AsyncGenerator[Assistant]:
    """Yield the versions of an assistant with the `numbers`, newest first. Without numbers, yield the assistant itself,
    which was never changed."""
    if not numbers:
        yield assistant
    for number in numbers:
        version = await hub.assistants.version(principal, assistant.assistant_id, number)
        if version is not None:
            yield version


async def _encode_versions(versions: AsyncGenerator[Assistant], search: w.Page) -> AsyncGenerator[bytes | LargeJson]:
    skip, remaining = search.offset, search.limit
    async with aclosing(versions):
        async for version in versions:
            if not has_members(version.metadata, search.metadata or {}):
                continue
            if skip:
                skip -= 1
                continue
            # A version has no time of change, because changing an assistant creates another version.
            body = {**_encode_assistant(version), "created_at": format_time(version.updated_at)}
            del body["updated_at"]
            yield encode(body)
            remaining -= 1
            if not remaining:
                return
