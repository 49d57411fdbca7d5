"""An agent of google-adk behind its own A2A server: a scripted model with three tools.

One tool needs a confirmation, and one waits for a later answer.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.genai import types
from serving import Gate, listen, serve, url

CALLS = {
    "wipe": types.FunctionCall(id="c9", name="wipe", args={"disk": "sda"}),
    "boss": types.FunctionCall(id="c5", name="ask_boss", args={"question": "ok?"}),
    "weather": types.FunctionCall(id="c1", name="weather", args={"city": "Rome"}),
}
USAGE = types.GenerateContentResponseUsageMetadata(
    prompt_token_count=4411, candidates_token_count=7, total_token_count=4418
)


class Scripted(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield a thought and a tool call, or the result of the call."""
        parts = llm_request.contents[-1].parts or []
        results = [part.function_response for part in parts if part.function_response]
        if results:
            answer = [types.Part(text=f"{results[-1].name} gave {results[-1].response}")]
        else:
            text = "".join(part.text or "" for part in parts)
            call = next(call for name, call in CALLS.items() if name in text)
            answer = [types.Part(text="I should look.", thought=True), types.Part(function_call=call)]
        yield LlmResponse(content=types.Content(role="model", parts=answer), usage_metadata=USAGE)


def weather(city: str) -> dict[str, Any]:
    """Return the weather."""
    return {"temp": 21}


def wipe(disk: str) -> dict[str, Any]:
    """Erase a disk."""
    return {"wiped": disk}


def ask_boss(question: str) -> None:
    """Ask the boss, who answers later."""


async def main() -> None:
    listener = listen()
    agent = LlmAgent(
        name="demo",
        model=Scripted(),
        tools=[weather, FunctionTool(wipe, require_confirmation=True), LongRunningFunctionTool(ask_boss)],
    )
    port = int(url(listener).rpartition(":")[2])
    await serve(to_a2a(agent, host="127.0.0.1", port=port), listener, Gate())


asyncio.run(main())
