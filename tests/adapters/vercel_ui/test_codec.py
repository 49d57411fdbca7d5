"""UI messages ↔ canonical messages, tools and answers."""

from typing import Any

import pytest

from babelgate.adapters.vercel_ui import wire as w
from babelgate.adapters.vercel_ui.codec import (
    Decisions,
    can_answer_in_words,
    config_of,
    decisions_of,
    decode_history,
    decode_message,
    encode_user_message,
    has_ask_tool,
    request_messages,
)
from babelgate.canonical import FaultError, FilePart, Interrupt, Message, TextPart, ToolCallPart, ToolResultPart

YES = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, Decisions(yes=True)),
        ({}, Decisions(yes=True)),
        ({"type": "boolean"}, Decisions(yes=True, no=False)),
        (YES, Decisions({"approved": True}, {"approved": False})),
        ({"enum": ["no", "yes"]}, Decisions("yes", "no")),
        (
            {"type": "object", "properties": {"d": {"enum": ["approve", "reject"]}}},
            Decisions({"d": "approve"}, {"d": "reject"}),
        ),
        ({"enum": ["red", "blue"]}, None),
        ({"type": "string"}, None),
        ({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "string"}}}, None),
        ({"type": "object", "properties": {}}, None),
    ],
)
def test_decisions_follow_from_the_schema_of_an_approval(schema: Any, expected: Any) -> None:
    assert decisions_of(schema) == expected


def question(**members: Any) -> Interrupt:
    fields: dict[str, Any] = {"ask": "input", "message": Message.of("?"), **members}
    return Interrupt(interrupt_id="q", task_id="t", run_id="r", raised_at=0, **fields)


CALL = Message(parts=(ToolCallPart(call_id="c", name="weather", side="caller"),))


@pytest.mark.parametrize(
    ("interrupt", "asks", "sdk", "expected"),
    [
        (question(), False, 6, True),
        (question(), True, 6, True),
        (question(answer_schema={"type": "string"}), True, 6, True),
        (question(answer_schema=YES), True, 6, False),
        (question(answer_schema=YES), False, 6, True),
        (question(ask="approval", answer_schema=YES), False, 6, False),
        (question(ask="approval", answer_schema=YES), False, 5, True),
        (question(ask="approval", takes_text=True), False, 6, True),
        (question(message=CALL), False, 6, False),
    ],
)
def test_a_text_answers_questions_that_take_text(interrupt: Interrupt, asks: bool, sdk: int, expected: bool) -> None:
    assert can_answer_in_words(interrupt, asks=asks, sdk=sdk) is expected


def test_a_history_of_another_server_becomes_messages() -> None:
    call = {"type": "tool-weather", "toolCallId": "c", "state": "output-available", "input": {"a": 1}, "output": "rain"}
    parts = [{"type": "step-start"}, {"type": "text", "text": "Look."}, call, {"type": "text", "text": "Rain."}]
    history = [
        w.UIMessage(id="u", role="user", parts=[{"type": "text", "text": "hi"}], metadata={"a": 1}),
        w.UIMessage(id="a", role="assistant", parts=parts),
    ]
    user, calling, result, answer = decode_history(history)
    assert (user.role, user.text, user.metadata, user.extra) == ("user", "hi", {"a": 1}, {"vercel-ui": {"id": "u"}})
    expected = ToolCallPart(call_id="c", name="weather", arguments='{"a":1}', side="caller")
    assert calling.parts == (TextPart(text="Look."), expected)
    assert (result.role, result.parts) == ("tool", (ToolResultPart(call_id="c", output="rain"),))
    assert answer.text == "Rain."


def test_a_user_message_is_encoded_as_it_was_sent() -> None:
    parts = [
        {"type": "text", "text": "hi"},
        {"type": "file", "mediaType": "text/plain", "filename": "a.txt", "url": "https://example.com/a.txt"},
        {"type": "data-place", "data": {"x": 1}},
    ]
    message = w.UIMessage(id="u", role="user", parts=parts, metadata={"a": 1})
    encoded = encode_user_message(decode_message(message), lambda part: part.url or "")
    assert encoded == message.model_dump()


def test_members_of_the_app_are_the_configuration() -> None:
    body = w.ChatRequest.model_validate(
        {
            "id": "c",
            "messages": [],
            "tools": {"ask_caller": {}, "weather": {"description": "Of a city.", "parameters": {"type": "object"}}},
            "model": "fast",
        }
    )
    function = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
    assert config_of(body) == {"model": "fast", "tools": [{"type": "function", "function": function}]}
    assert has_ask_tool(body)
    listed = w.ChatRequest.model_validate({"tools": [{"type": "function", "function": function}]})
    assert config_of(listed) == {"tools": [{"type": "function", "function": function}]}
    assert not has_ask_tool(listed)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "messages: The request has no message."),
        ({"messages": [{"role": "user", "content": "hi"}]}, "AI SDK 4"),
    ],
)
def test_a_request_without_usable_messages_is_rejected(body: Any, words: str) -> None:
    with pytest.raises(FaultError, match=words):
        request_messages(w.ChatRequest.model_validate(body))


@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "file"}, {"type": 7}, {}])
def test_a_part_without_its_content_is_rejected(part: Any) -> None:
    with pytest.raises(FaultError, match=r"message\.parts\.0\.\w+: Input should be a valid string"):
        decode_message(w.UIMessage(role="user", parts=[part]))


def test_a_file_keeps_its_name_and_type() -> None:
    part = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AA=="}
    (file,) = decode_message(w.UIMessage(role="user", parts=[part])).parts
    assert file == FilePart(name="a.png", media_type="image/png", url="data:image/png;base64,AA==")
