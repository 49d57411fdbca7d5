"""The judge of the Agent Protocol, judged."""

import pytest

from tests.conformance.mutation import assert_caught
from tests.conformance.servers.agent_protocol_0_1_6 import SERVER


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_violations_of_the_agent_protocol_are_caught_by_the_requirement_that_they_break() -> None:
    await assert_caught(SERVER)
