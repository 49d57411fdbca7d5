"""The policy of a gateway without rules."""

from babelgate.canonical.principal import OPERATIONS, Principal
from babelgate.gateway.access.policy import AllowAll


def test_a_gateway_without_rules_allows_every_operation() -> None:
    policy = AllowAll()
    for operation in OPERATIONS:
        policy.check(Principal.of_owner("alice"), operation, "echo", "acp")
        assert not policy.has_rules_by_agent(Principal.of_owner("alice"), operation, "acp")
