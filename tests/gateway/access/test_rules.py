"""Decisions of rules: who may do what, the texts of refusals, and the scopes that a token needs."""

from typing import Any, Final

import pytest

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.canonical.fault import INSUFFICIENT_SCOPE
from babelgate.canonical.principal import OPERATIONS, Operation
from babelgate.gateway.access.policy import AllowAll
from babelgate.gateway.access.rules import RulePolicy, policy_of
from babelgate.gateway.settings.model import Settings

RULES: Final[list[Any]] = [
    {"who": "*", "allow": ["discover", "read", "cancel", "answer"]},
    {"who": "group:dev", "agents": ["dev-*", "echo"], "allow": ["run", "write"]},
    {"who": "key:ci", "agents": ["planner"], "protocols": ["a2a"], "allow": ["run"]},
    {"who": "scope:agents:run", "allow": ["run"]},
    {"who": ["group:ops", "user:corp:alice"], "allow": ["*"]},
    {"who": "group:contractors", "agents": ["finance-*"], "deny": ["*"]},
    {"who": "owner:acme", "allow": "delete"},
]
NOBODY: Final = Principal(subject="key:nobody", owner="nobody")
CI: Final = Principal(subject="key:ci", owner="ci")
DEV: Final = Principal(subject="key:dev", owner="dev", groups=frozenset({"dev"}))
ALICE: Final = Principal(subject="user:corp:alice", owner="acme", issuer="corp")
BOB: Final = Principal(subject="user:corp:bob", owner="acme", issuer="corp")
SCOPED: Final = Principal(subject="user:corp:eve", owner="eve", issuer="corp", scopes=frozenset({"agents:run"}))
CONTRACTOR: Final = Principal(subject="key:c", owner="c", groups=frozenset({"contractors", "ops"}))


def policy(*rules: Any) -> RulePolicy:
    compiled = policy_of(Settings.model_validate({"access": rules or RULES}).access)
    assert isinstance(compiled, RulePolicy)
    return compiled


def is_allowed(principal: Principal, operation: Operation, agent: str, protocol: str = "acp") -> bool:
    try:
        policy().check(principal, operation, agent, protocol)
    except FaultError as error:
        assert error.fault.code is FaultCode.FORBIDDEN
        return False
    return True


@pytest.mark.parametrize(
    ("principal", "operation", "agent", "protocol", "allowed"),
    [
        (NOBODY, "read", "planner", "acp", True),
        (NOBODY, "run", "planner", "acp", False),
        (NOBODY, "delete", "", "acp", False),
        (DEV, "run", "dev-a", "acp", True),
        (DEV, "run", "echo", "mcp", True),
        (DEV, "run", "echo-2", "acp", False),
        (DEV, "run", "xdev-a", "acp", False),
        (DEV, "write", "", "langchain", True),
        (DEV, "write", "planner", "acp", False),
        (CI, "run", "planner", "a2a", True),
        (CI, "run", "planner", "acp", False),
        (CI, "run", "planner", "", False),
        (SCOPED, "run", "finance-x", "acp", True),
        (SCOPED, "write", "finance-x", "acp", False),
        (ALICE, "admin", "", "", True),
        (BOB, "delete", "planner", "acp", True),
        (BOB, "run", "planner", "acp", False),
        (CONTRACTOR, "run", "planner", "acp", True),
        (CONTRACTOR, "run", "finance-x", "acp", False),
        (CONTRACTOR, "discover", "finance-x", "acp", False),
        (CONTRACTOR, "write", "", "acp", True),
    ],
)
def test_the_rules_decide_on_each_call(
    principal: Principal, operation: Operation, agent: str, protocol: str, allowed: bool
) -> None:
    assert is_allowed(principal, operation, agent, protocol) is allowed


def test_the_order_of_rules_does_not_matter() -> None:
    for rules in (RULES, RULES[::-1]):
        with pytest.raises(FaultError):
            policy(*rules).check(CONTRACTOR, "read", "finance-x", "acp")
        policy(*rules).check(CONTRACTOR, "read", "planner", "acp")


def test_a_denial_for_all_agents_includes_calls_without_an_agent() -> None:
    rules = policy({"who": "*", "allow": "*"}, {"who": "key:ci", "deny": "write"})
    for agent in ("", "echo"):
        with pytest.raises(FaultError):
            rules.check(CI, "write", agent, "acp")
    rules.check(DEV, "write", "", "acp")


@pytest.mark.parametrize(
    ("principal", "operation", "agent", "text"),
    [
        (BOB, "run", "planner", "corp:bob may not run planner: no rule of access allows it."),
        (CI, "run", "planner", "key:ci may not run planner: no rule of access allows it."),
        (CI, "write", "", "key:ci may not write data: no rule of access allows it."),
        (CI, "webhook", "echo", "key:ci may not use webhooks of echo: no rule of access allows it."),
        (CI, "admin", "", "key:ci may not administer the gateway: no rule of access allows it."),
        (CONTRACTOR, "run", "finance-x", "key:c may not run finance-x: a rule of access denies it."),
    ],
)
def test_a_refusal_says_who_may_not_do_what(principal: Principal, operation: Operation, agent: str, text: str) -> None:
    with pytest.raises(FaultError) as raised:
        policy().check(principal, operation, agent, "acp")
    assert raised.value.fault.message == text


def test_a_refused_token_learns_all_scopes_of_the_operation() -> None:
    rules = policy(
        {"who": ["scope:run", "scope:all"], "allow": "run"},
        {"who": "scope:echo", "agents": ["echo"], "allow": "run"},
        {"who": "scope:a2a", "protocols": ["a2a"], "allow": "run"},
        {"who": "scope:none", "deny": "run"},
    )
    with pytest.raises(FaultError) as raised:
        rules.check(BOB, "run", "planner", "acp")
    assert raised.value.fault.details == {"reason": INSUFFICIENT_SCOPE, "scopes": ["run", "all"]}
    with pytest.raises(FaultError) as raised:
        rules.check(BOB, "run", "echo", "a2a")
    assert raised.value.fault.details["scopes"] == ["run", "all", "a2a", "echo"]


@pytest.mark.parametrize("principal", [CI, CONTRACTOR])
def test_no_scope_helps_a_key_or_a_denied_caller(principal: Principal) -> None:
    with pytest.raises(FaultError) as raised:
        policy().check(principal, "run", "finance-x", "acp")
    assert raised.value.fault.details == {}


def test_callers_without_rules_for_agents_need_no_names_of_agents() -> None:
    rules = policy()
    assert not rules.has_rules_by_agent(ALICE, "read", "acp")
    assert not rules.has_rules_by_agent(SCOPED, "run", "acp")
    assert rules.has_rules_by_agent(DEV, "run", "acp")
    assert rules.has_rules_by_agent(CONTRACTOR, "read", "acp")


def test_a_gateway_without_rules_allows_everything() -> None:
    assert isinstance(policy_of(()), AllowAll)
    for operation in set(OPERATIONS) - {"admin"}:
        policy_of(()).check(NOBODY, operation, "echo", "acp")
