"""The sets of A2A against the official SDKs: what their servers do not keep of level must is known, and is theirs."""

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

BASELINES = Path(__file__).parent / "baselines"


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("peer", "sdk", "versions"), [("a2a-1.0", "a2a-sdk 1.3.0", ["0.3", "1.0"]), ("a2a-0.3", "a2a-sdk 0.3.26", ["0.3"])]
)
async def test_what_the_official_server_does_not_keep_is_known(
    peer: str, sdk: str, versions: list[str], accept: bool
) -> None:
    options = Options(triggers=read_triggers("sdk"), timeout=8.0)
    known = read_baseline(BASELINES / f"{sdk.replace(' ', '-')}.yaml")
    async with start_server(peer) as server:
        report = await examine(f"{server.url}/echo", Selection("a2a"), options, baseline=known)
    assert [each.set.version for each in report.sets] == versions
    for each in report.sets:
        new = {result.requirement.id: f"{result.verdict}: {result.expected}: {result.got}" for result in each.against()}
        assert not new
        assert not each.stale
        assert not [result for result in each.results if result.verdict is Verdict.HARNESS_ERROR]
    assert_recorded(sdk, report, accept)
