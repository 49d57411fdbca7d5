"""The protocols, one folder each. A protocol is served if it stands in `ADAPTERS`, and agents that speak it can be put
behind the gateway if it stands in `UPSTREAMS`; nowhere else is there a list. What installed packages offer
(`kit.plugins`) comes after what stands here."""

from typing import Any, Final

from babelgate._renamed import refuse_former_name
from babelgate.adapters import a2a, acp, aief, langchain, mcp, openai, runtime
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
)
"""The minimal runtime before OpenAI, whose paths are around its own."""

_UPSTREAMS: Final = (
    langchain.upstream,
    a2a.upstream,
    acp.upstream,
    langchain.agent_protocol_upstream,
    aief.upstream,
    openai.upstream,
)
"""In the order of preference, where a server speaks several: what carries more of a run comes first."""

ADAPTERS: tuple[Adapter, ...]
UPSTREAMS: tuple[Upstream, ...]


def __getattr__(name: str) -> Any:
    """The lists are made when somebody asks for one: a plug-in imports this package for the types of what it offers,
    and may be at that when it is imported by others first."""
    if name == "ADAPTERS":
        return globals().setdefault(name, with_adapters(_ADAPTERS))
    if name == "UPSTREAMS":
        return globals().setdefault(name, with_upstreams(_UPSTREAMS))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
