"""Lists of MCP servers, which may have several pages: tools, resources, templates and prompts."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from babelgate.conformance.protocols.mcp.target import Ctx
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import as_list, dig

_PAGES: Final = 20
"""Maximum number of pages of one list that are read. Chosen."""


async def read_list(ctx: Ctx, method: str, member: str) -> list[Any]:
    """Return the entries of all pages of a list. `method` requests the list, and `member` of the result has the
    entries."""
    entries: list[Any] = []
    cursor: Any = None
    for _ in range(_PAGES):
        reply = await ctx.target.ask(method, None if cursor is None else {"cursor": cursor})
        page = dig(reply.result, member)
        check(isinstance(page, list), f"an array {member}", reply.response, reply.exchange)
        entries += as_list(page)
        cursor = dig(reply.result, "nextCursor")
        if cursor is None:
            break
    return entries


async def check_declared(ctx: Ctx, name: str, read: Callable[[Ctx], Awaitable[list[Any]]]) -> None:
    """Check that the server declares the capability `name` if and only if it has a list of these entries. `read`
    returns the entries of the list, and fails if there is none."""
    check(ctx.target.hello.result is not None, "a first answer", ctx.target.hello.response)
    if ctx.target.has_capability(name):
        await ctx.once(read)
        return
    reply = await ctx.target.ask(f"{name}/list")
    check(not as_list(dig(reply.result, name)), f"the capability {name}", reply.response, reply.exchange)


async def check_pages(ctx: Ctx, method: str, member: str, key: str, *, is_filled: bool = False) -> None:
    """Check that the second page of a list has no entry of the first. `key` is the member that identifies an entry.
    With `is_filled`, the second page has an entry. Raises NotApplicable if there is one page."""
    first = await ctx.target.ask(method)
    cursor = dig(first.result, "nextCursor")
    check(isinstance(dig(first.result, member), list), f"an array {member}", first.response, first.exchange)
    if cursor is None:
        raise NotApplicable(f"all {member} are on one page")
    second = await ctx.target.ask(method, {"cursor": cursor})
    check(isinstance(dig(second.result, member), list), f"an array {member}", second.response, second.exchange)
    keys = [[dig(each, key) for each in as_list(dig(reply.result, member))] for reply in (first, second)]
    is_right = (bool(keys[1]) or not is_filled) and not set(keys[0]) & set(keys[1])
    check(is_right, f"other {member} on the next page", keys, second.exchange)


async def check_cursor(ctx: Ctx, method: str) -> None:
    """Check that an unknown cursor is an error. The caller has seen a success of the method."""
    reply = await ctx.target.ask(method, {"cursor": "no-such-cursor"})
    check(reply.code == -32602, "the code -32602", reply.response, reply.exchange)


def check_unique(entries: list[Any], key: str) -> None:
    """Check that no two entries have the same value of the member `key`."""
    values = [str(dig(each, key)) for each in entries]
    twice = sorted({each for each in values if values.count(each) > 1})
    check(not twice, f"each {key} once", twice)
