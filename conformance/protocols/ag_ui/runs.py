"""Probes of runs, their frames and their texts."""

from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.ag_ui.scenes import ENDS, Played, play, play_behaviour
from babelgate.conformance.protocols.ag_ui.target import AgUiTarget, Ctx, agent_for, message, request
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import as_object, dig

probes: Final = Probes[AgUiTarget]()


@probes.add
async def run_is_streamed(ctx: Ctx) -> None:
    await ctx.subject(play_behaviour, "plain")


@probes.add
async def run_starts_first(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    check(played.types[0] == "RUN_STARTED", "RUN_STARTED first", played.types, played.exchange)


@probes.add
async def started_run_has_the_ids_of_the_request(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    _check_ids(played, "RUN_STARTED")


@probes.add
async def finished_run_has_the_ids_of_the_request(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    _check_ids(played, "RUN_FINISHED")


def _check_ids(played: Played, kind: str) -> None:
    events = played.of_type(kind)
    check(bool(events), kind, played.types, played.exchange)
    for name in ("threadId", "runId"):
        check(dig(events[0], name) == played.body[name], f"{name} of the request", events[0], played.exchange)


@probes.add
async def started_run_has_a_version(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    version = str(dig(next(iter(played.of_type("RUN_STARTED")), None), "protocolVersion"))
    check(version.startswith("1."), "protocolVersion 1.x", version, played.exchange)


@probes.add
async def run_has_an_end(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    check(played.end is not None, "RUN_FINISHED or RUN_ERROR", played.types, played.exchange)


@probes.add
async def nothing_follows_the_end(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    ends = [number for number, kind in enumerate(played.types) if kind in ENDS]
    check(bool(ends), "an end of the run", played.types, played.exchange)
    check(ends[0] == len(played.types) - 1, "no event after the end", played.types, played.exchange)


@probes.add
async def stream_is_closed_by_the_server(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    is_closed = played.exchange.is_ended and not played.rest
    check(is_closed, "a stream that ends, with no event cut off", played.exchange.error, played.exchange)


@probes.add
async def conversation_continues(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    text = "".join(str(dig(event, "delta")) for event in played.of_type("TEXT_MESSAGE_CONTENT"))
    names = [dig(event, "messageId") for event in played.of_type("TEXT_MESSAGE_START")]
    answer = {"id": names[0] if names else "answer", "role": "assistant", "content": text}
    messages = [*played.body["messages"], answer, message(ctx.triggers["plain"].text)]
    _check_success(await play(played.agent, request(*messages, threadId=played.body["threadId"])))


@probes.add
async def unknown_members_are_ignored(ctx: Ctx) -> None:
    await ctx.once(play_behaviour, "plain")
    agent, text = agent_for(ctx, "plain")
    _check_success(await play(agent, request({**message(text), "unheardOf": {"a": 1}}, unheardOf=[1])))


@probes.add
async def newer_minor_version_is_served(ctx: Ctx) -> None:
    await ctx.once(play_behaviour, "plain")
    agent, text = agent_for(ctx, "plain")
    _check_success(await play(agent, request(message(text), protocolVersion="1.9")))


@probes.add
async def old_client_gets_the_old_vocabulary(ctx: Ctx) -> None:
    await ctx.once(play_behaviour, "plain")
    agent, text = agent_for(ctx, "plain")
    body = request(message(text))
    del body["protocolVersion"]
    played = await play(agent, body)
    _check_success(played)
    outcome = dig(played.end, "outcome")
    is_known = outcome is None or as_object(outcome) == {"type": "success"}
    check(is_known, "no outcome, or success without further members", outcome, played.exchange)


def _check_success(played: Played) -> None:
    check(dig(played.end, "type") == "RUN_FINISHED", "RUN_FINISHED", played.end, played.exchange)


# Frames


@probes.add
async def frames_are_objects(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    for frame in played.exchange.frames:
        check(as_object(frame.json_or_none) is not None, "a JSON object", frame.data[:200], played.exchange)


@probes.add
async def members_are_not_null(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    for event in played.events:
        empty = [name for name, value in (as_object(event) or {}).items() if value is None]
        check(not empty, "no member that is null", event, played.exchange)


@probes.add
async def timestamps_are_integers(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    for event in played.events:
        at = dig(event, "timestamp")
        check(at is None or type(at) is int, "an integer", at, played.exchange)


# Texts


@probes.add
async def answer_is_text(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    text = "".join(str(dig(event, "delta") or "") for event in _contents(played))
    check(bool(text), "a text message with content", played.types, played.exchange)


def _contents(played: Played) -> list[Any]:
    return [*played.of_type("TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK")]


@probes.add
async def content_is_within_its_message(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    open_ids: set[Any] = set()
    for event in played.events:
        name = dig(event, "messageId")
        match dig(event, "type"):
            case "TEXT_MESSAGE_START":
                check(name not in open_ids, "a message that is not open", event, played.exchange)
                open_ids.add(name)
            case "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_END" as kind:
                check(name in open_ids, f"{kind} of an open message", event, played.exchange)
                open_ids -= {name} if kind == "TEXT_MESSAGE_END" else set()
            case _:
                pass


@probes.add
async def messages_are_closed(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    begun = [dig(event, "messageId") for event in played.of_type("TEXT_MESSAGE_START")]
    ended = [dig(event, "messageId") for event in played.of_type("TEXT_MESSAGE_END")]
    check(len(begun) == len(ended), "an end of each message", played.types, played.exchange)


@probes.add
async def messages_have_new_ids(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "plain")
    sent = {each["id"] for each in played.body["messages"]}
    names = {dig(event, "messageId") for event in _contents(played)}
    check(not sent & names, "an id that the request does not have", sorted(map(str, names)), played.exchange)


@probes.add
async def answer_arrives_in_pieces(ctx: Ctx) -> None:
    played = await ctx.once(play_behaviour, "stream")
    check(len(_contents(played)) > 1, "several pieces of text", played.types, played.exchange)
