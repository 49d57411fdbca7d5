"""Probes that test the completion of MCP servers: values for arguments of prompts and for variables of templates."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.prompts import list_prompts
from babelgate.conformance.protocols.mcp.resources import list_templates
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.protocols.mcp.templates import variables_of
from babelgate.conformance.verdict import NotApplicable, NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[McpTarget]()

_CASES: Final = 10
"""Maximum number of arguments and variables that are completed. Chosen."""
_MOST: Final = 100
"""Maximum number of values of one result."""
_UNKNOWN: Final = {"ref": {"type": "ref/prompt", "name": "no-such-prompt-here"}, "argument": {"name": "x", "value": ""}}


@probes.add
async def completions_are_declared(ctx: Ctx) -> None:
    check(ctx.target.hello.result is not None, "a first answer", ctx.target.hello.response)
    if ctx.target.has_capability("completions"):
        await ctx.once(complete_everything)
        return
    cases = await _cases(ctx) or [_UNKNOWN]
    for params in cases:
        reply = await ctx.target.ask("completion/complete", params)
        values = as_list(dig(reply.result, "completion", "values"))
        check(not values, "the capability completions", reply.response, reply.exchange)


@probes.add
async def completion_is_answered(ctx: Ctx) -> None:
    await ctx.subject(complete_everything)


@probes.add
async def completion_has_at_most_100_values(ctx: Ctx) -> None:
    for reply in await ctx.once(complete_everything):
        count = len(as_list(dig(reply.result, "completion", "values")))
        check(count <= _MOST, f"at most {_MOST} values", count, reply.exchange)


@probes.add
async def total_of_a_completion_counts_its_values(ctx: Ctx) -> None:
    for reply in await ctx.once(complete_everything):
        found = dig(reply.result, "completion")
        count, total = len(as_list(dig(found, "values"))), dig(found, "total")
        is_right = not isinstance(total, int) or total >= count
        if isinstance(total, int) and dig(found, "hasMore") is False:
            is_right = total == count
        check(is_right, "a total that fits values and hasMore", found, reply.exchange)


@probes.add
async def completion_of_an_unknown_prompt_is_refused(ctx: Ctx) -> None:
    await ctx.once(complete_everything)
    reply = await ctx.target.ask("completion/complete", _UNKNOWN)
    check(reply.code == -32602, "the code -32602", reply.response, reply.exchange)


@probes.add
async def completion_of_an_unknown_reference_is_refused(ctx: Ctx) -> None:
    await ctx.once(complete_everything)
    params = {"ref": {"type": "ref/no-such-type"}, "argument": {"name": "x", "value": ""}}
    reply = await ctx.target.ask("completion/complete", params, is_valid=False)
    is_refused = reply.error is not None or (reply.exchange.status or 0) >= 400
    check(is_refused, "an error", reply.messages, reply.exchange)


async def complete_everything(ctx: Ctx) -> list[McpReply]:
    """Request values for the first arguments and variables, and return the replies. Raises NotObserved if there are
    neither."""
    cases = await _cases(ctx)
    if not cases:
        raise NotObserved("the server has neither prompts with arguments nor templates with variables")
    replies: list[McpReply] = []
    for params in cases:
        reply = await ctx.target.ask("completion/complete", params)
        values = dig(reply.result, "completion", "values")
        check(isinstance(values, list), "completion with values", reply.response, reply.exchange)
        replies.append(reply)
    return replies


async def _cases(ctx: Ctx) -> list[dict[str, Any]]:
    """Return the params of requests for values: one for each argument of a prompt, and each variable of a template."""
    refs: list[tuple[dict[str, str], str]] = []
    if ctx.target.has_capability("prompts"):
        for prompt in await ctx.once(list_prompts):
            ref = {"type": "ref/prompt", "name": str(dig(prompt, "name"))}
            refs += [(ref, str(dig(each, "name"))) for each in as_list(dig(prompt, "arguments"))]
    if ctx.target.has_capability("resources"):
        for template in await _templates(ctx):
            refs += [({"type": "ref/resource", "uri": template}, name) for name in variables_of(template)]
    return [{"ref": ref, "argument": {"name": name, "value": ""}} for ref, name in refs[:_CASES]]


async def _templates(ctx: Ctx) -> list[str]:
    try:
        return [str(dig(each, "uriTemplate")) for each in await ctx.once(list_templates)]
    except NotApplicable:
        return []
