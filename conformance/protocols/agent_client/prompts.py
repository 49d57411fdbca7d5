"""Probes of prompts: their updates, their content, and their cancellation."""

import asyncio
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.agent_client.target import (
    AgentClientTarget,
    Ctx,
    TargetSession,
    error_of,
    new_for,
    result_of,
    spoken_text,
    updates_of,
)
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, dig

probes: Final = Probes[AgentClientTarget]()

_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
_OF_A_TURN: Final = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan")
"""Kinds of updates that an agent may send only while a prompt is active. Others may arrive at any time."""
_PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""PNG image with one pixel, in base64."""
_SILENCE: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YQAAAAA="
"""WAV file without samples, in base64."""


async def play_turn(ctx: Ctx, behaviour: str) -> tuple[TargetSession, Exchange]:
    """Send the prompt that triggers a behaviour, in a new session, and wait for the answer."""
    session = await new_for(ctx, behaviour)
    return session, await session.prompt()


@probes.add
async def prompt_is_answered(ctx: Ctx) -> None:
    _, exchange = await ctx.subject(play_turn, "plain")
    reason = dig(result_of(exchange), "stopReason")
    check(reason in _REASONS, f"one of {', '.join(_REASONS)}", reason, exchange)


@probes.add
async def answer_is_text(ctx: Ctx) -> None:
    _, exchange = await ctx.once(play_turn, "plain")
    result_of(exchange)
    check(bool(spoken_text(exchange)), "an agent_message_chunk with text", updates_of(exchange), exchange)


@probes.add
async def updates_come_before_the_answer(ctx: Ctx) -> None:
    session, exchange = await ctx.once(play_turn, "plain")
    result_of(exchange)
    await session.peer.request("no/such_method", {}, receives=None)  # updates on their way arrive before its answer
    late = [
        each
        for each in session.peer.messages[session.peer.answered_at[exchange.number] :]
        if dig(each, "params", "sessionId") == session.id
        and dig(each, "params", "update", "sessionUpdate") in _OF_A_TURN
    ]
    check(not late, "no update of the turn after its answer", late[:1], exchange)


@probes.add
async def updates_name_a_session(ctx: Ctx) -> None:
    session, exchange = await ctx.once(play_turn, "plain")
    result_of(exchange)
    found = [
        dig(each, "params", "sessionId") for each in session.peer.messages if dig(each, "method") == "session/update"
    ]
    check(session.id in found, f"an update of the session {session.id}", found, exchange)


@probes.add
async def next_prompt_is_answered(ctx: Ctx) -> None:
    session = await new_for(ctx)
    for _ in range(2):
        exchange = await session.prompt()
        check(dig(result_of(exchange), "stopReason") == "end_turn", "end_turn", exchange.json, exchange)


@probes.add
async def answer_arrives_in_pieces(ctx: Ctx) -> None:
    _, exchange = await ctx.once(play_turn, "stream")
    result_of(exchange)
    chunks = updates_of(exchange, "agent_message_chunk")
    check(len(chunks) > 1, "several agent_message_chunk", chunks, exchange)


@probes.add
async def failure_is_an_error(ctx: Ctx) -> None:
    _, exchange = await ctx.once(play_turn, "fail")
    reason = dig(exchange.json, "result", "stopReason")
    check_shown(reason != "end_turn", "fail", "ended its turn")
    if reason != "refusal":
        message = dig(error_of(exchange), "message")
        check(isinstance(message, str) and message != "", "an error with a message", exchange.json, exchange)


# Content


async def _check_block(ctx: Ctx, block: dict[str, Any]) -> None:
    session = await new_for(ctx)
    exchange = await session.prompt(session.text, block)
    result_of(exchange)


@probes.add
async def resource_links_are_accepted(ctx: Ctx) -> None:
    await _check_block(ctx, {"type": "resource_link", "uri": "file:///tmp/a.txt", "name": "a.txt"})


@probes.add
async def images_are_accepted(ctx: Ctx) -> None:
    await _check_block(ctx, {"type": "image", "mimeType": "image/png", "data": _PIXEL})


@probes.add
async def audio_is_accepted(ctx: Ctx) -> None:
    await _check_block(ctx, {"type": "audio", "mimeType": "audio/wav", "data": _SILENCE})


@probes.add
async def embedded_resources_are_accepted(ctx: Ctx) -> None:
    resource = {"uri": "file:///tmp/a.txt", "mimeType": "text/plain", "text": "a"}
    await _check_block(ctx, {"type": "resource", "resource": resource})


# Cancellation


async def play_cancel(ctx: Ctx) -> tuple[TargetSession, Exchange]:
    """Send a prompt that starts long work, and cancel it. Raises NotShown if the prompt ends before."""
    session = await new_for(ctx, "long")
    exchange = await session.start()
    await asyncio.sleep(0.3)  # the agent begins
    check_shown(not session.peer.is_answered(exchange), "long", "was done within 0.3 s")
    await session.peer.notify("session/cancel", {"sessionId": session.id})
    return session, await session.peer.finish(exchange)


@probes.add
async def cancelled_prompt_says_so(ctx: Ctx) -> None:
    _, exchange = await ctx.subject(play_cancel)
    reason = dig(result_of(exchange), "stopReason")
    check(reason == "cancelled", "the stopReason cancelled", reason, exchange)


@probes.add
async def cancelled_session_continues(ctx: Ctx) -> None:
    session, _ = await ctx.once(play_cancel)
    exchange = await session.start()
    await session.peer.notify("session/cancel", {"sessionId": session.id})
    await session.peer.finish(exchange)
    result_of(exchange)


@probes.add
async def cancel_without_a_turn_is_harmless(ctx: Ctx) -> None:
    session = await new_for(ctx)
    await session.peer.notify("session/cancel", {"sessionId": session.id})
    exchange = await session.prompt()
    check(dig(result_of(exchange), "stopReason") == "end_turn", "end_turn", exchange.json, exchange)


@probes.add
async def sessions_do_not_wait_for_each_other(ctx: Ctx) -> None:
    busy = await new_for(ctx, "long")
    exchange = await busy.start()
    await asyncio.sleep(0.3)  # the agent begins
    check_shown(not busy.peer.is_answered(exchange), "long", "was done within 0.3 s")
    other = await busy.peer.request("session/new", {"cwd": "/tmp", "mcpServers": []}, receives="NewSession")
    is_busy = not busy.peer.is_answered(exchange)
    await busy.peer.notify("session/cancel", {"sessionId": busy.id})
    await busy.peer.finish(exchange)
    result_of(other)
    check(is_busy, "an answer while the other session works", other.json, other)
