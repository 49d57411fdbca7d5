"""Invocation → the prompt for another agent of the protocol."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.adapters.agent_client import wire as w
from babelgate.adapters.agent_client.codec.content import encode_file, text_block
from babelgate.adapters.kit.json import json_text
from babelgate.canonical import (
    DataPart,
    Feature,
    FilePart,
    InterruptAnswered,
    Invocation,
    LossNoted,
    Message,
    Part,
    TextPart,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
"""Beginnings of the media types of files that a prompt contains as text."""
_HISTORY: Final = "The conversation before this message:"
_ROLES: Final = {"user": "User", "agent": "Assistant", "system": "System", "tool": "Tool"}
_NO_MESSAGES: Final = LossNoted(feature=Feature.HISTORY, how="earlier messages, which the agent receives as one text")
_NO_EARLIER_FILES: Final = LossNoted(feature=Feature.HISTORY, how="files of earlier messages")
_NO_METADATA: Final = LossNoted(feature=Feature.METADATA, how="metadata of the run, which the agent does not read")
_NO_TOOLS: Final = LossNoted(feature=Feature.CALLER_TOOLS, how="tools of the caller, which the agent cannot call")
_NO_FILE: Final = LossNoted(feature=Feature.FILE_BYTES, how="a file that the agent does not accept in a prompt")


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """Content of a `session/prompt`, and the losses to report before it is sent."""

    blocks: list[JsonObject]
    meta: JsonObject
    losses: list[LossNoted] = field(default_factory=list[LossNoted])


@dataclass(frozen=True, slots=True)
class Receiver:
    """Agent to which a prompt is sent: what it accepts, and whether it is a gateway."""

    accepts: JsonObject
    """Object `promptCapabilities` of the agent."""
    is_gateway: bool
    """True if the agent is another Babelgate, which reads `_meta.babelgate`."""


def encode_prompt(call: Invocation, receiver: Receiver, *, is_new: bool) -> PromptRequest:
    """Return the prompt for the input of a run. `is_new` is True if the session has just been created, so that the
    agent does not know the earlier messages of the thread."""
    losses: list[LossNoted] = []
    blocks: list[JsonObject] = []
    if is_new and call.history:
        blocks += _history(call.history)
        losses.append(_NO_MESSAGES)
        if any(isinstance(part, FilePart) for message in call.history for part in message.parts):
            losses.append(_NO_EARLIER_FILES)
    for message in call.input_messages:
        if message.role == "system":
            blocks.append(text_block("System:"))
        for part in message.parts:
            block = encode_part(part, receiver)
            if block is None:
                losses.append(_NO_FILE)
            else:
                blocks.append(block)
    if call.tools:
        losses.append(_NO_TOOLS)
    meta: JsonObject = {}
    if receiver.is_gateway:
        meta = {**call.input.metadata, w.OWN: {"prompt": f"{call.run_id}-{call.attempt}"}}
    elif call.input.metadata:
        losses.append(_NO_METADATA)
    # An agent may refuse an empty prompt.
    return PromptRequest(blocks or [text_block("")], meta, losses)


def encode_answers(call: Invocation, answers: Sequence[InterruptAnswered]) -> PromptRequest:
    """Return the prompt that answers questions of another gateway for which it has no open request."""
    values: dict[str, Json] = {each.interrupt_id: each.value for each in answers}
    is_whole = len(answers) == len(call.answers)  # else the agent has had the text with the other answers
    blocks = [text_block(message.text) for message in call.messages if message.text and is_whole]
    meta: JsonObject = {w.OWN: {"prompt": f"{call.run_id}-{call.attempt}", "answers": values}}
    return PromptRequest(blocks, {**call.input.metadata, **meta})


def encode_part(part: Part, receiver: Receiver) -> JsonObject | None:
    """Return a part of a message as a content block. Return None for a file that the agent does not accept."""
    match part:
        case TextPart(text=text):
            return text_block(text)
        case DataPart(data=data):
            return {**text_block(json_text(data)), "_meta": {w.OWN: {"kind": "data"}}}
        case FilePart():
            return _file(part, receiver)
        case _:
            return text_block(getattr(part, "text", "") or getattr(part, "output", "") or "")


def _file(part: FilePart, receiver: Receiver) -> JsonObject | None:
    block = encode_file(part, str)
    kind = "embeddedContext" if block["type"] == "resource" else block["type"]
    if kind != "resource_link" and receiver.accepts.get(kind) is not True:
        return None
    if block["type"] == "resource" and not receiver.is_gateway and (part.media_type or "").startswith(_TEXTUAL):
        resource = as_object(block["resource"])
        text = _decode(part.inline or b"")
        if text is not None:
            return {**block, "resource": {"uri": resource["uri"], "mimeType": resource["mimeType"], "text": text}}
    return block


def _decode(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _history(messages: Sequence[Message]) -> Iterator[JsonObject]:
    """Yield the earlier messages of a thread as one text block."""
    lines = [f"{_ROLES[message.role]}: {text}" for message in messages if (text := _words(message))]
    if lines:
        yield text_block("\n\n".join((_HISTORY, *lines, "---")))


def _words(message: Message) -> str:
    texts: list[str] = []
    for part in message.parts:
        match part:
            case TextPart(text=text):
                texts.append(text)
            case DataPart(data=data):
                texts.append(json_text(data))
            case FilePart(name=name):
                texts.append(f"[file {name or 'without a name'}]")
            case _:
                pass
    return "\n".join(texts)
