"""The judge of ACP 0.2, judged."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.acp_0_2 import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_acp_0_2_are_caught_by_the_requirement_that_they_break = violation_test(SERVER)
