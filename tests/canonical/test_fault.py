"""Faults, and the errors that carry them."""

import json

import pytest

from babelgate.canonical import BLAME, Fault, FaultCode, FaultError
from babelgate.canonical.json import to_json
from babelgate.canonical.value import JsonObject


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_code_has_a_blame(code: FaultCode):
    assert Fault(code=code, message="x", details={"limit": "rate"}).blame == BLAME[code]
    assert BLAME[code] == "upstream" or not code.value.startswith("agent_")


@pytest.mark.parametrize("details", [{}, {"status": 429}, {"status": 429, "limit": "budget"}])
def test_the_limit_of_a_server_is_not_the_callers_fault(details: JsonObject):
    assert Fault(code=FaultCode.LIMITED, message="x", details=details).blame == "upstream"


def test_an_error_carries_its_fault_with_details():
    error = FaultError(FaultCode.QUEUE_FULL, "Come back later", retry_after=3)
    assert error.fault == Fault(code=FaultCode.QUEUE_FULL, message="Come back later", details={"retry_after": 3})
    assert str(error) == "Come back later"


def test_an_error_keeps_the_fault_it_was_created_from():
    fault = Fault(code=FaultCode.INVALID, message="no", details={"field": "a", "errors": [1]})
    assert FaultError.of(fault).fault == fault


def test_a_fault_comes_back_from_json():
    fault = Fault(code=FaultCode.EXPIRED, message="late", details={"a": None})
    assert Fault.of_members(json.loads(json.dumps(to_json(fault)))) == fault
