"""Checks of ACP 0.2, the Agent Communication Protocol: agents, runs and sessions as resources."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.acp import (
    agents,
    awaits,
    cancel,
    errors,
    events,
    failures,
    owner,
    runs,
    sessions,
    streams,
)
from babelgate.conformance.protocols.acp.target import AcpTarget, open_server

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[AcpTarget]] = ProbeSuite(
    open_server,
    Probes(
        agents.probes,
        runs.probes,
        streams.probes,
        events.probes,
        awaits.probes,
        cancel.probes,
        failures.probes,
        sessions.probes,
        errors.probes,
        owner.probes,
    ),
)
