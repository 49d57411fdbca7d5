"""The set of ACP against the official SDK: what its server does not keep of level must is known, and is its own."""

from pathlib import Path

import pytest

from babelgate.conformance.baseline import read_baseline
from babelgate.conformance.examine import Selection, examine
from babelgate.conformance.probe import Options
from babelgate.conformance.trigger import read_triggers
from babelgate.conformance.verdict import Verdict
from tests.conformance.recorded import assert_recorded
from tests.interop.driver import start_server

pytestmark = pytest.mark.slow

BASELINE = Path(__file__).parent / "baselines" / "acp-sdk-1.0.3.yaml"


@pytest.mark.timeout(120)
async def test_what_the_official_server_does_not_keep_is_known(accept: bool) -> None:
    options = Options(triggers=read_triggers("sdk"), timeout=8.0)
    async with start_server("acp") as server:
        report = await examine(server.url, Selection("acp"), options, baseline=read_baseline(BASELINE))
    (found,) = report.sets
    assert not {each.requirement.id: f"{each.verdict}: {each.expected}: {each.got}" for each in found.against()}
    assert not found.stale
    assert not [each for each in found.results if each.verdict is Verdict.HARNESS_ERROR]
    assert_recorded("acp-sdk 1.0.3", report, accept)
