"""Tests of the conversion of a graph's state to JSON, which never fails."""

import dataclasses
import datetime
import enum
import json
from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command, Interrupt, Send
from pydantic import BaseModel

from babelgate.adapters.langchain.codec.message import decode_message, encode_message
from babelgate.canonical.json import check_json
from babelgate.gateway.agents.langgraph.jsonable import plain, plain_object

USED: Any = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: int


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


class Model(BaseModel, arbitrary_types_allowed=True, extra="allow"):
    name: str
    inner: Any = None


class Silent:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Breaking(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no members")


class Array:
    """Array with a `tolist` method, like those of numpy."""

    def __iter__(self) -> Iterator[int]:
        return iter((1, 2))

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (Colour.RED, "red"),
        (Pair(1, 2), {"left": 1, "right": 2}),
        (Point(1, Point(2)), {"x": 1, "inner": {"x": 2, "inner": None}}),
        (Model(name="a", inner=Silent()), {"name": "a", "inner": "Silent"}),
        (Model.model_validate({"name": "a", "more": {1}}), {"name": "a", "inner": None, "more": [1]}),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (deque([1, (2,)]), [1, [2]]),
        ({"b", "a"}, ["a", "b"]),
        (b"\x00", "AA=="),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (datetime.time(1, 2), "01:02:00"),
        (datetime.timedelta(seconds=90), 90.0),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("/a"), "/a"),
        (Decimal("1.10"), "1.10"),
        (float("nan"), None),
        (2**5000, hex(2**5000)),
        ("a\ud800b", "a?b"),
        (ValueError("no"), "ValueError: no"),
        (int, "int"),
        (Silent(), "Silent"),
        (Array(), [1, 2]),
        (Interrupt(value="q", id="i"), {"value": "q", "id": "i", "response_schema": None}),
        (Send("node", {"a": 1}), {"node": "node", "arg": {"a": 1}, "timeout": None}),
        (Command(goto="x"), {"graph": None, "update": None, "resume": None, "goto": "x"}),
    ],
)
def test_a_value_of_any_type_is_converted_to_json(value: object, encoded: object) -> None:
    assert plain(value) == encoded


def test_a_value_that_raises_is_converted_to_its_text() -> None:
    assert isinstance(plain(Breaking(a=1)), str)


def test_an_iterator_is_not_used_up() -> None:
    numbers = iter([1, 2])
    assert isinstance(plain(numbers), str)
    assert list(numbers) == [1, 2]


def test_a_too_deep_value_is_cut_to_its_text() -> None:
    value: Any = "deep"
    for _ in range(200):
        value = [value]
    encoded = plain(value)
    check_json({"values": encoded})
    assert "deep" in json.dumps(encoded)


def test_a_state_that_is_no_object_is_wrapped() -> None:
    assert plain_object([1]) == {"__root__": [1]}
    assert plain_object(None) == {}
    assert plain_object({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("Hi", id="1", name="Ann"),
        AIMessage("", id="2", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
        AIMessage([{"type": "text", "text": "a"}], usage_metadata=USED),
        ToolMessage("done", tool_call_id="c", status="error"),
    ],
)
def test_a_message_in_a_state_has_the_adapters_format(message: Any) -> None:
    encoded: Any = plain(message)
    assert encode_message(decode_message(encoded)) == encoded


things = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.integers() | st.text(), inner) | st.sets(st.integers()),
)


@given(things)
def test_the_log_accepts_every_converted_value(value: object) -> None:
    check_json({"values": plain(value)})
