"""LangGraph Platform and the Agent Protocol, one family in two dialects: runs, threads with their states, memory."""

import json
from collections.abc import Sequence

from adapters._adapter import Adapter, Example
from adapters.langchain.carries import CARRIES
from adapters.langchain.server import answer_fault, routes
from adapters.langchain.webhook import Writer

__all__ = ("adapter",)


def examples(base_url: str, agent: str) -> Sequence[Example]:
    said = [{"role": "user", "content": "Hello"}]
    platform = json.dumps({"assistant_id": agent, "input": {"messages": said}})
    protocol = json.dumps({"agent_id": agent, "messages": said})
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
    routes=routes,
    encode_fault=answer_fault,
    carries=CARRIES,
    examples=examples,
    webhooks={"langgraph": Writer},
)
