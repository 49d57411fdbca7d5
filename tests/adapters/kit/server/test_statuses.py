"""Default statuses of faults, and their exceptions in each protocol."""

import pytest

from babelgate.adapters.acp import errors as acp
from babelgate.adapters.aief import errors as aief
from babelgate.adapters.kit.server.statuses import STATUSES
from babelgate.adapters.langchain.errors import encode as langchain
from babelgate.adapters.runtime import errors as runtime
from babelgate.canonical import Fault, FaultCode

DIFFERENCES = {
    acp: {FaultCode.TASK_ENDED: 403, FaultCode.NOT_AWAITING: 403},
    aief: {},
    langchain: {FaultCode.EXPIRED: 409},
    runtime: {FaultCode.UNSUPPORTED_TYPE: 415},
}


@pytest.mark.parametrize("code", FaultCode)
def test_a_fault_has_the_default_status_or_the_protocols(code: FaultCode) -> None:
    fault = Fault(code=code, message="It went wrong.")
    for protocol, different in DIFFERENCES.items():
        assert protocol.encode_fault(fault)[0] == different.get(code, STATUSES[code]), protocol.__name__
