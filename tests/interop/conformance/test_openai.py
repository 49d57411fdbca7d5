"""The sets of OpenAI against GraphServe, as no server of OpenAI can be installed: what it does not keep is its own."""

from pathlib import Path

import pytest

from babelgate.conformance.baseline import read_baseline
from babelgate.conformance.examine import Selection, examine
from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import Trigger, Triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.driver import start_server

pytestmark = pytest.mark.slow

BASELINE = Path(__file__).parent / "baselines" / "graphserve-0.2.3.yaml"
NEVER = Trigger("", is_never=True)
TRIGGERS = Triggers(
    {"plain": Trigger("Hello", agent="echo"), "fail": Trigger("x", agent="fail"), "calls": NEVER, "data": NEVER}
)


@pytest.mark.timeout(120)
async def test_what_graphserve_does_not_keep_is_known(accept: bool) -> None:
    known = read_baseline(BASELINE)
    async with start_server("graphserve") as server:
        report = await examine(f"{server.url}/v1", Selection("openai"), Options(triggers=TRIGGERS), baseline=known)
    assert [each.set.name for each in report.sets] == ["openai-chat", "openai-responses"]
    for found in report.sets:
        assert not {each.requirement.id: f"{each.verdict}: {each.expected}: {each.got}" for each in found.against()}
        assert not found.stale
        assert not [each for each in found.results if each.verdict is Verdict.HARNESS_ERROR]
    assert_recorded("graphserve 0.2.3", report, accept)
