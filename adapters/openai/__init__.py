"""Adapter for OpenAI's two APIs, chat completions and responses: a server for any agent, and a client for models on
OpenAI-compatible servers."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.kit.upstream import Upstream
from babelgate.adapters.openai.agents import assume_model, upstream_name
from babelgate.adapters.openai.carries import (
    CARRIES,
    CHAT,
    CHAT_VERSION,
    EXTENDED,
    RESPONSES,
    RESPONSES_VERSION,
    VERSION,
)
from babelgate.adapters.openai.client import Client, discover
from babelgate.adapters.openai.looks import looks
from babelgate.adapters.openai.rest import REST
from babelgate.adapters.openai.server import answer_fault, routes
from babelgate.adapters.openai.snippets import snippets

__all__ = ("CARRIES", "VERSION", "Client", "adapter", "discover", "upstream", "upstream_name")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return one curl command for each of the two APIs that calls the agent."""
    url = f"{base_url}/v1"
    body = f'{{"model": "{agent}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    return (Example("OpenAI", url, f"curl -s {url}/chat/completions -d '{body}'"),)


adapter = Adapter(
    name="openai",
    title="OpenAI",
    versions=(CHAT_VERSION, RESPONSES_VERSION),
    prefixes=("/v1",),
    routes=routes,
    encode_fault=answer_fault,
    carries={CHAT_VERSION: CHAT, RESPONSES_VERSION: RESPONSES},
    extended=EXTENDED,
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)

upstream = Upstream(
    protocol="openai",
    title="OpenAI",
    discover=discover,
    client=Client,
    name_of=upstream_name,
    assume=assume_model,
    own_path="/v1",
    options={"api": ("chat", "responses"), "extension": ("on", "off")},
)
