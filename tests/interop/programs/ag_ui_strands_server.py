"""An agent of Strands behind ag-ui-strands at `/demo`: a scripted model with a tool, a tool that asks first, and the
tools of the caller. The input names what it does."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from ag_ui_strands import StrandsAgent, add_strands_fastapi_endpoint
from fastapi import FastAPI
from serving import Gate, listen, serve
from strands import Agent, ToolContext, tool
from strands.models import Model

CALLS = {
    "wipe": ("c9", "wipe", '{"disk":"sda"}'),
    "pick": ("c5", "pick", '{"city":"Rome"}'),
    "weather": ("c1", "weather", '{"city":"Rome"}'),
}


class Scripted(Model):
    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Yield a tool call, the result of the call, or two pieces of text."""
        results = [each["toolResult"] for each in messages[-1]["content"] if "toolResult" in each]
        text = "".join(each.get("text", "") for each in messages[-1]["content"])
        if "fail" in text and not results:
            raise RuntimeError("The model broke on purpose")
        call = next((call for word, call in CALLS.items() if word in text), None)
        yield {"messageStart": {"role": "assistant"}}
        if call and not results:
            call_id, name, arguments = call
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
        else:
            for piece in ("It gave ", str(results[-1]["content"])) if results else ("Hello, ", "Ada"):
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call and not results else "end_turn"}}


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"sun in {city}"


@tool(context=True)
def wipe(disk: str, tool_context: ToolContext) -> str:
    """Erase a disk."""
    return f"{tool_context.interrupt('approval', reason=f'Wipe {disk}?')} for {disk}"


async def main() -> None:
    app = FastAPI()
    agent = Agent(name="demo", model=Scripted(), tools=[weather, wipe], callback_handler=None)
    add_strands_fastapi_endpoint(app, StrandsAgent(agent, name="demo"), "/demo")
    await serve(app, listen(), Gate())


asyncio.run(main())
