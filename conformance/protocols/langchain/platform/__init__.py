"""Checks of LangGraph Platform, as langgraph-api 0.16 serves it and langgraph-sdk 0.4 calls it."""

from typing import Final

from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.langchain.platform import (
    assistants,
    busy_threads,
    listing,
    outcome,
    questions,
    resuming,
    state,
    stream_modes,
)
from babelgate.conformance.protocols.langchain.platform.opening import open_server
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
        assistants.probes,
        threads.probes,
        listing.probes,
        history.probes,
        state.probes,
        runs.probes,
        outcome.probes,
        questions.probes,
        busy_threads.probes,
        cancel.probes,
        streams.probes,
        stream_modes.probes,
        resuming.probes,
        commands.probes,
        store.probes,
        errors.probes,
    ),
)
