"""Checks of MCP 2026-07-28 over streamable HTTP and stdio: tools, resources, prompts and completion. There are no
sessions: each request is self-contained."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.mcp import calls, completion, prompts, resources, tools, transport
from babelgate.conformance.protocols.mcp.target import McpTarget
from babelgate.conformance.protocols.mcp.v2026 import envelope, listen, questions, results
from babelgate.conformance.protocols.mcp.v2026.target import open_server

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[McpTarget]] = ProbeSuite(
    open_server,
    Probes(
        transport.probes.without(
            "get_is_a_stream_or_refused",
            "ids_of_events_are_unique",
            "other_methods_are_refused",
            "unknown_version_in_the_header_is_refused",
            "version_may_be_left_out_of_the_headers",
        ),
        tools.probes,
        calls.probes.without(
            "cancel_of_nothing_is_ignored",
            "cancelled_call_is_not_answered",
            "structured_content_is_told_as_text",
            "structured_content_keeps_its_schema",
        ),
        resources.probes.without("unknown_resource_is_not_found"),
        prompts.probes,
        completion.probes,
        listen.probes,
        envelope.probes,
        questions.probes,
        results.probes,
    ),
)
