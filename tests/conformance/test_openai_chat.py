"""The judge of OpenAI's chat completions, judged."""

import pytest

from tests.conformance.mutation import assert_caught
from tests.conformance.servers.openai_chat import SERVER


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_violations_of_openai_chat_are_caught_by_the_requirement_that_they_break() -> None:
    await assert_caught(SERVER)
