"""Conversion of an upstream server's agents: LangGraph graphs, which are listed by their assistants, or agents of the
Agent Protocol."""

from typing import Any, Final

from pydantic import TypeAdapter

from babelgate.adapters.kit.client.agent_name import free_name, legal_name
from babelgate.adapters.kit.json import validate
from babelgate.adapters.langchain.codec.stream_modes import Dialect
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import AgentInfo
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_ASSISTANTS: Final = TypeAdapter(list[w.Assistant])
_AGENTS: Final = TypeAdapter(list[w.Agent])


def decode_assistants(answer: Json) -> list[tuple[str, AgentInfo]]:
    """Return one agent for each graph in a list of assistants, together with the id of one of its assistants. That is
    the assistant which the server itself created for the graph, else the first one listed. Raises invalid for a
    malformed list."""
    by_graph: dict[str, w.Assistant] = {}
    for assistant in validate(_ASSISTANTS, answer):
        current = by_graph.get(assistant.graph_id)
        if current is None or (_is_created_by_server(assistant) and not _is_created_by_server(current)):
            by_graph[assistant.graph_id] = assistant
    agents: dict[str, tuple[str, AgentInfo]] = {}
    for graph_id, assistant in by_graph.items():
        name = free_name(graph_id, agents)
        # A graph without an assistant created by the server is called by the id of the assistant it does have.
        upstream_id = graph_id if _is_created_by_server(assistant) else assistant.assistant_id
        agents[name] = (assistant.assistant_id, _info(name, upstream_id, assistant.description, "langgraph", {}))
    return list(agents.values())


def _is_created_by_server(assistant: w.Assistant) -> bool:
    """Return True if the server itself created the assistant, as LangGraph Platform does for each graph."""
    return (assistant.metadata or {}).get("created_by") == "system"


def decode_agents(answer: Json) -> list[AgentInfo]:
    """Return the agents in a list from an Agent Protocol server. Their names are changed to valid agent names. Raises
    invalid for a malformed list."""
    agents: dict[str, AgentInfo] = {}
    for agent in validate(_AGENTS, answer):
        name = free_name(agent.name or agent.agent_id, agents)
        agents[name] = _info(name, agent.agent_id, agent.description, "agent-protocol", agent.metadata or {})
    return list(agents.values())


def assume_agent(upstream_id: str, dialect: Dialect) -> AgentInfo:
    """Return an agent that its server does not list. `upstream_id` is the agent's name at the server."""
    return _info(legal_name(upstream_id), upstream_id, None, dialect, {})


def _info(name: str, upstream_id: str, description: str | None, dialect: Dialect, metadata: JsonObject) -> AgentInfo:
    """Return the `AgentInfo` of an upstream agent. `remembers` is set, because a thread on the server keeps its own
    history and earlier messages are not sent again. `stateful` is set only for LangGraph, whose graphs have a state
    with revisions."""
    return AgentInfo(
        name=name,
        description=" ".join((description or "").split()),
        input_types=("text/plain", "application/json", "*/*"),
        output_types=("text/plain", "application/json"),
        metadata={"langchain": {"name": upstream_id, "dialect": dialect, "metadata": metadata}},
        remembers=True,
        stateful=dialect == "langgraph",
    )


def decode_schemas(answer: Json) -> dict[str, JsonObject]:
    """Return the JSON Schemas of a graph under the keys `input`, `output`, `state` and `config`; a schema that the
    server left out has no key. Raises invalid for a malformed response."""
    reply = validate(w.Schemas, answer)
    schemas = {
        "input": reply.input_schema,
        "output": reply.output_schema,
        "state": reply.state_schema,
        "config": reply.config_schema,
    }
    return {name: schema for name, schema in schemas.items() if schema}


def upstream_name(info: AgentInfo) -> str:
    """Return the agent's name at its own server: the id of a graph or an assistant, or the `agent_id`."""
    name: Any = as_object(info.metadata.get("langchain")).get("name")
    return name if isinstance(name, str) else info.name


def upstream_dialect(info: AgentInfo) -> Dialect:
    """Return the dialect that the agent's server speaks."""
    is_agent_protocol = as_object(info.metadata.get("langchain")).get("dialect") == "agent-protocol"
    return "agent-protocol" if is_agent_protocol else "langgraph"
