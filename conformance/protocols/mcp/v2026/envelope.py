"""Probes that test the metadata of each MCP request: the headers, and `_meta`."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.mcp.prompts import list_prompts
from babelgate.conformance.protocols.mcp.resources import find_resources
from babelgate.conformance.protocols.mcp.scenes import call_of
from babelgate.conformance.protocols.mcp.target import Ctx, McpReply, McpTarget, request
from babelgate.conformance.protocols.mcp.v2026.target import VERSION, envelope
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, as_object, dig

probes: Final = Probes[McpTarget]()

_MISMATCH: Final = -32020
_UNSUPPORTED: Final = -32022
_NO_VERSION: Final = "1999-01-01"


@probes.add
async def discover_is_answered(ctx: Ctx) -> None:
    hello = ctx.target.hello
    check(as_object(hello.result) is not None, "a result", hello.response, hello.exchange)


@probes.add
async def version_is_supported(ctx: Ctx) -> None:
    hello = ctx.target.hello
    versions = as_list(dig(hello.result, "supportedVersions"))
    check(VERSION in versions, f"{VERSION} among the supportedVersions", versions, hello.exchange)


@probes.add
async def tools_are_among_the_capabilities(ctx: Ctx) -> None:
    hello = ctx.target.hello
    declared = dig(hello.result, "capabilities")
    check(as_object(dig(declared, "tools")) is not None, "the capability tools", declared, hello.exchange)


@probes.add
async def what_was_removed_is_unknown(ctx: Ctx) -> None:
    await ctx.once(_discover)
    # A process that also serves earlier versions answers `initialize`.
    for method in ("ping", "initialize") if ctx.target.process is None else ("ping",):
        reply = await ctx.target.ask(method, is_valid=False)
        check(reply.code == -32601, f"the code -32601 for {method}", reply.response, reply.exchange)


@probes.add
async def other_verbs_are_refused(ctx: Ctx) -> None:
    await ctx.once(_discover)
    for verb in ("GET", "DELETE"):
        headers = {**ctx.target.headers, "Accept": "text/event-stream"}
        exchange = await ctx.wire.request(verb, ctx.target.url, sends=None, receives=None, headers=headers)
        check(exchange.status == 405, f"the status 405 for {verb}", exchange.status, exchange)


@probes.add
async def unknown_method_has_the_status_404(ctx: Ctx) -> None:
    await ctx.once(_discover)
    reply = await ctx.target.ask("no/such/method", is_valid=False)
    check(reply.exchange.status == 404, "the status 404", reply.exchange.status, reply.exchange)


@probes.add
async def errors_have_the_id_of_the_request(ctx: Ctx) -> None:
    replies = [await ctx.once(_ask_unknown_version), await ctx.once(_ask_without_meta)]
    if ctx.target.process is None:
        replies.append(await ctx.once(_ask_without_method_header))
    for reply in replies:
        actual = dig(reply.response, "id")
        check(actual == reply.id, f"the id {reply.id}", reply.response, reply.exchange)


# Metadata of a request


@probes.add
async def request_without_meta_is_refused(ctx: Ctx) -> None:
    _check_refused(await ctx.once(_ask_without_meta))


@probes.add
async def request_without_capabilities_is_refused(ctx: Ctx) -> None:
    await ctx.once(_discover)
    meta = {name: value for name, value in envelope().items() if not name.endswith("clientCapabilities")}
    _check_refused(await _post(ctx, meta))


@probes.add
async def client_need_not_name_itself(ctx: Ctx) -> None:
    await ctx.once(_discover)
    meta = {name: value for name, value in envelope().items() if not name.endswith("clientInfo")}
    reply = await _post(ctx, meta)
    check(reply.result is not None, "a result", reply.response, reply.exchange)


@probes.add
async def versions_that_differ_are_refused(ctx: Ctx) -> None:
    await ctx.once(_discover)
    reply = await _post(ctx, envelope(version="2025-11-25"))
    _check_refused(reply)
    check(reply.code == _MISMATCH, f"the code {_MISMATCH}", reply.response, reply.exchange)


@probes.add
async def unsupported_version_is_refused(ctx: Ctx) -> None:
    reply = await ctx.once(_ask_unknown_version)
    _check_refused(reply)
    check(reply.code == _UNSUPPORTED, f"the code {_UNSUPPORTED}", reply.response, reply.exchange)


@probes.add
async def supported_versions_are_told(ctx: Ctx) -> None:
    reply = await ctx.once(_ask_unknown_version)
    data = dig(reply.error, "data")
    is_right = VERSION in as_list(dig(data, "supported")) and dig(data, "requested") == _NO_VERSION
    check(is_right, "data with supported and requested", reply.response, reply.exchange)


@probes.add
async def method_of_the_header_is_that_of_the_body(ctx: Ctx) -> None:
    await ctx.once(_discover)
    _check_mismatch(await ctx.target.ask("tools/list", is_valid=False, headers={"Mcp-Method": "tools/call"}))


@probes.add
async def request_without_the_header_of_the_method_is_refused(ctx: Ctx) -> None:
    _check_mismatch(await ctx.once(_ask_without_method_header))


@probes.add
async def name_of_the_header_is_that_of_the_body(ctx: Ctx) -> None:
    _, params = await call_of(ctx, "plain")
    reply = await ctx.target.ask("tools/call", params, is_valid=False, headers={"Mcp-Name": "another-tool"})
    _check_mismatch(reply)


@probes.add
async def call_without_the_header_of_the_name_is_refused(ctx: Ctx) -> None:
    _, params = await call_of(ctx, "plain")
    _check_mismatch(await ctx.target.ask("tools/call", params, is_valid=False, headers={"Mcp-Name": ""}))


@probes.add
async def name_of_the_header_is_the_uri_of_the_resource(ctx: Ctx) -> None:
    params = {"uri": dig((await ctx.once(find_resources))[0], "uri")}
    for name in ("babelgate-check://no-such/resource", ""):
        _check_mismatch(await ctx.target.ask("resources/read", params, is_valid=False, headers={"Mcp-Name": name}))


@probes.add
async def name_of_the_header_is_that_of_the_prompt(ctx: Ctx) -> None:
    prompts = await ctx.once(list_prompts)
    if not prompts:
        raise NotObserved("the server lists no prompt")
    params = {"name": dig(prompts[0], "name")}
    for name in ("another-prompt", ""):
        _check_mismatch(await ctx.target.ask("prompts/get", params, is_valid=False, headers={"Mcp-Name": name}))


def _check_refused(reply: McpReply) -> None:
    check(reply.error is not None, "an error", reply.messages, reply.exchange)
    check(reply.is_refused, "the status 400", reply.exchange.status, reply.exchange)


def _check_mismatch(reply: McpReply) -> None:
    _check_refused(reply)
    check(reply.code == _MISMATCH, f"the code {_MISMATCH}", reply.response, reply.exchange)


async def _discover(ctx: Ctx) -> McpReply:
    reply = await ctx.target.ask("server/discover")
    check(reply.result is not None, "server/discover is answered with a result", reply.response, reply.exchange)
    return reply


async def _post(ctx: Ctx, meta: dict[str, Any] | None, **options: Any) -> McpReply:
    """Send `server/discover` with this `_meta` as its only parameter, and return the reply. None sends no `_meta`."""
    params = {} if meta is None else {"_meta": meta}
    return await ctx.target.post(request(next(ctx.target.ids), "server/discover", params), **options)


async def _ask_without_meta(ctx: Ctx) -> McpReply:
    await ctx.once(_discover)
    return await _post(ctx, None)


async def _ask_unknown_version(ctx: Ctx) -> McpReply:
    await ctx.once(_discover)
    return await _post(ctx, envelope(version=_NO_VERSION), headers={"MCP-Protocol-Version": _NO_VERSION})


async def _ask_without_method_header(ctx: Ctx) -> McpReply:
    await ctx.once(_discover)
    return await ctx.target.ask("tools/list", is_valid=False, headers={"Mcp-Method": ""})
