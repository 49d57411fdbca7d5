"""An agent of Agno behind its AG-UI interface at `/demo/agui`: a scripted model with a tool, a tool that needs a
confirmation, and the tools of the caller. The input names what it does."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.agui import AGUI
from agno.tools import tool
from serving import Gate, listen, serve

CALLS = {
    "wipe": ("c9", "wipe", '{"disk": "sda"}'),
    "pick": ("c5", "pick", '{"city": "Rome"}'),
    "weather": ("c1", "weather", '{"city": "Rome"}'),
}


class Scripted(Model):
    def scripted(self, messages: list[Message]) -> Iterator[ModelResponse]:
        """Yield a tool call, the result of the call, or two pieces of text."""
        last = messages[-1]
        text = str(last.content)
        if last.role != "tool" and "fail" in text:
            raise RuntimeError("The model broke on purpose")
        call = next((call for word, call in CALLS.items() if word in text), None)
        if call and last.role != "tool":
            call_id, name, arguments = call
            function = {"name": name, "arguments": arguments}
            call_of_model = {"id": call_id, "type": "function", "function": function}
            yield ModelResponse(role="assistant", tool_calls=[call_of_model])
            return
        for piece in ("It gave ", text) if last.role == "tool" else ("Hello, ", "Ada"):
            yield ModelResponse(role="assistant", content=piece)

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
    return f"sun in {city}"


@tool(requires_confirmation=True)
def wipe(disk: str) -> str:
    """Erase a disk."""
    return f"wiped {disk}"


async def main() -> None:
    agent = Agent(
        id="demo",
        name="demo",
        model=Scripted(id="scripted"),
        tools=[weather, wipe],
        db=InMemoryDb(),
        telemetry=False,
    )
    app = AgentOS(agents=[agent], interfaces=[AGUI(agent=agent, prefix="/demo")], telemetry=False).get_app()
    await serve(app, listen(), Gate())


asyncio.run(main())
