"""An agent of Microsoft's Agent Framework behind A2A: a scripted model with a tool.

It answers in several pieces at `/pieces`, and in one at `/whole`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    UsageDetails,
)
from agent_framework_a2a import A2AExecutor
from serving import Gate, listen, serve, url
from starlette.applications import Starlette
from starlette.routing import Mount

USAGE = UsageDetails(input_token_count=4411, output_token_count=7, total_token_count=4418)


class Scripted(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        """Return a thought and a tool call, or the result of the call."""
        results = [each for each in messages[-1].contents if each.type == "function_result"]
        if results:
            contents = [Content.from_text("It gave "), Content.from_text(str(results[-1].result).partition(",")[0])]
        else:
            call = Content.from_function_call("c1", "weather", arguments={"city": "Rome"})
            contents = [Content.from_text_reasoning(text="I should look."), call]
        contents.append(Content.from_usage(USAGE))
        if stream:
            return ResponseStream(self._pieces(contents), finalizer=ChatResponse.from_updates)
        return self._whole(contents)

    async def _pieces(self, contents: list[Content]) -> AsyncIterator[ChatResponseUpdate]:
        for each in contents:
            yield ChatResponseUpdate(contents=[each], role="assistant", message_id="m1")

    async def _whole(self, contents: list[Content]) -> ChatResponse:
        return ChatResponse(messages=[Message("assistant", contents)], usage_details=USAGE)


def weather(city: str) -> str:
    """Return the weather."""
    return "21 degrees, sunny"


async def main() -> None:
    listener = listen()
    mounts: list[Mount] = []
    for name, streams in (("pieces", True), ("whole", False)):
        card = AgentCard(
            name="demo",
            description="x",
            version="1.0.0",
            default_input_modes=["text"],
            default_output_modes=["text"],
            capabilities=AgentCapabilities(streaming=True),
            supported_interfaces=[
                AgentInterface(url=f"{url(listener)}/{name}/", protocol_binding="JSONRPC", protocol_version="1.0")
            ],
        )
        agent = Agent(client=Scripted(), name="demo", tools=[weather])
        handler = DefaultRequestHandler(
            agent_executor=A2AExecutor(agent, stream=streams), task_store=InMemoryTaskStore(), agent_card=card
        )
        routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
        mounts.append(Mount(f"/{name}", routes=routes))
    await serve(Starlette(routes=mounts), listener, Gate())


asyncio.run(main())
