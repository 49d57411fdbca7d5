"""Probes that test files that AIEF agents produce and receive, and file names that would lead out of the folder for
files."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import Executed, execute, new_task, upload_file
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, agent_for, items_of
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[AiefTarget]()

_CONTENT: Final = b"Nothing but this.\n"
_NAME: Final = "given.txt"


@probes.add
async def file_of_the_agent_is_in_its_step(ctx: Ctx) -> None:
    done = await ctx.once(_make_file)
    agent_files = [each for each in as_list(dig(done.step, "artifacts")) if dig(each, "agent_created") is True]
    check(bool(agent_files), "an artifact with agent_created true", done.step, done.exchange)


@probes.add
async def file_of_the_agent_is_listed(ctx: Ctx) -> None:
    done = await ctx.once(_make_file)
    exchange = await done.agent.artifacts(done.task_id, page_size=100)
    agent_files = [each for each in items_of(exchange, "artifacts") if dig(each, "agent_created") is True]
    check(bool(agent_files), "an artifact with agent_created true is among the task's", exchange.json, exchange)


@probes.add
async def file_of_the_agent_can_be_had(ctx: Ctx) -> None:
    done = await ctx.once(_make_file)
    listed = items_of(await done.agent.artifacts(done.task_id, page_size=100), "artifacts")
    agent_files = [each for each in listed if dig(each, "agent_created") is True]
    check(bool(agent_files), "an artifact with agent_created true", listed, done.exchange)
    for each in agent_files:
        exchange = await done.agent.download(done.task_id, str(dig(each, "artifact_id")))
        check(exchange.status == 200, "each file of the agent can be downloaded", exchange.status, exchange)


@probes.add
async def agent_is_given_the_upload(ctx: Ctx) -> None:
    done = await ctx.once(_make_file)
    listed = items_of(await done.agent.artifacts(done.task_id, page_size=100), "artifacts")
    agent_files = [each for each in listed if dig(each, "agent_created") is True]
    check(bool(agent_files), "a file of the agent among the task's", listed, done.exchange)
    downloads = [await done.agent.download(done.task_id, str(dig(each, "artifact_id"))) for each in agent_files]
    for each in downloads:
        check(each.status == 200, "each file of the agent can be downloaded", each.status, each)
    contents = [each.content for each in downloads]
    has_name = any(str(dig(each, "file_name")).endswith(_NAME) for each in agent_files)
    check_shown(_CONTENT in contents or has_name, "files", "created another file")
    check(
        _CONTENT in contents,
        "the agent returns the bytes that it received",
        [repr(each[:80]) for each in contents],
        done.exchange,
    )


@probes.add
async def file_name_leads_nowhere(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    sent = await ctx.target.upload(stored.task_id, b"out", "../../judge-out.txt")
    if sent.status != 200:
        check(400 <= (sent.status or 0) < 500, "a file name that escapes is refused or sanitized", sent.status, sent)
        return
    name = str(dig(sent.json, "file_name"))
    check("/" not in name and "\\" not in name, "a file_name without a path", name, sent)
    download = await ctx.target.download(stored.task_id, str(dig(sent.json, "artifact_id")))
    disposition = download.header("content-disposition") or ""
    check("../" not in disposition, "a download that names no path", disposition, download)


@probes.add
async def relative_path_leads_nowhere(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    sent = await ctx.target.upload(stored.task_id, b"out", "judge-out.txt", "../../..")
    if sent.status != 200:
        check(400 <= (sent.status or 0) < 500, "a path that escapes is refused or sanitized", sent.status, sent)
        return
    path = dig(sent.json, "relative_path")
    check(".." not in str(path).split("/"), "a relative_path that stays inside", path, sent)


async def _make_file(ctx: Ctx) -> Executed:
    """Upload a file to a new task and execute a step with the trigger `files`. Return the step. Raises NotShown if the
    agent produces no file."""
    agent = await agent_for(ctx, "files")
    text = ctx.triggers["files"].text
    task_id = await new_task(agent, text)
    sent = await agent.upload(task_id, _CONTENT, _NAME)
    check(sent.status == 200, "a file is uploaded", sent.status, sent)
    done = await execute(agent, task_id, text)
    listed = items_of(await agent.artifacts(task_id, page_size=100), "artifacts")
    found = [*as_list(dig(done.step, "artifacts")), *(each for each in listed if dig(each, "file_name") != _NAME)]
    has_made = bool(found) or any(dig(each, "agent_created") is True for each in listed)
    check_shown(has_made, "files", "created no file")
    return done
