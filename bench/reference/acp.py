"""The official ACP SDK: `echo` says its input."""

from collections.abc import AsyncIterator

from acp_sdk.models import Message, MessagePart
from acp_sdk.server import agent
from acp_sdk.server.app import create_app


@agent(description="Echo.")
async def echo(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content="".join(str(message) for message in input))


# Not the SDK's Server.run, which would announce itself to a registry.
app = create_app(echo)
