"""Mutation test of the judge of Open Responses."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.openai_responses import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_openai_responses_are_caught = violation_test(SERVER)
