"""Adapter for AIEF's Agent Protocol, formerly E2B's: tasks, steps and artifacts below `/ap/v1`, with one agent per
origin. It has a server and a client."""

from collections.abc import Sequence

from babelgate.adapters.aief.agents import upstream_name
from babelgate.adapters.aief.carries import CARRIES, EXTENDED, VERSION
from babelgate.adapters.aief.client import Client, discover
from babelgate.adapters.aief.looks import looks
from babelgate.adapters.aief.rest import REST
from babelgate.adapters.aief.server import answer_fault, routes
from babelgate.adapters.aief.snippets import snippets
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("Client", "adapter", "discover", "upstream", "upstream_name")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return one curl command that creates a task, for the table of URLs that the gateway prints at startup."""
    url = f"{base_url}/ap/v1"
    return (Example("AIEF", url, f"""curl -s {url}/agent/tasks -d '{{"input": "Hello"}}'"""),)


adapter = Adapter(
    name="aief",
    title="AIEF",
    versions=(VERSION,),
    prefixes=("/ap",),
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
    protocol="aief",
    title="AIEF",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    own_path="/agent/{agent}",
    alone=True,
    options={"steps": ("continue", "ask"), "extension": ("on", "off")},
)
