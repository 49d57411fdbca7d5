"""Checks of AIEF's Agent Protocol v1: tasks, steps and artifacts below `/ap/v1`."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.aief import artifacts, errors, files, lists, steps, tasks
from babelgate.conformance.protocols.aief.target import AiefTarget, open_agent

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[AiefTarget]] = ProbeSuite(
    open_agent,
    Probes(tasks.probes, steps.probes, lists.probes, artifacts.probes, files.probes, errors.probes),
)
