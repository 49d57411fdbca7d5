"""Probes that test the content of A2A messages and artifacts: texts, data and files."""

import base64
from typing import Any, Final

from babelgate.conformance.probe import Probes
from babelgate.conformance.protocols.a2a.agent import A2aTarget, Ctx, agent_for, message
from babelgate.conformance.protocols.a2a.binding import TERMINAL, A2aReply, is_reason, state_of
from babelgate.conformance.protocols.a2a.scenes import each_binding, final_reply, plain
from babelgate.conformance.samples import BYTES, FILE_NAME, WORDS, check_repeated
from babelgate.conformance.verdict import check, check_shown
from babelgate.conformance.wire.exchange import as_list, dig, json_or_none

probes: Final = Probes[A2aTarget]()


async def with_part(ctx: Ctx, binding: str, behaviour: str, part: dict[str, Any]) -> A2aReply:
    agent = await agent_for(ctx, behaviour)
    sent = message(ctx.triggers[behaviour].text)
    sent["parts"].append(part)
    return await agent[binding].call("SendMessage", {"message": sent})


async def with_file(ctx: Ctx, binding: str) -> A2aReply:
    part = {"raw": base64.b64encode(BYTES).decode(), "filename": FILE_NAME, "mediaType": "application/octet-stream"}
    return await with_part(ctx, binding, "files", part)


def parts_of(task: Any) -> list[Any]:
    return [part for artifact in as_list(dig(task, "artifacts")) for part in as_list(dig(artifact, "parts"))]


@probes.add
@each_binding
async def files_are_taken(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(with_file, binding)
    check(not sent.reason, "a message with a file succeeds", sent.reason, sent.exchange)
    has_ended = sent.message is not None or state_of(sent.task) in TERMINAL
    check(has_ended, "its task ends", sent.reason_or_result, sent.exchange)


@probes.add
@each_binding
async def files_are_given_unharmed(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(with_file, binding)
    files = _files_of(sent)
    raws = [str(part["raw"]) for part in files if dig(part, "raw") is not None]
    check_shown(bool(raws), "files", "returned no file bytes")
    received = [_decode_base64(raw) for raw in raws]
    has_name = any(dig(part, "filename") == FILE_NAME for part in files)
    check_shown(BYTES in received or has_name, "files", "returned another file")
    check(BYTES in received, "the 256 bytes that were sent, in base64", raws, sent.exchange)


def _decode_base64(raw: str) -> bytes:
    try:
        return base64.b64decode(raw.replace("-", "+").replace("_", "/") + "=" * (-len(raw) % 4), validate=True)
    except ValueError:
        return b""


@probes.add
@each_binding
async def files_have_names(ctx: Ctx, binding: str) -> None:
    sent = await ctx.once(with_file, binding)
    files = _files_of(sent)
    check_shown(bool(files), "files", "returned no file")
    is_same = any(_decode_base64(str(dig(part, "raw"))) == BYTES for part in files)
    names = [dig(part, "filename") for part in files]
    check_shown(is_same or FILE_NAME in names, "files", "returned another file")
    check(FILE_NAME in names, "the file with the name that was sent", names, sent.exchange)


def _files_of(sent: A2aReply) -> list[Any]:
    parts = (*parts_of(sent.task), *as_list(dig(sent.message, "parts")))
    return [part for part in parts if dig(part, "raw") is not None or dig(part, "url") is not None]


@probes.add
@each_binding
async def data_is_given(ctx: Ctx, binding: str) -> None:
    sent = await ctx.subject(final_reply, binding, "data")
    message_parts = as_list(dig(sent.message, "parts"))
    parts = [*parts_of(sent.task), *message_parts]
    has_data = any("data" in part for part in parts)
    texts = [text for text in (dig(part, "text") for part in parts) if isinstance(text, str)]
    check(
        has_data or not any(isinstance(json_or_none(text), dict | list) for text in texts),
        "data in a data part",
        texts,
        sent.exchange,
    )
    check_shown(has_data, "data", "answered without a data part")


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
    sent = await agent[binding].call("SendMessage", {"message": message(WORDS)})
    check(not sent.reason, "a text beyond ASCII succeeds", sent.reason, sent.exchange)
    history = [str(dig(part, "text")) for each in as_list(dig(sent.task, "history")) for part in as_list(each["parts"])]
    check(not history or WORDS in history, f"the text as it was sent, {WORDS!r}", history, sent.exchange)
    parts = [*parts_of(sent.task), *as_list(dig(sent.message, "parts"))]
    check_repeated("".join(str(dig(part, "text") or "") for part in parts), sent.exchange)


@probes.add
@each_binding
async def large_texts_are_taken(ctx: Ctx, binding: str) -> None:
    agent = await agent_for(ctx, "plain")
    await ctx.once(plain, binding)
    sent = await agent[binding].call("SendMessage", {"message": message("word " * 50_000)})
    check(not sent.reason, "a text of 250 kB succeeds", sent.reason, sent.exchange)
