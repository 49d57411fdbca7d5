"""Messages and their parts."""

import json
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from babelgate.canonical import DataPart, FilePart, Message, Part, ReasoningPart, TextPart
from babelgate.canonical.json import to_json
from babelgate.canonical.message import text_of
from tests import strategies


@given(strategies.messages(role="agent"))
def test_a_message_comes_back_from_json(message: Message):
    assert Message.of_members(json.loads(json.dumps(to_json(message)))) == message


@given(strategies.parts())
def test_a_part_comes_back_from_json(part: Part):
    assert type(part).of_members(json.loads(json.dumps(to_json(part)))) == part


@given(st.lists(strategies.texts()))
def test_text_joins_parts_without_separators(pieces: list[str]):
    assert Message(parts=tuple(TextPart(text=piece) for piece in pieces)).text == "".join(pieces)


def test_only_text_parts_are_in_the_text():
    parts = (TextPart(text="a"), ReasoningPart(text="thought"), DataPart(data={"text": "b"}), TextPart(text="c"))
    assert text_of(parts) == "ac"


def test_files_with_equal_bytes_are_equal():
    assert FilePart(name="a", inline=b"1") == FilePart(name="a", inline=b"1")
    assert FilePart(name="a", inline=b"1") != FilePart(name="a", inline=b"2")


def test_a_deep_copy_shares_values() -> None:
    part = DataPart(data={"many": ["a", {"b": None}]})
    copied = deepcopy({"parts": [part]})
    assert copied["parts"][0] is part
