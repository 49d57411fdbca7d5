"""Parsing and validation of request bodies."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import Litestar, Request, Response, post
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from babelgate.adapters.kit.json import ABSENT, parse_json, parse_text, read_bytes, read_json, validate
from babelgate.canonical import Fault, FaultCode, FaultError
from babelgate.canonical.json import MAX_DEPTH
from tests.bridge import client
from tests.strategies import json_values

BAD = [
    b"{",
    b'{"a": NaN}',
    b"[Infinity]",
    b"[-Infinity]",
    b"[1e999]",
    b"\xff\xfe",
    b'{"a": "\xff"}',
    b'"\\ud800"',
    b"[" * 100_000,
    b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
    b"1" * 5000,
    b"1" + b"0" * 400,
    b"{} {}",
    b"",
]


def fault_in(call: Callable[..., Any], *arguments: Any) -> Fault:
    with pytest.raises(FaultError) as caught:
        call(*arguments)
    return caught.value.fault


@pytest.mark.parametrize("raw", BAD, ids=lambda raw: repr(raw[:12]))
def test_invalid_json_is_a_fault_of_the_caller(raw: bytes) -> None:
    assert fault_in(parse_json, raw).code is FaultCode.INVALID


def test_nesting_is_accepted_up_to_the_limit() -> None:
    raw = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert to_json(parse_json(raw)) == raw


@given(json_values(max_leaves=20))
def test_encoded_json_is_parsed_unchanged(value: Any) -> None:
    assert parse_json(to_json(value)) == value


@given(st.binary())
def test_any_bytes_are_parsed_or_a_fault(raw: bytes) -> None:
    try:
        value = parse_json(raw)
    except FaultError as error:
        assert error.fault.code is FaultCode.INVALID
    else:
        assert parse_json(to_json(value)) == value


class Point(BaseModel):
    x: int
    y: list[int] = []


def test_a_validation_error_names_each_field() -> None:
    fault = fault_in(validate, Point, {"x": "one", "y": [1, "two"]})
    assert fault.code is FaultCode.INVALID
    assert [error["field"] for error in fault.details["errors"]] == ["x", "y.1"]
    assert "x: " in fault.message


NO_OBJECTS: list[Any] = [[], 7, "x", True]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *((value, "Input should be an object") for value in NO_OBJECTS),
        ({"x": 1, "y": {"a": 1}}, "y: Input should be a list"),
        (ABSENT, "The request has no body."),
    ],
)
def test_error_messages_use_the_terms_of_json(value: object, message: str) -> None:
    assert fault_in(validate, Point, value).message == message


def test_a_validation_error_does_not_repeat_the_input() -> None:
    assert "the secret" not in fault_in(validate, Point, {"x": "the secret"}).message


def test_values_are_validated_by_models_and_by_adapters() -> None:
    assert validate(Point, {"x": 1}) == Point(x=1)
    assert validate(TypeAdapter(list[int]), [1, 2]) == [1, 2]


def app(limit: int | None = None) -> Any:
    def fault(_: Request[Any, Any, Any], error: FaultError) -> Response[Any]:
        return Response({"code": error.fault.code}, status_code=418)

    @post("/json", status_code=200)
    async def as_json(request: Request[Any, Any, Any]) -> Response[Any]:
        value = await read_json(request)
        return Response({"absent": True} if value is ABSENT else {"value": value})

    @post("/bytes", status_code=200)
    async def as_bytes(request: Request[Any, Any, Any]) -> Response[Any]:
        return Response(str(len(await read_bytes(request, limit=5))), media_type="text/plain")

    async def before(request: Request[Any, Any, Any]) -> None:
        if limit is not None:
            request.scope["state"]["body_limit"] = limit

    return Litestar(
        [as_json, as_bytes],
        exception_handlers={FaultError: fault},
        openapi_config=None,
        request_max_body_size=None,
        before_request=before,
    )


@pytest.mark.parametrize("content", [b"", b"  \n", b"null"])
async def test_an_empty_body_and_null_are_absent(content: bytes) -> None:
    async with client(app()) as http:
        assert (await http.post("/json", content=content)).json() == {"absent": True}


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json", "application/x-www-form-urlencoded"])
async def test_the_content_type_of_a_body_does_not_matter(content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    async with client(app()) as http:
        assert (await http.post("/json", content=b'{"a": 1}', headers=headers)).json() == {"value": {"a": 1}}


async def test_a_body_over_the_gateways_limit_is_rejected() -> None:
    async with client(app(limit=10)) as http:
        answer = await http.post("/json", content=b'"' + b"a" * 20 + b'"')
        assert (answer.status_code, answer.json()) == (418, {"code": "too_large"})
        assert (await http.post("/json", content=b'"aaaaaa"')).status_code == 200


async def test_a_body_over_the_routes_limit_is_rejected_in_chunks() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"ab"

    async with client(app()) as http:
        assert (await http.post("/bytes", content=pieces())).json() == {"code": "too_large"}
        assert (await http.post("/bytes", content=b"abcde")).text == "5"


def test_text_is_parsed_as_json_or_absent() -> None:
    assert parse_text('{"a": null}') == {"a": None}
    assert parse_text("null") is None
    assert [parse_text(text) for text in ("", "hello", '{"a": ', "NaN", "\ud800")] == [ABSENT] * 5
