"""Conversion between parts and the content blocks of a message, in the standard form of langchain-core 1.

Older forms and the forms of model providers are decoded too. A block in an unknown form becomes a `DataPart`, and is
encoded unchanged."""

from base64 import b64decode, b64encode
from binascii import Error as BinasciiError
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from babelgate.adapters.kit.json import json_text, parse_text
from babelgate.adapters.langchain.carries import TOO_LARGE
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from babelgate.canonical.json import as_object
from babelgate.canonical.value import Json, JsonObject

_TEXT_BLOCKS: Final = frozenset({"text", "input_text", "output_text"})
"""Types of text blocks: `text` of langchain-core (1.7.2, messages/content.py), the others of OpenAI's Responses API."""
_THOUGHTS: Final = frozenset({"reasoning", "thinking"})
"""Types of reasoning blocks: `reasoning` of langchain-core, `thinking` of Anthropic (langchain-core 1.7.2,
block_translators/anthropic.py)."""
REASONING_CONTENT: Final = "reasoning_content"
"""Member of `additional_kwargs` in which some integrations store the reasoning of a model (langchain-core 1.7.2,
messages/base.py: Ollama, DeepSeek, XAI and Groq). A reasoning part that was decoded from there has this as `type` in
its `extra`."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "server_tool_call", "server_tool_use"})
"""Types of blocks that are tool calls. langchain-core 1.7.2: `tool_call` and `server_tool_call` are its own
(messages/content.py), `tool_use` and `server_tool_use` Anthropic's. `function_call` is from OpenAI's Responses API
(messages/block_translators)."""
_DEFAULT_MEDIA_TYPES: Final[Mapping[str, str]] = {
    "image": "image/png",
    "audio": "audio/wav",
    "video": "video/mp4",
    "file": "application/octet-stream",
    "document": "application/pdf",
    "text-plain": "text/plain",
    "image_url": "image/png",
    "input_image": "image/png",
    "input_file": "application/octet-stream",
    "input_audio": "audio/wav",
}
"""Media type of a file by the type of its block, for blocks that contain bytes without a media type.

`document` is Anthropic's, `image_url` and `input_audio` are from OpenAI's chat completions, `input_image` and
`input_file` from its Responses API. The others are langchain-core's (1.7.2, messages/content.py).
"""


def extra_of(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the LangChain members in the `extra` of a part or message: those that have no place in the canonical
    model."""
    return extra.get("langchain") or {}


def arguments_text(value: Json) -> str:
    """Return the arguments of a tool call as JSON text. A string is returned unchanged, and None becomes `{}`."""
    return value if isinstance(value, str) else json_text({} if value is None else value)


def _invalid(message: str) -> FaultError:
    return FaultError(FaultCode.INVALID, message)


# Decoding


def decode_content(content: Json, calls: Iterable[str] = ()) -> list[Part]:
    """Return the parts in the content of a message. Blocks of calls whose id is in `calls` are skipped, because the
    message repeats them in `tool_calls`. Raises invalid if the content is neither a string nor a list of blocks, or a
    block is malformed."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    if not isinstance(content, list):
        raise _invalid("The content of a message is a string or a list of blocks.")
    call_ids = frozenset(calls)
    return [part for block in content for part in _decode_block(block, call_ids)]


def _decode_block(block: Json, call_ids: frozenset[str]) -> list[Part]:
    if isinstance(block, str):
        return [TextPart(text=block)]
    if not isinstance(block, dict):
        raise _invalid("A block of a message's content is a string or an object.")
    kind = block.get("type")
    if not isinstance(kind, str):
        return [_opaque(block)]
    if kind in _TEXT_BLOCKS and isinstance(block.get("text"), str):
        return _decode_text(block)
    if kind in _THOUGHTS and (thought := _reasoning_text(block, kind)) is not None:
        return [ReasoningPart(text=thought, **_about(block, {kind}, marks=_mark(kind, "reasoning")))]
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return [RefusalPart(text=str(block["refusal"]), **_about(block, {"refusal"}))]
    # langchain-core 1.7.2: `non_standard` is its own (NonStandardContentBlock), `json` a provider's form that its
    # `convert_to_openai_messages` reads.
    if kind in ("json", "non_standard"):
        key = "json" if kind == "json" else "value"
        if key in block:
            return [DataPart(data=block[key], **_about(block, {key, "mime_type"}, marks=_mark(kind, "json")))]
    # `server_tool_result`: ServerToolResult of langchain-core 1.7.2.
    if kind in _CALLS or kind == "server_tool_result":
        return _decode_call(block, kind, call_ids)
    if kind in _DEFAULT_MEDIA_TYPES and (file := _decode_file(block, kind)) is not None:
        return [file]
    return [_opaque(block)]


def _opaque(block: JsonObject) -> DataPart:
    """Return a block of an unknown form as a `DataPart` with the member `opaque` in its `extra`, so that the block is
    encoded unchanged."""
    return DataPart(data=block, extra={"langchain": {"opaque": True}})


def _mark(kind: str, standard: str) -> JsonObject:
    """Return `{"type": kind}` for the `extra` of a part whose block had another type than the standard one, so that the
    part is encoded in the same form. Return {} for the standard type."""
    return {} if kind == standard else {"type": kind}


def _about(block: JsonObject, mapped: set[str], *, marks: JsonObject | None = None) -> dict[str, Any]:
    """Return constructor arguments of a part that depend on its block only: `metadata`, `media_type` and `extra`.
    `extra` gets all members that are not in `mapped`, and those in `marks`."""
    fields: dict[str, Any] = {}
    metadata = block.get("metadata")
    if isinstance(metadata, dict):
        fields["metadata"] = metadata
        mapped = mapped | {"metadata"}
    media_type = block.get("mime_type")
    if isinstance(media_type, str):
        fields["media_type"] = media_type
        mapped = mapped | {"mime_type"}
    extra = {key: value for key, value in block.items() if key != "type" and key not in mapped} | (marks or {})
    if extra:
        fields["extra"] = {"langchain": extra}
    return fields


def _reasoning_text(block: JsonObject, kind: str) -> str | None:
    text: Any = block.get(kind)
    if isinstance(text, str):
        return text
    # The item `reasoning` of OpenAI's Responses API, which langchain-openai passes on unchanged.
    summary: Any = block.get("summary")
    if isinstance(summary, list):
        return "".join(str(as_object(each).get("text", "")) for each in summary)  # pyright: ignore[reportUnknownVariableType]
    return None


def _decode_text(block: JsonObject) -> list[Part]:
    mapped, citations = {"text"}, list[JsonObject]()
    if isinstance(block.get("annotations"), list):
        citations, others = split_annotations(block["annotations"])
        if others:  # these stay with the text
            block = {**block, "annotations": others}
        else:
            mapped.add("annotations")
    text = TextPart(text=block["text"], **_about(block, mapped, marks=_mark(block["type"], "text")))
    return [text, *(decode_citation(each) for each in citations)]


def split_annotations(annotations: Sequence[Json]) -> tuple[list[JsonObject], list[Json]]:
    """Return two lists: the citations of a text, and its other annotations, such as `non_standard_annotation` of
    langchain-core 1."""
    citations = [as_object(each) for each in annotations if as_object(each).get("type") == "citation"]
    return citations, [each for each in annotations if as_object(each).get("type") != "citation"]


def decode_citation(citation: JsonObject) -> AnnotationPart:
    extras = as_object(citation.get("extras"))
    mapped = {"url", "title", "start_index", "end_index"}
    description = extras.get("description")
    if isinstance(description, str):
        citation = {**citation, "extras": {key: value for key, value in extras.items() if key != "description"}}
        if not citation["extras"]:
            mapped.add("extras")
    return AnnotationPart(
        start=_integer(citation.get("start_index")),
        end=_integer(citation.get("end_index")),
        url=_string(citation.get("url")),
        title=_string(citation.get("title")),
        description=_string(description),
        **_about(citation, mapped),
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _decode_call(block: JsonObject, kind: str, call_ids: frozenset[str]) -> list[Part]:
    """Return the part for a block with a tool call or its result. Return nothing for a call that the message repeats in
    `tool_calls`, unless the model's provider executes the tool."""
    if kind == "server_tool_result":
        call_id = _string(block.get("tool_call_id")) or ""
        mapped = {"tool_call_id", "status", "output"}
        is_error = block.get("status") == "error"
        return [ToolResultPart(call_id=call_id, output=block.get("output"), error=is_error, **_about(block, mapped))]
    # `call_id` of OpenAI's Responses API, whose `id` is that of the item; `id` in all other forms.
    call_id = _string(block.get("call_id")) or _string(block.get("id")) or ""
    name = _string(block.get("name"))
    if name is None:
        return [_opaque(block)]
    if kind not in ("server_tool_call", "server_tool_use") and call_id in call_ids:
        return []
    arguments = next((block[key] for key in ("args", "input", "arguments") if key in block), None)
    return [ToolCallPart(call_id=call_id, name=name, arguments=arguments_text(arguments))]


# Files


def _decode_file(block: JsonObject, kind: str) -> Part | None:
    """Return the file in a block. Return None if it holds no readable file, for example only a provider's file id."""
    source = _source(block, kind)
    media_type = _string(source.get("mime_type")) or _string(source.get("media_type"))
    name = _file_name(block, source)
    marks = _image_marks(block, kind)
    # `source_type` is from langchain-core before 1.0 (1.7.2, messages/block_translators/langchain_v0.py).
    mapped = {"source_type", "source", "base64", "data", "url", "text", "image_url", "file", "input_audio", "file_data"}
    mapped |= {"file_url", "filename", "name", "title", "mime_type", "media_type", "detail"}
    fields = _about(block, mapped, marks=marks)
    if as_object(block.get("extras")).get("filename") == name and name is not None:
        _forget_name(fields)
    fields.pop("media_type", None)
    url = _first(source, "url", "file_url")
    data = _first(source, "base64", "data", "file_data")
    # OpenAI's `image_url` contains bytes as a URL.
    if url is not None and url.startswith("data:"):
        url, data = None, url
    if data is not None:
        declared_type, raw = _bytes(data)
        media_type = media_type or declared_type or _DEFAULT_MEDIA_TYPES[kind]
        return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw), **fields)
    if url is not None:
        return FilePart(name=name, media_type=media_type, url=url, **fields)
    text = _string(source.get("text"))
    # `text-plain`: PlainTextContentBlock of langchain-core 1.7.2.
    if text is not None and kind in ("text-plain", "file", "document"):
        raw = text.encode()
        return FilePart(name=name, media_type=media_type or "text/plain", inline=raw, size=len(raw), **fields)
    return None


def _first(source: JsonObject, *keys: str) -> str | None:
    """Return the first string among the members `keys` of an object, or None if there is no string."""
    return next((value for key in keys if (value := _string(source.get(key))) is not None), None)


def _source(block: JsonObject, kind: str) -> JsonObject:
    """Return the object that holds the bytes or the URL of a file: a member of the block, or the block itself. `kind`
    is the type of the block, such as `image_url`."""
    # `source` is Anthropic's (langchain-core 1.7.2, messages/block_translators/anthropic.py).
    inner: Any = block.get("source") if kind not in ("image_url", "input_audio") else block.get(kind)
    # OpenAI's chat completions.
    if kind == "file" and isinstance(block.get("file"), dict):
        inner = block["file"]
    # OpenAI's Responses API; chat completions have an object.
    if kind in ("image_url", "input_image") and isinstance(block.get("image_url"), str):
        inner = {"url": block["image_url"]}
    # langchain-core 1: the bytes or the URL are members of the block itself.
    if not isinstance(inner, dict):
        return block
    source: JsonObject = dict(inner)  # pyright: ignore[reportUnknownArgumentType]
    if kind == "input_audio" and isinstance(source.get("format"), str):
        # OpenAI's chat completions (`input_audio.format`: wav or mp3).
        source["mime_type"] = f"audio/{source['format']}"
    return source


def _file_name(block: JsonObject, source: JsonObject) -> str | None:
    objects = (source, block, as_object(block.get("extras")), as_object(block.get("metadata")))
    names = (_string(object_.get(key)) for object_ in objects for key in ("filename", "name", "title"))
    return next((name for name in names if name), None)


def _forget_name(fields: dict[str, Any]) -> None:
    """Remove `filename` from the `extras` of a file block that `fields["extra"]` stores, because the part has the
    name."""
    extra = fields["extra"]["langchain"]
    extras = {key: value for key, value in extra["extras"].items() if key != "filename"}
    fields["extra"] = {"langchain": {**extra, "extras": extras} if extras else _without(extra, "extras")}
    if not fields["extra"]["langchain"]:
        del fields["extra"]


def _without(members: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in members.items() if name != key}


def _image_marks(block: JsonObject, kind: str) -> JsonObject:
    """Return `extra` members that record that an image came as `image_url`, with its `detail`. Such an image is then
    encoded in that form of OpenAI's chat completions, which many clients expect."""
    if kind != "image_url":
        return {}
    detail = as_object(block.get("image_url")).get("detail")
    return {"type": "image_url"} if detail is None else {"type": "image_url", "detail": detail}


def _bytes(data: str) -> tuple[str | None, bytes]:
    """Decode base64, alone or in a `data:` URL. Return the media type in the URL, or None, and the bytes. Raises
    invalid for any other text."""
    media_type: str | None = None
    if data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head[len("data:") :].partition(";")[0] or None
    try:
        return media_type, b64decode(data, validate=True)
    except (BinasciiError, ValueError) as error:
        raise _invalid("The data of a block is not base64.") from error


# Encoding


def is_plain(part: Part) -> bool:
    """Return True if a part is text without metadata, media type or further members."""
    return isinstance(part, TextPart) and not (part.media_type or part.metadata or extra_of(part.extra))


def encode_content(parts: Sequence[Part], *, blocks: bool = False) -> str | list[Any]:
    """Return the content of a message with the parts: a string if all are plain text, else a list of blocks.

    Consecutive plain texts become one block, and citations are added to the text block before them. Tool calls are left
    out unless `parts` has their result. `blocks`: always return a list, with one block for each text.
    """
    if not blocks and all(is_plain(part) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    wire: list[JsonObject] = []
    is_open = False
    for part in parts:
        if isinstance(part, AnnotationPart):
            if (
                not wire
                or wire[-1]["type"] not in _TEXT_BLOCKS
                or not isinstance(wire[-1].get("annotations", []), list)
            ):
                wire.append({"type": "text", "text": ""})
            wire[-1].setdefault("annotations", []).append(encode_citation(part))
            is_open = False
        elif isinstance(part, ToolCallPart):
            if part.call_id in answered:
                wire.append(_server_call(part))
                is_open = False
        elif is_open and isinstance(part, TextPart) and is_plain(part):
            wire[-1]["text"] += part.text
        else:
            wire.append(encode_block(part))
            if isinstance(wire[-1].get("annotations"), list):  # copied, so that the part's own list does not grow
                wire[-1]["annotations"] = [*wire[-1]["annotations"]]
            is_open = not blocks and is_plain(part)
    return wire


def _server_call(part: ToolCallPart) -> JsonObject:
    """Return a tool call as a block `server_tool_call`, the form for tools that the agent's side executes."""
    args = decode_arguments(part.arguments)
    arguments: JsonObject = {"arguments": part.arguments} if args is None else args
    return {"type": "server_tool_call", "id": part.call_id, "name": part.name, "args": arguments}


def decode_arguments(text: str) -> JsonObject | None:
    """Return the JSON text of a call's arguments as an object, {} for an empty text. Return None if the text is no JSON
    object, which models sometimes produce."""
    if not text:
        return {}
    args = parse_text(text)
    return args if isinstance(args, dict) else None


def encode_citation(part: AnnotationPart) -> JsonObject:
    wire: JsonObject = {"type": "citation"}
    fields = {"url": part.url, "title": part.title, "start_index": part.start, "end_index": part.end}
    wire.update((key, value) for key, value in fields.items() if value is not None)
    if part.description is not None:
        extras = as_object(extra_of(part.extra).get("extras"))
        wire["extras"] = {**extras, "description": part.description}
    return _with_extra(wire, part)


def encode_block(part: Part) -> JsonObject:
    extra = extra_of(part.extra)
    match part:
        case TextPart():
            wire: JsonObject = {"type": _kind(extra, _TEXT_BLOCKS, "text"), "text": part.text}
        case ReasoningPart():
            kind = _kind(extra, _THOUGHTS, "reasoning")
            wire = {"type": kind, kind: part.text}
        case RefusalPart():
            wire = {"type": "refusal", "refusal": part.text}
        case DataPart() if extra.get("opaque") and isinstance(part.data, dict):
            return part.data
        case DataPart():
            kind = _kind(extra, {"json", "non_standard"}, "json")
            wire = {"type": kind, ("json" if kind == "json" else "value"): part.data}
        case FilePart():
            return _encode_file(part)
        case ToolResultPart():
            status = "error" if part.error else "success"
            wire = {"type": "server_tool_result", "tool_call_id": part.call_id, "status": status}
            wire["output"] = part.output
        case ToolCallPart():
            wire = _server_call(part)
        case AnnotationPart():
            wire = {"type": "text", "text": "", "annotations": [encode_citation(part)]}
    if part.media_type is not None:
        wire["mime_type"] = part.media_type
    return _with_extra(wire, part)


def _kind(extra: Mapping[str, Any], kinds: Iterable[str], standard: str) -> str:
    """Return the type of a part's original block, stored in its `extra`, if it is one of `kinds`. Else return
    `standard`."""
    kind = extra.get("type")
    return kind if isinstance(kind, str) and kind in kinds else standard


def _with_extra(wire: JsonObject, part: Part) -> JsonObject:
    """Return the block with the part's metadata and the other members of its `extra`. Members that the block already
    has take precedence."""
    if part.metadata:
        wire["metadata"] = part.metadata
    extra = {key: value for key, value in extra_of(part.extra).items() if key not in ("type", "opaque")}
    return {**wire, **{key: value for key, value in extra.items() if key not in wire}}


def _encode_file(part: FilePart) -> JsonObject:
    extra = extra_of(part.extra)
    media_type = part.media_type or "application/octet-stream"
    inline = None if part.inline is None else b64encode(part.inline).decode()
    if extra.get("type") == "image_url" and (inline is not None or part.url is not None):
        image: JsonObject = {"url": part.url if inline is None else f"data:{media_type};base64,{inline}"}
        if "detail" in extra:
            image["detail"] = extra["detail"]
        wire: JsonObject = {"type": "image_url", "image_url": image}
        return {key: value for key, value in _with_extra(wire, part).items() if key != "detail"}
    family = media_type.partition("/")[0]
    wire = {"type": family if family in ("image", "audio", "video") else "file"}
    # langchain-core 1: members without a field go to `extras`, and a block has no field for the name of a file.
    extras: JsonObject = {} if part.name is None else {"filename": part.name}
    if inline is not None:
        wire["base64"] = inline
    elif part.url is not None:
        wire["url"] = part.url
    else:  # too large to include: the hash identifies the stored file
        wire["file_id"] = part.blob
        extras["babelgate"] = {"loss": {Feature.FILE_BYTES.value: TOO_LARGE}}
    if part.media_type is not None:
        wire["mime_type"] = part.media_type
    if extras:
        wire["extras"] = {**as_object(extra.get("extras")), **extras}
    return _with_extra(wire, part)
