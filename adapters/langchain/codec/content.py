"""Parts ↔ the content blocks of a message, in the standard form of langchain-core 1; older and providers' own forms of
the same blocks are read too. A block that is none of them is data, and leaves as it came."""

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
"""`text` is langchain-core's (1.7.2, messages/content.py), the others are of OpenAI's Responses API."""
_THOUGHTS: Final = frozenset({"reasoning", "thinking"})
"""`reasoning` is langchain-core's, `thinking` Anthropic's (langchain-core 1.7.2, block_translators/anthropic.py)."""
REASONING_CONTENT: Final = "reasoning_content"
"""The member of `additional_kwargs` in which some integrations keep what a model thought (langchain-core 1.7.2,
messages/base.py: Ollama, DeepSeek, XAI and Groq). A part of it says so by its `type`."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "server_tool_call", "server_tool_use"})
"""langchain-core 1.7.2: `tool_call` and `server_tool_call` are its own (messages/content.py), `tool_use` and
`server_tool_use` Anthropic's, `function_call` is of OpenAI's Responses API (messages/block_translators)."""
_MEDIA: Final[Mapping[str, str]] = {
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
"""Blocks that are files, and their type where they bring bytes and do not say of what. `document` is Anthropic's,
`image_url` and `input_audio` are of OpenAI's chat completions, `input_image` and `input_file` of its Responses API; the
others are langchain-core's (1.7.2, messages/content.py)."""


def extra_of(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a peer of this protocol said that canonical has no word for."""
    return extra.get("langchain") or {}


def arguments_text(value: Json) -> str:
    """Arguments of a tool call as JSON text."""
    return value if isinstance(value, str) else json_text({} if value is None else value)


def _invalid(what: str) -> FaultError:
    return FaultError(FaultCode.INVALID, what)


# Decoding


def decode_content(content: Json, calls: Iterable[str] = ()) -> list[Part]:
    """`calls` = ids of the tool calls that the message tells beside its content: blocks repeat them. Raises invalid."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    if not isinstance(content, list):
        raise _invalid("The content of a message is a string or a list of blocks.")
    told = frozenset(calls)
    return [part for block in content for part in _decode_block(block, told)]


def _decode_block(block: Json, told: frozenset[str]) -> list[Part]:
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
        return _decode_call(block, kind, told)
    if kind in _MEDIA and (file := _decode_file(block, kind)) is not None:
        return [file]
    return [_opaque(block)]


def _opaque(block: JsonObject) -> DataPart:
    return DataPart(data=block, extra={"langchain": {"opaque": True}})


def _mark(kind: str, standard: str) -> JsonObject:
    return {} if kind == standard else {"type": kind}


def _about(block: JsonObject, known: set[str], *, marks: JsonObject | None = None) -> dict[str, Any]:
    """What every part takes from its block: metadata, media type, and the fields that nobody here knows."""
    about: dict[str, Any] = {}
    metadata = block.get("metadata")
    if isinstance(metadata, dict):
        about["metadata"] = metadata
        known = known | {"metadata"}
    media_type = block.get("mime_type")
    if isinstance(media_type, str):
        about["media_type"] = media_type
        known = known | {"mime_type"}
    own = {key: value for key, value in block.items() if key != "type" and key not in known} | (marks or {})
    if own:
        about["extra"] = {"langchain": own}
    return about


def _reasoning_text(block: JsonObject, kind: str) -> str | None:
    text: Any = block.get(kind)
    if isinstance(text, str):
        return text
    # The item `reasoning` of OpenAI's Responses API, which langchain-openai passes on as it is.
    summary: Any = block.get("summary")
    if isinstance(summary, list):
        return "".join(str(as_object(each).get("text", "")) for each in summary)  # pyright: ignore[reportUnknownVariableType]
    return None


def _decode_text(block: JsonObject) -> list[Part]:
    known, citations = {"text"}, list[JsonObject]()
    if isinstance(block.get("annotations"), list):
        citations, others = split_annotations(block["annotations"])
        if others:  # they stay with the text
            block = {**block, "annotations": others}
        else:
            known.add("annotations")
    text = TextPart(text=block["text"], **_about(block, known, marks=_mark(block["type"], "text")))
    return [text, *(decode_citation(each) for each in citations)]


def split_annotations(annotations: Sequence[Json]) -> tuple[list[JsonObject], list[Json]]:
    """(citations, others) of a text. langchain-core 1 has `non_standard_annotation` beside them, and providers their
    own."""
    citations = [as_object(each) for each in annotations if as_object(each).get("type") == "citation"]
    return citations, [each for each in annotations if as_object(each).get("type") != "citation"]


def decode_citation(cited: JsonObject) -> AnnotationPart:
    extras = as_object(cited.get("extras"))
    known = {"url", "title", "start_index", "end_index"}
    description = extras.get("description")
    if isinstance(description, str):
        cited = {**cited, "extras": {key: value for key, value in extras.items() if key != "description"}}
        if not cited["extras"]:
            known.add("extras")
    return AnnotationPart(
        start=_integer(cited.get("start_index")),
        end=_integer(cited.get("end_index")),
        url=_string(cited.get("url")),
        title=_string(cited.get("title")),
        description=_string(description),
        **_about(cited, known),
    )


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _decode_call(block: JsonObject, kind: str, told: frozenset[str]) -> list[Part]:
    """The work of a provider's own tools stands between the texts; other calls repeat the message's `tool_calls`."""
    if kind == "server_tool_result":
        call_id = _string(block.get("tool_call_id")) or ""
        known = {"tool_call_id", "status", "output"}
        failed = block.get("status") == "error"
        return [ToolResultPart(call_id=call_id, output=block.get("output"), error=failed, **_about(block, known))]
    # `call_id` of OpenAI's Responses API, whose `id` is that of the item; `id` of everybody else.
    call_id = _string(block.get("call_id")) or _string(block.get("id")) or ""
    name = _string(block.get("name"))
    if name is None:
        return [_opaque(block)]
    if kind not in ("server_tool_call", "server_tool_use") and call_id in told:
        return []
    given = next((block[key] for key in ("args", "input", "arguments") if key in block), None)
    return [ToolCallPart(call_id=call_id, name=name, arguments=arguments_text(given))]


# Files


def _decode_file(block: JsonObject, kind: str) -> Part | None:
    """None for a block that holds no file that could be read, such as a provider's own id of one."""
    source = _source(block, kind)
    media_type = _string(source.get("mime_type")) or _string(source.get("media_type"))
    name = _file_name(block, source)
    marks = _image_marks(block, kind)
    # `source_type` is of langchain-core before 1 (1.7.2, messages/block_translators/langchain_v0.py).
    known = {"source_type", "source", "base64", "data", "url", "text", "image_url", "file", "input_audio", "file_data"}
    known |= {"file_url", "filename", "name", "title", "mime_type", "media_type", "detail"}
    about = _about(block, known, marks=marks)
    if as_object(block.get("extras")).get("filename") == name and name is not None:
        _forget_name(about)
    about.pop("media_type", None)
    url = _first(source, "url", "file_url")
    data = _first(source, "base64", "data", "file_data")
    # OpenAI's `image_url` has bytes as a URL.
    if url is not None and url.startswith("data:"):
        url, data = None, url
    if data is not None:
        said, raw = _bytes(data)
        media_type = media_type or said or _MEDIA[kind]
        return FilePart(name=name, media_type=media_type, inline=raw, size=len(raw), **about)
    if url is not None:
        return FilePart(name=name, media_type=media_type, url=url, **about)
    text = _string(source.get("text"))
    # `text-plain`: PlainTextContentBlock of langchain-core 1.7.2.
    if text is not None and kind in ("text-plain", "file", "document"):
        raw = text.encode()
        return FilePart(name=name, media_type=media_type or "text/plain", inline=raw, size=len(raw), **about)
    return None


def _first(source: JsonObject, *keys: str) -> str | None:
    return next((value for key in keys if (value := _string(source.get(key))) is not None), None)


def _source(block: JsonObject, kind: str) -> JsonObject:
    """The object of a block that says where the bytes are."""
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
    found: JsonObject = dict(inner)  # pyright: ignore[reportUnknownArgumentType]
    if kind == "input_audio" and isinstance(found.get("format"), str):
        # OpenAI's chat completions (`input_audio.format`: wav or mp3).
        found["mime_type"] = f"audio/{found['format']}"
    return found


def _file_name(block: JsonObject, source: JsonObject) -> str | None:
    places = (source, block, as_object(block.get("extras")), as_object(block.get("metadata")))
    names = (_string(place.get(key)) for place in places for key in ("filename", "name", "title"))
    return next((name for name in names if name), None)


def _forget_name(about: dict[str, Any]) -> None:
    own = about["extra"]["langchain"]
    extras = {key: value for key, value in own["extras"].items() if key != "filename"}
    about["extra"] = {"langchain": {**own, "extras": extras} if extras else _without(own, "extras")}
    if not about["extra"]["langchain"]:
        del about["extra"]


def _without(own: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in own.items() if name != key}


def _image_marks(block: JsonObject, kind: str) -> JsonObject:
    """The form of OpenAI's chat, which half of the world sends, is the one that leaves as it came."""
    if kind != "image_url":
        return {}
    detail = as_object(block.get("image_url")).get("detail")
    return {"type": "image_url"} if detail is None else {"type": "image_url", "detail": detail}


def _bytes(data: str) -> tuple[str | None, bytes]:
    """Base64, bare or as a `data:` URL, and the type that the latter names."""
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
    """Whether a part is text and nothing else."""
    return isinstance(part, TextPart) and not (part.media_type or part.metadata or extra_of(part.extra))


def encode_content(parts: Sequence[Part], *, blocks: bool = False) -> str | list[Any]:
    """A string if all is plain text, else blocks: plain texts that stand side by side are one, and citations go to the
    text before them. `blocks` = the message came as a list of blocks, and leaves as one."""
    if not blocks and all(is_plain(part) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    answered = {part.call_id for part in parts if isinstance(part, ToolResultPart)}
    made: list[JsonObject] = []
    grows = False
    for part in parts:
        if isinstance(part, AnnotationPart):
            if (
                not made
                or made[-1]["type"] not in _TEXT_BLOCKS
                or not isinstance(made[-1].get("annotations", []), list)
            ):
                made.append({"type": "text", "text": ""})
            made[-1].setdefault("annotations", []).append(encode_citation(part))
            grows = False
        elif isinstance(part, ToolCallPart):
            if part.call_id in answered:
                made.append(_server_call(part))
                grows = False
        elif grows and isinstance(part, TextPart) and is_plain(part):
            made[-1]["text"] += part.text
        else:
            made.append(encode_block(part))
            if isinstance(made[-1].get("annotations"), list):  # the part's own list does not grow
                made[-1]["annotations"] = [*made[-1]["annotations"]]
            grows = not blocks and is_plain(part)
    return made


def _server_call(part: ToolCallPart) -> JsonObject:
    args = decode_arguments(part.arguments)
    given: JsonObject = {"arguments": part.arguments} if args is None else args
    return {"type": "server_tool_call", "id": part.call_id, "name": part.name, "args": given}


def decode_arguments(text: str) -> JsonObject | None:
    """None for what is no JSON object, as a model may write it."""
    if not text:
        return {}
    args = parse_text(text)
    return args if isinstance(args, dict) else None


def encode_citation(part: AnnotationPart) -> JsonObject:
    made: JsonObject = {"type": "citation"}
    named = {"url": part.url, "title": part.title, "start_index": part.start, "end_index": part.end}
    made.update((key, value) for key, value in named.items() if value is not None)
    if part.description is not None:
        own = as_object(extra_of(part.extra).get("extras"))
        made["extras"] = {**own, "description": part.description}
    return _with_own(made, part)


def encode_block(part: Part) -> JsonObject:
    own = extra_of(part.extra)
    match part:
        case TextPart():
            made: JsonObject = {"type": _kind(own, _TEXT_BLOCKS, "text"), "text": part.text}
        case ReasoningPart():
            kind = _kind(own, _THOUGHTS, "reasoning")
            made = {"type": kind, kind: part.text}
        case RefusalPart():
            made = {"type": "refusal", "refusal": part.text}
        case DataPart() if own.get("opaque") and isinstance(part.data, dict):
            return part.data
        case DataPart():
            kind = _kind(own, {"json", "non_standard"}, "json")
            made = {"type": kind, ("json" if kind == "json" else "value"): part.data}
        case FilePart():
            return _encode_file(part)
        case ToolResultPart():
            status = "error" if part.error else "success"
            made = {"type": "server_tool_result", "tool_call_id": part.call_id, "status": status}
            made["output"] = part.output
        case ToolCallPart():
            made = _server_call(part)
        case AnnotationPart():
            made = {"type": "text", "text": "", "annotations": [encode_citation(part)]}
    if part.media_type is not None:
        made["mime_type"] = part.media_type
    return _with_own(made, part)


def _kind(own: Mapping[str, Any], kinds: Iterable[str], standard: str) -> str:
    kind = own.get("type")
    return kind if isinstance(kind, str) and kind in kinds else standard


def _with_own(made: JsonObject, part: Part) -> JsonObject:
    """What is known takes the place of what was said beside it."""
    if part.metadata:
        made["metadata"] = part.metadata
    own = {key: value for key, value in extra_of(part.extra).items() if key not in ("type", "opaque")}
    return {**made, **{key: value for key, value in own.items() if key not in made}}


def _encode_file(part: FilePart) -> JsonObject:
    own = extra_of(part.extra)
    media_type = part.media_type or "application/octet-stream"
    inline = None if part.inline is None else b64encode(part.inline).decode()
    if own.get("type") == "image_url" and (inline is not None or part.url is not None):
        image: JsonObject = {"url": part.url if inline is None else f"data:{media_type};base64,{inline}"}
        if "detail" in own:
            image["detail"] = own["detail"]
        made: JsonObject = {"type": "image_url", "image_url": image}
        return {key: value for key, value in _with_own(made, part).items() if key != "detail"}
    family = media_type.partition("/")[0]
    made = {"type": family if family in ("image", "audio", "video") else "file"}
    # langchain-core 1: what a block has no field for goes to `extras`, and it has none for the name of a file.
    extras: JsonObject = {} if part.name is None else {"filename": part.name}
    if inline is not None:
        made["base64"] = inline
    elif part.url is not None:
        made["url"] = part.url
    else:  # too large to come along: the hash by which the gateway keeps it
        made["file_id"] = part.blob
        extras["babelgate"] = {"loss": {Feature.FILE_BYTES.value: TOO_LARGE}}
    if part.media_type is not None:
        made["mime_type"] = part.media_type
    if extras:
        made["extras"] = {**as_object(own.get("extras")), **extras}
    return _with_own(made, part)
