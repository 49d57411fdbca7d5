"""Command that calls an agent over the minimal runtime, for which there is no client library."""

from collections.abc import Sequence

from babelgate.adapters.kit.adapter import Snippet
from babelgate.adapters.kit.snippets import curl
from babelgate.adapters.runtime.carries import VERSION


def snippets(base_url: str, agent: str) -> Sequence[Snippet]:
    """Return one curl command that starts a run and waits for its end."""
    return (curl("curl", f"{base_url}/v1/runs", {"assistant_id": agent, "input": "Hello"}, version=VERSION),)
