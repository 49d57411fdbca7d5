"""The judge of LangGraph Platform, judged."""

from dataclasses import replace
from typing import Final

from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import judged, violation_test
from tests.conformance.servers.langgraph_0_16 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_langgraph_platform_are_caught_by_the_requirement_that_they_break = violation_test(SERVER)


async def test_what_an_agent_never_does_says_nothing_against_it() -> None:
    given = SERVER.options.triggers.by_behaviour
    never = {name: Trigger("", is_never=True) for name in ("stream", "question", "questions", "fail", "long")}
    server = replace(SERVER, options=replace(SERVER.options, triggers=Triggers({**given, **never})))
    report = await judged(server, server.make(""))
    verdicts = {each.requirement.name: each.verdict for each in report.results}
    assert verdicts["question.wait"] is Verdict.NOT_APPLICABLE
    assert verdicts["beside.reject"] is Verdict.NOT_APPLICABLE
    assert verdicts["stream.values"] is Verdict.PASS
    assert report.is_conformant
