"""Checks of MCP 2025-11-25 over streamable HTTP, limited to tools."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.mcp import calls, lifecycle, sessions, tools, transport
from babelgate.conformance.protocols.mcp.target import McpTarget, open_server

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[McpTarget]] = ProbeSuite(
    open_server, Probes(lifecycle.probes, transport.probes, sessions.probes, tools.probes, calls.probes)
)
