"""Faults, and the errors that carry them."""

import json

import pytest

from babelgate.canonical import BLAME, Fault, FaultCode, FaultError
from babelgate.canonical.json import to_json


@pytest.mark.parametrize("code", FaultCode)
def test_every_fault_code_has_a_blame(code: FaultCode):
    assert Fault(code=code, message="x").blame == BLAME[code]
    assert BLAME[code] == "upstream" or not code.value.startswith("agent_")


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
