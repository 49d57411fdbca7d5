"""A Google ADK agent behind ADK's own A2A server. Its model follows a script, so it needs no API key."""

from collections.abc import AsyncGenerator

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types

PORT = 9000


class ScriptedModel(BaseLlm):
    """Model that calls the tool first and then answers with its result."""

    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        part = (llm_request.contents[-1].parts or [])[-1]
        if part.function_response and part.function_response.response:
            reply = types.Part(text=f"It has {part.function_response.response['degrees']} degrees.")
        else:
            call = types.FunctionCall(id="call-1", name="get_temperature", args={"city": part.text})
            reply = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[reply]))


def get_temperature(city: str) -> dict[str, int]:
    """Return the temperature in a city."""
    return {"degrees": 21}


# For a real model, write model="gemini-2.5-flash" and set GOOGLE_API_KEY.
agent = LlmAgent(name="weather", description="Reports the weather.", model=ScriptedModel(), tools=[get_temperature])

if __name__ == "__main__":
    uvicorn.run(to_a2a(agent, port=PORT), port=PORT)
