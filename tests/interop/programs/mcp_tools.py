"""Tools of the official MCP SDK, one for each behavior of a call. The program that imports them serves them."""

import asyncio
import os
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import Completion, ElicitRequest, ElicitRequestFormParams, InputRequiredResult, ResourceLink
from pydantic import BaseModel


class Hold:
    """Place where `slow` waits. The program may replace the methods."""

    async def wait(self) -> None:
        await asyncio.Event().wait()

    def note_start(self) -> None:
        pass

    def note_cancel(self) -> None:
        pass


hold = Hold()
server = MCPServer("tools", version="1", instructions="One tool for each thing that a call can do.")


@server.tool(description="Gives the caller's text back.")
def echo(text: str) -> str:
    return text


@server.tool(description="Raises with the caller's text.")
def fail(text: str) -> str:
    raise RuntimeError(text)


@server.tool(description="Tells three steps of progress.")
async def steps(text: str, ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step + 1, 3)
    return text


@server.tool(description="Is silent until it is released or cancelled.")
async def slow(text: str) -> str:
    hold.note_start()
    try:
        await hold.wait()
    except asyncio.CancelledError:
        hold.note_cancel()
        raise
    return text


@server.tool(description="Ends its process.")
async def crash(text: str) -> str:
    os._exit(7)


@server.tool(description="Asks for a name, of clients that keep no session.")
async def ask(text: str, ctx: Context) -> str | InputRequiredResult:
    capabilities = ctx.client_capabilities
    # The SDK does not check the capability for the tool.
    if ctx.input_responses or capabilities is None or capabilities.elicitation is None:
        return text
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    question = ElicitRequest(params=ElicitRequestFormParams(message="What is your name?", requested_schema=schema))
    return InputRequiredResult(input_requests={"name": question}, request_state=text)


class Name(BaseModel):
    name: str


@server.tool(description="Asks for a name during the call.")
async def form(text: str, ctx: Context) -> str:
    answer = await ctx.elicit("What is your name?", Name)
    return f"{text} {answer.data.name}" if answer.action == "accept" else f"{text} {answer.action}"


@server.tool(description="Counts words.")
def count(text: str) -> dict[str, int]:
    return {"words": len(text.split())}


@server.tool(description="Returns a picture, and a link to a note.", structured_output=False)
def picture(text: str) -> list[Any]:
    link = ResourceLink(uri="note://one", name="note.txt", mime_type="text/plain")
    return [text, Image(data=b"\x89PNG", format="png"), link]


@server.resource("note://one", mime_type="text/plain")
def note() -> str:
    return "Noted."


@server.resource("picture://one", mime_type="image/png")
def image() -> bytes:
    return b"\x89PNG"


changes = 0


@server.resource("count://changes", mime_type="text/plain")
def changed() -> str:
    return f"Changed {changes} times."


@server.tool(description="Changes the resource count://changes.")
async def change(text: str, ctx: Context) -> str:
    global changes
    changes += 1
    await ctx.notify_resource_updated("count://changes")
    return text


@server.resource("fruit://{name}", mime_type="text/plain")
def fruit(name: str) -> str:
    return f"A fruit, {name}."


@server.prompt(description="Greets somebody.")
def greet(name: str) -> str:
    return f"Greet {name}."


@server.prompt(description="Says hello.")
def hello() -> str:
    return "Say hello."


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion:
    values = ["apple", "pear"] if argument.name == "name" else []
    return Completion(values=[each for each in values if each.startswith(argument.value)])
