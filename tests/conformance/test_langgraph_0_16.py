"""Mutation test of the judge of LangGraph Platform."""

from dataclasses import replace
from typing import Final

from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import judged, violation_test
from tests.conformance.servers.langgraph_0_16 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_langgraph_platform_are_caught = violation_test(SERVER)


async def test_behaviours_declared_as_never_are_not_applicable() -> None:
    triggers = SERVER.options.triggers.by_behaviour
    never = {name: Trigger("", is_never=True) for name in ("stream", "question", "questions", "fail", "long")}
    server = replace(SERVER, options=replace(SERVER.options, triggers=Triggers({**triggers, **never})))
    report = await judged(server, server.make(""))
    verdicts = {each.requirement.name: each.verdict for each in report.results}
    assert verdicts["question.wait"] is Verdict.NOT_APPLICABLE
    assert verdicts["beside.reject"] is Verdict.NOT_APPLICABLE
    assert verdicts["stream.values"] is Verdict.PASS
    assert report.is_conformant
