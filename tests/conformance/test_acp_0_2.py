"""The judge of ACP 0.2, judged."""

from typing import Final

import pytest

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import assert_caught, groups_of
from tests.conformance.servers.acp_0_2 import SERVER

LOOPS: Final = {"hasty": HastyLoop}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", groups_of(SERVER))
async def test_violations_of_acp_0_2_are_caught_by_the_requirement_that_they_break(
    group: str, request: pytest.FixtureRequest
) -> None:
    await assert_caught(SERVER, group, request)
