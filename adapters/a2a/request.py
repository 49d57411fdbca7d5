"""What an agent is called with → the one message that A2A takes."""

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
"""By which the runs of a gateway are bound."""
_DECLINED = "a refusal to answer has no form, and is told as an empty answer"


def request(
    call: Invocation,
    past: Sequence[Record],
    dialect: Dialect,
    *,
    streams: bool,
    extended: bool = False,
    offers: bool = False,
) -> JsonObject:
    """The params of a send. An answer goes to the task that asked; any other input makes a task of its own in the
    context, because one that has ended takes none, and the gateway begins no run before the last one has ended.
    `offers` = the server takes the caller's tools as ag2 does."""
    call, uploads = split_uploads(call) if extended else (call, ())
    if extended and RUN in call.origin:  # which knows what was said before
        call = replace(call, history=())
    answers = bool(call.answers)
    before = call.upstream.get("task")
    said = replies(call, past) if answers else AnswerMessage(_input(call))
    if offers and call.tools:
        extensions = dict.fromkeys((*said.extensions, CLIENT_TOOLS))
        said = replace(said, parts=(*said.parts, encode_offer(call.tools)), extensions=tuple(extensions))
    return dialect.encode_send(
        _message(call, said),
        # Always said: a2a-sdk 1.3.0 makes up a contextId for a follow-up that has none, and fails the task at the next.
        context_id=call.upstream.get("context"),
        task_id=before if answers else None,
        # Specification 1.0, 3.4.3: a task that goes on from another one names it.
        references=() if answers or before is None else (before,),
        wait=None if streams else False,
        output_modes=_modes(call.config.get("accepted_output_modes")),
        metadata=_metadata(call, uploads, extended=extended),
    )


def _metadata(call: Invocation, uploads: Sequence[FilePart], *, extended: bool) -> JsonObject | None:
    """The task's, and by the extension what A2A has no field for."""
    own: JsonObject = {} if call.answers else {**call.metadata}
    told = {**_by_extension(call), **encode_uploads(uploads)} if extended else {}
    return ({**own, URI: told} if told else own) or None


def _by_extension(call: Invocation) -> JsonObject:
    told: JsonObject = {} if call.answers else encode_start(call, RUN)
    tools = declared_tools(call.config)
    if tools is not None:
        told["tools"] = tools
    declined = [answer.interrupt_id for answer in call.answers if answer.action == "decline"]
    if declined and len(declined) == len(call.answers):
        told["answers"] = [{"interrupt_id": each, "action": "decline"} for each in declined]
    if not call.answers and len(call.messages) == len(call.input_messages) == 1:
        told |= encode_ids(call.messages)
    if not call.answers and not _transcript(call) and _is_lossy(call.messages) and not call.files:
        parts = _input(call)
        told["message"] = msgspec.json.decode(msgspec.json.encode(Message(role="user", parts=parts)))
    return told


def _is_lossy(messages: Sequence[Message]) -> bool:
    return any(shown_part(part)[0] is not part for message in messages for part in message.parts)


def _message(call: Invocation, said: AnswerMessage) -> Message:
    """As the caller said it last, with the parts of all it said."""
    last = call.messages[-1] if call.messages else Message()
    message_id = last.message_id or derived_id(call.run_id, "input")
    own: JsonObject = dict(last.extra.get(PROTOCOL) or {})
    if said.extensions:
        own["extensions"] = list(dict.fromkeys((*(own.get("extensions") or ()), *said.extensions)))
    return last.replace(
        message_id=message_id,
        role="user",
        parts=said.parts,
        metadata={**(said.metadata or {}), **last.metadata},
        extra={**last.extra, PROTOCOL: own} if own else last.extra,
    )


def _input(call: Invocation) -> tuple[Part, ...]:
    return (*_transcript(call), *(part for message in call.input_messages for part in message.parts))


def _transcript(call: Invocation) -> tuple[Part, ...]:
    """What was said before, where the server has no context that remembers it: A2A has no other place for it. It ends
    with a line that announces the input, because servers join the text of all parts without a break."""
    lines = [f"{message.role}: {message.text}" for message in call.history if message.text]
    if not lines or call.upstream.get("context"):
        return ()
    text = "\n".join(["Said before in this conversation:", *lines, "", "Said now:", ""])
    return (TextPart(text=text, metadata={"babelgate": {"kind": "history"}}),)


def _modes(given: object) -> Sequence[str]:
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else ()  # pyright: ignore[reportUnknownVariableType]


def losses(call: Invocation, *, extended: bool = False) -> Iterator[tuple[str, str]]:
    """What of the input A2A has no form for."""
    call = split_uploads(call)[0] if extended else call
    told = _by_extension(call) if extended else {}
    if "message" in told or "answers" in told:
        return
    for message in call.messages:
        for part in message.parts:
            loss = shown_part(part)[1]
            if loss is not None:
                yield loss.feature, loss.how
    if any(answer.action == "decline" for answer in call.answers):
        yield "question", _DECLINED
