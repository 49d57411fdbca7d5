"""Errors of the judge are distinguished from failures of the agent."""

from dataclasses import replace
from typing import Final

from babelgate.conformance.judge import judge
from babelgate.conformance.probe import Probes, ProbeSuite
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, open_server
from babelgate.conformance.report.model import CheckReport
from babelgate.conformance.report.text import lines
from babelgate.conformance.requirement import load_set
from babelgate.conformance.verdict import Verdict
from tests.conformance.servers.acp_0_2 import SERVER
from tests.serving import serving

probes: Final = Probes[AcpTarget]()


@probes.add
async def has_a_mistake(ctx: Ctx) -> None:
    raise KeyError("a mistake")


@probes.add
async def sends_an_invalid_request(ctx: Ctx) -> None:
    """Send a request that breaks the schema, then fail because of the answer."""
    body = {"agent_name": "echo", "input": list[str]()}
    exchange = await ctx.wire.request(
        "POST", ctx.target.url("runs"), sends="createRun.request", receives=None, body=body
    )
    assert exchange.status == 200


SUITE: Final[ProbeSuite[AcpTarget]] = ProbeSuite(open_server, probes)


async def test_judge_error_is_no_failure_of_the_agent() -> None:
    whole = load_set("acp-0.2")
    template = next(each for each in whole.requirements if each.probe)
    requirements = [
        replace(template, id=f"acp-0.2/test.{name}", probe=name)
        for name in ("has_a_mistake", "sends_an_invalid_request")
    ]
    chosen = replace(whole, module=__name__, requirements=tuple(requirements))
    async with serving(SERVER.make("")) as url:
        report = await judge(chosen, url + SERVER.path, SERVER.options)
    assert [each.verdict for each in report.results] == [Verdict.HARNESS_ERROR] * 2
    assert not report.is_conformant, "no requirement passed"
    mistake, request = (each.expected for each in report.results)
    assert "KeyError" in mistake
    assert "of the check breaks" in request and "createRun.request" in request
    text = "\n".join(lines(CheckReport(url, [report], 0.0, "0")))
    assert "Errors of the check, not of the agent" in text
    assert "✗" not in text
