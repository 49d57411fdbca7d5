"""Anthropic's Messages API: a server for any agent, and a client for models on servers of this API."""

from collections.abc import Sequence

from babelgate.adapters.anthropic.agents import assume_model, upstream_name
from babelgate.adapters.anthropic.carries import CARRIES, VERSION
from babelgate.adapters.anthropic.client import Client, discover
from babelgate.adapters.anthropic.looks import looks
from babelgate.adapters.anthropic.rest import REST
from babelgate.adapters.anthropic.server import BASE, answer_fault, routes
from babelgate.adapters.anthropic.snippets import snippets
from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("adapter", "upstream")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return the row of this API in the table of URLs: the base URL for clients, and a command that creates a
    message."""
    body = f'{{"model": "{agent}", "max_tokens": 1024, "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (Example("Anthropic", base_url, f"curl -s {base_url}/v1/messages -d '{body}'"),)


adapter = Adapter(
    name="anthropic",
    title="Anthropic",
    versions=(VERSION,),
    prefixes=("/v1/messages", BASE),
    exposed_headers=("request-id", "x-should-retry"),
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)

upstream = Upstream(
    protocol="anthropic",
    title="Anthropic",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    assume=assume_model,
    own_path=BASE,
)
