"""Parsing of request parameters."""

from typing import Any

import pytest
from litestar.testing import RequestFactory
from pydantic import BaseModel

from babelgate.adapters.langchain.server.parameters import (
    AnyRequest,
    check_selection,
    checkpoint_of,
    flag,
    number,
    path_id,
    read_body,
    read_optional_body,
    uuid,
    words,
)
from babelgate.adapters.langchain.wire.requests import Checkpoint
from babelgate.canonical import FaultCode, FaultError

ID = "0b6c4b32-7e4c-4a52-9d0b-7f7f0d6b1c11"


class Body(BaseModel):
    limit: int = 10


FACTORY: Any = RequestFactory()


def request_with(query: str = "", **path: str) -> AnyRequest:
    request = FACTORY.get("/threads")
    request.scope["query_string"] = query.encode()
    request.scope["path_params"] = path
    return request


def message_of(error: pytest.ExceptionInfo[FaultError]) -> str:
    assert error.value.fault.code is FaultCode.INVALID
    return error.value.fault.message


def test_an_id_is_a_uuid_in_lower_case() -> None:
    assert uuid(ID.upper(), "thread") == path_id(request_with(run_id=ID), "run") == ID
    for other in ("", "x", ID.replace("-", ""), f"{{{ID}}}", None, 7):
        with pytest.raises(FaultError) as error:
            uuid(other, "thread")
        assert message_of(error) == "Invalid thread ID: must be a UUID"


def test_a_number_out_of_range_is_rejected() -> None:
    assert number(request_with(), "limit", 10, 1, 100) == 10
    assert number(request_with("limit=100"), "limit", 10, 1, 100) == 100
    assert number(request_with("limit=999999999"), "limit", 10, 1) == 999_999_999
    for text in ("0", "101", "-1", "1.5", "x", "", "\u0661", "1" * 5000):
        with pytest.raises(FaultError) as error:
            number(request_with(f"limit={text}"), "limit", 10, 1, 100)
        assert message_of(error) == "limit: must be an integer from 1 to 100"


def test_a_flag_is_true_false_or_rejected() -> None:
    assert [flag(request_with(f"wait={text}"), "wait") for text in ("1", "true", "True")] == [True] * 3
    assert [flag(request_with(query), "wait") for query in ("", "wait=", "wait=0", "wait=false")] == [False] * 4
    with pytest.raises(FaultError) as error:
        flag(request_with("wait=yes"), "wait")
    assert message_of(error) == "wait: must be true or false"


def test_words_are_repeated_or_separated_by_commas() -> None:
    assert words(request_with("select=a,b&select=c&select="), "select") == ["a", "b", "c"]
    assert words(request_with(), "select") == []


def test_an_unknown_member_in_a_selection_is_rejected() -> None:
    assert check_selection(("b", "a"), frozenset("ab"), "select") == ["b", "a"]
    with pytest.raises(FaultError) as error:
        check_selection(("a", "x" * 1000), frozenset("ab"), "select")
    assert message_of(error) == f"select: {'x' * 100!r} is not one of a, b"


async def test_a_missing_body_is_accepted_only_as_optional_body() -> None:
    empty = FACTORY.post("/threads/search")
    assert await read_optional_body(empty, Body) == Body(limit=10)
    with pytest.raises(FaultError) as error:
        await read_body(FACTORY.post("/threads/search"), Body)
    assert message_of(error) == "The request has no body."
    for read in (read_body, read_optional_body):
        assert await read(FACTORY.post("/threads/search", data={"limit": 3}), Body) == Body(limit=3)


@pytest.mark.parametrize(
    "places",
    [
        (None, "a", None),
        (Checkpoint(checkpoint_id="a"), None, None),
        (None, None, "a"),
        (Checkpoint(checkpoint_id="a"), "a", "a"),
    ],
)
def test_a_checkpoint_may_be_named_in_three_places(places: tuple[Any, ...]) -> None:
    assert checkpoint_of(*places) == "a"


def test_contradictory_checkpoints_are_rejected() -> None:
    assert checkpoint_of(None) is None
    assert checkpoint_of(Checkpoint(), "") is None
    for places in ((Checkpoint(checkpoint_id="a"), "b", None), (None, "a", 7), (None, None, 7)):
        with pytest.raises(FaultError) as error:
            checkpoint_of(*places)
        assert message_of(error).startswith("checkpoint: must be one id")
