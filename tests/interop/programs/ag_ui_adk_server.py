"""An agent of google-adk behind ag-ui-adk, with questions as interrupts at `/demo` and as tool calls at `/plain`.

It is a scripted model with a tool, a tool that needs a confirmation, and the tools of the caller. The input names what
it does."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ag_ui_adk import ADKAgent, AGUIToolset, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types
from serving import Gate, listen, serve

CALLS = {
    "wipe": types.FunctionCall(id="c9", name="wipe", args={"disk": "sda"}),
    "pick": types.FunctionCall(id="c5", name="pick", args={"city": "Rome"}),
    "weather": types.FunctionCall(id="c1", name="weather", args={"city": "Rome"}),
}


class Scripted(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield a tool call, the result of the call, or two pieces of text."""
        parts = llm_request.contents[-1].parts or []
        results = [part.function_response for part in parts if part.function_response]
        text = "".join(part.text or "" for part in parts)
        if "fail" in text and not results:
            raise RuntimeError("The model broke on purpose")
        call = next((call for word, call in CALLS.items() if word in text), None)
        if call and not results:
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
            return
        pieces = ("It gave ", str(results[-1].response)) if results else ("Hello, ", "Ada")
        for piece in pieces:
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="".join(pieces))]))


def weather(city: str) -> dict[str, Any]:
    """Return the weather."""
    return {"weather": f"sun in {city}"}


def wipe(disk: str) -> dict[str, Any]:
    """Erase a disk."""
    return {"wiped": disk}


async def main() -> None:
    app = FastAPI()
    agent = LlmAgent(
        name="demo", model=Scripted(), tools=[weather, FunctionTool(wipe, require_confirmation=True), AGUIToolset()]
    )
    for path, has_interrupts in (("/demo", True), ("/plain", False)):
        wrapped = ADKAgent(adk_agent=agent, app_name="demo", user_id="u", emit_interrupt_outcome=has_interrupts)
        add_adk_fastapi_endpoint(app, wrapped, path=path)
    await serve(app, listen(), Gate())


asyncio.run(main())
