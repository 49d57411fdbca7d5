"""Conformance sets against the official servers: each broken requirement of level must is in a baseline.

OpenAI publishes no server that can be installed, so GraphServe represents it. The server of MCP's Python SDK meets
every requirement of level must. `server-everything` is built with its TypeScript SDK.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from babelgate.conformance.baseline import apply, read_baseline
from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.report.model import SetReport
from babelgate.conformance.trigger import Trigger, Triggers, read_triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.driver import start_server
from tests.interop.langgraph_dev import langgraph_dev

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BASELINES: Final = Path(__file__).parent / "baselines"
NEVER: Final = Trigger("", is_never=True)
CLOCK_DEPENDENT: Final = "resume.own-id"
"""Requirement whose outcome depends on the clock.

LangGraph's in-memory server numbers events by the millisecond (langgraph#8112), so ids may be equal.
"""

AIEF: Final = {
    "plain": Trigger("Hello"),
    "question": Trigger("Hi", agent="ask", answer="Ada"),
    "fail": Trigger("as it was told to", agent="fail"),
    "files": Trigger("the report", agent="files"),
    "steps": Trigger("Go", agent="steps"),
}
MCP: Final = {
    "plain": Trigger("Hello", agent="echo"),
    "fail": Trigger("as it was told to", agent="fail"),
    "steps": Trigger("Go", agent="steps"),
    "question": Trigger("Go", agent="ask"),
    "long": Trigger("Go", agent="slow"),
    "files": NEVER,
    "change": Trigger("Go", agent="change"),
    "links": Trigger("Go", agent="picture"),
}
EVERYTHING: Final = {
    "plain": Trigger("Hello", agent="echo"),
    "fail": Trigger("", agent="get-sum", data={"a": "one"}),
    "files": Trigger("", agent="get-tiny-image", data={}),
    "steps": Trigger("", agent="trigger-long-running-operation", data={"duration": 0.3, "steps": 3}),
    "long": Trigger("", agent="trigger-long-running-operation", data={"duration": 12, "steps": 1}),
    "links": Trigger("", agent="get-resource-links", data={"count": 3}),
    "change": Trigger("", agent="toggle-subscriber-updates", data={}),
    "resource": Trigger("demo://resource/dynamic/text/1"),
}
OPENAI: Final = {
    "plain": Trigger("Hello", agent="echo"),
    "fail": Trigger("x", agent="fail"),
    "calls": NEVER,
    "data": NEVER,
}


@dataclass(frozen=True)
class Official:
    """An official server, and the options of its check."""

    release: str
    """Name and version of the server in the records of real runs."""
    peer: str
    protocol: str
    sets: tuple[str, ...]
    path: str = ""
    triggers: Triggers | str = "sdk"
    timeout: float = ProbeOptions().timeout
    served_by: str = ""
    """Release of the SDK with which the server is built, if the baseline of that SDK applies to the server."""
    start: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the program that serves the agents."""

    @property
    def options(self) -> ProbeOptions:
        triggers = read_triggers(self.triggers) if isinstance(self.triggers, str) else self.triggers
        return ProbeOptions(triggers=triggers, timeout=self.timeout)

    @property
    def baseline(self) -> Mapping[str, str]:
        path = BASELINES / f"{(self.served_by or self.release).replace(' ', '-')}.yaml"
        return read_baseline(path) if path.exists() else {}


SERVERS: Final = (
    Official("a2a-sdk 1.3.0", "a2a-1.0", "a2a", ("a2a-0.3", "a2a-1.0"), "/echo", timeout=8.0),
    Official(
        "a2a-sdk 1.3.0 over gRPC",
        "a2a-grpc",
        "a2a",
        ("a2a-1.0",),
        "/echo",
        timeout=8.0,
        start={"grpc": True, "versions": []},
    ),
    Official("a2a-sdk 0.3.26", "a2a-0.3", "a2a", ("a2a-0.3",), "/echo", timeout=8.0),
    Official("acp-sdk 1.0.3", "acp", "acp", ("acp-0.2",), timeout=8.0),
    Official("agent-protocol 1.0.2", "aief", "aief", ("aief-v1",), "/echo", Triggers(AIEF)),
    Official("langgraph-api 0.16.7", "langgraph", "langgraph", ("langgraph-0.16",), triggers="demo", timeout=20.0),
    Official("mcp 2.3.0", "mcp", "mcp", ("mcp-2025-11-25", "mcp-2026-07-28"), "/mcp", Triggers(MCP)),
    Official("server-everything 2026.8.31", "mcp-everything", "mcp", ("mcp-2025-11-25",), "/mcp", Triggers(EVERYTHING)),
    Official("graphserve 0.2.3", "graphserve", "openai", ("openai-chat", "openai-responses"), "/v1", Triggers(OPENAI)),
)


BROKEN_WITHOUT_TRIGGERS: Final = {
    "langgraph-0.16/copy.apart": "the first graph that accepts messages has subgraphs; on a copy of its thread, "
    "the in-memory server does not find their checkpoints (KeyError)"
}
"""Requirements that official servers break in addition if no trigger names the agent."""


HELLO_WORLDS: Final = (
    replace(SERVERS[0], path="/message"),
    replace(SERVERS[1], path="/message"),
    replace(SERVERS[2], path="/message"),
    replace(SERVERS[0], release="google-adk 2.13.0", peer="adk", path="", sets=("a2a-1.0",), served_by="a2a-sdk 1.3.0"),
)
"""The smallest agents of the official SDKs: three answer with a message and no task, and google-adk's has a model."""


@asynccontextmanager
async def started(server: Official, folder: Path) -> AsyncGenerator[str]:
    if server.peer == "langgraph":
        async with langgraph_dev(folder) as url:
            yield url
    else:
        async with start_server(server.peer, **server.start) as running:
            yield running.url + server.path


@pytest.mark.parametrize("server", SERVERS, ids=lambda each: each.release)
async def test_official_servers_break_only_requirements_in_their_baselines(
    server: Official, tmp_path: Path, accept: bool
) -> None:
    async with started(server, tmp_path) as url:
        report = await examine(url, RequirementSelection(server.protocol), server.options)
    assert [each.set.name for each in report.sets] == list(server.sets)
    found = [apply(server.baseline, without_clock_dependent(each)) for each in report.sets]
    for each in found:
        broken = {one.requirement.id: f"{one.verdict}: {one.expected}: {one.actual}" for one in each.against()}
        assert not broken
        assert not each.stale
        assert not [one for one in each.results if one.verdict is Verdict.HARNESS_ERROR]
    assert_recorded(server.release, replace(report, sets=found), accept)


@pytest.mark.parametrize("server", [*SERVERS, *HELLO_WORLDS], ids=lambda each: f"{each.release}{each.path}")
async def test_checks_without_triggers_find_no_further_faults(server: Official, tmp_path: Path) -> None:
    """Check with a URL and no options, as most people run their first check."""
    baseline = {**server.baseline, **BROKEN_WITHOUT_TRIGGERS}
    async with started(server, tmp_path) as url:
        report = await examine(url, RequirementSelection(server.protocol), replace(server.options, triggers=Triggers()))
    assert [each.set.name for each in report.sets] == list(server.sets)
    for found in report.sets:
        new = {
            one.requirement.id: f"{one.verdict}: {one.expected}: {one.actual}"
            for one in (*found.broken(), *found.consequences())
            if one.requirement.id not in baseline and one.requirement.name != CLOCK_DEPENDENT
        }
        assert not new
        assert not [one for one in found.results if one.verdict is Verdict.HARNESS_ERROR]


def without_clock_dependent(found: SetReport) -> SetReport:
    return replace(found, results=[each for each in found.results if each.requirement.name != CLOCK_DEPENDENT])
