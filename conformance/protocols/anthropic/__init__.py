"""Conformance checks of servers of Anthropic's Messages API."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.anthropic import errors, messages, streams
from babelgate.conformance.protocols.anthropic.target import MessagesTarget, open_server

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[MessagesTarget]] = ProbeSuite(
    open_server, Probes(messages.probes, streams.probes, errors.probes)
)
"""Probes of whole messages, of streams and of errors."""
