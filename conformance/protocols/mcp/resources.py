"""Probes that test the resources of MCP servers, and their templates."""

from dataclasses import dataclass
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.lists import check_cursor, check_declared, check_pages, check_unique, read_list
from babelgate.conformance.protocols.mcp.scenes import call_of, call_tool
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget
from babelgate.conformance.protocols.mcp.templates import is_expansion, is_template, is_uri, suggested_uris
from babelgate.conformance.samples import decode_base64
from babelgate.conformance.verdict import NotApplicable, NotObserved, check, check_shown
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[McpTarget]()

_READS: Final = 10
"""Maximum number of listed resources, and of templates, that are read. Chosen."""
_UNKNOWN: Final = "babelgate-check://no-such/resource"


@dataclass(frozen=True, slots=True)
class ReadResource:
    """Resource that was read. `entry` is its entry in the list."""

    entry: Any
    reply: McpReply

    @property
    def uri(self) -> str:
        return str(dig(self.entry, "uri"))

    @property
    def contents(self) -> list[Any]:
        return as_list(dig(self.reply.result, "contents"))


@probes.add
async def resources_are_declared(ctx: Ctx) -> None:
    await check_declared(ctx, "resources", list_resources)


@probes.add
async def resources_are_listed(ctx: Ctx) -> None:
    await ctx.subject(list_resources)


@probes.add
async def uris_of_resources_are_unique(ctx: Ctx) -> None:
    check_unique(await ctx.once(list_resources), "uri")


@probes.add
async def uris_of_resources_are_uris(ctx: Ctx) -> None:
    odd = [uri for each in await ctx.once(list_resources) if not is_uri(uri := dig(each, "uri"))]
    check(not odd, "URIs (RFC 3986)", odd)


@probes.add
async def pages_hold_other_resources(ctx: Ctx) -> None:
    await check_pages(ctx, "resources/list", "resources", "uri")


@probes.add
async def unknown_cursor_of_resources_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_resources)
    await check_cursor(ctx, "resources/list")


@probes.add
async def listed_resource_is_read(ctx: Ctx) -> None:
    await ctx.subject(read_resources)


@probes.add
async def contents_have_the_uri_of_the_request(ctx: Ctx) -> None:
    for each in await ctx.once(read_resources):
        # Several contents may be parts of the resource, with their own URIs.
        if len(each.contents) == 1:
            actual = dig(each.contents[0], "uri")
            check(actual == each.uri, f"the uri {each.uri}", each.reply.result, each.reply.exchange)


@probes.add
async def binary_contents_are_base64(ctx: Ctx) -> None:
    blobs = [
        (each, blob)
        for each in await ctx.once(read_resources)
        for content in each.contents
        if (blob := dig(content, "blob")) is not None
    ]
    if not blobs:
        raise NotApplicable("no resource that was read is binary")
    for each, blob in blobs:
        check(decode_base64(blob) is not None, "bytes in base64", str(blob)[:80], each.reply.exchange)


@probes.add
async def contents_have_the_listed_type(ctx: Ctx) -> None:
    typed = [each for each in await ctx.once(read_resources) if dig(each.entry, "mimeType") is not None]
    if not typed:
        raise NotApplicable("no listed resource has a mimeType")
    for each in typed:
        listed, actual = dig(each.entry, "mimeType"), dig(each.contents[0], "mimeType") if each.contents else None
        if len(each.contents) == 1 and actual is not None:
            is_same = _media_type(actual) == _media_type(listed)
            check(is_same, f"the mimeType {listed}", each.reply.result, each.reply.exchange)


@probes.add
async def unknown_resource_is_no_success(ctx: Ctx) -> None:
    await ctx.once(list_resources)
    reply = await ctx.target.ask("resources/read", {"uri": _UNKNOWN})
    check(reply.error is not None, "an error", reply.response, reply.exchange)


@probes.add
async def unknown_resource_is_not_found(ctx: Ctx) -> None:
    await _check_unknown(ctx, -32002)


@probes.add
async def unknown_resource_is_an_invalid_parameter(ctx: Ctx) -> None:
    await _check_unknown(ctx, -32602)


@probes.add
async def read_without_a_uri_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_resources)
    reply = await ctx.target.ask("resources/read", {}, is_valid=False)
    is_refused = reply.error is not None or (reply.exchange.status or 0) >= 400
    check(is_refused, "an error", reply.messages, reply.exchange)


@probes.add
async def templates_are_listed(ctx: Ctx) -> None:
    await ctx.subject(list_templates)


@probes.add
async def templates_are_uri_templates(ctx: Ctx) -> None:
    templates = [dig(each, "uriTemplate") for each in await ctx.once(list_templates)]
    if not templates:
        raise NotApplicable("the server has no templates")
    odd = [each for each in templates if not is_template(each)]
    check(not odd, "URI templates (RFC 6570)", odd)


@probes.add
async def unknown_cursor_of_templates_is_refused(ctx: Ctx) -> None:
    await ctx.once(list_templates)
    await check_cursor(ctx, "resources/templates/list")


@probes.add
async def expanded_template_is_read(ctx: Ctx) -> None:
    expanded = await ctx.once(_expanded_templates)
    for template, uris in expanded.items():
        replies = [await ctx.target.ask("resources/read", {"uri": uri}) for uri in uris]
        is_read = any(isinstance(dig(each.result, "contents"), list) or _asks(each) for each in replies)
        check(is_read, f"contents of a URI of {template}", replies[-1].response, replies[-1].exchange)


@probes.add
async def linked_resource_is_read(ctx: Ctx) -> None:
    done = await call_tool(ctx, "links")
    content = as_list(dig(done.reply.result, "content"))
    uris = [dig(each, "uri") for each in content if dig(each, "type") == "resource_link"]
    readable = [str(uri) for uri in uris if not str(uri).startswith(("http://", "https://"))]
    check_shown(bool(readable), "links", "returned no link that only the server can read")
    for uri in readable[:_READS]:
        reply = await ctx.target.ask("resources/read", {"uri": uri})
        is_read = isinstance(dig(reply.result, "contents"), list) or _asks(reply)
        check(is_read, f"contents of {uri}", reply.response, reply.exchange)


async def list_resources(ctx: Ctx) -> list[Any]:
    return await read_list(ctx, "resources/list", "resources")


async def find_resources(ctx: Ctx) -> list[Any]:
    """Return the entries of resources that only the server can read. If the server lists none, the tool that changes a
    resource may create one, and the trigger `resource` may name one.

    Raises NotObserved or NotApplicable if there is no resource.
    """
    entries = await ctx.once(list_resources)
    change = ctx.triggers["change"]
    if not entries and change.is_from_user and not change.is_never:
        _, params = await call_of(ctx, "change")
        await ctx.target.ask("tools/call", params)
        entries = await list_resources(ctx)
    # A client reads an address of the web itself.
    readable = [each for each in entries if not str(dig(each, "uri")).startswith(("http://", "https://"))]
    if readable:
        return readable
    trigger = ctx.triggers["resource"]
    if trigger.is_never:
        raise NotApplicable("the owner declares that there is no resource")
    if not trigger.is_from_user:
        raise NotObserved("the server lists no resource", "resource")
    reply = await ctx.target.ask("resources/read", {"uri": trigger.text})
    check_shown(reply.error is None, "resource", "has no resource with this URI")
    return [{"uri": trigger.text}]


async def read_resources(ctx: Ctx) -> list[ReadResource]:
    """Read the first resources, and return those that are read without a question to the client."""
    found: list[ReadResource] = []
    for entry in (await ctx.once(find_resources))[:_READS]:
        reply = await ctx.target.ask("resources/read", {"uri": dig(entry, "uri")})
        if not _asks(reply):
            is_read = isinstance(dig(reply.result, "contents"), list)
            check(is_read, "contents of a listed resource", reply.response, reply.exchange)
            found.append(ReadResource(entry, reply))
    if not found:
        raise NotObserved("the server asks for input before it shows a resource")
    return found


async def list_templates(ctx: Ctx) -> list[Any]:
    """Return the templates of the server. Raises NotApplicable if it does not know the method."""
    first = await ctx.target.ask("resources/templates/list")
    if first.code == -32601:
        raise NotApplicable("the server has no templates")
    return await read_list(ctx, "resources/templates/list", "resourceTemplates")


async def _expanded_templates(ctx: Ctx) -> dict[str, list[str]]:
    """Return URIs of the templates for which the server suggests values, or of which the trigger `resource` is a URI.
    Raises NotObserved if there are none."""
    templates = [str(dig(each, "uriTemplate")) for each in await ctx.once(list_templates)]
    if not templates:
        raise NotApplicable("the server has no templates")
    trigger, expanded = ctx.triggers["resource"], dict[str, list[str]]()
    for template in filter(is_template, templates[:_READS]):
        if trigger.is_from_user and is_expansion(template, trigger.text):
            expanded[template] = [trigger.text]
        elif ctx.target.has_capability("completions") and (uris := await suggested_uris(ctx, template)):
            expanded[template] = uris
    if not expanded and trigger.is_never:
        raise NotApplicable("the owner declares that there is no resource of a template")
    if not expanded:
        raise NotObserved("the server suggests no values for the variables of its templates", "resource")
    return expanded


async def _check_unknown(ctx: Ctx, code: int) -> None:
    await ctx.once(list_resources)
    reply = await ctx.target.ask("resources/read", {"uri": _UNKNOWN})
    check(reply.code == code, f"the code {code}", reply.response, reply.exchange)


def _asks(reply: McpReply) -> bool:
    return dig(reply.result, "resultType") == "input_required"


def _media_type(text: Any) -> str:
    return str(text).partition(";")[0].strip().lower()
