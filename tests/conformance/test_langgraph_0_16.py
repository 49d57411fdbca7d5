"""The judge of LangGraph Platform, judged."""

from dataclasses import replace
from typing import Final

import pytest

from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import assert_caught, groups_of, judged
from tests.conformance.servers.langgraph_0_16 import SERVER

LOOPS: Final = {"hasty": HastyLoop}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", groups_of(SERVER))
async def test_violations_of_langgraph_platform_are_caught_by_the_requirement_that_they_break(
    group: str, request: pytest.FixtureRequest
) -> None:
    await assert_caught(SERVER, group, request)


async def test_what_an_agent_never_does_says_nothing_against_it() -> None:
    given = SERVER.options.triggers.given
    never = {name: Trigger("", is_never=True) for name in ("stream", "question", "questions", "fail", "long")}
    server = replace(SERVER, options=replace(SERVER.options, triggers=Triggers({**given, **never})))
    report = await judged(server, server.make(""))
    verdicts = {each.requirement.name: each.verdict for each in report.results}
    assert verdicts["question.wait"] is Verdict.NOT_APPLICABLE
    assert verdicts["beside.reject"] is Verdict.NOT_APPLICABLE
    assert verdicts["stream.values"] is Verdict.PASS
    assert report.is_conformant
