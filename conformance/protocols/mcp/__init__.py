"""Checks of MCP 2025-11-25 over streamable HTTP and stdio: tools, resources, prompts and completion."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.mcp import (
    calls,
    completion,
    lifecycle,
    prompts,
    resources,
    sessions,
    subscriptions,
    tools,
    transport,
)
from babelgate.conformance.protocols.mcp.target import McpTarget, open_server

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[McpTarget]] = ProbeSuite(
    open_server,
    Probes(
        lifecycle.probes,
        transport.probes,
        sessions.probes,
        tools.probes,
        calls.probes,
        resources.probes.without("unknown_resource_is_an_invalid_parameter"),
        subscriptions.probes,
        prompts.probes,
        completion.probes,
    ),
)
