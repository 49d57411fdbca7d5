"""Agent Client Protocol (Zed), version 1: JSON-RPC between an editor and an agent, over stdio or a WebSocket."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.agent_client import connections, prompts, questions, sessions
from babelgate.conformance.protocols.agent_client.target import AgentClientTarget, open_agent

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[AgentClientTarget]] = ProbeSuite(
    open_agent, Probes(connections.probes, sessions.probes, prompts.probes, questions.probes)
)
