"""Probes of tools, permissions, and what the agent may request of the editor."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.agent_client.peer import AgentRequest, stay_open
from babelgate.conformance.protocols.agent_client.prompts import play_turn
from babelgate.conformance.protocols.agent_client.target import (
    AgentClientTarget,
    Ctx,
    TargetSession,
    new_for,
    result_of,
    updates_of,
)
from babelgate.conformance.verdict import NotApplicable, NotObserved, NotShown, check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[AgentClientTarget]()

_OFFERED: Final = ("session/request_permission",)
"""Methods of the editor that an agent may call although the editor declares no capability for them."""


@probes.add
async def nothing_is_requested_that_was_not_offered(ctx: Ctx) -> None:
    requests: list[AgentRequest] = []
    exchange: Exchange | None = None
    for behaviour in ("plain", "question", "tools", "files"):
        try:
            session, exchange = await ctx.once(play_turn, behaviour)
        except (NotObserved, NotApplicable):
            continue
        requests += session.peer.requests
    wrong = [each.method for each in requests if each.method not in _OFFERED and not each.method.startswith("_")]
    check(not wrong, "no method of fs, terminal or elicitation", wrong, exchange)


# Tools


@probes.add
async def tool_calls_end(ctx: Ctx) -> None:
    _, exchange = await ctx.once(play_turn, "tools")
    result_of(exchange)
    calls = updates_of(exchange, "tool_call", "tool_call_update")
    check_shown(bool(calls), "tools", "called no tool")
    status: dict[Any, Any] = {}
    for each in calls:
        name = dig(each, "toolCallId")
        status[name] = dig(each, "status") or status.get(name)
    left = [name for name, each in status.items() if each not in ("completed", "failed")]
    check(not left, "a tool call that is completed or failed at the end", left, exchange)


@probes.add
async def tool_calls_begin(ctx: Ctx) -> None:
    _, exchange = await ctx.once(play_turn, "tools")
    result_of(exchange)
    calls = updates_of(exchange, "tool_call", "tool_call_update")
    check_shown(bool(calls), "tools", "called no tool")
    begun: set[Any] = set()
    for each in calls:
        if dig(each, "sessionUpdate") == "tool_call":
            begun.add(dig(each, "toolCallId"))
        check(dig(each, "toolCallId") in begun, "a tool_call before its updates", each, exchange)


# Permissions


async def play_permission(ctx: Ctx) -> tuple[TargetSession, Exchange, AgentRequest]:
    """Trigger a permission request, and answer it with its first option that allows. Raises NotShown if the agent asks
    nothing."""
    session = await new_for(ctx, "approval")
    exchange = await session.start()
    request = await session.peer.wait_for_request(_OFFERED[0], session.id, exchange)
    if request is None:
        raise NotShown("approval", "asked for no permission")
    return session, await session.peer.finish(exchange), request


@probes.add
async def permission_request_has_options(ctx: Ctx) -> None:
    _, exchange, request = await ctx.once(play_permission)
    options = as_list(dig(request.params, "options"))
    ids = [dig(each, "optionId") for each in options]
    check(bool(ids) and len(ids) == len(set(map(str, ids))), "options with different ids", options, exchange)


@probes.add
async def permission_request_names_a_tool_call(ctx: Ctx) -> None:
    _, exchange, request = await ctx.once(play_permission)
    name = dig(request.params, "toolCall", "toolCallId")
    check(isinstance(name, str) and name != "", "a toolCall with a toolCallId", request.params, exchange)


@probes.add
async def allowed_turn_ends(ctx: Ctx) -> None:
    _, exchange, _ = await ctx.once(play_permission)
    reason = dig(result_of(exchange), "stopReason")
    check(reason == "end_turn", "the stopReason end_turn", reason, exchange)


@probes.add
async def cancel_ends_an_open_permission_request(ctx: Ctx) -> None:
    session = await new_for(ctx, "approval")
    session.peer.replies[session.id] = stay_open
    exchange = await session.start()
    request = await session.peer.wait_for_request(_OFFERED[0], session.id, exchange)
    if request is None:
        raise NotShown("approval", "asked for no permission")
    await session.peer.notify("session/cancel", {"sessionId": session.id})
    await session.peer.answer_open(session.id, {"outcome": {"outcome": "cancelled"}})
    await session.peer.finish(exchange)
    reason = dig(result_of(exchange), "stopReason")
    check(reason == "cancelled", "the stopReason cancelled", reason, exchange)
