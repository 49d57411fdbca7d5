"""Probes that test the members that every MCP result has."""

from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError, ValidationError

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.calls import call_with_output_schema
from babelgate.conformance.protocols.mcp.resources import read_resources
from babelgate.conformance.protocols.mcp.scenes import call_plainly
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.protocols.mcp.v2026.target import OF_MCP
from babelgate.conformance.verdict import Failed, Prerequisite, check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[McpTarget]()


@probes.add
async def results_name_their_type(ctx: Ctx) -> None:
    done = await ctx.once(call_plainly)
    lists = [await ctx.once(_list_tools), *await _lists(ctx, "resources", "prompts")]
    for reply in (ctx.target.hello, *lists, done.reply):
        kind = dig(reply.result, "resultType")
        check(kind == "complete", "the resultType complete", reply.result, reply.exchange)


@probes.add
async def results_say_how_long_they_may_be_kept(ctx: Ctx) -> None:
    for reply in (ctx.target.hello, await ctx.once(_list_tools)):
        _check_cache(reply)


@probes.add
async def resources_say_how_long_they_may_be_kept(ctx: Ctx) -> None:
    for reply in await _lists(ctx, "resources", "resources/templates"):
        if reply.code != -32601:
            _check_cache(reply)
    for each in await ctx.once(read_resources):
        _check_cache(each.reply)


@probes.add
async def prompts_say_how_long_they_may_be_kept(ctx: Ctx) -> None:
    for reply in await _lists(ctx, "prompts"):
        _check_cache(reply)


@probes.add
async def results_name_the_server(ctx: Ctx) -> None:
    done = await ctx.once(call_plainly)
    for reply in (ctx.target.hello, done.reply):
        info: Any = dig(reply.result, "_meta", f"{OF_MCP}serverInfo")
        is_named = all(isinstance(dig(info, name), str) for name in ("name", "version"))
        check(is_named, "serverInfo with a name and a version", reply.result, reply.exchange)


@probes.add
async def structured_content_fits_the_schema(ctx: Ctx) -> None:
    """Check that `structuredContent` conforms to the tool's `outputSchema`. It may be any JSON and not only an
    object."""
    done = await ctx.once(call_with_output_schema)
    check("structuredContent" in (as_object(done.reply.result) or {}), "a structuredContent", done.reply.result)
    value, schema = dig(done.reply.result, "structuredContent"), dig(done.tool, "outputSchema")
    try:
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(value)  # pyright: ignore[reportUnknownMemberType]
    except SchemaError as error:
        raise Prerequisite(f"a valid outputSchema: {error.message}", schema) from None
    except ValidationError as error:
        raise Failed(f"structuredContent that matches outputSchema: {error.message}", value) from None


def _check_cache(reply: McpReply) -> None:
    ttl, scope = dig(reply.result, "ttlMs"), dig(reply.result, "cacheScope")
    is_time = isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0
    check(is_time and scope in ("private", "public"), "ttlMs and cacheScope", reply.result, reply.exchange)


async def _lists(ctx: Ctx, *names: str) -> list[McpReply]:
    """Return the first pages of lists, by the names in their methods. Those of undeclared capabilities are left out."""
    declared = [name for name in names if ctx.target.has_capability(name.partition("/")[0])]
    return [await ctx.target.ask(f"{name}/list") for name in declared]


async def _list_tools(ctx: Ctx) -> McpReply:
    reply = await ctx.target.ask("tools/list")
    check(as_object(reply.result) is not None, "a result", reply.response, reply.exchange)
    return reply
