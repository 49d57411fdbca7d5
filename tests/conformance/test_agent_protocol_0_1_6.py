"""Mutation test of the judge of the Agent Protocol."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.agent_protocol_0_1_6 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_the_agent_protocol_are_caught = violation_test(SERVER)
