"""A short campaign. `python -m tests.mutate` runs longer ones."""

from pathlib import Path

import pytest

from tests.limits.strain import MOST_BUSY, MOST_MEMORY, MOST_WAIT
from tests.mutate.campaign import campaign

pytestmark = pytest.mark.timeout(120)


async def test_mutated_requests_are_answered_without_blocking_others(tmp_path: Path) -> None:
    async with campaign(tmp_path, seed=1) as tally:
        await tally.send(0, 400)
    assert tally.faults == [], tally.summary()
    assert sum(tally.answers.values()) == 400
    assert {200, 400, 404, 422} <= set(tally.answers), tally.summary()
    assert tally.wait <= MOST_WAIT and tally.busy <= MOST_BUSY and tally.memory <= MOST_MEMORY, tally.summary()
