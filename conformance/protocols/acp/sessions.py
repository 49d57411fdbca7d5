"""Probes that test ACP sessions, and the messages in them."""

from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import run_behaviour, run_to_failure, text_of
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, trigger_of, unknown_id
from babelgate.conformance.verdict import NotApplicable, check
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def run_is_in_the_session_that_was_named(ctx: Ctx) -> None:
    exchange, session_id = await ctx.once(_in_session)
    check(dig(exchange.json, "session_id") == session_id, f"the session_id {session_id}", exchange.json, exchange)


@probes.add
async def session_is_found(ctx: Ctx) -> None:
    session_id, exchange = await ctx.once(_session)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "id") == session_id, f"the session {session_id}", exchange.json, exchange)


@probes.add
async def session_is_found_where_the_document_has_it(ctx: Ctx) -> None:
    _, session_id = await ctx.once(_in_session)
    exchange = await ctx.target.session(session_id, "session")
    check(exchange.status == 200, "the status 200", exchange.status, exchange)


@probes.add
async def session_is_found_where_clients_look(ctx: Ctx) -> None:
    _, session_id = await ctx.once(_in_session)
    exchange = await ctx.target.session(session_id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)


@probes.add
async def runs_without_a_session_have_their_own(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    other, _ = await ctx.once(_in_session)
    third = await ctx.target.create({**trigger_of(ctx, "plain"), "mode": "sync"})
    ids = [dig(each, "session_id") for each in (done.run, other.json, third.json)]
    check(all(ids) and len(set(ids)) == 3, "three sessions", ids, third)


@probes.add
async def session_keeps_input_and_output(ctx: Ctx) -> None:
    run, _ = await ctx.once(_in_session)
    _, exchange = await ctx.once(_session)
    count = 1 + len(as_list(dig(run.json, "output")))
    history = as_list(dig(exchange.json, "history"))
    check(len(history) == count, f"{count} messages", history, exchange)


@probes.add
async def session_goes_on_with_the_next_run(ctx: Ctx) -> None:
    session_id = unknown_id()
    history: list[Any] = []
    for _ in range(2):
        await _run_in(ctx, {"session_id": session_id})
        exchange = await _find_session(ctx, session_id)
        longer = as_list(dig(exchange.json, "history"))
        is_more = len(longer) > len(history) and longer[: len(history)] == history
        check(is_more, "the earlier history, and more", longer, exchange)
        history = longer


@probes.add
async def session_may_come_with_the_run(ctx: Ctx) -> None:
    session_id = unknown_id()
    exchange = await _run_in(ctx, {"session": {"id": session_id, "history": []}})
    check(dig(exchange.json, "session_id") == session_id, f"the session_id {session_id}", exchange.json, exchange)


@probes.add
async def history_is_of_absolute_urls(ctx: Ctx) -> None:
    _, exchange = await ctx.once(_session)
    history = as_list(dig(exchange.json, "history"))
    parts = [urlsplit(str(each)) for each in history]
    check(bool(parts) and all(each.scheme and each.netloc for each in parts), "absolute URLs", history, exchange)


@probes.add
async def history_leads_to_messages(ctx: Ctx) -> None:
    first, last = await ctx.once(_history)
    for exchange in (first, last):
        check(exchange.status == 200, "the status 200", exchange.status, exchange)
        check(bool(as_list(dig(exchange.json, "parts"))), "a message", exchange.json, exchange)


@probes.add
async def history_begins_with_the_input(ctx: Ctx) -> None:
    first, _ = await ctx.once(_history)
    run_input = trigger_of(ctx, "plain")["input"]
    check(dig(first.json, "role") == "user", "the role user", first.json, first)
    check(text_of([first.json]) == text_of(run_input), f"the text {text_of(run_input)!r}", first.json, first)


@probes.add
async def history_ends_with_the_output(ctx: Ctx) -> None:
    _, last = await ctx.once(_history)
    run, _ = await ctx.once(_in_session)
    want = text_of(as_list(dig(run.json, "output"))[-1:])
    check(text_of([last.json]) == want, f"the text {want!r}", last.json, last)


@probes.add
async def failed_run_is_not_kept_in_its_session(ctx: Ctx) -> None:
    await ctx.once(run_to_failure)
    session_id = unknown_id()
    exchange = await ctx.target.create({**trigger_of(ctx, "fail"), "session_id": session_id, "mode": "sync"})
    check(dig(exchange.json, "status") == "failed", "a run that fails", exchange.json, exchange)
    found = await ctx.target.session(session_id)
    check(as_list(dig(found.json, "history")) == [], "an empty history", found.json, found)


@probes.add
async def unknown_session_is_not_found(ctx: Ctx) -> None:
    await ctx.once(_session)
    exchange = await ctx.target.session(unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def two_sessions_in_one_run_are_refused(ctx: Ctx) -> None:
    await ctx.once(_in_session)
    both: dict[str, Any] = {"session_id": unknown_id(), "session": {"id": unknown_id(), "history": []}}
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), **both, "mode": "sync"})
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)


async def _run_in(ctx: Ctx, session: dict[str, Any]) -> Exchange:
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), **session, "mode": "sync"})
    check(exchange.status == 200, "a run with a session is answered with status 200", exchange.status, exchange)
    return exchange


async def _in_session(ctx: Ctx) -> tuple[Exchange, str]:
    """Run the agent in a new session, whose id the check chooses. Return the exchange and the session's id."""
    session_id = unknown_id()
    return await _run_in(ctx, {"session_id": session_id}), session_id


async def _session(ctx: Ctx) -> tuple[str, Exchange]:
    _, session_id = await ctx.once(_in_session)
    return session_id, await _find_session(ctx, session_id)


async def _find_session(ctx: Ctx, session_id: str) -> Exchange:
    """Return the exchange that read a session: at `/sessions/{id}`, which all clients use, or else at `/session/{id}`
    of the OpenAPI document."""
    exchange = await ctx.target.session(session_id)
    return exchange if exchange.status == 200 else await ctx.target.session(session_id, "session")


async def _history(ctx: Ctx) -> tuple[Exchange, Exchange]:
    """Request the first and the last message of a session's history, and return both exchanges. Raises NotApplicable if
    the messages are on another server."""
    _, exchange = await ctx.once(_session)
    urls = [str(each) for each in as_list(dig(exchange.json, "history"))]
    check(bool(urls), "a history", exchange.json, exchange)
    here = urlsplit(ctx.target.base).netloc
    if any(urlsplit(each).netloc not in ("", here) for each in urls):
        raise NotApplicable("the messages are on another server")
    first, last = [
        await ctx.wire.request("GET", url, sends=None, receives={200: "Message"})
        for url in (urljoin(ctx.target.base, urls[0]), urljoin(ctx.target.base, urls[-1]))
    ]
    return first, last
