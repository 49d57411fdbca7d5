"""What messages and artifacts hold."""

import base64
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import Agent, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import TERMINAL, Reply, is_reason, state_of
from babelgate.conformance.protocols.a2a.scenes import each_binding, final_reply, plain
from babelgate.conformance.verdict import NotObserved, check
from babelgate.conformance.wire.exchange import as_list, dig

probes: Final = Probes[Agent]()

_BYTES: Final = bytes(range(256))
"""Every byte there is, so that nothing that takes them for text gets through."""


async def with_part(ctx: Ctx, binding: str, behaviour: str, part: dict[str, Any]) -> Reply:
    agent = await agent_for(ctx, behaviour)
    sent = message(ctx.triggers[behaviour].text)
    sent["parts"].append(part)
    return await agent[binding].call("SendMessage", {"message": sent})


async def with_file(ctx: Ctx, binding: str) -> Reply:
    part = {"raw": base64.b64encode(_BYTES).decode(), "filename": "bytes.bin", "mediaType": "application/octet-stream"}
    return await with_part(ctx, binding, "files", part)


def parts_of(task: Any) -> list[Any]:
    return [part for artifact in as_list(dig(task, "artifacts")) for part in as_list(dig(artifact, "parts"))]


@probes.add
@each_binding
async def files_are_taken(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(with_file, binding)
    check(not sent.reason, "a message with a file succeeds", sent.reason, sent.exchange)
    check(state_of(sent.task) in TERMINAL, "its task ends", sent.task, sent.exchange)


@probes.add
@each_binding
async def files_are_given_unharmed(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(with_file, binding)
    raws = [str(part["raw"]) for part in parts_of(sent.task) if dig(part, "raw") is not None]
    if not raws:
        raise NotObserved("the agent gave back no file with its bytes", "files")
    got = [_decode_base64(raw) for raw in raws]
    check(_BYTES in got, "the 256 bytes that were sent, in base64", raws, sent.exchange)


def _decode_base64(raw: str) -> bytes:
    try:
        return base64.b64decode(raw.replace("-", "+").replace("_", "/") + "=" * (-len(raw) % 4), validate=True)
    except ValueError:
        return b""


@probes.add
@each_binding
async def files_have_names(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(with_file, binding)
    files = [part for part in parts_of(sent.task) if dig(part, "raw") is not None or dig(part, "url") is not None]
    if not files:
        raise NotObserved("the agent gave no file", "files")
    names = [dig(part, "filename") for part in files]
    check("bytes.bin" in names, "the file with the name it came with", names, sent.exchange)


@probes.add
@each_binding
async def data_is_given(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "data")
    parts = parts_of(sent.task)
    check(any("data" in part for part in parts), "a data part", parts, sent.exchange)


@probes.add
@each_binding
async def data_is_taken_or_refused_by_its_name(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    sent = await with_part(ctx, binding, "plain", {"data": {"answer": 42, "deep": [1, {"a": None}]}})
    is_right = not sent.reason or is_reason(sent, "CONTENT_TYPE_NOT_SUPPORTED")
    check(is_right, "success, or the error ContentTypeNotSupported", sent.reason, sent.exchange)


@probes.add
@each_binding
async def strange_files_are_taken_or_refused_by_their_type(ctx: Ctx, binding: str) -> None:
    await ctx.once(plain, binding)
    strange = {"raw": "AAAA", "mediaType": "application/x-babelgate-unheard-of"}
    sent = await with_part(ctx, binding, "plain", strange)
    is_right = not sent.reason or is_reason(sent, "CONTENT_TYPE_NOT_SUPPORTED")
    check(is_right, "success, or the error ContentTypeNotSupported", sent.reason, sent.exchange)


@probes.add
@each_binding
async def all_of_unicode_is_taken(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "plain")
    await ctx.once(plain, binding)
    text = "Grüße, 世界, \U0001f600, \u202eabc, \u0000.".replace("\u0000", "\\0")
    sent = await agent[binding].call("SendMessage", {"message": message(text)})
    check(not sent.reason, "a text beyond ASCII succeeds", sent.reason, sent.exchange)
    history = [str(dig(part, "text")) for each in as_list(dig(sent.task, "history")) for part in as_list(each["parts"])]
    check(not history or text in history, f"the text as it was sent, {text!r}", history, sent.exchange)


@probes.add
@each_binding
async def large_texts_are_taken(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "plain")
    await ctx.once(plain, binding)
    sent = await agent[binding].call("SendMessage", {"message": message("word " * 50_000)})
    check(not sent.reason, "a text of 250 kB succeeds", sent.reason, sent.exchange)
