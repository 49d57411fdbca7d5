"""Agents served by the official ACP SDK, one for each behavior of a run."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from typing import Any

from acp_sdk.models import (
    ACPError,
    Artifact,
    Capability,
    CitationMetadata,
    Error,
    ErrorCode,
    Message,
    MessageAwaitRequest,
    MessageAwaitResume,
    MessagePart,
    Metadata,
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


@agent(description="Gives the caller's messages back, whole.")
async def message_echo(input: list[Message]) -> AsyncIterator[Message]:
    for each in input:
        yield each


@agent(description="Gives back what the session holds, and then the caller's messages.")
async def history_echo(input: list[Message], context: Context) -> AsyncIterator[Message]:
    async for each in context.session.load_history():
        yield each
    for each in input:
        yield each


@agent(description="The id of the session that it was called in.")
async def session_id(input: list[Message], context: Context) -> AsyncIterator[MessagePart]:
    yield MessagePart(content=str(context.session.id))


@agent(description="Asks with a message of no parts.")
async def ask_nothing(input: list[Message]) -> AsyncGenerator[Any, MessageAwaitResume]:
    yield MessageAwaitRequest(message=Message(parts=[]))
    yield MessagePart(content="empty")


@agent(description="Fails by giving an error.")
async def give_error(input: list[Message]) -> AsyncIterator[Any]:
    yield MessagePart(content="Before the fault.")
    yield Error(code=ErrorCode.INVALID_INPUT, message="Not this.", data={"field": "x"})


@agent(description="Fails by raising an error.")
async def raise_error(input: list[Message]) -> AsyncIterator[MessagePart]:
    raise ACPError(Error(code=ErrorCode.NOT_FOUND, message="Not here."))
    yield MessagePart(content="never")


@agent(
    description=None,
    input_content_types=["text/plain", "application/json"],
    output_content_types=["text/html", "application/json", "text/css"],
    metadata=Metadata(
        tags=["types"],
        capabilities=[Capability(name="Typing", description="Says many types")],
        created_at=datetime(2025, 1, 1, tzinfo=UTC),
        natural_languages=["en"],
    ),
)
async def content_types(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield MessagePart(content="<h1>A page</h1>", content_type="text/html")
    yield MessagePart(content='{"spaced": 1,  "twice":2.0}', content_type="application/json")
    yield MessagePart(content='{"compact":1}', content_type="application/json")
    yield MessagePart(content='{"broken', content_type="application/json")
    yield MessagePart(content="a { color: red }", content_type="text/css")
    yield MessagePart(content="aGk=", content_type="text/plain", content_encoding="base64")
    yield MessagePart(content="iVBORw0KGgo=", content_type="image/png", content_encoding="base64")
    yield MessagePart(content_url="https://example.com/a.png", content_type="image/png")
    yield MessagePart(content="", color="blue")
    yield MessagePart(content="one")
    yield MessagePart(content="")
    yield MessagePart()
    yield MessagePart(content="two")


@agent(description="Artifacts as text, as JSON and as bytes, before, between and after what it says.")
async def artifacts(input: list[Message]) -> AsyncIterator[MessagePart]:
    yield Artifact(name="first.txt", content_type="text/plain", content="Before a word")
    yield MessagePart(content="Working.")
    yield Artifact(name="data.json", content_type="application/json", content='{"results": [1, 2, 3]}')
    yield Artifact(name="b.txt", content_type="text/plain", content="aGk=", content_encoding="base64")
    yield Artifact(name="image.png", content_type="image/png", content="iVBORw0KGgo=", content_encoding="base64")
    yield Artifact(name="url.png", content_type="image/png", content_url="https://example.com/b.png")


@agent(description="An artifact alone, and then a message without parts.")
async def artifact_alone(input: list[Message]) -> AsyncIterator[Any]:
    yield Artifact(name="only.txt", content_type="text/plain", content="Only this")
    yield None
    yield Message(role="agent", parts=[])


@agent(description="Thoughts and tool calls, alone and beside content.")
async def trajectories(input: list[Message]) -> AsyncIterator[MessagePart]:
    called = TrajectoryMetadata(tool_name="search", tool_input={"q": "x"})
    yield MessagePart(metadata=called)
    yield MessagePart(metadata=TrajectoryMetadata(tool_name="search", tool_output={"value": {"hits": 1}}))
    yield MessagePart(content="Found. ", metadata=TrajectoryMetadata(message="One hit.", tool_name="search"))
    yield MessagePart(metadata=TrajectoryMetadata(message="Thinking.", tool_name="f", tool_input={}, tool_output={}))
    yield MessagePart(metadata=TrajectoryMetadata(tool_name="never", tool_input={"a": 1}))
    yield MessagePart(
        content="Cited.", metadata=CitationMetadata(url="https://example.com", start_index=0, end_index=6)
    )
    yield MessagePart(metadata=CitationMetadata(title="Alone"))


async def main() -> None:
    listener = listen()
    agents = (
        *(echo, stream, ask, ask_twice, files, fail, slow, history, metadata, message),
        *(message_echo, history_echo, session_id, ask_nothing, give_error, raise_error),
        *(content_types, artifacts, artifact_alone, trajectories),
    )
    # create_app instead of Server.run, which would try to register with a registry.
    await serve(create_app(*agents, forward_base_url=url(listener)), listener, gate)


if __name__ == "__main__":
    asyncio.run(main())
