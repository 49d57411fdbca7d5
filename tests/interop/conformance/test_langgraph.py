"""LangGraph Platform against its official server: what that does not keep of level must is known, and is its own."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from babelgate.conformance.baseline import apply, read_baseline
from babelgate.conformance.examine import Selection, examine
from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import read_triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.langgraph_dev import langgraph_dev

pytestmark = pytest.mark.slow

BASELINE: Final = Path(__file__).parent / "baselines" / "langgraph-api-0.16.7.yaml"
CHANCE: Final = "resume.own-id"
"""The server in memory numbers events by the millisecond (langgraph#8112): whether two have the same id is chance."""


@pytest.mark.timeout(180)
async def test_what_the_official_server_does_not_keep_is_known(tmp_path: Path, accept: bool) -> None:
    options = Options(triggers=read_triggers("demo"), timeout=20.0)
    async with langgraph_dev(tmp_path) as url:
        report = await examine(url, Selection("langgraph"), options)
    [whole] = report.sets
    lasting = [result for result in whole.results if result.requirement.name != CHANCE]
    only = apply(read_baseline(BASELINE), replace(whole, results=lasting))
    new = {result.requirement.id: f"{result.verdict}: {result.expected}: {result.got}" for result in only.against()}
    assert not new
    assert not only.stale
    assert not [result for result in only.results if result.verdict is Verdict.HARNESS_ERROR]
    assert_recorded("langgraph-api 0.16.7", replace(report, sets=[only]), accept)
