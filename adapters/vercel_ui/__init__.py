"""Vercel AI SDK: a server of UI message streams for `useChat`, AI Elements and assistant-ui."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.vercel_ui.carries import CARRIES, VERSION
from babelgate.adapters.vercel_ui.codec import PROTOCOL
from babelgate.adapters.vercel_ui.looks import looks
from babelgate.adapters.vercel_ui.rest import REST
from babelgate.adapters.vercel_ui.server import PATH, answer_fault, routes
from babelgate.adapters.vercel_ui.snippets import snippets
from babelgate.adapters.vercel_ui.wire import RESUMABLE_HEADER, RUN_HEADER

__all__ = ("CARRIES", "VERSION", "adapter")


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return the protocol's row of the gateway's URL table: the URL of the agent's chats, and a curl command to
    paste."""
    url = f"{base_url}{PATH}/{agent}"
    body = '{"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}'
    return (Example("Vercel AI SDK", url, f"curl -s {url} -d '{body}'"),)


adapter = Adapter(
    name=PROTOCOL,
    title="Vercel AI SDK",
    versions=(VERSION,),
    prefixes=(PATH,),
    exposed_headers=(RUN_HEADER, RESUMABLE_HEADER),
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)
