"""The protocols, one folder each. A protocol is served if it stands in `ADAPTERS`, and nowhere else is there a list."""

from adapters._adapter import Adapter
from adapters.a2a import adapter as a2a
from adapters.acp import adapter as acp
from adapters.aief import adapter as aief
from adapters.langchain import adapter as langchain

__all__ = ("ADAPTERS",)

ADAPTERS: tuple[Adapter, ...] = (acp, a2a, aief, langchain)
