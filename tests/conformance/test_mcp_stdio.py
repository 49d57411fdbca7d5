"""Judge of MCP servers that are commands: what applies over stdio, and a process that breaks the protocol."""

import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

from babelgate.conformance.examine import RequirementSelection, examine
from babelgate.conformance.probe import ProbeOptions
from babelgate.conformance.report.model import SetReport
from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Result, Verdict
from babelgate.conformance.wire.http import Unanswered
from babelgate.gateway.cli import babelgate

SERVER: Final = Path(__file__).parents[1] / "adapters" / "mcp" / "scripted_server.py"
VERSIONS: Final = ("2025-11-25", "2026-07-28")


async def judged(version: str, tool: str, *only: str, bound: float = 8.0) -> SetReport:
    command = shlex.join([sys.executable, str(SERVER), version])
    options = ProbeOptions(triggers=Triggers({"plain": Trigger("Hello", agent=tool)}), timeout=bound)
    report = await examine(f"stdio:{command}", RequirementSelection("mcp", version, only), options)
    [found] = report.sets
    return found


def named(report: SetReport, name: str) -> Result:
    return next(each for each in report.results if each.requirement.name == name)


@pytest.mark.parametrize("version", VERSIONS)
async def test_requirements_of_http_do_not_apply_to_a_command(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = await judged(version, "echo", "call.answer", "form.rpc", "rpc.method", "http.*", "rpc.parse", "session.*")
    assert "process" in report.capabilities
    for each in report.results:
        is_shared = each.requirement.name in (
            "call.answer",
            "form.rpc",
            "rpc.method",
            "http.same-id",
            "http.one-response",
        )
        expected = Verdict.PASS if is_shared else Verdict.NOT_APPLICABLE
        assert each.verdict is expected, f"{each.requirement.id}: {each.expected} {each.actual}"
    [exchange] = [each for each in named(report, "call.answer").exchanges if each.method == "tools/call"]
    assert '"Hello"' in exchange.frames[0].data


@pytest.mark.parametrize("version", VERSIONS)
async def test_output_that_is_no_message_is_a_failure(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = await judged(version, "chatter", "call.answer", "form.rpc")
    assert named(report, "call.answer").verdict is Verdict.PASS
    form = named(report, "form.rpc")
    assert form.verdict is Verdict.FAIL
    assert "not JSON" in form.expected


async def test_endless_output_ends_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = await judged(VERSIONS[0], "garbage", "call.answer", bound=20.0)
    result = named(report, "call.answer")
    assert result.verdict is Verdict.FAIL
    assert "the rest was not read" in result.expected


async def test_process_that_ends_is_a_failure_with_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = named(await judged(VERSIONS[0], "leave", "call.answer"), "call.answer")
    assert result.verdict is Verdict.FAIL
    assert "the command ended with status" in result.expected


async def test_command_that_cannot_start_is_not_judged() -> None:
    with pytest.raises(Unanswered, match="the command cannot be started"):
        await examine("stdio:/no/such/program", RequirementSelection("mcp"), ProbeOptions())


def test_check_has_an_option_for_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = shlex.join([sys.executable, str(SERVER), VERSIONS[0]])
    arguments = ["check", "--command", command, "--protocol", "mcp", "--only", "call.answer"]
    assert babelgate.main([*arguments, "--trigger", "plain=Hello"], standalone_mode=False) == 0
    output = capsys.readouterr().out
    assert f"MCP 2025-11-25 at stdio:{command}" in output
    assert "1 met" in output
