"""Mutation test of the judge of A2A 1.0."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.a2a_1_0 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_a2a_1_0_are_caught = violation_test(SERVER)
