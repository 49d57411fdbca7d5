"""A short campaign: `python -m tests.mutate` is the long one."""

from pathlib import Path

import pytest

from tests.limits.strain import MOST_BUSY, MOST_MEMORY, MOST_WAIT
from tests.mutate.campaign import campaign

pytestmark = pytest.mark.timeout(120)


async def test_requests_that_chance_has_changed_are_answered_and_hold_nobody_up(tmp_path: Path) -> None:
    async with campaign(tmp_path, seed=1) as made:
        await made.send(0, 400)
    assert made.faults == [], made.summary()
    assert sum(made.answers.values()) == 400
    assert {200, 400, 404, 422} <= set(made.answers), made.summary()
    assert made.wait <= MOST_WAIT and made.busy <= MOST_BUSY and made.memory <= MOST_MEMORY, made.summary()
