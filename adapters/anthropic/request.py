"""Invocation → the request to another server of the Messages API. The API is stateless, so each request contains the
whole conversation."""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from babelgate.adapters.anthropic import wire as w
from babelgate.adapters.anthropic.codec.names import PROTOCOL
from babelgate.adapters.anthropic.codec.settings import encode_settings, sent_settings
from babelgate.adapters.anthropic.write.message import BLOCK
from babelgate.adapters.kit.client.transcript import transcript
from babelgate.adapters.kit.json import ABSENT, json_text, parse_text
from babelgate.canonical import (
    DataPart,
    Feature,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    Record,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.event import PartEnded
from babelgate.canonical.json import as_object, as_text
from babelgate.canonical.thread import Loss
from babelgate.canonical.value import JsonObject

MAX_TOKENS: Final = 32_000
"""Limit of tokens that is sent if the caller names none, because the API requires one. Chosen: Claude Code 2.1.332
sends the same."""
_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""Media types of images that the API accepts (SPEC, Base64ImageSource)."""
_PDF: Final = "application/pdf"


class RequestEncoder:
    """Encoder of one request. `is_gateway` is True if the server is another Babelgate. It reads files of any type, and
    the member `babelgate` of blocks and sources, which other servers refuse."""

    def __init__(self, *, is_gateway: bool) -> None:
        self._is_gateway = is_gateway
        self._losses: dict[Loss, None] = {}

    @property
    def losses(self) -> Sequence[Loss]:
        """Losses of the request, each once."""
        return tuple(self._losses)

    def body(self, model: str, call: Invocation, past: Sequence[Record], schema: JsonObject | None) -> JsonObject:
        """Return the JSON body of the request for a run, as a stream. `past` are the records of its task. `schema` is
        the agent's output schema, used if the caller demands none."""
        is_same = (raw := sent_settings(call.input.extra)) is not None
        settings = dict(raw) if raw is not None else encode_settings(call.config)
        messages = _with_signatures(transcript(call, past, PROTOCOL), past)
        system: list[JsonObject] = []
        turns: list[JsonObject] = []
        for message in messages:
            if message.role == "system" and not (is_same and turns):
                system += self._blocks(message)
            else:
                _append(turns, "system" if message.role == "system" else _role(message), self._blocks(message))
        body: JsonObject = {"max_tokens": MAX_TOKENS, **settings, "model": model, "messages": turns, "stream": True}
        if isinstance(call.config.get("instructions"), str):
            system.insert(0, {"type": "text", "text": call.config["instructions"]})
        if system:
            body["system"] = system
        form = response_schema(call, schema)
        if form is not None and not as_object(body.get("output_config")).get("format"):
            config = {**as_object(body.get("output_config")), "format": {"type": "json_schema", "schema": form}}
            body["output_config"] = config
        return {**body, **self._metadata(call)}

    def _metadata(self, call: Invocation) -> JsonObject:
        if not call.metadata or (self._is_gateway and call.answers):
            return {}
        if self._is_gateway:
            return {"metadata": dict(call.metadata)}
        # SPEC, metadata: only `user_id`.
        user_id = as_text(call.metadata.get("user_id"))
        if call.metadata.keys() - {"user_id"}:
            self._lose(Feature.METADATA, "only user_id is sent")
        return {"metadata": {"user_id": user_id}} if user_id else {}

    def _lose(self, feature: Feature, how: str) -> None:
        self._losses[Loss(feature=feature.value, how=how)] = None

    # Blocks

    def _blocks(self, message: Message) -> list[JsonObject]:
        blocks = [block for part in message.parts if (block := self._block(part, message)) is not None]
        # Results come before everything else (docs, Tool use).
        return sorted(blocks, key=lambda block: block["type"] != "tool_result")

    def _block(self, part: Part, message: Message) -> JsonObject | None:
        extra = as_object(part.extra.get(PROTOCOL))
        others = as_object(extra.get("own"))
        match part:
            case TextPart() | RefusalPart():
                return {**others, "type": "text", "text": part.text} if part.text else None
            case DataPart():
                return self._data(part, is_block=extra.get(BLOCK) is True)
            case FilePart():
                return {**others, **self._file(part, as_text(extra.get("type")))}
            case ReasoningPart():
                return _thinking(part, extra)
            case ToolCallPart(side="caller"):
                return {**others, "type": "tool_use", "id": part.call_id, "name": part.name, "input": _input(part)}
            case ToolResultPart() if message.role == "tool":
                return {**others, **_result(part)}
            case _:
                return None

    def _data(self, part: DataPart, *, is_block: bool) -> JsonObject:
        if is_block and isinstance(part.data, dict):
            return as_object(part.data)
        marks: JsonObject = {w.OWN: {"data": part.data}} if self._is_gateway else {}
        text = part.data if isinstance(part.data, str) else json_text(part.data)
        return {"type": "text", "text": text, **marks}

    def _file(self, part: FilePart, kind: str) -> JsonObject:
        """Return the block of a file. `kind` is its type in the request of a caller of this API, or empty."""
        media_type = part.media_type or ""
        is_image = kind == "image" or (not kind and media_type.startswith("image/"))
        named: JsonObject = {} if part.name is None else {"title": part.name}
        if is_image:
            named = {w.OWN: {"name": part.name}} if self._is_gateway and part.name is not None else {}
        if part.url is not None and part.inline is None:
            source: JsonObject = {"type": "url", "url": part.url}
            if self._is_gateway and media_type:
                source["media_type"] = media_type
            if is_image or media_type in (_PDF, "") or self._is_gateway:
                return {"type": "image" if is_image else "document", "source": source, **named}
        elif part.inline is not None:
            if media_type in _IMAGES or media_type == _PDF or self._is_gateway:
                source = {"type": "base64", "media_type": media_type or "application/octet-stream"}
                source["data"] = b64encode(part.inline).decode()
                is_image = is_image and media_type != _PDF
                return {"type": "image" if is_image else "document", "source": source, **named}
            if (text := _text_in(part)) is not None:
                self._lose(Feature.FILE_BYTES, "a text file is sent as plain text")
                return {
                    "type": "document",
                    "source": {"type": "text", "media_type": "text/plain", "data": text},
                    **named,
                }
        self._lose(Feature.FILE_BYTES, "named in the text, not sent")
        return {"type": "text", "text": f"[file: {part.name or part.url or media_type or 'unnamed'}]"}


def has_gateway_content(call: Invocation) -> bool:
    """Return True if a call has content that is sent in another form to another Babelgate: data, files, or
    metadata."""
    messages = (*call.history, *call.input_messages)
    has_content = any(isinstance(part, DataPart | FilePart) for message in messages for part in message.parts)
    return bool(call.metadata) or has_content


def response_schema(call: Invocation, schema: JsonObject | None) -> JsonObject | None:
    """Return the JSON Schema that the caller demands of the answer, or else the agent's output schema `schema`."""
    form = as_object(call.config.get("response_format")) or as_object(as_object(call.config.get("text")).get("format"))
    if form.get("type") == "json_object":
        return {"type": "object"}
    if form.get("type") == "json_schema":
        nested = as_object(form.get("json_schema")) or form
        found = nested.get("schema")
        return as_object(found) if isinstance(found, dict) else schema
    return schema


def _append(turns: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    """Add a message with `role` and `blocks` to the messages `turns`. If the last message has the same role, add the
    blocks to that message instead. Do nothing without blocks."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        joined = [*turns[-1]["content"], *blocks]
        if role == "user":
            joined = sorted(joined, key=lambda block: block["type"] != "tool_result")
        turns[-1]["content"] = joined
    else:
        turns.append({"role": role, "content": blocks})


def _role(message: Message) -> str:
    return "assistant" if message.role == "agent" else "user"


def _input(part: ToolCallPart) -> JsonObject:
    value = parse_text(part.arguments or "{}")
    return value if value is not ABSENT and isinstance(value, dict) else {"arguments": part.arguments}


def _result(part: ToolResultPart) -> JsonObject:
    text = part.output if isinstance(part.output, str) else json_text(part.output)
    block: JsonObject = {"type": "tool_result", "tool_use_id": part.call_id, "content": text}
    return {**block, "is_error": True} if part.error else block


def _thinking(part: ReasoningPart, extra: Mapping[str, object]) -> JsonObject | None:
    """Return reasoning as the block that the server sent. Return None if its signature is missing, because the API
    refuses such a block."""
    if as_text(extra.get("redacted")):
        return {"type": "redacted_thinking", "data": extra["redacted"]}
    if not as_text(extra.get("signature")):
        return None
    return {"type": "thinking", "thinking": part.text, "signature": extra["signature"]}


def _text_in(part: FilePart) -> str | None:
    """Return the content of a text file, or None for any other file."""
    media_type = part.media_type or ""
    if not (media_type.startswith("text/") or media_type == "application/json") or part.inline is None:
        return None
    try:
        return part.inline.decode()
    except UnicodeDecodeError:
        return None


def _with_signatures(messages: Iterable[Message], past: Sequence[Record]) -> list[Message]:
    """Return the messages with the server's signatures added to their reasoning parts. The log has each signature in
    the `PartEnded` event of the part, among the records `past`."""
    signatures = {
        (record.event.message_id, record.event.index): as_object(record.event.extra[PROTOCOL])
        for record in past
        if isinstance(record.event, PartEnded) and PROTOCOL in record.event.extra
    }
    if not signatures:
        return list(messages)
    return [_sign(message, signatures) for message in messages]


def _sign(message: Message, signatures: Mapping[tuple[str | None, int | None], JsonObject]) -> Message:
    parts = tuple(
        part.replace(extra={**part.extra, PROTOCOL: signature})
        if isinstance(part, ReasoningPart) and (signature := signatures.get((message.message_id, index)))
        else part
        for index, part in enumerate(message.parts)
    )
    return message.replace(parts=parts)
