"""Agents of Pydantic AI behind its AG-UI adapter: with a thought and a tool, with a tool that needs an approval, and
with a tool of the front end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from serving import Gate, listen, serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def result_of(messages: list[ModelMessage]) -> str | None:
    return next((str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)), None)


async def pieces(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Yield a thought and a call of the only tool, or its result in two pieces."""
    result = result_of(messages)
    if result is None:
        name = (info.function_tools or info.output_tools)[0].name
        yield {0: DeltaThinkingPart(content="I should look.", signature="c2ln")}
        yield {1: DeltaToolCall(name, '{"city":"Rome"}', tool_call_id=f"c{len(messages)}")}
    else:
        for piece in ("It gave ", result):
            yield piece


async def counted(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    yield f"{len(messages)} messages"


def weather(city: str) -> str:
    """Return the weather."""
    return f"sun in {city}"


def main() -> Any:
    model = FunctionModel(stream_function=pieces)
    approve = Agent(model, output_type=[str, DeferredToolRequests])
    approve.tool_plain(requires_approval=True)(weather)
    agents: dict[str, Agent[Any, Any]] = {
        "tool": Agent(model, tools=[weather]),
        "approve": approve,
        "frontend": Agent(model),
        "count": Agent(FunctionModel(stream_function=counted)),
    }

    async def run(request: Request) -> Response:
        return await AGUIAdapter.dispatch_request(request, agent=agents[request.path_params["name"]])

    return serve(Starlette(routes=[Route("/{name}", run, methods=["POST"])]), listen(), Gate())


if __name__ == "__main__":
    asyncio.run(main())
