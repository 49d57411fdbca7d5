"""An agent of Strands behind its own A2A server: a scripted model with two tools, one of which asks first.

It answers in both forms that the server has: in artifacts at `/pieces`, and in its status at `/status`.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import Mount
from strands import Agent, ToolContext, tool
from strands.models import Model
from strands.multiagent.a2a import A2AServer

CALLS = {"wipe": ("c9", "wipe", '{"disk":"sda"}'), "weather": ("c1", "weather", '{"city":"Rome"}')}


class Scripted(Model):
    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Yield a thought and a tool call, or the result of the call."""
        results = [each["toolResult"] for each in messages[-1]["content"] if "toolResult" in each]
        yield {"messageStart": {"role": "assistant"}}
        if results:
            result = results[-1]["content"][0]["text"].partition(",")[0]
            for piece in ("It gave ", result):
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
            yield {"contentBlockStop": {}}
        else:
            text = "".join(each.get("text", "") for each in messages[-1]["content"])
            call_id, name, arguments = next(call for word, call in CALLS.items() if word in text)
            yield {"contentBlockDelta": {"delta": {"reasoningContent": {"text": "I should look."}}}}
            yield {"contentBlockStop": {}}
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call_id, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}
        usage = {"inputTokens": 4411, "outputTokens": 7, "totalTokens": 4418}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return "21 degrees, sunny"


@tool(context=True)
def wipe(disk: str, tool_context: ToolContext) -> str:
    """Erase a disk."""
    return f"{tool_context.interrupt('approval', reason=f'Wipe {disk}?')} for {disk}"


def agent(context_id: str) -> Agent:
    return Agent(name="demo", description="x", model=Scripted(), tools=[weather, wipe], callback_handler=None)


async def main() -> None:
    listener = listen()
    mounts: list[Mount] = []
    for name, compliant in (("pieces", True), ("status", False)):
        server = A2AServer(
            agent_factory=agent,
            http_url=f"{url(listener)}/{name}",
            serve_at_root=True,
            enable_a2a_compliant_streaming=compliant,
        )
        mounts.append(Mount(f"/{name}", server.to_starlette_app()))
    await serve(Starlette(routes=mounts), listener, Gate())


asyncio.run(main())
