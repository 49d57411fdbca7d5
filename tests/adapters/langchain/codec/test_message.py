"""Decoding of every form that LangChain accepts as a message, and encoding in its own form."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.json import parse_json
from babelgate.adapters.langchain.codec.content import is_plain
from babelgate.adapters.langchain.codec.message import encode_agent_protocol_message, encode_usage
from babelgate.adapters.langchain.codec.state import decode_message, decode_messages, encode_message
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    FaultCode,
    FaultError,
    Feature,
    FilePart,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests.strategies import json_values, messages

CARRIED = frozenset(
    {Feature.TEXT, Feature.DATA, Feature.FILE_URL, Feature.REASONING}
    | {Feature.REFUSAL, Feature.CITATION, Feature.METADATA}
)
PIXEL = b"\x89PNG"
PIXEL_64 = b64encode(PIXEL).decode()
PIXEL_URL = f"data:image/png;base64,{PIXEL_64}"
CITED = {"type": "citation", "url": "x"}


def transmit(value: Any) -> Any:
    """Return the value as the receiver of its JSON parses it."""
    return parse_json(json.dumps(value).encode())


def normalized(message: Message) -> Message:
    """Return the message with adjacent texts merged, a text before each citation, and without empty texts."""
    parts: list[Part] = []
    for part in message.parts:
        last = parts[-1] if parts else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            parts[-1] = TextPart(text=last.text + part.text)
            continue
        if isinstance(part, AnnotationPart) and not isinstance(last, TextPart | AnnotationPart):
            parts.append(TextPart(text=""))
        parts.append(part)
    if all(is_plain(part) for part in parts):
        parts = [part for part in parts if isinstance(part, TextPart) and part.text]
    return message.replace(parts=tuple(parts))


@given(messages(CARRIED, role="agent") | messages(CARRIED) | messages(CARRIED, role="system"))
def test_a_message_is_decoded_unchanged_in_both_dialects(message: Message) -> None:
    assert decode_message(transmit(encode_message(message))) == normalized(message)
    assert decode_message(transmit(encode_agent_protocol_message(message))) == normalized(message)


@given(messages(role="agent") | messages())
def test_encoding_a_decoded_message_again_changes_nothing(message: Message) -> None:
    once = encode_message(decode_message(transmit(encode_message(message))))
    assert encode_message(decode_message(transmit(once))) == once


@given(st.binary(), st.none() | st.sampled_from(["a.png", "b"]), st.sampled_from(["image/png", "text/plain"]))
def test_bytes_travel_as_base64(data: bytes, name: str | None, media_type: str) -> None:
    part = FilePart(name=name, media_type=media_type, inline=data, size=len(data))
    [decoded] = decode_message(transmit(encode_message(Message(parts=(part,))))).parts
    assert isinstance(decoded, FilePart)
    assert (decoded, decoded.inline) == (part, data)


_KINDS = ["text", "image", "file", "image_url", "reasoning", "tool_use", "json", "x"]
_MEMBERS = ("text", "image_url", "base64", "source", "file", "annotations", "args", "extras", "url")


def _shape(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=members)


_blocks: st.SearchStrategy[Any] = _shape(type=st.sampled_from(_KINDS), **dict.fromkeys(_MEMBERS, json_values()))
_shapes: st.SearchStrategy[Any] = _shape(
    role=st.sampled_from(["user", "ai", "tool", "remove", "x"]) | json_values(),
    type=st.sampled_from(["human", "ai", "tool", "constructor"]) | json_values(),
    content=json_values() | st.lists(_blocks),
    id=json_values(),
    name=json_values(),
    lc=st.just(1),
    kwargs=json_values(),
    data=json_values(),
    tool_calls=json_values() | st.lists(json_values()),
    invalid_tool_calls=json_values(),
    tool_call_id=json_values(),
    additional_kwargs=json_values(),
    metadata=json_values(),
)


@given(_shapes | json_values(8))
def test_any_json_is_a_message_or_an_invalid_request(wire: Any) -> None:
    try:
        message = decode_message(wire)
    except FaultError as error:
        assert error.fault.code is FaultCode.INVALID
    else:
        json.dumps(encode_message(message))
        json.dumps(encode_agent_protocol_message(message))


@pytest.mark.parametrize(
    ("wire", "role"),
    [
        ("Hi", "user"),
        (["user", "Hi"], "user"),
        (["ai", "Hi"], "agent"),
        ({"role": "user", "content": "Hi"}, "user"),
        ({"role": "assistant", "content": "Hi"}, "agent"),
        ({"role": "developer", "content": "Hi"}, "system"),
        ({"type": "human", "content": "Hi"}, "user"),
        ({"type": "ai", "content": "Hi"}, "agent"),
        ({"type": "AIMessageChunk", "content": "Hi"}, "agent"),
        ({"type": "system", "content": [{"type": "text", "text": "Hi"}]}, "system"),
        ({"type": "human", "content": ["Hi"]}, "user"),
        ({"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Hi"}}, "user"),
        ({"type": "human", "data": {"content": "Hi"}}, "user"),
    ],
)
def test_all_forms_of_a_message_are_decoded(wire: Any, role: str) -> None:
    message = decode_message(wire)
    assert (message.role, message.text) == (role, "Hi")


NO_MESSAGES: list[Any] = [
    *(1, None, ["user"], ["user", "a", "b"], {"content": "Hi"}, {"role": "zebra", "content": "Hi"}, {"role": "user"}),
    *({"role": "user", "content": content} for content in (7, {"text": "Hi"})),
    *({"role": "user", "content": "Hi", "id": wrong} for wrong in (["1"], "nul\0")),
    *({"role": "tool", "content": "Hi"}, {"type": "remove", "id": "1"}, {"type": "remove"}),
    {"role": "user", "content": [{"type": "image", "base64": "?", "mime_type": "image/png"}]},
    *({"role": "ai", "content": "", "tool_calls": calls} for calls in ([7], {"name": "f"})),
]


@pytest.mark.parametrize("wire", NO_MESSAGES)
def test_an_invalid_message_is_rejected(wire: Any) -> None:
    with pytest.raises(FaultError) as caught:
        decode_message(wire)
    assert caught.value.fault.code is FaultCode.INVALID


CALL = ToolCallPart(call_id="c", name="add", arguments='{"a": 1}')
BROKEN = ToolCallPart(call_id="d", name="add", arguments='{"a')
RESULT = ToolResultPart(call_id="c", output="3", error=True)
ENCODED_CALLS: dict[str, Any] = {
    "tool_calls": [{"name": "add", "args": {"a": 1}, "id": "c", "type": "tool_call"}],
    "invalid_tool_calls": [{"name": "add", "args": '{"a', "id": "d", "error": None, "type": "invalid_tool_call"}],
    "usage_metadata": None,
}
ENCODED_RESULT: dict[str, Any] = {"tool_call_id": "c", "artifact": None, "status": "error"}


@pytest.mark.parametrize(
    ("role", "parts", "kind", "content", "more"),
    [
        ("user", (TextPart(text="Hi"),), "human", "Hi", {}),
        ("agent", (TextPart(text="Well"), CALL, BROKEN), "ai", "Well", ENCODED_CALLS),
        ("tool", (RESULT,), "tool", "3", ENCODED_RESULT),
    ],
)
def test_a_message_has_all_members_of_langchains_form(
    role: Any, parts: tuple[Part, ...], kind: str, content: str, more: Any
) -> None:
    empty: dict[str, Any] = {"additional_kwargs": {}, "response_metadata": {}, "name": None}
    expected = {"type": kind, "content": content, "id": "1", **empty, **more}
    assert encode_message(Message(message_id="1", role=role, parts=parts)) == expected


def test_a_message_of_the_agent_protocol_has_role_and_content() -> None:
    message = Message(message_id="1", parts=(TextPart(text="Hi"),), metadata={"a": 1})
    assert encode_agent_protocol_message(message) == {
        "role": "assistant",
        "content": "Hi",
        "id": "1",
        "metadata": {"a": 1},
    }
    tool = Message(message_id="2", role="tool", parts=(ToolResultPart(call_id="c", output="3"),))
    result = {"tool_call_id": "c", "status": "success"}
    assert encode_agent_protocol_message(tool) == {"role": "tool", "content": "3", "id": "2", "metadata": {}, **result}


@pytest.mark.parametrize(
    "wire",
    [
        {"type": "human", "content": "Hi", "additional_kwargs": {"color": "blue"}, "response_metadata": {"x": [1]}},
        {"type": "human", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"type": "human", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"type": "human", "content": [{"type": "tool_reference", "x": {"y": 1}}, {"no": "type"}]},
        {"type": "ai", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]},
        {"type": "ai", "content": [{"type": "non_standard", "value": {"a": 1}}]},
        {"type": "ai", "content": "", "usage_metadata": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}},
        {"type": "tool", "content": [{"type": "text", "text": "3"}], "tool_call_id": "c", "artifact": {"raw": 3}},
        {"type": "function", "content": "3", "name": "add"},
        {"type": "human", "content": "Hi", "unheard_of": None},
        {"type": "human", "content": [{"type": "image_url", "image_url": {"url": "http://x/y", "detail": "low"}}]},
        {"type": "human", "content": [{"type": "image_url", "image_url": {"url": PIXEL_URL}}]},
        {"type": "ai", "content": [{"type": "text", "text": "a", "annotations": [{"type": "url_citation", "u": 1}]}]},
        {"type": "ai", "content": [{"type": "text", "text": "a", "annotations": [{"u": 1}, CITED]}]},
    ],
)
def test_members_without_canonical_form_are_preserved(wire: dict[str, Any]) -> None:
    encoded = encode_message(decode_message(transmit(wire)))
    assert {key: encoded[key] for key in wire} == wire


def test_a_citation_next_to_other_annotations_is_decoded() -> None:
    notes: list[Any] = [CITED, {"type": "non_standard_annotation"}, 1]
    message = decode_message({"type": "ai", "content": [{"type": "text", "text": "a", "annotations": notes}]})
    assert [part for part in message.parts if isinstance(part, AnnotationPart)] == [AnnotationPart(url="x")]
    for _ in range(2):  # encoding does not change the message
        (block,) = encode_message(message)["content"]
        assert block["annotations"] == [*notes[1:], notes[0]]


def test_unknown_fields_cannot_replace_defined_fields() -> None:
    message = decode_message({"role": "user", "content": "Hi"})
    forged = message.replace(extra={"langchain": {"content": "no", "type": "ai", "id": "no"}})
    encoded = encode_message(forged)
    assert (encoded["content"], encoded["type"], encoded["id"]) == ("Hi", "human", None)


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": PIXEL_64, "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": PIXEL_64, "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL_64}},
        {"type": "image_url", "image_url": {"url": PIXEL_URL}},
        {"type": "image_url", "image_url": PIXEL_URL},
        {"type": "input_image", "image_url": PIXEL_URL},
        {"type": "file", "file": {"file_data": PIXEL_URL, "filename": "p.png"}},
        {"type": "file", "base64": PIXEL_64, "mime_type": "image/png", "extras": {"filename": "p.png"}},
        {"type": "file", "base64": PIXEL_64, "mime_type": "image/png", "metadata": {"filename": "p.png"}},
    ],
)
def test_an_image_in_any_form_is_a_file(block: dict[str, Any]) -> None:
    [part] = decode_message({"role": "user", "content": [block]}).parts
    assert isinstance(part, FilePart)
    assert (part.media_type, part.inline, part.size) == ("image/png", PIXEL, len(PIXEL))
    assert part.name == ("p.png" if block["type"] == "file" else None)


def test_text_files_and_files_by_url_are_decoded() -> None:
    blocks: list[Any] = [
        {"type": "text-plain", "text": "Grüße", "title": "a.txt"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": PIXEL_64}},
        {"type": "image", "url": "https://x.example/y.png"},
        {"type": "input_audio", "input_audio": {"data": PIXEL_64, "format": "mp3"}},
    ]
    text, document, image, audio = decode_message({"role": "user", "content": blocks}).parts
    assert isinstance(text, FilePart)
    assert (text.name, text.media_type, text.inline) == ("a.txt", "text/plain", "Grüße".encode())
    assert isinstance(document, FilePart)
    assert document.inline == PIXEL
    assert isinstance(image, FilePart)
    assert image.url == "https://x.example/y.png"
    assert isinstance(audio, FilePart)
    assert audio.media_type == "audio/mp3"


def test_a_file_id_of_a_provider_is_preserved_as_data() -> None:
    block: Any = {"type": "file", "file": {"file_id": "file-1"}}
    message = decode_message({"role": "user", "content": [block]})
    assert isinstance(message.parts[0], DataPart)
    assert encode_message(message)["content"] == [block]


def test_a_stored_file_without_bytes_is_referenced_by_hash() -> None:
    part = FilePart(name="a.txt", media_type="text/plain", blob="ab" * 32)
    [block] = encode_message(Message(parts=(part,)))["content"]
    loss = {"file-bytes": "a file larger than limits.inline is named by its hash"}
    extras = {"filename": "a.txt", "babelgate": {"loss": loss}}
    assert block == {"type": "file", "file_id": "ab" * 32, "mime_type": "text/plain", "extras": extras}


def test_tool_calls_are_decoded_in_langchains_and_openais_form() -> None:
    langchain: Any = {"name": "add", "args": {"a": 1}, "id": "c", "type": "tool_call"}
    openai: Any = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    expected = ToolCallPart(call_id="c", name="add", arguments='{"a":1}')
    for call in (langchain, openai):
        assert decode_message({"role": "ai", "content": "", "tool_calls": [call]}).parts == (expected,)
    legacy: Any = {"role": "ai", "content": "", "additional_kwargs": {"tool_calls": [openai]}}
    assert decode_message(legacy).parts == (expected,)


def test_a_block_that_repeats_a_call_is_ignored() -> None:
    call: Any = {"name": "add", "args": {}, "id": "c", "type": "tool_call"}
    used: Any = {"type": "tool_use", "id": "c", "name": "add", "input": {}}
    message = decode_message({"role": "ai", "content": [used], "tool_calls": [call]})
    assert [part.kind for part in message.parts] == ["tool_call"]
    alone = decode_message({"role": "ai", "content": [used]})
    assert alone.parts == (ToolCallPart(call_id="c", name="add", arguments="{}"),)


def test_calls_of_agent_side_tools_are_content_blocks() -> None:
    parts = (
        ToolCallPart(call_id="c", name="add", arguments='{"a":1}'),
        ToolResultPart(call_id="c", output={"sum": 1}),
        TextPart(text="One."),
    )
    encoded = encode_message(Message(message_id="1", parts=parts))
    assert encoded["tool_calls"] == []
    assert [block["type"] for block in encoded["content"]] == ["server_tool_call", "server_tool_result", "text"]
    assert decode_message(transmit(encoded)).parts == parts


def test_reasoning_a_refusal_data_and_a_citation_are_blocks() -> None:
    parts = (
        ReasoningPart(text="Hm"),
        TextPart(text="See"),
        AnnotationPart(start=0, end=3, url="https://x.example", title="X", description="why"),
        RefusalPart(text="No"),
        DataPart(data=[1]),
    )
    place = {"start_index": 0, "end_index": 3, "extras": {"description": "why"}}
    cited = {"type": "citation", "url": "https://x.example", "title": "X", **place}
    assert encode_message(Message(parts=parts))["content"] == [
        {"type": "reasoning", "reasoning": "Hm"},
        {"type": "text", "text": "See", "annotations": [cited]},
        {"type": "refusal", "refusal": "No"},
        {"type": "json", "json": [1]},
    ]
    assert decode_message(encode_message(Message(parts=parts))).parts == parts


def test_the_metadata_of_a_message_is_its_response_metadata() -> None:
    message = decode_message({"type": "ai", "content": "", "response_metadata": {"model_name": "m"}})
    assert message.metadata == {"model_name": "m"}
    from_role = decode_message({"role": "assistant", "content": "", "metadata": {"a": 1}})
    assert encode_message(from_role)["response_metadata"] == {"a": 1}


def test_one_message_is_a_list_and_null_is_empty() -> None:
    assert len(decode_messages("Hi")) == 1
    assert len(decode_messages(["user", "Hi"])) == 2, "a list is a list of messages, as in convert_to_messages"
    assert decode_messages(None) == ()


def test_usage_always_has_its_three_counts() -> None:
    assert encode_usage({}) is None
    counts = {"input_tokens": 1, "output_tokens": 2}
    assert encode_usage(counts) == {**counts, "total_tokens": 3}
