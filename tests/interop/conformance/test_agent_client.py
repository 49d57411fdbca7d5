"""Conformance of commands that speak the Agent Client Protocol: an agent of the official SDK, and `babelgate acp`."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from babelgate.conformance.baseline import apply, read_baseline
from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from babelgate.gateway import demo
from tests.conformance.recorded import assert_recorded
from tests.gateway.command import PROGRAM, ROOT
from tests.interop.peers import peer_python
from tests.running import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

AGENT: Final = Path(__file__).parents[1] / "programs" / "agent_client_echo.py"
RELEASE: Final = "agent-client-protocol 0.12.1"
NEVER: Final = ("tools", "question", "files")
TEXTS: Final = {"plain": "Hello", "stream": "a b c", "fail": "fail", "long": "wait", "approval": "may I"}
OPTIONS: Final = ProbeOptions(
    triggers=Triggers({name: Trigger(text) for name, text in TEXTS.items()}).without(NEVER), timeout=20.0
)


async def test_agent_of_the_sdk_breaks_only_its_baseline(accept: bool) -> None:
    command = shlex.join([str(peer_python("agent-client")), str(AGENT)])
    report = await examine(f"stdio:{command}", RequirementSelection("agent-client"), OPTIONS)
    baseline = read_baseline(Path(__file__).parent / "baselines" / f"{RELEASE.replace(' ', '-')}.yaml")
    found = [apply(baseline, each) for each in report.sets]
    assert [f"{one.requirement.id}: {one.expected}: {one.actual}" for each in found for one in each.against()] == []
    assert not any(each.stale for each in found)
    assert_recorded(RELEASE, replace(report, sets=found), accept)


async def test_command_of_the_gateway_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    triggers = Triggers({"plain": Trigger("Hello"), "stream": Trigger("a b c")})
    only = ("message.json", "message.notification", "process.*", "prompt.order")
    async with running(tmp_path, {"echo": demo.stream}) as gateway:
        command = shlex.join([*PROGRAM, "acp", "echo", "--url", gateway.url])
        options = replace(OPTIONS, triggers=triggers)
        report = await examine(f"stdio:{command}", RequirementSelection("agent-client", only=only), options)
    wrong = [
        f"{each.requirement.id}: {each.verdict}: {each.expected}: {each.actual}"
        for each in report.sets[0].results
        if each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.NOT_OBSERVED)
    ]
    assert not wrong
    assert "process" in report.sets[0].capabilities
