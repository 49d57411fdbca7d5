"""Probes that test the list of tools of MCP servers."""

import re
from typing import Any, Final

from jsonschema import Draft7Validator, Draft202012Validator, SchemaError

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.lists import check_cursor, check_pages
from babelgate.conformance.protocols.mcp.scenes import list_tools
from babelgate.conformance.protocols.mcp.target import Ctx, McpTarget
from babelgate.conformance.verdict import Failed, check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[McpTarget]()

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@probes.add
async def tools_are_listed(ctx: Ctx) -> None:
    await ctx.subject(list_tools)


@probes.add
async def names_of_tools_are_unique(ctx: Ctx) -> None:
    names = [str(dig(each, "name")) for each in await ctx.once(list_tools)]
    check(len(names) == len(set(names)), "each name once", names)


@probes.add
async def names_of_tools_are_plain(ctx: Ctx) -> None:
    names = [str(dig(each, "name")) for each in await ctx.once(list_tools)]
    odd = [each for each in names if not _NAME.fullmatch(each)]
    check(not odd, "names of ASCII letters, digits, _ - and .", odd)


@probes.add
async def schemas_of_tools_are_schemas(ctx: Ctx) -> None:
    for tool in await ctx.once(list_tools):
        for member in ("inputSchema", "outputSchema"):
            schema = as_object(dig(tool, member))
            if schema is None:
                check(member == "outputSchema" and dig(tool, member) is None, f"an {member}", tool)
            else:
                _check_schema(schema)


@probes.add
async def list_is_the_same_again(ctx: Ctx) -> None:
    tools = await ctx.once(list_tools)
    again = await list_tools(ctx)
    names = [[dig(each, "name") for each in page] for page in (tools, again)]
    check(names[0] == names[1], "the same tools in the same order", names)


@probes.add
async def pages_hold_every_tool_once(ctx: Ctx) -> None:
    await check_pages(ctx, "tools/list", "tools", "name", is_filled=True)


@probes.add
async def unknown_cursor_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_tools)
    await check_cursor(ctx, "tools/list")


def _check_schema(schema: dict[str, Any]) -> None:
    """Check that a tool's schema is a valid JSON Schema: of draft-07 if it names that, else of 2020-12, the default of
    the protocol version. Raises Failed if it is not."""
    dialect = Draft7Validator if "draft-07" in str(schema.get("$schema")) else Draft202012Validator
    try:
        dialect.check_schema(schema)
    except SchemaError as error:
        raise Failed(f"a JSON schema: {error.message}", schema) from None
