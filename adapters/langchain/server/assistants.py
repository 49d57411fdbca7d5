"""Agents as the Agent Protocol describes them, and as LangGraph does: each is a graph with one system assistant."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from litestar import Response, delete, get, patch, post
from litestar.types import ControllerRouterHandler
from pydantic import BaseModel

from adapters._server.caller import caller, is_uuid
from adapters.langchain.codec.agent_protocol import encode_agent, encode_schemas
from adapters.langchain.codec.state import assistant_id, format_time
from adapters.langchain.server.answers import answer, pagination, select_members
from adapters.langchain.server.dialect import both
from adapters.langchain.server.parameters import AnyRequest, check_selection, flag, read_optional_body, uuid
from adapters.langchain.wire.requests import Limit, Offset
from canonical import AgentInfo, FaultCode, FaultError, Hub
from canonical.json import contains
from canonical.value import JsonObject

_SCHEMAS: Final = ("input_schema", "output_schema", "state_schema", "config_schema")
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


class _Page(BaseModel):
    metadata: JsonObject | None = None
    limit: Limit = 10
    offset: Offset = 0


class _AgentSearch(_Page):
    name: str | None = None


class _AssistantCount(BaseModel):
    metadata: JsonObject | None = None
    graph_id: str | None = None
    name: str | None = None


class _AssistantSearch(_AssistantCount, _Page):
    sort_by: Literal["assistant_id", "graph_id", "name", "created_at", "updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[str] | None = None


def routes(hub: Hub) -> Sequence[ControllerRouterHandler]:
    server = Agents(hub)
    one = "/assistants/{assistant_id:str}"
    return [
        post(both("/agents/search"), status_code=200)(server.search_agents),
        get(both("/agents/{agent_id:str}"))(server.get_agent),
        get(both("/agents/{agent_id:str}/schemas"))(server.agent_schemas),
        post("/assistants/search", status_code=200)(server.search),
        post("/assistants/count", status_code=200)(server.count),
        get(one)(server.get),
        get(f"{one}/graph")(server.graph),
        get(f"{one}/schemas")(server.schemas),
        get([f"{one}/subgraphs", f"{one}/subgraphs/{{namespace:str}}"])(server.subgraphs),
        post(f"{one}/versions", status_code=200)(server.versions),
        post("/assistants", status_code=200)(server.refuse),
        patch(one)(server.refuse),
        delete(one, status_code=200)(server.refuse),
        post(f"{one}/latest", status_code=200)(server.refuse),
    ]


class Agents:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def __deepcopy__(self, _: object) -> "Agents":
        # NB: Litestar copies every handler that it registers, and a bound method with its object: there is one hub.
        return self

    # The Agent Protocol's

    async def search_agents(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, _AgentSearch)
        agents = [
            agent
            for agent in map(encode_agent, self._visible_agents(request))
            if _is_name_match(agent["name"], body.name) and contains(agent.get("metadata", {}), body.metadata or {})
        ]
        return _page(agents, body)

    async def get_agent(self, request: AnyRequest) -> Response[Any]:
        return answer(encode_agent(self._agent(request)))

    async def agent_schemas(self, request: AnyRequest) -> Response[Any]:
        return answer(encode_schemas(self._agent(request)))

    def _agent(self, request: AnyRequest) -> AgentInfo:
        text = request.path_params["agent_id"]
        found = self._find(request, text)
        if found is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Agent {text[:100]} not found")
        return found

    # LangGraph's

    async def search(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, _AssistantSearch)
        select = None if body.select is None else check_selection(body.select, _FIELDS, "select")
        assistants = self._assistants(request, body)
        if body.sort_by is not None:
            name = body.sort_by
            assistants.sort(key=lambda assistant: assistant[name], reverse=body.sort_order != "asc")
        return _page([select_members(assistant, select) for assistant in assistants], body)

    async def count(self, request: AnyRequest) -> Response[Any]:
        return answer(len(self._assistants(request, await read_optional_body(request, _AssistantCount))))

    def _assistants(self, request: AnyRequest, asked: _AssistantCount) -> list[JsonObject]:
        return [
            assistant
            for assistant in map(_encode_assistant, self._visible_agents(request))
            if asked.graph_id in (None, assistant["graph_id"])
            and _is_name_match(assistant["name"], asked.name)
            and contains(assistant["metadata"], asked.metadata or {})
        ]

    async def get(self, request: AnyRequest) -> Response[Any]:
        return answer(_encode_assistant(self._assistant(request, by_name=False)))

    async def versions(self, request: AnyRequest) -> Response[Any]:
        body = await read_optional_body(request, _Page)
        only = _encode_assistant(self._assistant(request, by_name=False))
        # A version has no time of change: changing an assistant makes another one.
        del only["updated_at"]
        return _page([only] if contains(only["metadata"], body.metadata or {}) else [], body)

    async def graph(self, request: AnyRequest) -> Response[Any]:
        """An agent that is no graph is one node."""
        depth, info = _depth(request.query_params.get("xray") or "false"), self._assistant(request)
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
        info = self._assistant(request)
        known = encode_schemas(info)
        schemas = {name: known.get(name) for name in _SCHEMAS}
        # `config_schema` is what agents here have; `context_schema` took its place in langgraph 0.6.
        return answer({"graph_id": info.name, **schemas, "context_schema": None})

    async def subgraphs(self, request: AnyRequest) -> Response[Any]:
        agent = self._hub.introspectable_agent(self._assistant(request).name)
        if agent is None:
            return answer({})
        return answer(await agent.subgraphs(request.path_params.get("namespace"), flag(request, "recurse")) or {})

    async def refuse(self, request: AnyRequest) -> Response[Any]:
        """No 422: nothing is wrong with what the caller said. Raises method_not_allowed."""
        path: str = request.scope["path"]
        # RFC 9110, 15.5.6: 405 names what is allowed.
        allowed = ["GET"] if path != "/assistants" and not path.endswith("/latest") else ["OPTIONS"]
        words = "Assistants are not made or changed here: every agent of the gateway has one, as it is listed."
        raise FaultError(FaultCode.METHOD_NOT_ALLOWED, words, allow=allowed)

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

    def _assistant(self, request: AnyRequest, *, by_name: bool = True) -> AgentInfo:
        text = request.path_params["assistant_id"]
        if not by_name:
            uuid(text, "assistant")
        found = self._find(request, text)
        # langgraph-api 0.16.7: 404 for an unknown UUID, 422 for what is none.
        if found is None and is_uuid(text):
            raise FaultError(FaultCode.NOT_FOUND, f"Assistant with ID {text[:100]} not found")
        if found is None:
            names = ", ".join(info.name for info in self._visible_agents(request))
            words = f"Invalid assistant: {text[:100]!r}. It is no UUID, and none of the registered graphs: {names}"
            raise FaultError(FaultCode.INVALID, words)
        return found


def _page(found: Sequence[JsonObject], asked: _Page) -> Response[Any]:
    end = asked.offset + asked.limit
    page = found[asked.offset : end]
    return answer(page, headers=pagination(asked.offset, len(page), more=len(found) > end))


def _depth(text: str) -> int | bool:
    """Of the parameter `xray`. Raises invalid."""
    if text in _FLAGS:
        return _FLAGS[text]
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise FaultError(FaultCode.INVALID, "xray: it is neither true nor false, nor a number above 0")
    return int(text[:9])


def _is_name_match(name: str, part: str | None) -> bool:
    return part is None or part.casefold() in name.casefold()


def _encode_assistant(info: AgentInfo) -> JsonObject:
    """An agent has no birthday: it is as old as its configuration, and that says nothing of when."""
    return {
        "assistant_id": assistant_id(info.name),
        "graph_id": info.name,
        "config": {},
        "context": {},
        "created_at": format_time(0),
        "updated_at": format_time(0),
        # langgraph-api 0.16.7 marks the assistants of its graphs so.
        "metadata": {**encode_agent(info).get("metadata", {}), "created_by": "system"},
        "version": 1,
        "name": info.name,
        "description": info.description or None,
    }
