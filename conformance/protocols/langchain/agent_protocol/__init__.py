"""Checks of LangChain's Agent Protocol 0.1.6, in the layout of its OpenAPI document and in that of its README."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.langchain.agent_protocol import agents, listing, outcome, patch, readme_layout
from babelgate.conformance.protocols.langchain.agent_protocol.opening import open_server
from babelgate.conformance.protocols.langchain.probes import (
    cancel,
    commands,
    errors,
    history,
    runs,
    store,
    streams,
    threads,
)
from babelgate.conformance.protocols.langchain.server import LangChainTarget

__all__ = ("SUITE",)

SUITE: Final[ProbeSuite[LangChainTarget]] = ProbeSuite(
    open_server,
    Probes(
        agents.probes,
        threads.probes,
        patch.probes,
        history.probes,
        runs.probes,
        outcome.probes,
        listing.probes,
        readme_layout.probes,
        cancel.probes,
        streams.probes,
        commands.probes,
        store.probes,
        errors.probes,
    ),
)
