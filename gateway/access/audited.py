"""Policy that reports its refusals for the audit log."""

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.principal import Operation
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.storage.auditor import Auditor


class AuditedPolicy:
    """Policy that reports its refusals to an auditor."""

    def __init__(self, policy: Policy, auditor: Auditor) -> None:
        self._policy = policy
        self._auditor = auditor

    @property
    def has_rules_by_agent(self) -> bool:
        return self._policy.has_rules_by_agent

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        try:
            self._policy.check(principal, operation, agent, protocol)
        except FaultError as error:
            # An agent that a caller may not discover is left out of every list: that is no refused call.
            if error.fault.code is FaultCode.FORBIDDEN and operation != "discover":
                self._auditor.note_denial(operation, agent, error.fault.message)
            raise
