"""Conversion of an agent's invocation to the params of an A2A request, which has one message."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from babelgate.adapters.a2a.codec.asks import AnswerMessage
from babelgate.adapters.a2a.codec.dialect import Dialect
from babelgate.adapters.a2a.frameworks.ag2 import CLIENT_TOOLS, encode_offer
from babelgate.adapters.a2a.read.questions import replies
from babelgate.adapters.a2a.wire.task import PROTOCOL, derived_id, shown_part
from babelgate.adapters.kit.extension import URI, encode_ids, encode_start, encode_uploads, split_uploads
from babelgate.canonical import FilePart, Invocation, Message, Part, Record, TextPart, declared_tools
from babelgate.canonical.value import JsonObject

RUN = "run"
"""Key under which `Invocation.origin` has the run's id on a server that is another gateway."""
_DECLINED = "a refusal to answer is sent as an empty answer"


def request(
    call: Invocation,
    past: Sequence[Record],
    dialect: Dialect,
    *,
    streams: bool,
    extended: bool = False,
    offers_tools: bool = False,
) -> JsonObject:
    """Return the params of the request that sends an input or an answer to the agent's server. `past` are the records
    of the task that is answered.

    An answer goes to the task that asked. Any other input starts a new task in the same context, because the previous
    task has ended, and accepts no more input.

    - `streams` is True if the response is a stream. Otherwise, the server responds at once.
    - `extended` adds the metadata of the Babelgate extension.
    - `offers_tools` adds the caller's tools in the form of ag2.
    """
    call, uploads = split_uploads(call) if extended else (call, ())
    if extended and RUN in call.origin:  # the upstream gateway has the history of that run
        call = replace(call, history=())
    is_answer = bool(call.answers)
    task_id = call.upstream.get("task")
    reply = replies(call, past) if is_answer else AnswerMessage(_input(call))
    if offers_tools and call.tools:
        extensions = dict.fromkeys((*reply.extensions, CLIENT_TOOLS))
        reply = replace(reply, parts=(*reply.parts, encode_offer(call.tools)), extensions=tuple(extensions))
    return dialect.encode_send(
        _message(call, reply),
        # Always sent: a2a-sdk 1.3.0 invents a contextId for a follow-up without one, and fails the task at the next.
        context_id=call.upstream.get("context"),
        task_id=task_id if is_answer else None,
        # A task that continues another one names it (specification 1.0, 3.4.3).
        references=() if is_answer or task_id is None else (task_id,),
        wait=None if streams else False,
        output_modes=_modes(call.config.get("accepted_output_modes")),
        metadata=_metadata(call, uploads, extended=extended),
    )


def _metadata(call: Invocation, uploads: Sequence[FilePart], *, extended: bool) -> JsonObject | None:
    """Return the metadata of a request: those of the caller, and with `extended`, the entry of the Babelgate extension.
    Return None if there are none."""
    metadata: JsonObject = {} if call.answers else {**call.metadata}
    extension = {**_extension_metadata(call), **encode_uploads(uploads)} if extended else {}
    return ({**metadata, URI: extension} if extension else metadata) or None


def _extension_metadata(call: Invocation) -> JsonObject:
    """Return the entry of the Babelgate extension in the metadata: the parts of the invocation that A2A has no field
    for."""
    extension: JsonObject = {} if call.answers else encode_start(call, RUN)
    tools = declared_tools(call.config)
    if tools is not None:
        extension["tools"] = tools
    declined = [answer.interrupt_id for answer in call.answers if answer.action == "decline"]
    if declined and len(declined) == len(call.answers):
        extension["answers"] = [{"interrupt_id": each, "action": "decline"} for each in declined]
    if not call.answers and len(call.messages) == len(call.input_messages) == 1:
        extension |= encode_ids(call.messages)
    if not call.answers and not _transcript(call) and _is_lossy(call.messages) and not call.files:
        parts = _input(call)
        extension["message"] = msgspec.json.decode(msgspec.json.encode(Message(role="user", parts=parts)))
    return extension


def _is_lossy(messages: Sequence[Message]) -> bool:
    return any(shown_part(part)[0] is not part for message in messages for part in message.parts)


def _message(call: Invocation, reply: AnswerMessage) -> Message:
    """Return the message to send: it has the id and members of the caller's last message, and the content of
    `reply`."""
    last = call.messages[-1] if call.messages else Message()
    message_id = last.message_id or derived_id(call.run_id, "input")
    members: JsonObject = dict(last.extra.get(PROTOCOL) or {})
    if reply.extensions:
        members["extensions"] = list(dict.fromkeys((*(members.get("extensions") or ()), *reply.extensions)))
    return last.replace(
        message_id=message_id,
        role="user",
        parts=reply.parts,
        metadata={**(reply.metadata or {}), **last.metadata},
        extra={**last.extra, PROTOCOL: members} if members else last.extra,
    )


def _input(call: Invocation) -> tuple[Part, ...]:
    return (*_transcript(call), *(part for message in call.input_messages for part in message.parts))


def _transcript(call: Invocation) -> tuple[Part, ...]:
    """Return the history of the conversation as one text part, or no part if the server has the context. A2A has no
    other place for it.

    The last line announces the input, because servers join the texts of all parts without a separator.
    """
    lines = [f"{message.role}: {message.text}" for message in call.history if message.text]
    if not lines or call.upstream.get("context"):
        return ()
    text = "\n".join(["Said before in this conversation:", *lines, "", "Said now:", ""])
    return (TextPart(text=text, metadata={"babelgate": {"kind": "history"}}),)


def _modes(value: object) -> Sequence[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType]


def losses(call: Invocation, *, extended: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the losses of the input, as pairs of a feature and how it is lost: content that A2A has no form for. With
    `extended`, the content that the Babelgate extension carries is not lost."""
    call = split_uploads(call)[0] if extended else call
    extension = _extension_metadata(call) if extended else {}
    if "message" in extension or "answers" in extension:
        return
    for message in call.messages:
        for part in message.parts:
            loss = shown_part(part)[1]
            if loss is not None:
                yield loss.feature, loss.how
    if any(answer.action == "decline" for answer in call.answers):
        yield "question", _DECLINED
