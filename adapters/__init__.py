"""The protocols of the gateway, one folder each. `ADAPTERS` lists the protocols that callers may use, and `UPSTREAMS`
the protocols that agents behind the gateway may speak; there is no other list. Protocols of installed packages
(`kit.plugins`) follow the built-in ones."""

from typing import Any, Final

from babelgate._renamed import refuse_former_name
from babelgate.adapters import (
    a2a,
    acp,
    ag_ui,
    agent_client,
    aief,
    anthropic,
    langchain,
    mcp,
    openai,
    runtime,
    vercel_ui,
)
from babelgate.adapters.kit.adapter import Adapter
from babelgate.adapters.kit.plugins import with_adapters, with_upstreams
from babelgate.adapters.kit.upstream import Upstream

__all__ = ("ADAPTERS", "UPSTREAMS")

refuse_former_name(__name__)

_ADAPTERS: Final = (
    acp.adapter,
    a2a.adapter,
    aief.adapter,
    langchain.adapter,
    runtime.adapter,
    anthropic.adapter,
    openai.adapter,
    mcp.adapter,
    vercel_ui.adapter,
    ag_ui.adapter,
    agent_client.adapter,
)
"""Built-in adapters, in the order in which the path of a request is compared with their prefixes. The minimal runtime
and Anthropic precede OpenAI, because their paths are below OpenAI's prefix."""

_UPSTREAMS: Final = (
    langchain.upstream,
    a2a.upstream,
    acp.upstream,
    langchain.agent_protocol_upstream,
    aief.upstream,
    anthropic.upstream,
    openai.upstream,
    ag_ui.upstream,
    agent_client.upstream,
    mcp.upstream,
)
"""Built-in upstreams, most preferred first. If an agent's server speaks several protocols, the gateway uses the first
of them. So protocols that carry more features of a run precede the others. Anthropic
precedes OpenAI, because OpenAI's client would read Anthropic's list of models, too."""

ADAPTERS: tuple[Adapter, ...]
UPSTREAMS: tuple[Upstream, ...]


def __getattr__(name: str) -> Any:
    """Return the tuple `ADAPTERS` or `UPSTREAMS`, with the protocols of installed packages. Each tuple is built on
    first access, and not at import, because a plug-in itself imports this package for its types. Raises AttributeError
    for any other name."""
    if name == "ADAPTERS":
        return globals().setdefault(name, with_adapters(_ADAPTERS))
    if name == "UPSTREAMS":
        return globals().setdefault(name, with_upstreams(_UPSTREAMS))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
