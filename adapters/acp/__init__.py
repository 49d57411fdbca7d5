"""ACP, the Agent Communication Protocol: OpenAPI 0.2.0 as implemented by SDK 1.0.3. A server and a client."""

from collections.abc import Sequence

from babelgate.adapters.acp.agents import label, upstream_name
from babelgate.adapters.acp.carries import CARRIES, EXTENDED, VERSION
from babelgate.adapters.acp.client import Client, discover
from babelgate.adapters.acp.looks import looks
from babelgate.adapters.acp.rest import REST
from babelgate.adapters.acp.server import answer_fault, routes
from babelgate.adapters.acp.snippets import snippets
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return the row for ACP in the table of URLs."""
    url = f"{base_url}/acp"
    body = f'{{"agent_name": "{label(agent)}", "input": [{{"role": "user", "parts": [{{"content": "Hello"}}]}}]}}'
    return (Example("ACP", url, f"curl -s {url}/runs -d '{body}'"),)


adapter = Adapter(
    name="acp",
    title="ACP",
    versions=(VERSION,),
    prefixes=("/acp",),
    exposed_headers=("Run-ID",),
    open_paths=("/ping", "/acp/ping"),
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
    protocol="acp",
    title="ACP",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    own_path="/acp",
    options={"extension": ("on", "off")},
)
