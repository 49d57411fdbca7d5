"""Scenes for MCP: requests whose results several probes examine. Each is played once per check."""

from dataclasses import dataclass
from typing import Any

from babelgate.conformance.protocols.mcp.lists import read_list
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply
from babelgate.conformance.verdict import NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import as_list, as_object, dig


@dataclass(frozen=True, slots=True)
class Called:
    tool: Any
    arguments: dict[str, Any]
    reply: McpReply


async def list_tools(ctx: Ctx) -> list[Any]:
    """Return the tools of the server, from all pages of the list. Raises Failed if it has none."""
    tools = await read_list(ctx, "tools/list", "tools")
    check(bool(tools), "a tool", tools)
    return tools


async def tool_named(ctx: Ctx, behaviour: str) -> Any:
    """Return the tool that shows a behaviour: the one that the trigger names, or the first one of the server.

    Raises NotObserved if the user gave no trigger for the behaviour, and NotApplicable if the user states that no tool
    shows it.
    """
    trigger = ctx.triggers[behaviour]
    if trigger.is_never:
        raise NotApplicable("the owner declares that no tool does it")
    if not trigger.is_from_user and behaviour != "plain":
        raise NotObserved("needs a tool that does it", behaviour)
    tools = await ctx.once(list_tools)
    if not trigger.agent:
        return tools[0]
    found = next((each for each in tools if dig(each, "name") == trigger.agent), None)
    check(found is not None, f"a tool {trigger.agent}", [dig(each, "name") for each in tools])
    return found


def arguments_for(ctx: Ctx, behaviour: str, tool: Any) -> dict[str, Any]:
    """Return the arguments of a tool call that triggers a behaviour: the trigger's data if it is an object. Otherwise
    each required text parameter of the tool gets the trigger's text."""
    trigger = ctx.triggers[behaviour]
    if as_object(trigger.data) is not None:
        return dict(trigger.data)
    wanted = as_object(dig(tool, "inputSchema", "properties")) or {}
    needed = [str(name) for name in as_list(dig(tool, "inputSchema", "required"))]
    return {name: trigger.text for name in needed if dig(wanted, name, "type") == "string"}


async def call_of(ctx: Ctx, behaviour: str) -> tuple[Any, dict[str, Any]]:
    """Return the tool that shows a behaviour, and the `params` of a call to it."""
    tool = await tool_named(ctx, behaviour)
    return tool, {"name": dig(tool, "name"), "arguments": arguments_for(ctx, behaviour, tool)}


async def call_tool(ctx: Ctx, behaviour: str, **options: Any) -> Called:
    tool, params = await call_of(ctx, behaviour)
    reply = await ctx.target.ask("tools/call", params, **options)
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)
    return Called(tool, params["arguments"], reply)


async def call_plainly(ctx: Ctx) -> Called:
    return await call_tool(ctx, "plain")


def text_of(result: Any) -> str:
    return "".join(str(dig(each, "text")) for each in as_list(dig(result, "content")) if dig(each, "type") == "text")
