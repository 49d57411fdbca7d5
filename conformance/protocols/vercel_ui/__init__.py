"""Conformance checks of agents that serve UI message streams of the Vercel AI SDK."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.vercel_ui import calls, chats, errors, streams
from babelgate.conformance.protocols.vercel_ui.target import ChatTarget, open_agent

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[ChatTarget]] = ProbeSuite(
    open_agent, Probes(streams.probes, chats.probes, calls.probes, errors.probes)
)
