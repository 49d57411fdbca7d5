"""Probes that test commands to a thread (`/threads/{id}/commands`), and the event stream of a thread."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.langchain.server import (
    Ctx,
    LangChainTarget,
    is_refused,
    json_of,
    speaking_trigger,
    trigger_for,
)
from babelgate.conformance.trigger import Trigger
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, as_object, dig

probes: Final = Probes[LangChainTarget]()

_ENDS: Final = ("completed", "failed", "interrupted")


@dataclass(frozen=True, slots=True)
class _Started:
    thread_id: str
    answer: Exchange
    stream: Exchange
    """Exchange that read the events of the thread, up to the end of the run."""

    @property
    def events(self) -> list[Any]:
        return [json_of(frame) for frame in self.stream.frames]


async def _start_run(ctx: Ctx, trigger: Trigger, *channels: str) -> _Started:
    """Start a run by the command `run.start` on a new thread, and read the thread's events on some channels up to the
    end of the run. Raises Failed if the command does not succeed."""
    server = ctx.target
    thread_id = await server.new_thread()
    body = server.body(trigger)
    given_input = body.get("input") or {"messages": body.get("messages", [])}
    start_params = {server.spell("assistant_id"): body.get(server.dialect.agent, ""), "input": given_input}
    answer = await _command(ctx, thread_id, 7, "run.start", start_params)
    check(answer.status == 200, "a command is answered with 200", answer.status, answer)
    check(dig(answer.json, "type") == "success", "run.start succeeds", answer.json, answer)
    return _Started(thread_id, answer, await _read_events(ctx, thread_id, {"channels": list(channels)}))


async def _start_plain_run(ctx: Ctx) -> _Started:
    return await _start_run(ctx, speaking_trigger(ctx), "lifecycle", "messages", "values")


async def _start_asking_run(ctx: Ctx) -> _Started:
    done = await _start_run(ctx, trigger_for(ctx, "question"), "lifecycle", "input")
    ends = _ends_of(done)
    check_shown(bool(_questions_of(done)) or ends[-1:] not in (["completed"], ["failed"]), "question", f"ended: {ends}")
    return done


def _ends_of(done: "_Started") -> list[Any]:
    return [dig(each, "params", "data", "event") for each in done.events if dig(each, "method") == "lifecycle"]


async def _read_events(ctx: Ctx, thread_id: str, body: Any) -> Exchange:
    """Read the event stream of a thread up to the end of its run, and return the exchange. `body` is the request:
    channels and the position."""
    path = f"/threads/{thread_id}/{ctx.target.dialect.events}"
    async with ctx.target.listen("POST", path, body, sends="EventStreamRequest.request", events="Event") as stream:
        check(stream.exchange.status == 200, "a stream with status 200", stream.exchange.status, stream.exchange)
        while (frame := await stream.next()) is not None:
            event = json_of(frame)
            if dig(event, "method") == "lifecycle" and dig(event, "params", "data", "event") in _ENDS:
                break
    return stream.exchange


async def _command(ctx: Ctx, thread_id: str, id: int, method: str, params: Any) -> Exchange:
    body = {"id": id, "method": method, "params": params}
    path = f"/threads/{thread_id}/commands"
    return await ctx.target.ask("POST", path, body, sends="Command.request", receives="CommandResponse")


@probes.add
async def command_starts_a_run(ctx: Ctx) -> None:
    done = await ctx.subject(_start_plain_run)
    run_id = dig(done.answer.json, "result", ctx.target.spell("run_id"))
    check(isinstance(run_id, str), "the id of the run", done.answer.json, done.answer)


@probes.add
async def answer_names_its_command(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    check(dig(done.answer.json, "id") == 7, "the id of the command", done.answer.json, done.answer)


@probes.add
async def unknown_command_is_an_error(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    exchange = await _command(ctx, done.thread_id, 8, "no.such", {})
    check(dig(exchange.json, "type") == "error", "an error", exchange.json, exchange)
    check(dig(exchange.json, "error") == "unknown_command", "the code unknown_command", exchange.json, exchange)


@probes.add
async def events_tell_what_is_said(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    event_names = [dig(each, "params", "data", "event") for each in done.events if dig(each, "method") == "messages"]
    check("message-start" in event_names, "the start of a message", event_names, done.stream)
    check("message-finish" in event_names, "the end of the message", event_names, done.stream)


@probes.add
async def events_are_in_order(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    numbers = [dig(each, "seq") for each in done.events]
    is_rising = all(isinstance(one, int) and isinstance(two, int) and one < two for one, two in pairwise(numbers))
    check(len(numbers) > 1 and is_rising, "seq increases from event to event", numbers, done.stream)


@probes.add
async def event_ids_are_different(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    ids = [dig(each, ctx.target.spell("event_id")) for each in done.events]
    check(len(set(ids)) == len(ids), "a unique id for each event", ids, done.stream)


@probes.add
async def events_are_replayed_from_a_number(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    first = dig(done.events, 0, "seq")
    body = {"channels": ["lifecycle", "messages", "values"], "since": first}
    again = await _read_events(ctx, done.thread_id, body)
    numbers = [dig(json_of(frame), "seq") for frame in again.frames]
    check(numbers == [dig(each, "seq") for each in done.events[1:]], "the events after that one", numbers, again)


@probes.add
async def events_are_of_the_channels(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    exchange = await _read_events(ctx, done.thread_id, {"channels": ["lifecycle"]})
    methods = [dig(json_of(frame), "method") for frame in exchange.frames]
    check(set(methods) == {"lifecycle"}, "only events of the channel lifecycle", methods, exchange)


@probes.add
async def stream_needs_a_channel(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    exchange = await ctx.target.ask("POST", f"/threads/{done.thread_id}/{ctx.target.dialect.events}", {"channels": []})
    check(is_refused(exchange), "a stream without channels is refused", exchange.status, exchange)


@probes.add
async def events_of_the_root_have_an_empty_namespace(ctx: Ctx) -> None:
    done = await ctx.once(_start_plain_run)
    places = [dig(each, "params", "namespace") for each in done.events if dig(each, "method") == "lifecycle"]
    check([] in [as_list(each) for each in places if isinstance(each, list)], "the namespace []", places, done.stream)


@probes.add
async def question_is_an_event(ctx: Ctx) -> None:
    done = await ctx.once(_start_asking_run)
    questions = _questions_of(done)
    check(bool(questions), "an event input.requested", [dig(each, "method") for each in done.events], done.stream)
    id = dig(questions, 0, ctx.target.spell("interrupt_id"))
    check(isinstance(id, str), "the id of the question", questions, done.stream)
    check("payload" in (as_object(questions[0]) or {}), "the payload of the question", questions, done.stream)
    ends = _ends_of(done)
    check(ends[-1:] == ["interrupted"], "the run ends as interrupted", ends, done.stream)


@probes.add
async def command_answers_a_question(ctx: Ctx) -> None:
    """Check that the command `input.respond` answers a question, and that the run then completes."""
    trigger = trigger_for(ctx, "question")
    done = await _start_asking_run(ctx)
    spelled = ctx.target.spell("interrupt_id")
    params: dict[str, Any] = {
        spelled: dig(_questions_of(done), 0, spelled),
        "namespace": [],
        "response": trigger.answer,
    }
    answer = await _command(ctx, done.thread_id, 8, "input.respond", params)
    check(dig(answer.json, "type") == "success", "input.respond succeeds", answer.json, answer)
    last = max(seq for each in done.events if isinstance(seq := dig(each, "seq"), int))
    rest = await _read_events(ctx, done.thread_id, {"channels": ["lifecycle"], "since": last})
    ends = [dig(json_of(frame), "params", "data", "event") for frame in rest.frames]
    check(ends[-1:] == ["completed"], "the continued run is completed", ends, rest)


def _questions_of(done: _Started) -> list[Any]:
    """Return the data of the events `input.requested`: the questions that the agent asked."""
    return [dig(each, "params", "data") for each in done.events if dig(each, "method") == "input.requested"]
