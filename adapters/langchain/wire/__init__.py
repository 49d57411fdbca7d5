"""Types of the bodies of requests and responses."""

from typing import Final

__all__ = ("SPEC", "SPEC_EVENTS", "SPEC_PLATFORM")

SPEC: Final = "https://github.com/langchain-ai/agent-protocol/blob/d9fd23d/openapi.json"
"""URL of the Agent Protocol's specification. Comments cite it as OpenAPI 0.1.6."""
SPEC_EVENTS: Final = "https://github.com/langchain-ai/agent-protocol/blob/d9fd23d/streaming/protocol.cddl"
"""URL of the specification of the Agent Protocol's event streaming. Comments cite it as CDDL 0.0.13, with a section
number."""
SPEC_PLATFORM: Final = "https://docs.langchain.com/langsmith/server-api-ref"
"""URL of LangGraph Platform's API reference."""
