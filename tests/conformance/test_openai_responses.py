"""The judge of Open Responses, judged."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.openai_responses import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_openai_responses_are_caught_by_the_requirement_that_they_break = violation_test(SERVER)
