"""Mutation test of the judge of ACP 0.2."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.acp_0_2 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_acp_0_2_are_caught = violation_test(SERVER)
