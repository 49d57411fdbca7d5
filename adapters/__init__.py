"""The protocols of the gateway, one folder each. `ADAPTERS` lists the protocols that are served, and `UPSTREAMS` the
protocols that agents behind the gateway may speak; there is no other list. Protocols of installed packages
(`kit.plugins`) follow the built-in ones."""

from typing import Any, Final

from babelgate._renamed import refuse_former_name
from babelgate.adapters import a2a, acp, ag_ui, aief, langchain, mcp, openai, runtime
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
    openai.adapter,
    mcp.adapter,
    ag_ui.adapter,
)
"""Built-in adapters. The minimal runtime precedes OpenAI, whose paths enclose its own."""

_UPSTREAMS: Final = (
    langchain.upstream,
    a2a.upstream,
    acp.upstream,
    langchain.agent_protocol_upstream,
    aief.upstream,
    openai.upstream,
    ag_ui.upstream,
)
"""Built-in upstreams, in order of preference: if a server speaks several protocols, the one that carries more of a run
comes first."""

ADAPTERS: tuple[Adapter, ...]
UPSTREAMS: tuple[Upstream, ...]


def __getattr__(name: str) -> Any:
    """Build `ADAPTERS` or `UPSTREAMS` on first access. A plug-in imports this package for the types that it uses, and
    may still be loading when another module imports the package first."""
    if name == "ADAPTERS":
        return globals().setdefault(name, with_adapters(_ADAPTERS))
    if name == "UPSTREAMS":
        return globals().setdefault(name, with_upstreams(_UPSTREAMS))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
