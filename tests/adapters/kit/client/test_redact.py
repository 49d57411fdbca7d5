"""Credentials that the gateway sends are hidden in faults."""

import pytest

from babelgate.adapters.kit.client.redact import redact_excerpt, redact_fault, secrets_in
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject


def _redacted(message: str, details: JsonObject | None = None, *headers: str) -> Fault:
    fault = Fault(code=FaultCode.AGENT_FAILED, message=message, details=details or {})
    return redact_fault(fault, secrets_in(headers))


def test_a_header_value_is_hidden_in_message_and_details() -> None:
    details: JsonObject = {
        "body": '{"key": "abcdefghij"}',
        "items": [{"abcdefghij": "Bearer abcdefghij"}],
        "status": 400,
    }
    fault = _redacted("the key abcdefghij is wrong", details, "Bearer abcdefghij")
    assert fault.message == "the key *** is wrong"
    assert fault.details == {"body": '{"key": "***"}', "items": [{"***": "***"}], "status": 400}


def test_a_short_header_hides_nothing() -> None:
    assert _redacted("true is not a number", None, "true").message == "true is not a number"


@pytest.mark.parametrize(
    ("message", "redacted"),
    [
        ("got Authorization: Bearer eyJhbGciOi.J9-abc_123456", "got Authorization: Bearer ***"),
        ("basic dXNlcjpwYXNzd29yZDEyMw== is refused", "basic *** is refused"),
        ("token authentication-is-required here", "token authentication-is-required here"),
        ("Bearer tokens are required", "Bearer tokens are required"),
    ],
)
def test_other_credentials_are_hidden_but_words_are_not(message: str, redacted: str) -> None:
    assert _redacted(message).message == redacted


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("the key k/12345678 here", "the key *** here"),
        (r"the key k\/12345678 here", "the key *** here"),
        ("?key=k%2F12345678", "?key=***"),
        ("cut at k/123456", "cut at ***"),
        ("cut at k/12345", "cut at k/12345"),
        ("no secret: k/123456 k/123457", "no secret: k/123456 k/123457"),
    ],
)
def test_excerpt_hides_escaped_and_cut_secrets(text: str, redacted: str) -> None:
    assert redact_excerpt(text, secrets_in(["k/12345678"])) == redacted
