"""The bodies of requests and answers."""

from typing import Final

__all__ = ("SPEC", "SPEC_EVENTS", "SPEC_PLATFORM")

SPEC: Final = "https://github.com/langchain-ai/agent-protocol/blob/d9fd23d/openapi.json"
"""The Agent Protocol, which comments call OpenAPI 0.1.6."""
SPEC_EVENTS: Final = "https://github.com/langchain-ai/agent-protocol/blob/d9fd23d/streaming/protocol.cddl"
"""Its event streaming, which comments call CDDL 0.0.13, with the number of a section."""
SPEC_PLATFORM: Final = "https://docs.langchain.com/langsmith/server-api-ref"
"""LangGraph Platform."""
