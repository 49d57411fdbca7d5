"""Server with the official ACP SDK: `echo` repeats its input as a whole, `stream` word by word."""

from collections.abc import AsyncIterator

from acp_sdk.models import Message, MessagePart
from acp_sdk.server import agent
from acp_sdk.server.app import create_app
from pieces import pieces


def text_of(messages: list[Message]) -> str:
    return "".join(str(message) for message in messages)


@agent(description="Echo.")
async def echo(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content=text_of(input))


@agent(description="Echo, word by word.")
async def stream(input: list[Message]) -> AsyncIterator[MessagePart]:
    for text, _, _ in pieces(text_of(input), streams=True):
        yield MessagePart(content=text)


# The SDK's Server.run would register the server at a registry.
app = create_app(echo, stream)
