"""Probes that test files that callers upload to AIEF servers."""

from typing import Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.aief.scenes import new_task, upload_file
from babelgate.conformance.protocols.aief.target import AiefTarget, Ctx, items_of, unknown_id
from babelgate.conformance.verdict import check
from babelgate.conformance.wire.exchange import dig

probes: Final = Probes[AiefTarget]()


@probes.add
async def file_is_uploaded(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    name = dig(stored.artifact, "file_name")
    check(name == "bytes.bin", "the file_name bytes.bin", stored.artifact, stored.exchange)


@probes.add
async def upload_is_not_the_agents(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    by_agent = dig(stored.artifact, "agent_created")
    check(by_agent is False, "agent_created is false", stored.artifact, stored.exchange)


@probes.add
async def upload_keeps_its_path(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    path = str(dig(stored.artifact, "relative_path")).strip("/")
    check(path == "data/raw", "the relative_path data/raw", stored.artifact, stored.exchange)


@probes.add
async def upload_is_listed(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.artifacts(stored.task_id)
    ids = [dig(each, "artifact_id") for each in items_of(exchange, "artifacts")]
    check(exchange.status == 200, "artifacts are listed with status 200", exchange.status, exchange)
    check(ids.count(dig(stored.artifact, "artifact_id")) == 1, "the upload once in the list", ids, exchange)


@probes.add
async def upload_is_part_of_its_task(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.task(stored.task_id)
    ids = [dig(each, "artifact_id") for each in dig(exchange.json, "artifacts") or ()]
    is_there = ids.count(dig(stored.artifact, "artifact_id")) == 1
    check(is_there, "the upload is among the task's artifacts, once", ids, exchange)


@probes.add
async def upload_comes_back_byte_for_byte(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.download(stored.task_id, dig(stored.artifact, "artifact_id"))
    check(exchange.status == 200, "the file with status 200", exchange.status, exchange)
    check(exchange.content == stored.content, f"its {len(stored.content)} bytes", repr(exchange.content), exchange)


@probes.add
async def download_is_an_octet_stream(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.download(stored.task_id, dig(stored.artifact, "artifact_id"))
    check(exchange.status == 200, "the file with status 200", exchange.status, exchange)
    kind = exchange.media_type
    check(kind == "application/octet-stream", "Content-Type application/octet-stream", kind, exchange)


@probes.add
async def empty_file_is_a_file(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    sent = await ctx.target.upload(stored.task_id, b"", "empty.txt")
    check(sent.status == 200, "an empty file is accepted", sent.status, sent)
    exchange = await ctx.target.download(stored.task_id, str(dig(sent.json, "artifact_id")))
    check(
        exchange.status == 200 and exchange.content == b"", "an empty answer of status 200", exchange.status, exchange
    )


@probes.add
async def long_file_comes_back_whole(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    content = bytes(range(251)) * 4200  # A little more than a megabyte; the size is not a power of 2.
    sent = await ctx.target.upload(stored.task_id, content, "long.bin")
    check(sent.status == 200, "a file of one megabyte is accepted", sent.status, sent)
    exchange = await ctx.target.download(stored.task_id, str(dig(sent.json, "artifact_id")))
    check(exchange.content == content, f"its {len(content)} bytes", len(exchange.content), exchange)


@probes.add
async def file_name_may_hold_any_letters(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    sent = await ctx.target.upload(stored.task_id, b"x", "Übersicht 表.txt")
    check(sent.status == 200, "a name with letters beyond ASCII is accepted", sent.status, sent)
    name = dig(sent.json, "file_name")
    check(name == "Übersicht 表.txt", "the file_name as it was sent", name, sent)


@probes.add
async def files_of_one_name_are_two_files(ctx: Ctx) -> None:
    task_id = await new_task(ctx.target, "Hello")
    sent = [await ctx.target.upload(task_id, content, "same.txt") for content in (b"first", b"second")]
    for each in sent:
        check(each.status == 200, "a file is uploaded", each.status, each)
    ids = [str(dig(each.json, "artifact_id")) for each in sent]
    check(ids[0] != ids[1], "two uploads have two ids", ids, sent[1])
    contents = [(await ctx.target.download(task_id, each)).content for each in ids]
    check(contents == [b"first", b"second"], "each has its own bytes", [repr(each) for each in contents])


@probes.add
async def upload_without_a_file_is_refused(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.upload(stored.task_id, None)
    check(400 <= (exchange.status or 0) < 500, "a form without a file is refused", exchange.status, exchange)


@probes.add
async def upload_to_an_unknown_task_is_not_found(ctx: Ctx) -> None:
    await ctx.once(upload_file)
    exchange = await ctx.target.upload(unknown_id(), b"x")
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def unknown_artifact_is_not_found(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    exchange = await ctx.target.download(stored.task_id, unknown_id())
    check(exchange.status == 404, "the status 404", exchange.status, exchange)


@probes.add
async def artifact_of_another_task_is_not_found(ctx: Ctx) -> None:
    stored = await ctx.once(upload_file)
    other = await new_task(ctx.target, "Hello")
    exchange = await ctx.target.download(other, dig(stored.artifact, "artifact_id"))
    check(exchange.status == 404, "the file is not found in another task", exchange.status, exchange)
