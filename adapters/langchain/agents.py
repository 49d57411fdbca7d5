"""The agents of another server: graphs by their assistants, or the agents of the Agent Protocol."""

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
    """One agent for each graph, with the id of the assistant that describes it: the one that the server made itself,
    else the first. Raises invalid."""
    by_graph: dict[str, w.Assistant] = {}
    for assistant in validate(_ASSISTANTS, answer):
        known = by_graph.get(assistant.graph_id)
        if known is None or (_is_systems(assistant) and not _is_systems(known)):
            by_graph[assistant.graph_id] = assistant
    found: dict[str, tuple[str, AgentInfo]] = {}
    for graph_id, assistant in by_graph.items():
        name = free_name(graph_id, found)
        # A graph that the server has no assistant of its own for is called by the one that there is.
        called = graph_id if _is_systems(assistant) else assistant.assistant_id
        found[name] = (assistant.assistant_id, _info(name, called, assistant.description, "langgraph", {}))
    return list(found.values())


def _is_systems(assistant: w.Assistant) -> bool:
    return (assistant.metadata or {}).get("created_by") == "system"


def decode_agents(answer: Json) -> list[AgentInfo]:
    """Of the Agent Protocol. Raises invalid."""
    found: dict[str, AgentInfo] = {}
    for agent in validate(_AGENTS, answer):
        name = free_name(agent.name or agent.agent_id, found)
        found[name] = _info(name, agent.agent_id, agent.description, "agent-protocol", agent.metadata or {})
    return list(found.values())


def assume_agent(called: str, dialect: Dialect) -> AgentInfo:
    """An agent that its server does not describe, by the server's own name for it."""
    return _info(legal_name(called), called, None, dialect, {})


def _info(name: str, called: str, description: str | None, dialect: Dialect, metadata: JsonObject) -> AgentInfo:
    """A thread is the server's own memory: what was said before is not sent again. Graphs have a state and revisions of
    it; the Agent Protocol's streams do not tell theirs."""
    return AgentInfo(
        name=name,
        description=" ".join((description or "").split()),
        input_types=("text/plain", "application/json", "*/*"),
        output_types=("text/plain", "application/json"),
        metadata={"langchain": {"name": called, "dialect": dialect, "metadata": metadata}},
        remembers=True,
        stateful=dialect == "langgraph",
    )


def decode_schemas(answer: Json) -> dict[str, JsonObject]:
    """Raises invalid."""
    told = validate(w.Schemas, answer)
    found = {
        "input": told.input_schema,
        "output": told.output_schema,
        "state": told.state_schema,
        "config": told.config_schema,
    }
    return {name: schema for name, schema in found.items() if schema}


def upstream_name(info: AgentInfo) -> str:
    """What the agent's own server calls it."""
    called: Any = as_object(info.metadata.get("langchain")).get("name")
    return called if isinstance(called, str) else info.name


def upstream_dialect(info: AgentInfo) -> Dialect:
    """The one that its server speaks."""
    agent_protocol = as_object(info.metadata.get("langchain")).get("dialect") == "agent-protocol"
    return "agent-protocol" if agent_protocol else "langgraph"
