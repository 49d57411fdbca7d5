"""Adapter for LangGraph Platform and the Agent Protocol: one protocol family in two dialects, with a server and clients
for threads, runs, states and memory."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Final

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.langchain.agents import assume_agent, upstream_name
from babelgate.adapters.langchain.carries import CARRIES, EXTENDED
from babelgate.adapters.langchain.client import Client, describe, discover
from babelgate.adapters.langchain.looks import looks
from babelgate.adapters.langchain.rest import REST
from babelgate.adapters.langchain.server import answer_fault, routes
from babelgate.adapters.langchain.server.crons import submit
from babelgate.adapters.langchain.snippets import snippets
from babelgate.adapters.langchain.write.webhook import Writer

__all__ = ("Client", "adapter", "agent_protocol_upstream", "discover", "upstream", "upstream_name")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return one curl command for each dialect that calls the agent and waits for its answer."""
    messages = [{"role": "user", "content": "Hello"}]
    platform = json.dumps({"assistant_id": agent, "input": {"messages": messages}})
    protocol = json.dumps({"agent_id": agent, "messages": messages})
    url = f"{base_url}/agent-protocol"
    return (
        Example("LangGraph", base_url, f"curl -s {base_url}/runs/wait -d '{platform}'"),
        Example("Agent Protocol", url, f"curl -s {url}/runs/wait -d '{protocol}'"),
    )


adapter = Adapter(
    name="langchain",
    title="LangGraph and Agent Protocol",
    versions=("langgraph", "agent-protocol"),
    prefixes=("/agent-protocol", "/threads", "/runs", "/assistants", "/agents", "/store", "/info", "/ok"),
    exposed_headers=("Content-Location", "X-Pagination-Next", "X-Pagination-Total"),
    open_paths=("/ok",),
    routes=routes,
    encode_fault=answer_fault,
    carries=CARRIES,
    extended=EXTENDED,
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
    webhooks={"langgraph": Writer},
    crons={"langgraph": submit},
)

_OPTIONS: Final = {"extension": ("on", "off")}

upstream = Upstream(
    protocol="langgraph",
    title="LangGraph",
    discover=partial(discover, dialect="langgraph"),
    client=partial(Client, dialect="langgraph"),
    name_of=upstream_name,
    own_path="",
    assume=partial(assume_agent, dialect="langgraph"),
    describe=describe,
    options=_OPTIONS,
)

agent_protocol_upstream = Upstream(
    protocol="agent-protocol",
    title="Agent Protocol",
    discover=partial(discover, dialect="agent-protocol"),
    client=partial(Client, dialect="agent-protocol"),
    name_of=upstream_name,
    assume=partial(assume_agent, dialect="agent-protocol"),
    options=_OPTIONS,
)
