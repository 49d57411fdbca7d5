"""Agent Client Protocol (Zed): a server for editors, over WebSockets and, by `babelgate acp`, over stdio, and a client
for coding agents that the gateway starts."""

from collections.abc import Sequence

from babelgate.adapters.agent_client.agents import assume_agent, upstream_name
from babelgate.adapters.agent_client.carries import CARRIES, VERSION
from babelgate.adapters.agent_client.client import Client
from babelgate.adapters.agent_client.client.refusal import discover, refuse_url
from babelgate.adapters.agent_client.codec.content import PROTOCOL
from babelgate.adapters.agent_client.looks import looks
from babelgate.adapters.agent_client.rest import REST
from babelgate.adapters.agent_client.server import PATH, answer_fault, routes
from babelgate.adapters.agent_client.snippets import snippets
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("CARRIES", "VERSION", "adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return the protocol's row of the gateway's URL table: the URL of the agent, and a command to paste."""
    url = f"{base_url}{PATH}/{agent}"
    return (Example("Agent Client Protocol", url, f"babelgate acp {agent} --url {base_url}"),)


adapter = Adapter(
    name=PROTOCOL,
    title="Agent Client Protocol",
    versions=(VERSION,),
    prefixes=(PATH,),
    checks_origin=True,
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)

upstream = Upstream(
    protocol=PROTOCOL,
    title="Agent Client Protocol",
    discover=discover,
    client=refuse_url,
    name_of=upstream_name,
    assume=assume_agent,
    alone=True,
    program=Client,
    has_urls=False,
)
