"""AG-UI 1.0, the protocol between agents and user interfaces: a server for front ends, and a client for agents that
serve it."""

from collections.abc import Sequence

from babelgate.adapters.ag_ui.agents import assume_agent, upstream_name
from babelgate.adapters.ag_ui.carries import CARRIES, VERSION
from babelgate.adapters.ag_ui.client import Client, discover
from babelgate.adapters.ag_ui.looks import looks
from babelgate.adapters.ag_ui.rest import REST
from babelgate.adapters.ag_ui.server import answer_fault, routes
from babelgate.adapters.ag_ui.snippets import snippets
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return the row of AG-UI in the table of URLs that the gateway shows: the agent's URL, and a `curl` command that
    starts a run."""
    url = f"{base_url}/ag-ui/{agent}"
    message = '{"id": "m", "role": "user", "content": "Hello"}'
    body = f'{{"threadId": "t", "runId": "r", "messages": [{message}]}}'
    return (Example("AG-UI", url, f"curl -sN {url} -d '{body}'"),)


adapter = Adapter(
    name="ag-ui",
    title="AG-UI",
    versions=(VERSION,),
    prefixes=("/ag-ui",),
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)

upstream = Upstream(
    protocol="ag-ui",
    title="AG-UI",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    assume=assume_agent,
    own_path="/ag-ui/{agent}",
    alone=True,
)
