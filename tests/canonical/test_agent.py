"""Invocations, which are the calls that agents receive."""

from typing import Any

import pytest
from hypothesis import given

from babelgate.canonical import DataPart, FilePart, Invocation, Message, ReasoningPart, RunInput, TextPart
from babelgate.canonical.agent import AGENT_NAME, no_past
from tests import strategies


def call(*messages: Message, data: Any = None) -> Invocation:
    return Invocation(agent="a", thread_id="t", task_id="k", run_id="r", input=RunInput(messages=messages, data=data))


def user(*parts: Any) -> Message:
    return Message(role="user", parts=parts)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ((Message.of("first", "user"), Message.of("second", "user"), user(FilePart(name="a"))), "second"),
        ((Message.of("before", "user"), Message.of("", "user")), ""),
        ((user(ReasoningPart(text="hm"), TextPart(text="yes")),), "yes"),
        ((user(),), ""),
        ((), ""),
    ],
)
def test_the_text_comes_from_the_last_message_with_text(messages: tuple[Message, ...], text: str):
    assert call(*messages).text == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"message": "hi"}, "hi"),
        ({"prompt": "hi", "n": 1}, "hi"),
        ({"message": "a", "prompt": "b"}, "a"),
        ({"message": 5, "prompt": "b"}, "b"),
        ({"question": "hi"}, "hi"),
        ({"question": "hi", "n": 1}, '{"question": "hi", "n": 1}'),
        ({"n": 1}, '{"n": 1}'),
        ("hi", "hi"),
        ([1, "é"], '[1, "é"]'),
        (0, "0"),
        (False, "false"),
    ],
)
def test_data_without_a_message_reaches_a_text_agent_as_text(data: Any, text: str):
    assert call(data=data).text == text
    assert call(user(DataPart(data=data))).text == text


def test_text_wins_over_data():
    assert call(Message.of("hi", "user"), data={"message": "no"}).text == "hi"


@given(strategies.messages(), strategies.messages())
def test_files_of_all_messages_are_in_order(first: Message, second: Message):
    wanted = [part for message in (first, second) for part in message.parts if part.kind == "file"]
    assert list(call(first, second).files) == wanted


async def test_a_call_without_a_log_has_no_past():
    assert call().past is no_past
    assert list(await call().past()) == []


@pytest.mark.parametrize("name", ["a", "echo", "a-b_c.d", "0", "a" * 63])
def test_valid_agent_names_match(name: str):
    assert AGENT_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "a b", "a" * 64, "é", "a\n", "."])
def test_invalid_agent_names_do_not_match(name: str):
    assert not AGENT_NAME.fullmatch(name)
