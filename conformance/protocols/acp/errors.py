"""Probes that test how ACP servers refuse invalid requests."""

from typing import Any, Final
from urllib.parse import quote

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import list_agents, run_behaviour
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, message, trigger_of, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_object, dig

probes: Final = Probes[AcpTarget]()


@probes.add
async def unknown_run_is_not_found(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.run(unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def what_is_not_found_is_called_so(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.run(unknown_id())
    check(dig(exchange.json, "code") == "not_found", "the code not_found", exchange.json, exchange)


@probes.add
async def unknown_agent_has_no_runs(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    body = {**trigger_of(ctx, "plain"), "agent_name": "no-such-agent-here", "mode": "sync"}
    exchange = await ctx.target.create(body)
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def id_that_is_no_uuid_is_refused(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    _check_refused(await ctx.target.run("not-a-uuid"))


@probes.add
async def run_needs_an_agent(ctx: Ctx) -> None:
    await _create_invalid(ctx, agent_name=None)


@probes.add
async def run_needs_an_input(ctx: Ctx) -> None:
    await _create_invalid(ctx, input=None)


@probes.add
async def input_is_an_array(ctx: Ctx) -> None:
    await _create_invalid(ctx, input="Hello")


@probes.add
async def message_needs_parts(ctx: Ctx) -> None:
    await _create_invalid(ctx, input=[{"role": "user"}])


@probes.add
async def unknown_modes_are_refused(ctx: Ctx) -> None:
    await _create_invalid(ctx, mode="later")


@probes.add
async def unknown_roles_are_refused(ctx: Ctx) -> None:
    await _create_invalid(ctx, input=[message("Hello", "system")])


@probes.add
async def unknown_encodings_are_refused(ctx: Ctx) -> None:
    await _create_invalid(ctx, part={"content_type": "text/plain", "content": "x", "content_encoding": "gzip"})


@probes.add
async def part_has_content_or_its_url(ctx: Ctx) -> None:
    both = {"content_type": "text/plain", "content": "x", "content_url": "https://example.com/x"}
    await _create_invalid(ctx, part=both)


@probes.add
async def session_id_is_a_uuid(ctx: Ctx) -> None:
    await _create_invalid(ctx, session_id="not-a-uuid")


@probes.add
async def invalid_input_is_called_so(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), "mode": "later"}, is_valid=False)
    check(dig(exchange.json, "code") == "invalid_input", "the code invalid_input", exchange.json, exchange)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    headers = {"Content-Type": "application/json"}
    exchange = await ctx.target.create(None, is_valid=False, content=b'{"agent_name": ', headers=headers)
    _check_refused(exchange)


@probes.add
async def unknown_paths_are_errors_too(ctx: Ctx) -> None:
    await ctx.once(list_agents)
    exchange = await ctx.wire.request("GET", ctx.target.url("no-such-path"), sends=None, receives=None)
    check(exchange.status == 404, "the status 404", exchange.status, exchange)
    check(as_object(exchange.json) is not None, "a JSON object", exchange.json, exchange)
    check(isinstance(dig(exchange.json, "message"), str), "an error with a message", exchange.json, exchange)


@probes.add
async def runs_cannot_be_deleted(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    exchange = await ctx.wire.request("DELETE", ctx.target.url("runs", done.id), sends=None, receives=None)
    check(exchange.status == 405, "the status 405", exchange.status, exchange)


@probes.add
async def answers_are_called_json(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    for exchange in (done.exchange, await ctx.target.run(unknown_id())):
        check(exchange.media_type == "application/json", "application/json", exchange.media_type, exchange)


@probes.add
async def ids_lead_nowhere(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    for odd in ("../../etc/passwd", "0" * 2000):
        for folder in ("runs", "agents", "sessions"):
            # No route may match such an id, so the answer need not be an error of the protocol.
            url = f"{ctx.target.base}/{folder}/{quote(odd, safe='')}"
            exchange = await ctx.wire.request("GET", url, sends=None, receives=None)
            check(400 <= (exchange.status or 0) < 500, f"{odd[:20]!r} is refused", exchange.status, exchange)
            found = find_leak(exchange.content.decode(errors="replace"))
            check(not found, "no internals", found, exchange)


@probes.add
async def errors_show_no_code(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    wrong: dict[str, Any] = {"agent_name": ["x"], "input": {"a": 1}, "mode": 7}
    headers = {"Content-Type": "application/json"}
    for exchange in (
        await ctx.target.create(wrong, is_valid=False),
        await ctx.target.create(None, is_valid=False, content=b"[[[[", headers=headers),
        await ctx.target.run(unknown_id()),
    ):
        check((exchange.status or 0) >= 400, "a refusal", exchange.status, exchange)
        found = find_leak(exchange.content.decode(errors="replace"))
        check(not found, "an error without a stack trace", found, exchange)


@probes.add
async def deep_json_kills_nobody(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    deep: object = 1
    for _ in range(900):
        deep = [deep]
    hello: Any = message("Hello")
    hello["parts"][0]["metadata"] = {"kind": "trajectory", "tool_name": "t", "tool_input": {"deep": deep}}
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), "input": [hello], "mode": "sync"}, is_valid=False)
    check((exchange.status or 0) < 500, "no server error", exchange.status, exchange)


async def _create_invalid(ctx: Ctx, *, part: Any = None, **members: Any) -> None:
    """Create a run whose body has the members `members`, and check that it is refused; a value of None removes the
    member. `part` is the only part of the input message, if it is not None. Raises Failed if it is accepted."""
    await ctx.once(run_behaviour, "plain")
    if part is not None:
        members["input"] = [{"role": "user", "parts": [part]}]
    body = {**trigger_of(ctx, "plain"), "mode": "sync", **members}
    sent = {name: value for name, value in body.items() if value is not None}
    _check_refused(await ctx.target.create(sent, is_valid=False))


def _check_refused(exchange: Exchange) -> None:
    check(400 <= (exchange.status or 0) < 500, "a 4xx status", exchange.status, exchange)
