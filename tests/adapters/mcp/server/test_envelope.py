"""Envelope and headers of requests of 2026-07-28, and the headers that repeat arguments of a tool call."""

from typing import Any, Final

import pytest

from babelgate.adapters.mcp.server.envelope import check_envelope, check_param_headers
from babelgate.adapters.mcp.server.exchange import MethodError

PREFIX: Final = "io.modelcontextprotocol/"
META: Final[dict[str, Any]] = {f"{PREFIX}protocolVersion": "2026-07-28", f"{PREFIX}clientCapabilities": {}}
PARAMS: Final[dict[str, Any]] = {"name": "écho", "_meta": META}
HEADERS: Final = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "=?base64?w6ljaG8=?=",
}
UNKNOWN: Final[dict[str, Any]] = {**META, f"{PREFIX}protocolVersion": "2099-01-01"}


def test_a_valid_envelope_is_returned() -> None:
    assert check_envelope("tools/call", PARAMS, HEADERS) == META
    assert check_envelope("tools/call", {"_meta": META}, {**HEADERS, "mcp-name": "any"}) == META, "name is missing"
    assert check_envelope("ping", {"_meta": META}, {**HEADERS, "mcp-method": "ping"}) == META


@pytest.mark.parametrize(
    ("params", "headers", "code"),
    [
        (None, {}, -32602),
        ({"_meta": 5}, {}, -32602),
        ({"_meta": {f"{PREFIX}protocolVersion": "2026-07-28"}}, {}, -32602),
        (PARAMS, {"mcp-protocol-version": "2099-01-01"}, -32020),
        (PARAMS, {"mcp-method": "tools/list"}, -32020),
        (PARAMS, {"mcp-name": "echo"}, -32020),
        (PARAMS, {"mcp-name": "=?base64?w6ljaG9=?="}, -32020),
        (PARAMS, {"mcp-name": "=?base64?w6k?="}, -32020),
        ({**PARAMS, "_meta": UNKNOWN}, {"mcp-protocol-version": "2099-01-01"}, -32022),
    ],
)
def test_an_invalid_envelope_is_rejected(params: Any, headers: dict[str, str], code: int) -> None:
    with pytest.raises(MethodError) as raised:
        check_envelope("tools/call", params, {**HEADERS, **headers})
    assert raised.value.code == code


def test_a_missing_header_is_rejected() -> None:
    for name in HEADERS:
        headers = {key: value for key, value in HEADERS.items() if key != name}
        with pytest.raises(MethodError) as raised:
            check_envelope("tools/call", PARAMS, headers)
        assert raised.value.code == -32020


REGION: Final = {"type": "string", "x-mcp-header": "Region"}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "region": REGION,
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "place": {"type": "object", "properties": {"is_near": {"type": "boolean", "x-mcp-header": "Near"}}},
    },
}
ARGUMENTS: Final = {"region": "eu", "count": 42, "place": {"is_near": True}}
REPEATED: Final = {"mcp-param-region": "eu", "mcp-param-count": "42", "mcp-param-near": "true"}


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        (ARGUMENTS, REPEATED),
        (ARGUMENTS, {**REPEATED, "mcp-param-count": "42.0", "mcp-param-region": "=?base64?ZXU=?=", "mcp-param-x": "1"}),
        ({}, {}),
        ({"region": None, "count": [1], "place": 5}, {}),
    ],
)
def test_headers_that_match_the_arguments_are_accepted(arguments: Any, headers: dict[str, str]) -> None:
    check_param_headers(SCHEMA, arguments, headers)


@pytest.mark.parametrize(
    ("arguments", "headers", "reason"),
    [
        (ARGUMENTS, {**REPEATED, "mcp-param-region": "us"}, "does not match"),
        (ARGUMENTS, {**REPEATED, "mcp-param-count": "42.5"}, "does not match"),
        (ARGUMENTS, {**REPEATED, "mcp-param-count": "4" * 5000}, "does not match"),
        (ARGUMENTS, {**REPEATED, "mcp-param-near": "True"}, "does not match"),
        (ARGUMENTS, {**REPEATED, "mcp-param-region": "=?base64?ZX=?="}, "malformed"),
        (ARGUMENTS, {key: value for key, value in REPEATED.items() if "near" not in key}, "is missing"),
        ({}, {"mcp-param-region": "eu"}, "is absent"),
        ({"count": [1]}, {"mcp-param-count": "1"}, "does not match"),
    ],
)
def test_headers_that_contradict_the_arguments_are_rejected(
    arguments: Any, headers: dict[str, str], reason: str
) -> None:
    with pytest.raises(MethodError, match=reason) as raised:
        check_param_headers(SCHEMA, arguments, headers)
    assert raised.value.code == -32020


@pytest.mark.parametrize(
    "invalid",
    [
        {"x-mcp-header": "Root"},
        {"items": REGION},
        {"anyOf": [{"properties": {"a": REGION}}]},
        {"$defs": {"a": {"properties": {"b": REGION}}}},
        {"properties": {"region": REGION, "other": {"type": "string", "x-mcp-header": "REGION"}}},
        {"properties": {"region": REGION, "other": {"type": "number", "x-mcp-header": "Other"}}},
        {"properties": {"region": REGION, "other": {"type": "string", "x-mcp-header": "a b"}}},
        {"properties": {"region": REGION, "other": {"type": "string", "x-mcp-header": 5}}},
    ],
)
def test_a_schema_with_an_invalid_annotation_declares_no_headers(invalid: Any) -> None:
    check_param_headers({"type": "object", "properties": {"region": REGION}, **invalid}, {"region": "eu"}, {})


def test_an_annotation_in_data_is_no_declaration() -> None:
    schema = {"properties": {"region": {"default": {"x-mcp-header": "a b"}, **REGION}}}
    with pytest.raises(MethodError, match="is missing"):
        check_param_headers(schema, {"region": "eu"}, {})
