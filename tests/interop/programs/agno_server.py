"""An agent of Agno behind its AgentOS: a scripted model with a tool."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message, MessageMetrics
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.a2a import A2A
from serving import Gate, listen, serve

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
USAGE = MessageMetrics(input_tokens=4411, output_tokens=7, total_tokens=4418)


class Scripted(Model):
    def scripted(self, messages: list[Message]) -> Iterator[ModelResponse]:
        """Yield a thought and a tool call, or the result of the call."""
        last = messages[-1]
        if last.role == "tool":
            for piece in ("It gave ", str(last.content).partition(",")[0]):
                yield ModelResponse(role="assistant", content=piece)
        else:
            yield ModelResponse(role="assistant", reasoning_content="I should look.")
            yield ModelResponse(role="assistant", tool_calls=[CALL])
        yield ModelResponse(role="assistant", response_usage=USAGE)

    async def ainvoke_stream(self, messages: list[Message], *_: Any, **__: Any) -> AsyncIterator[ModelResponse]:
        for each in self.scripted(messages):
            yield each

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


def weather(city: str) -> str:
    """Return the weather."""
    return "21 degrees, sunny"


async def main() -> None:
    agent = Agent(id="demo", name="demo", model=Scripted(id="scripted"), tools=[weather], telemetry=False)
    app = AgentOS(agents=[agent], interfaces=[A2A(agents=[agent])], telemetry=False).get_app()
    await serve(app, listen(), Gate())


asyncio.run(main())
