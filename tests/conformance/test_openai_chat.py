"""Mutation test of the judge of OpenAI's chat completions."""

from typing import Final

from tests.conformance.hasty import HastyLoop
from tests.conformance.mutation import violation_test
from tests.conformance.servers.openai_chat import SERVER

LOOPS: Final = {"hasty": HastyLoop}

test_violations_of_openai_chat_are_caught = violation_test(SERVER)
