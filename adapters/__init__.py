"""The protocols, one folder each. A protocol is served if it stands in `ADAPTERS`, and agents that speak it can be put
behind the gateway if it stands in `UPSTREAMS`; nowhere else is there a list."""

from adapters import a2a, acp, aief, langchain, openai
from adapters._adapter import Adapter
from adapters._upstream import Upstream

__all__ = ("ADAPTERS", "UPSTREAMS")

ADAPTERS: tuple[Adapter, ...] = (acp.adapter, a2a.adapter, aief.adapter, langchain.adapter)

UPSTREAMS: tuple[Upstream, ...] = (
    langchain.upstream,
    a2a.upstream,
    acp.upstream,
    langchain.agent_protocol_upstream,
    aief.upstream,
    openai.upstream,
)
"""In the order of preference, where a server speaks several: what carries more of a run comes first."""
