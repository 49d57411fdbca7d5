"""No credential that the gateway sends is repeated in a fault."""

import pytest

from babelgate.adapters.kit.client.redact import redact_fault, secrets_in
from babelgate.canonical import Fault, FaultCode
from babelgate.canonical.value import JsonObject


def _shown(message: str, details: JsonObject | None = None, *headers: str) -> Fault:
    fault = Fault(code=FaultCode.AGENT_FAILED, message=message, details=details or {})
    return redact_fault(fault, secrets_in(headers))


def test_a_header_is_hidden_wherever_it_is_quoted() -> None:
    details: JsonObject = {"body": '{"key": "abcdefghij"}', "own": [{"abcdefghij": "Bearer abcdefghij"}], "status": 400}
    shown = _shown("the key abcdefghij is wrong", details, "Bearer abcdefghij")
    assert shown.message == "the key *** is wrong"
    assert shown.details == {"body": '{"key": "***"}', "own": [{"***": "***"}], "status": 400}


def test_a_short_header_hides_nothing() -> None:
    assert _shown("true is not a number", None, "true").message == "true is not a number"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("got Authorization: Bearer eyJhbGciOi.J9-abc_123456", "got Authorization: Bearer ***"),
        ("basic dXNlcjpwYXNzd29yZDEyMw== is refused", "basic *** is refused"),
        ("token authentication-is-required here", "token authentication-is-required here"),
        ("Bearer tokens are required", "Bearer tokens are required"),
    ],
)
def test_somebody_elses_credentials_are_hidden_and_words_are_left(message: str, shown: str) -> None:
    assert _shown(message).message == shown
