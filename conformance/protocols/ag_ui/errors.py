"""Probes of failures, disconnects and refusals."""

from typing import Any, Final

from babelgate.conformance.leak import find_leak
from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.ag_ui.scenes import Played, play, play_behaviour
from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, Ctx, agent_for, check_refused, message, request
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AgUiTarget]()


async def _play_failure(ctx: Ctx) -> Played:
    """Make the agent fail with the trigger `fail`, and return the run. Raises NotShown if the run finishes without an
    error."""
    played = await play_behaviour(ctx, "fail")
    check_shown(dig(played.end, "type") != "RUN_FINISHED", "fail", "finished its run")
    return played


@probes.add
async def failure_is_an_error(ctx: Ctx) -> None:
    played = await ctx.subject(_play_failure)
    check(dig(played.end, "type") == "RUN_ERROR", "RUN_ERROR", played.types, played.exchange)


@probes.add
async def failure_has_a_message(ctx: Ctx) -> None:
    played = await ctx.once(_play_failure)
    check(bool(dig(played.end, "message")), "a message", played.end, played.exchange)


@probes.add
async def server_survives_a_disconnect(ctx: Ctx) -> None:
    await ctx.once(play_behaviour, "plain")
    agent, text = agent_for(ctx, "long")
    async with agent.stream(request(message(text))) as stream:
        await stream.next()
    agent, text = agent_for(ctx, "plain")
    played = await play(agent, request(message(text)))
    check(dig(played.end, "type") == "RUN_FINISHED", "RUN_FINISHED", played.end, played.exchange)


# Refusals


async def _refuse(ctx: Ctx, body: Any) -> Exchange:
    """Send an invalid request, and return the exchange. A valid request must have succeeded before, so that an error
    shows a refusal of this one."""
    await ctx.once(play_behaviour, "plain")
    agent, _ = agent_for(ctx, "plain")
    return await agent.post(body)


@probes.add
async def broken_json_is_refused(ctx: Ctx) -> None:
    await ctx.once(play_behaviour, "plain")
    agent, _ = agent_for(ctx, "plain")
    check_refused(await agent.post(content=b'{"threadId": ', headers={"Content-Type": "application/json"}))


@probes.add
async def missing_thread_is_refused(ctx: Ctx) -> None:
    body = request(message("Hello"))
    del body["threadId"]
    check_refused(await _refuse(ctx, body))


@probes.add
async def wrong_messages_are_refused(ctx: Ctx) -> None:
    check_refused(await _refuse(ctx, {**request(), "messages": "Hello"}))


@probes.add
async def unknown_role_is_refused(ctx: Ctx) -> None:
    check_refused(await _refuse(ctx, request({**message("Hello"), "role": "oracle"})))


@probes.add
async def errors_show_no_trace(ctx: Ctx) -> None:
    exchange = await _refuse(ctx, {**request(), "messages": 1, "tools": "none"})
    check(not find_leak(exchange.content.decode(errors="replace")), "no stack trace", exchange.status, exchange)
