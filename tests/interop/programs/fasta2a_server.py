"""Agents of Pydantic AI behind FastA2A: a scripted model with a tool, and one whose answer has a type."""

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


def given(messages: list[ModelMessage]) -> str | None:
    """What the tool gave."""
    return next(
        (str(part.content).partition(",")[0] for part in messages[-1].parts if isinstance(part, ToolReturnPart)), None
    )


def whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A thought and a call; and then what the call gave, or a value of the type that is asked for."""
    thought = ThinkingPart(content="I should look.", id="t1", signature="c2ln")
    told = given(messages)
    if info.output_tools:
        said = [thought, ToolCallPart(info.output_tools[0].name, {"city": "Rome", "degrees": 21}, "c2")]
    elif told is None:
        said = [thought, ToolCallPart("weather", {"city": "Rome"}, "c1")]
    else:
        said = [TextPart(f"It gave {told}")]
    return ModelResponse(parts=said, usage=USAGE)


async def pieces(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
    told = given(messages)
    if told is None:
        yield {0: DeltaThinkingPart(content="I should look.", signature="c2ln")}
        yield {1: DeltaToolCall("weather", '{"city":"Rome"}', tool_call_id="c1")}
    else:
        for piece in ("It gave ", told):
            yield piece


def weather(city: str) -> str:
    """The weather."""
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
        # An app that is mounted is not started by the one that it is in.
        async with AsyncExitStack() as stack:
            for app in apps.values():
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    mounts = [Mount(f"/{name}", app) for name, app in apps.items()]
    await serve(Starlette(routes=mounts, lifespan=together), listener, Gate())


asyncio.run(main())
