"""The minimal runtime: the gateway's own protocol, with a server only. It has the resources of LangGraph Platform
(threads, runs, events, interrupts) on nine routes, and its events are the records of the log."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Adapter, Example
from babelgate.adapters.runtime.carries import CARRIES, VERSION
from babelgate.adapters.runtime.looks import looks
from babelgate.adapters.runtime.rest import REST
from babelgate.adapters.runtime.server import answer_fault, routes
from babelgate.adapters.runtime.snippets import snippets

__all__ = ("adapter",)


def examples(base_url: str, agent: str) -> Sequence[Example]:
    """Return one curl command that starts a run and waits for its end, for the table of URLs that the gateway prints at
    startup."""
    url = f"{base_url}/v1/runs"
    body = f'{{"assistant_id": "{agent}", "input": "Hello"}}'
    return (Example("Minimal runtime", url, f"curl -s {url} -d '{body}'"),)


adapter = Adapter(
    name="runtime",
    title="Minimal runtime",
    versions=(VERSION,),
    prefixes=("/v1/threads", "/v1/runs"),
    routes=routes,
    encode_fault=answer_fault,
    carries={VERSION: CARRIES},
    examples=examples,
    rest=REST,
    looks=looks,
    snippets=snippets,
)
