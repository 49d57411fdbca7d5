"""Agents served by the official ACP SDK, one for each thing that a run can do."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from acp_sdk.models import (
    Artifact,
    CitationMetadata,
    Message,
    MessageAwaitRequest,
    MessageAwaitResume,
    MessagePart,
    TrajectoryMetadata,
)
from acp_sdk.server import Context, agent
from acp_sdk.server.app import create_app
from serving import Gate, listen, serve, url

gate = Gate()


def text_of(messages: list[Message]) -> str:
    return "".join(str(message) for message in messages)


def question(text: str) -> MessageAwaitRequest:
    return MessageAwaitRequest(message=Message(role="agent", parts=[MessagePart(content=text)]))


@agent(description="Gives the caller's text back.")
async def echo(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content=text_of(input))


@agent(description="One part for each word; from the second on, each waits for a release.")
async def stream(input: list[Message]) -> AsyncIterator[MessagePart]:
    for index, word in enumerate(text_of(input).split()):
        if index:
            await gate.wait()
        yield MessagePart(content=word if index == 0 else f" {word}")


@agent(description="Asks for a name, then greets it.")
async def ask(input: list[Message]) -> AsyncGenerator[Any, MessageAwaitResume]:
    answer = yield question("What is your name?")
    yield MessagePart(content=f"Hello, {answer.message}.")


@agent(description="Asks twice, one question after the other.")
async def ask_twice(input: list[Message]) -> AsyncGenerator[Any, MessageAwaitResume]:
    yield MessagePart(content="Two questions. ")
    first = yield question("What is your first name?")
    last = yield question("What is your last name?")
    yield MessagePart(content=f"Hello, {first.message} {last.message}.")


@agent(description="Gives each named part back, and a report.txt that holds the text.")
async def files(input: list[Message]) -> AsyncIterator[MessagePart]:
    for message in input:
        for part in message.parts:
            if part.name is not None:
                yield part
    report = base64.b64encode(text_of(input).encode()).decode()
    yield Artifact(name="report.txt", content_type="text/plain", content=report, content_encoding="base64")


@agent(description="One token, then it raises with the caller's text.")
async def fail(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content="Before the fault.")
    raise RuntimeError(text_of(input))


@agent(description="A first token, then silence until it is released or cancelled.")
async def slow(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content="first")
    await gate.wait()
    yield MessagePart(content=" last")


@agent(description="How many messages the session held before this one, and the caller's text.")
async def history(input: list[Message], context: Context) -> AsyncIterator[MessagePart]:
    before = [message async for message in context.session.load_history()]
    yield MessagePart(content=f"{len(before)} before: {text_of(input)}")


@agent(description="A thought, a tool call, a cited sentence, and an event of no fixed kind.")
async def metadata(input: list[Message]) -> AsyncIterator[MessagePart | dict[str, Any]]:
    yield {"progress": 0.5}
    yield MessagePart(metadata=TrajectoryMetadata(message="Thinking about it."))
    used = TrajectoryMetadata(tool_name="word_count", tool_input={"text": text_of(input)}, tool_output={"words": 2})
    yield MessagePart(metadata=used)
    cited = CitationMetadata(url="https://example.com/source", title="A source", start_index=0, end_index=8)
    yield MessagePart(content="As cited.", metadata=cited)


@agent(description="A whole message instead of parts.")
async def message(input: list[Message]) -> AsyncIterator[Message]:
    yield Message(role="agent", parts=[MessagePart(content=text_of(input)), MessagePart(content="!")])


async def main() -> None:
    listener = listen()
    agents = (echo, stream, ask, ask_twice, files, fail, slow, history, metadata, message)
    # create_app and not Server.run, which would try to announce itself to a registry.
    await serve(create_app(*agents, forward_base_url=url(listener)), listener, gate)


if __name__ == "__main__":
    asyncio.run(main())
