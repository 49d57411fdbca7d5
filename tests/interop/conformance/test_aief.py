"""The set of AIEF v1 against the official SDK: what its server does not keep of level must is known, and is its own."""

from typing import Final

import pytest

from babelgate.conformance.examine import Selection, examine
from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.driver import start_server

pytestmark = pytest.mark.slow

KNOWN: Final = {
    "task.additional-input": "agent-protocol 1.0.2 makes {} of it; repaired in its repository only",
    "list.artifacts-page": "it gives all artifacts on every page",
    "file.same-name": "it stores files below their names, so the second one takes the place of the first",
    "error.step": "its get_step looks at the task_id alone, and gives the task's first step",
    "error.foreign-step": "the same",
    "form.task": "additional_input is null where none was sent; the document says object",
    "form.step": "the same",
    "form.artifact-list": "a bare array, without pagination",
}
"""Requirements of level must, and how the SDK's server breaks them."""

TRIGGERS: Final = Triggers(
    {
        "plain": Trigger("Hello"),
        "question": Trigger("Hi", agent="ask", answer="Ada"),
        "fail": Trigger("as it was told to", agent="fail"),
        "files": Trigger("the report", agent="files"),
        "steps": Trigger("Go", agent="steps"),
    }
)


async def test_what_the_official_server_does_not_keep_is_known(accept: bool) -> None:
    async with start_server("aief") as server:
        report = await examine(f"{server.url}/echo", Selection("aief"), Options(triggers=TRIGGERS))
    (found,) = report.sets
    results = {each.requirement.name: each for each in found.results}
    broken = {
        name: each.expected
        for name, each in results.items()
        if each.requirement.level == "must" and each.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    }
    assert broken.keys() == KNOWN.keys(), broken
    assert not [name for name, each in results.items() if each.verdict is Verdict.HARNESS_ERROR]
    assert_recorded("agent-protocol 1.0.2", report, accept)
