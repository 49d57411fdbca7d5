"""The judge of MCP 2026-07-28, judged."""

from typing import Final

import pytest

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import assert_caught, groups_of
from tests.conformance.servers.mcp_2026_07_28 import SERVER

LOOPS: Final = {"hasty": HastyLoop}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", groups_of(SERVER))
async def test_violations_of_mcp_2026_07_28_are_caught_by_the_requirement_that_they_break(
    group: str, request: pytest.FixtureRequest
) -> None:
    await assert_caught(SERVER, group, request)
