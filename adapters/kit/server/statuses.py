"""HTTP status for each fault code: the defaults of all protocols. A protocol documents where it differs, and why."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from babelgate.canonical import FaultCode

STATUSES: Final[Mapping[FaultCode, int]] = MappingProxyType(
    {
        FaultCode.INVALID: 422,
        FaultCode.UNSUPPORTED: 422,
        FaultCode.UNSUPPORTED_TYPE: 422,
        FaultCode.UNAUTHENTICATED: 401,
        FaultCode.FORBIDDEN: 403,
        FaultCode.NOT_FOUND: 404,
        FaultCode.METHOD_NOT_ALLOWED: 405,
        FaultCode.CONFLICT: 409,
        FaultCode.TASK_ENDED: 409,
        FaultCode.NOT_AWAITING: 409,
        FaultCode.TOO_LARGE: 413,
        FaultCode.QUEUE_FULL: 429,
        FaultCode.LIMITED: 429,
        FaultCode.AGENT_FAILED: 502,
        FaultCode.AGENT_INVALID: 502,
        FaultCode.AGENT_UNREACHABLE: 502,
        FaultCode.AGENT_TIMEOUT: 504,
        FaultCode.AGENT_NOT_REPLAYABLE: 502,
        FaultCode.EXPIRED: 404,
        FaultCode.GATEWAY_RESTARTED: 503,
        FaultCode.SHUTTING_DOWN: 503,
        FaultCode.UNAVAILABLE: 503,
        FaultCode.INTERNAL: 500,
    }
)
"""HTTP status of each fault code. A fault of the agent ends its run, but the request that started the run has
succeeded. So the status of such a code is used only if no run could be created."""
