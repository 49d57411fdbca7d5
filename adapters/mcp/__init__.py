"""MCP: a server that offers each agent as a tool, and a client for tools of other servers."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.mcp.agents import assume_agent, upstream_name
from babelgate.adapters.mcp.carries import CARRIES, EXTENDED, VERSION
from babelgate.adapters.mcp.client import Client, ProgramClient, discover
from babelgate.adapters.mcp.looks import looks
from babelgate.adapters.mcp.rest import REST
from babelgate.adapters.mcp.server import PATH, answer_fault, routes
from babelgate.adapters.mcp.server.authorization import METADATA_PATHS
from babelgate.adapters.mcp.snippets import snippets

__all__ = ("CARRIES", "VERSION", "adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return one curl command that calls the agent's tool, for the table of URLs that the gateway prints at startup."""
    url = f"{base_url}{PATH}"
    call = f'{{"name": "{agent}", "arguments": {{"message": "Hello"}}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {call}}}'
    types = "-H 'Content-Type: application/json' -H 'Accept: application/json'"
    return (Example("MCP", url, f"curl -s {url} {types} -d '{body}'"),)


adapter = Adapter(
    name="mcp",
    title="MCP",
    versions=(VERSION,),
    prefixes=(PATH,),
    login_paths=METADATA_PATHS,
    checks_origin=True,  # SPEC/basic/transports, Security Warning
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    extended={VERSION: EXTENDED},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)

upstream = Upstream(
    protocol="mcp",
    title="MCP",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    assume=assume_agent,
    own_path="/mcp",
    options={"version": ("auto", "2025-11-25", "2026-07-28")},
    program=ProgramClient,
    is_detected=False,  # a POST is the only request, and could start a run on a server of another protocol
)
