"""Policies: who may do what. The guard asks one before each call to the hub."""

from typing import Protocol

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.principal import Operation, Principal


class Policy(Protocol):
    """Decisions on calls to the hub."""

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        """Return True if the decision can depend on the agent. The guard then reads the agents of a thread, task or
        run before a call that has only its id."""
        ...

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        """Raise forbidden if the principal may not do this.

        `agent` is the agent's name, and empty if the call concerns no agent. Before a call that concerns several
        agents, the guard asks for each. `protocol` is the name of the adapter that makes the call, and empty for the
        gateway's own pages.
        """
        ...


class AllowAll:
    """Policy of a gateway without rules: every caller may do everything with the data of its owner.

    No caller may operate the gateway itself.
    """

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        return False

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        """Raise forbidden for the operation `admin`, and allow all other operations."""
        if operation == "admin":
            raise FaultError(
                FaultCode.FORBIDDEN,
                f"{principal.subject} may not operate the gateway: no rule of access allows it. Add a rule such as "
                '{who: "key:ops", allow: [admin]} to access in the settings.',
            )
