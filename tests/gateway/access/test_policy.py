"""The policy of a gateway without rules."""

import pytest

from babelgate.canonical import FaultError
from babelgate.canonical.principal import OPERATIONS, Principal
from babelgate.gateway.access.policy import AllowAll


def test_a_gateway_without_rules_allows_all_but_admin() -> None:
    policy, alice = AllowAll(), Principal.of_owner("alice")
    for operation in set(OPERATIONS) - {"admin"}:
        policy.check(alice, operation, "echo", "acp")
        assert not policy.has_rules_by_agent(alice, operation, "acp")
    with pytest.raises(FaultError, match="no rule of access allows it"):
        policy.check(alice, "admin", "", "")
