"""Agents of Pydantic AI behind FastA2A: a scripted model with a tool, and one with a typed answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fasta2a.pydantic_ai import agent_to_a2a
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage
from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import Mount

USAGE = RequestUsage(input_tokens=4411, output_tokens=7)


class Weather(BaseModel):
    city: str
    degrees: int


def tool_result(messages: list[ModelMessage]) -> str | None:
    """Return the result of the tool, if there is one."""
    return next(
        (str(part.content).partition(",")[0] for part in messages[-1].parts if isinstance(part, ToolReturnPart)), None
    )


def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Return a thought and a tool call, or the result of the call, or a value of the requested type."""
    thought = ThinkingPart(content="I should look.", id="t1", signature="c2ln")
    result = tool_result(messages)
    if info.output_tools:
        parts = [thought, ToolCallPart(info.output_tools[0].name, {"city": "Rome", "degrees": 21}, "c2")]
    elif result is None:
        parts = [thought, ToolCallPart("weather", {"city": "Rome"}, "c1")]
    else:
        parts = [TextPart(f"It gave {result}")]
    return ModelResponse(parts=parts, usage=USAGE)


async def pieces(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
    result = tool_result(messages)
    if result is None:
        yield {0: DeltaThinkingPart(content="I should look.", signature="c2ln")}
        yield {1: DeltaToolCall("weather", '{"city":"Rome"}', tool_call_id="c1")}
    else:
        for piece in ("It gave ", result):
            yield piece


def weather(city: str) -> str:
    """Return the weather."""
    return "21 degrees, sunny"


async def main() -> None:
    listener = listen()
    agents = {
        "pieces": Agent(FunctionModel(whole, stream_function=pieces), name="demo", tools=[weather]),
        "whole": Agent(FunctionModel(whole), name="demo", tools=[weather]),
        "typed": Agent(FunctionModel(whole), name="demo", output_type=Weather),
    }
    apps = {name: agent_to_a2a(agent, url=f"{url(listener)}/{name}/") for name, agent in agents.items()}

    @asynccontextmanager
    async def together(_: Starlette) -> AsyncIterator[None]:
        # Starlette does not start mounted applications.
        async with AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    mounts = [Mount(f"/{name}", app) for name, app in apps.items()]
    await serve(Starlette(routes=mounts, lifespan=together), listener, Gate())


asyncio.run(main())
