"""Decoding of chat completion messages: parts, new messages, and refusals."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babelgate.adapters.kit.json import validate
from babelgate.adapters.openai.codec.call_id import encode_call_id
from babelgate.adapters.openai.codec.messages import ChatConversation, decode_answer, decode_messages
from babelgate.adapters.openai.wire import requests as w
from babelgate.canonical import (
    DataPart,
    FaultCode,
    FaultError,
    FilePart,
    Message,
    RefusalPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from tests import strategies as ours

TASK = "0b5b3b0a-3a55-4a5e-9a4e-1f0e0a5ad001"


def read(*messages: dict[str, Any]) -> tuple[Message, ...]:
    return decode_messages([validate(w.ChatMessage, each) for each in messages])


def part_of(part: dict[str, Any]) -> Any:
    (message,) = read({"role": "user", "content": [part]})
    return message.parts[0]


def test_every_role_maps_to_a_canonical_role() -> None:
    roles = ("developer", "system", "user", "assistant", "tool", "function")
    messages = read(*({"role": role, "content": "x"} for role in roles))
    assert [message.role for message in messages] == ["system", "system", "user", "agent", "tool", "tool"]


def test_deprecated_function_calls_and_results_become_tool_calls() -> None:
    call = {"name": "add", "arguments": '{"a": 2}'}
    messages = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "add", "content": "4"},
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "add", "content": "5"},
    ]
    conversation = ChatConversation.of([validate(w.ChatMessage, each) for each in messages])
    assert [each.role for each in conversation.new_messages] == ["tool"]
    parts = [
        part
        for message in decode_messages([*conversation.before, *conversation.new_messages])
        for part in message.parts[-1:]
    ]
    types_and_ids = [(type(part), part.call_id) for part in parts if isinstance(part, ToolCallPart | ToolResultPart)]
    one, two = "call_function_1", "call_function_3"
    assert types_and_ids == [(ToolCallPart, one), (ToolResultPart, one), (ToolCallPart, two), (ToolResultPart, two)]


def test_files_are_decoded_from_bytes_or_url() -> None:
    inline = part_of({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}})
    low = {"openai": {"inner": {"detail": "low"}}}
    assert inline == FilePart(media_type="image/png", inline=b"hi", size=2, extra=low)
    linked = part_of({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}})
    assert linked == FilePart(media_type="image/*", url="https://example.com/a.png")
    sound = part_of({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}})
    assert sound == FilePart(name="audio.mp3", media_type="audio/mpeg", inline=b"hi", size=2)
    named = {"filename": "a.txt", "file_data": "data:text/plain,h%69"}
    assert part_of({"type": "file", "file": named}) == FilePart(
        name="a.txt", media_type="text/plain", inline=b"hi", size=2, extra={"openai": {"type": "file"}}
    )
    bare = part_of({"type": "file", "file": {"filename": "a", "file_data": "aGk="}})
    assert (bare.media_type, bare.inline) == ("application/octet-stream", b"hi")


def test_unnamed_json_file_becomes_data() -> None:
    url = "data:application/json;base64,eyJhIjogWzFdfQ=="
    assert part_of({"type": "file", "file": {"file_data": url}}) == DataPart(data={"a": [1]})
    assert isinstance(part_of({"type": "file", "file": {"file_data": url, "filename": "a.json"}}), FilePart)


def test_assistant_message_has_text_refusal_and_calls() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "g", "input": "x"}}
    (message,) = read({"role": "assistant", "content": "a", "refusal": "no", "tool_calls": [call, custom]})
    assert message.parts == (
        TextPart(text="a"),
        RefusalPart(text="no"),
        ToolCallPart(call_id="c1", name="f", arguments="{}", side="caller"),
        ToolCallPart(call_id="c2", name="g", arguments="x", side="caller", extra={"openai": {"type": "custom"}}),
    )
    (result,) = read({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]})
    assert result.parts == (ToolResultPart(call_id="c1", output="1"),)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "nope"},
        {"type": "text"},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}},
        {"type": "image_url", "image_url": {"url": "data:nothing"}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "ogg"}},
        {"type": "file", "file": {"filename": "a"}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ],
    ids=str,
)
def test_invalid_content_part_is_rejected(part: dict[str, Any]) -> None:
    with pytest.raises(FaultError) as refused:
        part_of(part)
    assert refused.value.fault.code in (FaultCode.INVALID, FaultCode.UNSUPPORTED)


def conversation(*messages: dict[str, Any]) -> ChatConversation:
    return ChatConversation.of([validate(w.ChatMessage, each) for each in messages])


def test_messages_after_the_last_assistant_message_are_new() -> None:
    split = conversation(
        {"role": "system", "content": "s"},
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "3"},
        {"role": "user", "content": "4"},
    )
    assert [each.content for each in split.before] == ["s", "1", "2"]
    assert [each.content for each in split.new_messages] == ["3", "4"]
    assert conversation({"role": "user", "content": "1"}).before == []


def test_only_results_of_gateway_calls_are_answers() -> None:
    call_id = encode_call_id(TASK, "q")
    split = conversation(
        {"role": "tool", "tool_call_id": call_id, "content": "Ada"},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "user", "content": "and"},
    )
    assert [(each.task_id, each.text) for each in split.answers] == [(TASK, "Ada")]
    assert [each.content for each in split.others] == ["1", "and"]


def test_duplicate_results_and_results_of_two_runs_are_rejected() -> None:
    one, other = encode_call_id(TASK, "q"), encode_call_id(TASK.replace("0b", "1b"), "q")
    for second in (one, other):
        with pytest.raises(FaultError):
            conversation(*({"role": "tool", "tool_call_id": each, "content": "x"} for each in (one, second)))


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("Ada", None, "Ada"),
        ('{"a": 1}', None, '{"a": 1}'),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("[1", {"type": "array"}, "[1"),
        ("5", {"type": "number"}, "5"),
    ],
)
def test_answer_is_json_only_if_the_question_has_a_schema(text: str, schema: Any, value: Any) -> None:
    assert decode_answer(text, schema)[0] == value


@given(st.lists(ours.json_values(), max_size=4))
def test_any_content_is_decoded_or_rejected(contents: list[Any]) -> None:
    for content in contents:
        for part in (content, {"type": "file", "file": content}, {"type": "image_url", "image_url": content}):
            with suppress(FaultError):
                read({"role": "user", "content": [part]})
