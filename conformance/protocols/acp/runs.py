"""Probes that test how ACP runs are created, awaited and read."""

import asyncio
import base64
from datetime import UTC, datetime
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.acp.scenes import (
    long_run,
    run_behaviour,
    stay_busy,
    stream_run,
    text_of,
    wait_for_end,
    wait_for_status,
)
from babelgate.conformance.protocols.acp.target import AcpTarget, Ctx, message, trigger_of
from babelgate.conformance.samples import BYTES, FILE_NAME, WORDS, check_repeated, decode_base64
from babelgate.conformance.verdict import Failed, NotApplicable, check, check_shown
from babelgate.conformance.wire.exchange import Exchange, as_list, dig

probes: Final = Probes[AcpTarget]()


_WATCH_SECONDS: Final = 0.6
"""Seconds to wait, after the caller of a run has disconnected, before the run is read again. Chosen: a server that
cancels the run does so within this time."""


@probes.add
async def sync_run_is_answered(ctx: Ctx) -> None:
    await ctx.subject(run_behaviour, "plain")


@probes.add
async def sync_run_is_completed(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    check(dig(done.run, "status") == "completed", "the status completed", done.run, done.exchange)


@probes.add
async def async_run_is_accepted(ctx: Ctx) -> None:
    exchange = await ctx.once(_create_async)
    check(exchange.status == 202, "the status 202", exchange.status, exchange)


@probes.add
async def accepted_run_is_created(ctx: Ctx) -> None:
    exchange = await ctx.once(_create_async)
    check(dig(exchange.json, "status") == "created", "the status created", exchange.json, exchange)


@probes.add
async def accepted_run_comes_to_an_end(ctx: Ctx) -> None:
    exchange = await ctx.once(_create_async)
    run = await wait_for_end(ctx.target, str(dig(exchange.json, "run_id")), ctx.options.timeout)
    check(dig(run.json, "status") == "completed", "the run is completed", run.json, run)


@probes.add
async def run_without_a_mode_is_waited_for(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.create(trigger_of(ctx, "plain"))
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "status") == "completed", "a run that is completed", exchange.json, exchange)


@probes.add
async def runs_at_once_are_separate_runs(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    body = {**trigger_of(ctx, "plain"), "mode": "sync"}
    answers = await asyncio.gather(*(ctx.target.create(body) for _ in range(5)))
    for each in answers:
        check(dig(each.json, "status") == "completed", "five concurrent runs are completed", each.json, each)
    ids = {str(dig(each.json, "run_id")) for each in answers}
    check(len(ids) == len(answers), "five runs with five ids", sorted(ids), answers[0])


@probes.add
async def run_names_its_agent(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    name = trigger_of(ctx, "plain")["agent_name"]
    check(dig(done.run, "agent_name") == name, f"the agent_name {name}", done.run, done.exchange)


@probes.add
async def run_is_in_a_session(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    check(isinstance(dig(done.run, "session_id"), str), "a session_id", done.run, done.exchange)


@probes.add
async def run_id_is_in_a_header(ctx: Ctx) -> None:
    done, stream = await ctx.once(run_behaviour, "plain"), await ctx.once(stream_run, "plain")
    accepted = await ctx.once(_create_async)
    for exchange, id in (
        (done.exchange, done.id),
        (stream.exchange, stream.id),
        (accepted, dig(accepted.json, "run_id")),
    ):
        actual = exchange.header("run-id")
        check(actual == id, f"Run-ID: {id}", actual, exchange)


@probes.add
async def run_is_found_again(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.run(done.id)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "run_id") == done.id, f"the run {done.id}", exchange.json, exchange)


@probes.add
async def run_is_found_as_it_was_answered(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.run(done.id)
    for member in ("status", "output", "created_at", "finished_at"):
        actual = dig(exchange.json, member)
        check(actual == dig(done.run, member), f"{member} as it was answered", actual, exchange)


@probes.add
async def ended_run_tells_when(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    began, over = dig(done.run, "created_at"), dig(done.run, "finished_at")
    check(isinstance(over, str), "a finished_at", done.run, done.exchange)
    check(_time(over) >= _time(began), "a finished_at that is not before created_at", [began, over], done.exchange)


@probes.add
async def run_has_an_output(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    output = as_list(dig(done.run, "output"))
    check(bool(output) and bool(text_of(output)), "an output with text", dig(done.run, "output"), done.exchange)


@probes.add
async def output_is_the_agents(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    name = trigger_of(ctx, "plain")["agent_name"]
    roles = [dig(each, "role") for each in as_list(dig(done.run, "output"))]
    check(bool(roles), "an output", done.run, done.exchange)
    check(set(roles) <= {"agent", f"agent/{name}"}, f"the role agent or agent/{name}", roles, done.exchange)


@probes.add
async def completed_messages_tell_when(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    output = as_list(dig(done.run, "output"))
    times = [dig(each, "completed_at") for each in output]
    check(bool(times) and all(times), "messages of a completed run with a completed_at", output, done.exchange)


@probes.add
async def completed_run_has_no_error(ctx: Ctx) -> None:
    done = await ctx.once(run_behaviour, "plain")
    check(dig(done.run, "status") == "completed", "the status completed", done.run, done.exchange)
    check(dig(done.run, "error") is None, "no error", dig(done.run, "error"), done.exchange)


@probes.add
async def input_may_have_several_messages(ctx: Ctx) -> None:
    await _check_input_accepted(ctx, [message("Hello"), message("I am here.", "agent"), message("Good.")])


@probes.add
async def input_may_be_an_agents(ctx: Ctx) -> None:
    await _check_input_accepted(ctx, [message("Hello", "agent/some_one-else")])


@probes.add
async def message_may_have_several_parts(ctx: Ctx) -> None:
    first: Any = message("Hello")
    first["parts"] += [
        {"content_type": "text/plain", "content": "SGVsbG8=", "content_encoding": "base64"},
        {"content_type": "application/json", "content": '{"a": 1}', "name": "data.json"},
    ]
    await _check_input_accepted(ctx, [first])


@probes.add
async def text_beyond_ascii_is_taken(ctx: Ctx) -> None:
    run = await _check_input_accepted(ctx, [message(WORDS)])
    check_repeated(text_of(as_list(dig(run.json, "output"))), run)


@probes.add
async def files_are_taken(ctx: Ctx) -> None:
    exchange = await ctx.subject(_run_with_file)
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "status") in ("completed", "awaiting"), "a run that did not fail", exchange.json, exchange)


@probes.add
async def files_are_given_unharmed(ctx: Ctx) -> None:
    run = await ctx.once(_run_with_file)
    if run.status != 200:
        raise NotApplicable("the agent takes no files")
    parts = [part for each in as_list(dig(run.json, "output")) for part in as_list(dig(each, "parts"))]
    files = [part for part in parts if dig(part, "content_encoding") == "base64"]
    check_shown(bool(files), "files", "returned no file")
    contents = [decode_base64(dig(part, "content")) for part in files]
    check(None not in contents, "content in base64", [dig(part, "content") for part in files], run)
    has_name = any(dig(part, "name") == FILE_NAME for part in files)
    check_shown(BYTES in contents or has_name, "files", "returned another file")
    check(BYTES in contents, "the 256 bytes that were sent", [dig(part, "content") for part in files], run)


async def _run_with_file(ctx: Ctx) -> Exchange:
    request = trigger_of(ctx, "files")
    request["input"][0]["parts"].append(
        {
            "name": FILE_NAME,
            "content_type": "application/octet-stream",
            "content": base64.b64encode(BYTES).decode(),
            "content_encoding": "base64",
        }
    )
    return await ctx.target.create({**request, "mode": "sync"})


@probes.add
async def parts_may_have_unknown_members(ctx: Ctx) -> None:
    hello: Any = message("Hello")
    hello["parts"][0]["x-origin"] = {"a": 1}
    await _check_input_accepted(ctx, [hello])


@probes.add
async def body_needs_no_content_type(ctx: Ctx) -> None:
    await ctx.once(run_behaviour, "plain")
    body = {**trigger_of(ctx, "plain"), "mode": "sync"}
    # The content type is empty because HTTPX cannot omit it for a request with a body.
    exchange = await ctx.target.create(body, headers={"Content-Type": ""})
    check(exchange.status == 200, "the status 200", exchange.status, exchange)


@probes.add
async def caller_that_leaves_cancels_nothing(ctx: Ctx) -> None:
    await ctx.once(stay_busy)
    async with ctx.target.stream_run("createRun.request", trigger_of(ctx, "long"), "runs") as stream:
        first = await stream.next()
        check(first is not None, "an event", None, stream.exchange)
    assert first is not None  # See the check above.
    run_id = str(dig(first.json, "run", "run_id"))
    try:
        run = await wait_for_status(ctx.target, run_id, _WATCH_SECONDS, "cancelling", "cancelled", "failed")
        status = dig(run.json, "status")
        check(status in ("created", "in-progress", "completed"), "a run that continues", run.json, run)
    finally:
        await ctx.target.cancel(run_id)


@probes.add
async def run_at_work_is_in_progress(ctx: Ctx) -> None:
    async with long_run(ctx) as started:
        run = await wait_for_status(ctx.target, started.id, ctx.options.timeout / 2, "in-progress")
        check(dig(run.json, "status") == "in-progress", "the status in-progress", run.json, run)
        check(dig(run.json, "finished_at") is None, "no finished_at yet", run.json, run)


async def _create_async(ctx: Ctx) -> Exchange:
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), "mode": "async"})
    check(isinstance(dig(exchange.json, "run_id"), str), "a run with a run_id", exchange.json, exchange)
    return exchange


async def _check_input_accepted(ctx: Ctx, messages: list[dict[str, Any]]) -> Exchange:
    await ctx.once(run_behaviour, "plain")
    exchange = await ctx.target.create({**trigger_of(ctx, "plain"), "input": messages, "mode": "sync"})
    check(exchange.status == 200, "the status 200", exchange.status, exchange)
    check(dig(exchange.json, "status") in ("completed", "awaiting"), "a run that did not fail", exchange.json, exchange)
    return exchange


def _time(text: Any) -> datetime:
    """Return the time that a text states, in UTC if it has no zone. Raises Failed if it is not in the format of RFC
    3339."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        raise Failed("a time in RFC 3339 format", text) from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
