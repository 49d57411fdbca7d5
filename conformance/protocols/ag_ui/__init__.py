"""AG-UI 1.0: one request, and the stream of events that answers it."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.ag_ui import errors, questions, runs, tools
from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, open_agent

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[AgUiTarget]] = ProbeSuite(
    open_agent, Probes(runs.probes, tools.probes, questions.probes, errors.probes)
)
