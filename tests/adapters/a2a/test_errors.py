import pytest

from babelgate.adapters.a2a.errors import (
    REASONS,
    a2a_error,
    decode_error,
    error_object,
    reason_of,
    rest_error,
    rest_error_0_3,
)
from babelgate.canonical import Fault, FaultCode
from tests.adapters.a2a.schema import check

# Code in JSON-RPC, HTTP status, google.rpc status: specification 1.0.1, 5.4.
TABLE = {
    "TASK_NOT_FOUND": (-32001, 404, "NOT_FOUND"),
    "TASK_NOT_CANCELABLE": (-32002, 400, "FAILED_PRECONDITION"),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": (-32003, 400, "FAILED_PRECONDITION"),
    "UNSUPPORTED_OPERATION": (-32004, 400, "FAILED_PRECONDITION"),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400, "INVALID_ARGUMENT"),
    "INVALID_AGENT_RESPONSE": (-32006, 500, "INTERNAL"),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": (-32007, 400, "FAILED_PRECONDITION"),
    "EXTENSION_SUPPORT_REQUIRED": (-32008, 400, "FAILED_PRECONDITION"),
    "VERSION_NOT_SUPPORTED": (-32009, 400, "FAILED_PRECONDITION"),
}


@pytest.mark.parametrize("name", TABLE)
def test_specified_errors_have_their_code_status_and_reason(name: str) -> None:
    code, status, rpc = TABLE[name]
    fault = a2a_error(name, "No.").fault
    assert error_object(fault, "1.0")["code"] == code
    error = check("rest-error", "1.0", rest_error(fault))["error"]
    assert (error["code"], error["status"]) == (status, rpc)
    info = error["details"][0]
    assert (info["reason"], info["domain"]) == (name, "a2a-protocol.org")


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_has_an_error_in_every_binding(code: FaultCode) -> None:
    fault = Fault(code=code, message="No.", details={"retry_after": 3, "errors": [{"field": "a", "description": "b"}]})
    for version in ("1.0", "0.3"):
        check("error", version, error_object(fault, version))
    check("rest-error", "1.0", rest_error(fault))
    check("rest-error", "0.3", rest_error_0_3(fault))
    assert 400 <= reason_of(fault).status < 600


def test_invalid_params_are_detailed_only_in_1_0() -> None:
    errors = [{"field": "message.parts", "description": "Field required"}]
    fault = Fault(code=FaultCode.INVALID, message="No.", details={"errors": errors})
    error = error_object(fault, "1.0")
    assert error["data"][1]["fieldViolations"] == errors
    assert error["data"][0]["reason"] == "INVALID_PARAMS"
    assert "data" not in error_object(fault, "0.3")


def test_other_errors_have_the_gateways_domain() -> None:
    info = rest_error(Fault(code=FaultCode.QUEUE_FULL, message="Full.", details={"retry_after": 2}))["error"][
        "details"
    ][0]
    assert (info["reason"], info["domain"], info["metadata"]) == ("QUEUE_FULL", "babelgate", {"retryAfter": "2"})


def test_not_found_fault_is_not_task_not_found() -> None:
    assert reason_of(Fault(code=FaultCode.NOT_FOUND, message="")) is REASONS["NOT_FOUND"]


def test_rest_error_of_0_3_has_the_sdks_type() -> None:
    assert rest_error_0_3(a2a_error("TASK_NOT_FOUND", "No.").fault) == {
        "message": "No.",
        "type": "TaskNotFoundError",
        "code": -32001,
    }
    assert rest_error_0_3(Fault(code=FaultCode.INTERNAL, message="No."))["type"] == "InternalError"


@pytest.mark.parametrize("code", [FaultCode.LIMITED, FaultCode.QUEUE_FULL])
@pytest.mark.parametrize("limit", ["rate", "budget", "chain"])
def test_a_limit_of_another_gateway_is_a_limit(code: FaultCode, limit: str) -> None:
    fault = Fault(code=code, message="The next in 3 seconds.", details={"retry_after": 3, "limit": limit})
    for answer, status in (({"error": error_object(fault, "1.0")}, 200), (rest_error(fault), 429)):
        read = decode_error(answer, status).fault
        assert (read.code, read.details["retry_after"]) == (FaultCode.LIMITED, 3)
        assert read.is_lasting_limit is fault.is_lasting_limit
        assert "The next in 3 seconds." in read.message
