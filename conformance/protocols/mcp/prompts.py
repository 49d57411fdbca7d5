"""Probes that test the prompts of MCP servers."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.lists import check_cursor, check_declared, check_pages, check_unique, read_list
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.verdict import NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[McpTarget]()

_UNKNOWN: Final = "no-such-prompt-here"
_VALUE: Final = "Babelgate"
"""Value of an argument for which the server suggests none."""


@probes.add
async def prompts_are_declared(ctx: Ctx) -> None:
    await check_declared(ctx, "prompts", list_prompts)


@probes.add
async def prompts_are_listed(ctx: Ctx) -> None:
    await ctx.subject(list_prompts)


@probes.add
async def names_of_prompts_are_unique(ctx: Ctx) -> None:
    check_unique(await ctx.once(list_prompts), "name")


@probes.add
async def pages_hold_other_prompts(ctx: Ctx) -> None:
    await check_pages(ctx, "prompts/list", "prompts", "name")


@probes.add
async def unknown_cursor_of_prompts_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_prompts)
    await check_cursor(ctx, "prompts/list")


@probes.add
async def listed_prompt_is_given(ctx: Ctx) -> None:
    await ctx.subject(get_prompt)


@probes.add
async def unknown_prompt_is_no_success(ctx: Ctx) -> None:
    await ctx.once(list_prompts)
    reply = await ctx.target.ask("prompts/get", {"name": _UNKNOWN})
    check(reply.error is not None, "an error", reply.response, reply.exchange)


@probes.add
async def unknown_prompt_is_an_invalid_parameter(ctx: Ctx) -> None:
    await ctx.once(list_prompts)
    reply = await ctx.target.ask("prompts/get", {"name": _UNKNOWN})
    check(reply.code == -32602, "the code -32602", reply.response, reply.exchange)


@probes.add
async def prompt_without_its_arguments_is_refused(ctx: Ctx) -> None:
    prompt = next((each for each in await ctx.once(list_prompts) if required_arguments(each)), None)
    if prompt is None:
        raise NotApplicable("no prompt requires an argument")
    reply = await ctx.target.ask("prompts/get", {"name": dig(prompt, "name"), "arguments": {}})
    check(reply.code == -32602, "the code -32602", reply.response, reply.exchange)


@probes.add
async def get_without_a_name_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_prompts)
    reply = await ctx.target.ask("prompts/get", {"arguments": {}}, is_valid=False)
    is_refused = reply.error is not None or (reply.exchange.status or 0) >= 400
    check(is_refused, "an error", reply.messages, reply.exchange)


async def list_prompts(ctx: Ctx) -> list[Any]:
    return await read_list(ctx, "prompts/list", "prompts")


async def get_prompt(ctx: Ctx) -> McpReply:
    """Get the first prompt that requires no argument, or else the first prompt, and return the reply.

    Raises NotObserved if there is no prompt, or if the server refuses the values of its arguments."""
    prompts = await ctx.once(list_prompts)
    if not prompts:
        raise NotObserved("the server lists no prompt")
    prompt = next((each for each in prompts if not required_arguments(each)), prompts[0])
    names = required_arguments(prompt)
    params: dict[str, Any] = {"name": dig(prompt, "name")}
    if names:
        params["arguments"] = {name: await _value(ctx, str(dig(prompt, "name")), name) for name in names}
    reply = await ctx.target.ask("prompts/get", params)
    if names and reply.code == -32602:
        raise NotObserved("the server refuses the arguments of the check for its prompts")
    if dig(reply.result, "resultType") == "input_required":
        raise NotObserved("the server asks for input before it shows a prompt")
    check(isinstance(dig(reply.result, "messages"), list), "messages", reply.response, reply.exchange)
    return reply


def required_arguments(prompt: Any) -> list[str]:
    arguments = as_list(dig(prompt, "arguments"))
    return [str(dig(each, "name")) for each in arguments if dig(each, "required") is True]


async def _value(ctx: Ctx, prompt: str, argument: str) -> str:
    """Return a value for an argument of a prompt: the first that the server suggests, or `_VALUE`."""
    if not ctx.target.has_capability("completions"):
        return _VALUE
    params = {"ref": {"type": "ref/prompt", "name": prompt}, "argument": {"name": argument, "value": ""}}
    reply = await ctx.target.ask("completion/complete", params)
    values = as_list(dig(reply.result, "completion", "values"))
    return str(values[0]) if values else _VALUE
