"""Probes of tools, of steps and of the caller's tools."""

import json
from collections.abc import Sequence
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.ag_ui.scenes import TOOL, Played, play, play_behaviour, play_call
from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, Ctx, request
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[AgUiTarget]()

_PARTS: Final = ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END")


async def _play_tools(ctx: Ctx) -> Played:
    """Make the agent use one of its tools. Raises NotShown if it uses none."""
    played = await play_behaviour(ctx, "tools")
    is_shown = any(kind.startswith("TOOL_CALL_") for kind in played.types)
    check_shown(is_shown, "tools", "used no tool")
    return played


def _calls(played: Played) -> Sequence[str]:
    return [str(dig(event, "toolCallId")) for event in played.of_type("TOOL_CALL_START")]


@probes.add
async def calls_are_in_order(ctx: Ctx) -> None:
    played = await ctx.once(_play_tools)
    check(bool(_calls(played)), "TOOL_CALL_START", played.types, played.exchange)
    for call_id in _calls(played):
        kinds = [dig(event, "type") for event in played.of_type(*_PARTS) if dig(event, "toolCallId") == call_id]
        is_ordered = kinds[0] == _PARTS[0] and kinds[-1] == _PARTS[-1] and len(kinds) == 2 + kinds.count(_PARTS[1])
        check(is_ordered, "a start, the arguments and an end", kinds, played.exchange)


@probes.add
async def arguments_are_json(ctx: Ctx) -> None:
    played = await ctx.once(_play_tools)
    for call_id in _calls(played):
        pieces = [
            str(dig(event, "delta"))
            for event in played.of_type("TOOL_CALL_ARGS")
            if dig(event, "toolCallId") == call_id
        ]
        check(_is_json("".join(pieces) or "{}"), "JSON", "".join(pieces), played.exchange)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@probes.add
async def results_follow_their_calls(ctx: Ctx) -> None:
    played = await ctx.once(_play_tools)
    results = played.of_type("TOOL_CALL_RESULT")
    check(bool(results), "TOOL_CALL_RESULT", played.types, played.exchange)
    ended: set[Any] = set()
    for event in played.events:
        if dig(event, "type") == "TOOL_CALL_END":
            ended.add(dig(event, "toolCallId"))
        if dig(event, "type") == "TOOL_CALL_RESULT":
            check(dig(event, "toolCallId") in ended, "a result of a call that has ended", event, played.exchange)


@probes.add
async def results_have_new_ids(ctx: Ctx) -> None:
    played = await ctx.once(_play_tools)
    others = {dig(event, "messageId") for event in played.of_type("TEXT_MESSAGE_START")}
    others |= {dig(event, "parentMessageId") for event in played.of_type("TOOL_CALL_START")}
    names = [dig(event, "messageId") for event in played.of_type("TOOL_CALL_RESULT")]
    is_new = not others.intersection(names) and len(names) == len(set(names))
    check(is_new, "an id of its own for each result", names, played.exchange)


@probes.add
async def steps_are_finished(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "steps")
    check_shown(bool(played.of_type("STEP_STARTED", "STEP_FINISHED")), "steps", "reported no step")
    open_names: set[Any] = set()
    for event in played.of_type("STEP_STARTED", "STEP_FINISHED"):
        name = dig(event, "stepName")
        is_start = dig(event, "type") == "STEP_STARTED"
        check((name in open_names) != is_start, "one start and one end of each step", event, played.exchange)
        open_names ^= {name}
    check(not open_names, "no step that is open at the end", sorted(map(str, open_names)), played.exchange)


# Tools of the caller


@probes.add
async def call_is_pending(ctx: Ctx) -> None:
    played = await ctx.once(play_call)
    call_ids = _calls(played)
    results = [dig(event, "toolCallId") for event in played.of_type("TOOL_CALL_RESULT")]
    check(call_ids[-1] not in results, "no result of the caller's tool", results, played.exchange)
    outcome = dig(played.end, "outcome")
    is_success = dig(played.end, "type") == "RUN_FINISHED" and dig(outcome, "type") in (None, "success")
    check(is_success, "RUN_FINISHED with the outcome success", played.end, played.exchange)
    pending = as_list(dig(outcome, "pendingToolCallIds"))
    check(not pending or call_ids[-1] in pending, "the call among pendingToolCallIds", outcome, played.exchange)


@probes.add
async def result_continues(ctx: Ctx) -> None:
    played = await ctx.once(play_call)
    start = played.of_type("TOOL_CALL_START")[-1]
    call_id = dig(start, "toolCallId")
    call = {"id": call_id, "type": "function", "function": {"name": TOOL["name"], "arguments": "{}"}}
    calling = {"id": str(dig(start, "parentMessageId") or call_id), "role": "assistant", "toolCalls": [call]}
    result = {"id": f"result-{call_id}", "role": "tool", "toolCallId": call_id, "content": "rain"}
    body = request(*played.body["messages"], calling, result, threadId=played.body["threadId"], tools=[TOOL])
    after = await play(played.agent, body)
    check(dig(after.end, "type") == "RUN_FINISHED", "RUN_FINISHED", after.end, after.exchange)
