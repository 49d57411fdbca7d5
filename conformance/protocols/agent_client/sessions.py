"""Probes of sessions: new ones, stored ones, their modes and options."""

from typing import Any, Final
from uuid import uuid4

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.agent_client.target import (
    CWD,
    AgentClientTarget,
    Ctx,
    TargetSession,
    create_session,
    error_of,
    new_for,
    new_session,
    result_of,
    spoken_text,
    updates_of,
)
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[AgentClientTarget]()


@probes.add
async def session_is_created(ctx: Ctx) -> None:
    await new_for(ctx)


@probes.add
async def sessions_have_different_ids(ctx: Ctx) -> None:
    first, second = await new_for(ctx), await new_for(ctx)
    check(first.id != second.id, "another sessionId", second.id, second.created)


@probes.add
async def meta_and_unknown_members_are_ignored(ctx: Ctx) -> None:
    session = await new_for(ctx)
    await create_session(session.peer, _meta={"traceparent": "00-0-0-00"}, unheardOf=[1])


@probes.add
async def unknown_session_is_an_error(ctx: Ctx) -> None:
    session = await new_for(ctx)
    params = {"sessionId": f"no-such-{uuid4()}", "prompt": [{"type": "text", "text": "Hello"}]}
    error_of(await session.peer.request("session/prompt", params, receives=None))


# Stored sessions


async def play_stored(ctx: Ctx) -> TargetSession:
    """Create a session in which the agent has answered one prompt."""
    session = await new_for(ctx)
    answered = await session.prompt()
    check(dig(result_of(answered), "stopReason") == "end_turn", "the end of a turn", answered.json, answered)
    return session


def _place(session: TargetSession, **members: Any) -> dict[str, Any]:
    return {"sessionId": session.id, "cwd": CWD, "mcpServers": [], **members}


async def _load(session: TargetSession) -> Exchange:
    return await session.peer.request("session/load", _place(session), receives="Loaded")


@probes.add
async def load_replays_the_conversation(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    exchange = await _load(session)
    result_of(exchange)
    replayed = spoken_text(exchange, "user_message_chunk")
    check(session.text in replayed, f"the prompt {session.text!r}", replayed, exchange)
    check(bool(updates_of(exchange, "agent_message_chunk")), "the agent's answer", exchange.json, exchange)


@probes.add
async def load_returns_an_object(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    exchange = await _load(session)
    check(as_object(dig(exchange.json, "result")) is not None, "an object", exchange.json, exchange)


@probes.add
async def loading_an_unknown_session_is_an_error(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    params = {**_place(session), "sessionId": f"no-such-{uuid4()}"}
    error_of(await session.peer.request("session/load", params, receives=None))


@probes.add
async def loaded_session_continues(ctx: Ctx) -> None:
    session = await new_for(ctx)
    result_of(await session.prompt())
    result_of(await _load(session))
    answered = await session.prompt()
    check(dig(result_of(answered), "stopReason") == "end_turn", "the end of a turn", answered.json, answered)


@probes.add
async def resume_replays_nothing(ctx: Ctx) -> None:
    session = await new_for(ctx)
    result_of(await session.prompt())
    exchange = await session.peer.request("session/resume", _place(session), receives="Loaded")
    result_of(exchange)
    replayed = updates_of(exchange, "user_message_chunk", "agent_message_chunk")
    check(not replayed, "no message", replayed, exchange)
    answered = await session.prompt()
    check(dig(result_of(answered), "stopReason") == "end_turn", "the end of a turn", answered.json, answered)


async def _list(session: TargetSession, **params: Any) -> tuple[list[Any], Exchange]:
    exchange = await session.peer.request("session/list", params, receives="SessionList")
    found = dig(result_of(exchange), "sessions")
    check(isinstance(found, list), "a list of sessions", exchange.json, exchange)
    return as_list(found), exchange


@probes.add
async def list_has_the_session(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    found, exchange = await _list(session, cwd=CWD)
    ids = [dig(each, "sessionId") for each in found]
    check(session.id in ids, f"the session {session.id}", ids, exchange)


@probes.add
async def list_is_filtered_by_directory(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    found, exchange = await _list(session, cwd=f"/no/such/{uuid4()}")
    check(not found, "no sessions", found, exchange)


@probes.add
async def closed_session_answers(ctx: Ctx) -> None:
    session = await new_for(ctx)
    exchange = await session.peer.request("session/close", {"sessionId": session.id}, receives="Nothing")
    result_of(exchange)


@probes.add
async def deleted_session_is_gone(ctx: Ctx) -> None:
    session = await new_for(ctx)
    result_of(await session.prompt())
    result_of(await session.peer.request("session/delete", {"sessionId": session.id}, receives="Nothing"))
    error_of(await session.peer.request("session/load", _place(session), receives=None))


@probes.add
async def other_callers_cannot_load_a_session(ctx: Ctx) -> None:
    session = await ctx.once(play_stored)
    result_of(await _load(session))
    async with ctx.target.at(session.peer.address).connect(is_other=True) as peer:
        await ctx.target.initialize(peer)
        result_of(await peer.request("session/new", new_session(), receives="NewSession"))
        exchange = await peer.request("session/load", _place(session), receives=None)
        error_of(exchange)


# Choices


@probes.add
async def current_mode_is_available(ctx: Ctx) -> None:
    session = await new_for(ctx)
    modes = dig(session.created.json, "result", "modes")
    ids = [dig(each, "id") for each in as_list(dig(modes, "availableModes"))]
    check(dig(modes, "currentModeId") in ids, "a current mode that is available", modes, session.created)


@probes.add
async def mode_can_be_set(ctx: Ctx) -> None:
    session = await new_for(ctx)
    modes = as_list(dig(session.created.json, "result", "modes", "availableModes"))
    for mode in modes:
        params = {"sessionId": session.id, "modeId": dig(mode, "id")}
        result_of(await session.peer.request("session/set_mode", params, receives="Nothing"))
    params = {"sessionId": session.id, "modeId": f"no-such-{uuid4()}"}
    error_of(await session.peer.request("session/set_mode", params, receives=None))


@probes.add
async def current_values_are_offered(ctx: Ctx) -> None:
    session = await new_for(ctx)
    for option in as_list(dig(session.created.json, "result", "configOptions")):
        is_offered = dig(option, "type") != "select" or dig(option, "currentValue") in _values(option)
        check(is_offered, "a current value that is offered", option, session.created)


@probes.add
async def option_can_be_set(ctx: Ctx) -> None:
    session = await new_for(ctx)
    options = as_list(dig(session.created.json, "result", "configOptions"))
    for option in options:
        value = _values(option)[-1] if dig(option, "type") == "select" else True
        params = {"sessionId": session.id, "configId": dig(option, "id"), "value": value}
        exchange = await session.peer.request("session/set_config_option", params, receives="ConfigOptions")
        changed = as_list(dig(result_of(exchange), "configOptions"))
        check(len(changed) >= len(options), "the complete list of options", changed, exchange)
        current = [dig(each, "currentValue") for each in changed if dig(each, "id") == dig(option, "id")]
        check(current == [value], f"the value {value!r}", current, exchange)


def _values(option: Any) -> list[Any]:
    entries = as_list(dig(option, "options"))
    flat = [each for entry in entries for each in (as_list(dig(entry, "options")) or [entry])]
    return [dig(each, "value") for each in flat]
