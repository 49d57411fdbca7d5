"""Agents as the Agent Protocol describes them, and as LangGraph does: each is a graph with an assistant of its own, and
with those that its callers have configured."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler

from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import LargeJson, encode
from babelgate.adapters.kit.server.extended import answer_file, confirm, is_asked
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.adapters.kit.server.listed import list_response
from babelgate.adapters.langchain.codec.agent_protocol import encode_agent, encode_schemas
from babelgate.adapters.langchain.codec.state import assistant_id, format_time
from babelgate.adapters.langchain.server.answers import answer, empty_answer, pagination, select_members
from babelgate.adapters.langchain.server.create_run import bad_request
from babelgate.adapters.langchain.server.dialect import both
from babelgate.adapters.langchain.server.parameters import (
    AnyRequest,
    check_selection,
    flag,
    owner_of,
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
    server = Agents(hub)
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


class Agents(Handlers):
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
        return answer(encode_agent(self._agent(request)), headers=confirm(active=is_asked(request)))

    async def file(self, request: AnyRequest) -> Response[Any]:
        """One that records of the extension name by its hash."""
        self._agent(request)
        return await answer_file(self._hub, request, request.path_params["blob"])

    async def agent_schemas(self, request: AnyRequest) -> Response[Any]:
        return answer(encode_schemas(self._agent(request)))

    def _agent(self, request: AnyRequest) -> AgentInfo:
        text = request.path_params["agent_id"]
        found = self._find(request, text)
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {text[:100]} not found")
        return found

    # LangGraph's

    async def create(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid, not_found, conflict, too_large."""
        body = await read_body(request, w.AssistantCreate)
        info = next((each for each in self._visible_agents(request) if each.name == body.graph_id), None)
        if info is None:
            names = ", ".join(each.name for each in self._visible_agents(request))
            # langgraph-api 0.16.7: 404.
            words = f"Graph {body.graph_id[:100]!r} not found. Expected one of: {names}"
            raise FaultError(FaultCode.NOT_FOUND, words)
        named = str(uuid4()) if body.assistant_id is None else uuid(body.assistant_id, "assistant")
        made = Assistant(
            assistant_id=named,
            agent=info.name,
            # langgraph-api 0.16.7 names it so.
            name="Untitled" if body.name is None else body.name,
            description=body.description,
            config=_config_of(body) or {},
            context=body.context or {},
            metadata=body.metadata or {},
            created_at=0,
            updated_at=0,
        )
        try:
            if self._system_agent(named) is not None:
                raise FaultError(FaultCode.CONFLICT, f"Assistant {named} already exists")
            made = await self._hub.assistants.create(owner_of(request), made)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT or body.if_exists != "do_nothing":
                raise
            made = await self._assistant(request, named)
        return answer(_encode_assistant(made))

    async def change(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid, not_found, too_large."""
        known = await self._path_assistant(request)
        body = await read_body(request, w.AssistantPatch)
        if body.graph_id is not None and self._find(request, body.graph_id) is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Graph {body.graph_id[:100]!r} not found.")
        config, context = _config_of(body), body.context
        if context is not None and config is None:  # what was configurable of it is said anew
            config = {name: value for name, value in known.config.items() if name != "configurable"}
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
        system = self._system_agent(known.assistant_id)
        given = None if system is None else _system_assistant(system)
        made = await self._hub.assistants.change(owner_of(request), known.assistant_id, change, given)
        return answer(_encode_assistant(made))

    async def use_version(self, request: AnyRequest) -> Response[Any]:
        """Raises invalid, not_found."""
        known = await self._path_assistant(request)
        body = await read_body(request, w.Latest)
        if not await self._hub.assistants.versions(owner_of(request), known.assistant_id) and body.version == 1:
            return answer(_encode_assistant(known))
        made = await self._hub.assistants.use_version(owner_of(request), known.assistant_id, body.version)
        return answer(_encode_assistant(made))

    async def delete(self, request: AnyRequest) -> Response[Any]:
        """Of an agent's own assistant only what the caller changed of it. Raises invalid, not_found,
        method_not_allowed."""
        owner, with_threads = owner_of(request), flag(request, "delete_threads")
        known = await self._path_assistant(request)
        if not await self._hub.assistants.delete(owner, known.assistant_id):
            words = f"The default assistant of agent {known.agent} cannot be deleted."
            # RFC 9110, 15.5.6: 405 names what is allowed.
            raise FaultError(FaultCode.METHOD_NOT_ALLOWED, words, allow=["GET", "PATCH"])
        if with_threads:
            await self._delete_threads(owner, known.assistant_id)
        return empty_answer(204)

    async def _delete_threads(self, owner: str, assistant_id: str) -> None:
        where = ThreadFilter(metadata={"assistant_id": assistant_id})
        while (page := await self._hub.reads.threads(owner, where, limit=MAX_PAGE)).count:
            async for view in page:
                try:
                    await self._hub.delete_thread(owner, view.thread.thread_id)
                except FaultError as error:
                    if error.fault.code is not FaultCode.NOT_FOUND:
                        raise

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.AssistantSearch)
        select = None if body.select is None else check_selection(body.select, _FIELDS, "select")
        order = _ORDERS[body.sort_by or "created_at"]
        descending = body.sort_order != "asc"
        query = self._query(request, body, order, limit=body.limit + 1, offset=body.offset, descending=descending)
        found = await self._hub.assistants.search(owner_of(request), query)
        shown = min(found.count, body.limit)
        headers = pagination(body.offset, shown, more=found.count > shown)
        return await list_response(b"[]", _encode_assistants(found, shown, select), headers=headers)

    async def count(self, request: AnyRequest) -> Response[Any]:
        query = self._query(request, await read_optional_body(request, w.AssistantCount))
        return answer(await self._hub.assistants.count(owner_of(request), query))

    def _query(
        self, request: AnyRequest, asked: w.AssistantCount, order: AssistantOrder = "created_at", **page: Any
    ) -> AssistantQuery:
        infos = self._visible_agents(request)
        agents = None if len(infos) == len(self._hub.agents()) else frozenset(info.name for info in infos)
        if asked.graph_id is not None:
            agents = (agents or frozenset({asked.graph_id})) & {asked.graph_id}
        # In the order of the configuration, where nothing else orders them: the last one is the oldest.
        given = tuple(
            _system_assistant(info).replace(created_at=-at if order == "created_at" else 0)
            for at, info in enumerate(infos)
        )
        return AssistantQuery(
            agents=agents, name=asked.name, metadata=asked.metadata or {}, given=given, order=order, **page
        )

    async def get(self, request: AnyRequest) -> Response[Any]:
        return answer(_encode_assistant(await self._path_assistant(request)))

    async def versions(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, w.Page)
        known = await self._path_assistant(request)
        numbers = await self._hub.assistants.versions(owner_of(request), known.assistant_id)
        versions = _each_version(self._hub, owner_of(request), known, numbers)
        return await list_response(b"[]", _encode_versions(versions, body))

    async def graph(self, request: AnyRequest) -> Response[Any]:
        """An agent that is no graph is one node."""
        depth, info = _depth(request.query_params.get("xray") or "false"), await self._path_agent(request)
        agent = self._hub.introspectable_agent(info.name)
        if agent is not None and (shown := await agent.draw(depth)) is not None:
            return answer(shown)
        path = ("__start__", info.name, "__end__")
        drawn: JsonObject = {
            "nodes": [{"id": name, "type": "runnable", "data": {"name": name}} for name in path],
            "edges": [{"source": source, "target": target} for source, target in pairwise(path)],
        }
        return answer(drawn)

    async def schemas(self, request: AnyRequest) -> Response[Any]:
        info = await self._path_agent(request)
        known = encode_schemas(info)
        schemas = {name: known.get(name) for name in _SCHEMAS}
        # `config_schema` is what agents here have; `context_schema` took its place in langgraph 0.6.
        told = {"graph_id": info.name, **schemas, "context_schema": None}
        return answer(told, headers=confirm(active=is_asked(request)))

    async def subgraphs(self, request: AnyRequest) -> Response[Any]:
        agent = self._hub.introspectable_agent((await self._path_agent(request)).name)
        if agent is None:
            return answer({})
        return answer(await agent.subgraphs(request.path_params.get("namespace"), flag(request, "recurse")) or {})

    # Both

    def _visible_agents(self, request: AnyRequest) -> Sequence[AgentInfo]:
        who, infos = caller(request), self._hub.agents()
        if who.agent is not None and who.base_url.endswith(f"/agent/{who.agent}"):
            return [info for info in infos if info.name == who.agent]
        return infos

    def _find(self, request: AnyRequest, text: str) -> AgentInfo | None:
        """By name, or by the UUID that follows from it. An agent that is broken is shown, too."""
        same = (text, text.lower() if is_uuid(text) else text)
        infos = self._visible_agents(request)
        return next((info for info in infos if info.name in same or assistant_id(info.name) in same), None)

    def _system_agent(self, assistant_id_: str) -> AgentInfo | None:
        return next((info for info in self._hub.agents() if assistant_id(info.name) == assistant_id_), None)

    async def _path_assistant(self, request: AnyRequest) -> Assistant:
        return await self._assistant(request, uuid(request.path_params["assistant_id"], "assistant"))

    async def _assistant(self, request: AnyRequest, assistant_id_: str) -> Assistant:
        """By its UUID. Raises not_found."""
        found = await self._hub.assistants.get(owner_of(request), assistant_id_)
        if found is None and (system := self._find(request, assistant_id_)) is not None:
            return _system_assistant(system)
        if found is None or found.agent not in [info.name for info in self._shown_agents(request, found)]:
            raise FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {assistant_id_} not found")
        return found

    def _shown_agents(self, request: AnyRequest, found: Assistant) -> Sequence[AgentInfo]:
        """Those that can be seen here, and the one that is gone from the configuration where all can."""
        infos = self._visible_agents(request)
        return [*infos, AgentInfo(name=found.agent)] if len(infos) == len(self._hub.agents()) else infos

    async def _path_agent(self, request: AnyRequest) -> AgentInfo:
        """The graph that the path names, itself or by an assistant. Raises not_found, invalid."""
        text = request.path_params["assistant_id"]
        found = self._find(request, text)
        if found is None and is_uuid(text):
            found = self._find(request, (await self._assistant(request, uuid(text, "assistant"))).agent)
        # langgraph-api 0.16.7: 404 for an unknown UUID, 422 for what is none.
        if found is None and is_uuid(text):
            raise FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {text[:100]} not found")
        if found is None:
            names = ", ".join(info.name for info in self._visible_agents(request))
            words = f"Invalid assistant: {text[:100]!r}. It is no UUID, and none of the registered graphs: {names}"
            raise FaultError(FaultCode.INVALID, words)
        return found


def _config_of(words: w.AssistantWords) -> JsonObject | None:
    """Raises the 400 of LangGraph's server where `context` is given, too."""
    if words.config is None:
        return None
    if words.config.configurable and words.context:
        # langgraph-api 0.16.7: 400, in these words.
        raise bad_request("Cannot specify both configurable and context: use one of them.")
    return words.config.model_dump(exclude_unset=True)


def _page(found: Sequence[JsonObject], asked: w.Page) -> Response[Any]:
    end = asked.offset + asked.limit
    page = found[asked.offset : end]
    return answer(page, headers=pagination(asked.offset, len(page), more=len(found) > end))


def _depth(text: str) -> int | bool:
    """Of the parameter `xray`. Raises invalid."""
    if text in _FLAGS:
        return _FLAGS[text]
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise FaultError(FaultCode.INVALID, "xray: must be true, false or a number above 0")
    return int(text[:9])


def _is_name_match(name: str, part: str | None) -> bool:
    return part is None or part.casefold() in name.casefold()


def _system_assistant(info: AgentInfo) -> Assistant:
    """The assistant that every agent has. Nothing records when an agent was configured, so its times are 0."""
    return Assistant(
        assistant_id=assistant_id(info.name),
        agent=info.name,
        name=info.name,
        description=info.description or None,
        # langgraph-api 0.16.7 marks the assistants of its graphs so.
        metadata={**encode_agent(info).get("metadata", {}), "created_by": "system"},
        created_at=0,
        updated_at=0,
    )


def _encode_assistant(made: Assistant) -> JsonObject:
    """langgraph-api 0.16.7 shows what is configurable as the context, and the context as what is configurable."""
    context = made.context or as_object(made.config.get("configurable"))
    return {
        "assistant_id": made.assistant_id,
        "graph_id": made.agent,
        "config": {**made.config, "configurable": context} if context else made.config,
        "context": context,
        "created_at": format_time(max(0, made.created_at)),
        "updated_at": format_time(made.updated_at),
        "metadata": made.metadata,
        "version": made.version,
        "name": made.name,
        "description": made.description,
    }


async def _encode_assistants(
    found: Listed[Assistant], limit: int, select: Sequence[str] | None
) -> AsyncGenerator[bytes | LargeJson]:
    async with aclosing(aiter(found)) as assistants:
        async for made in assistants:
            if not limit:
                return
            limit -= 1
            yield encode(select_members(_encode_assistant(made), select))


async def _each_version(hub: Hub, owner: str, known: Assistant, numbers: Sequence[int]) -> AsyncGenerator[Assistant]:
    """Newest first; the only one of an assistant that nobody has changed is the one that is known."""
    if not numbers:
        yield known
    for number in numbers:
        found = await hub.assistants.version(owner, known.assistant_id, number)
        if found is not None:
            yield found


async def _encode_versions(versions: AsyncGenerator[Assistant], asked: w.Page) -> AsyncGenerator[bytes | LargeJson]:
    skip, left = asked.offset, asked.limit
    async with aclosing(versions):
        async for made in versions:
            if not has_members(made.metadata, asked.metadata or {}):
                continue
            if skip:
                skip -= 1
                continue
            # A version has no time of change: changing an assistant makes another one.
            body = {**_encode_assistant(made), "created_at": format_time(made.updated_at)}
            del body["updated_at"]
            yield encode(body)
            left -= 1
            if not left:
                return
