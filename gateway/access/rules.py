"""Policy from the rules of the setting `access`.

A call is allowed if a rule allows it and no rule denies it. The order of the rules does not matter.

A rule that names agents also applies to calls that concern no agent, such as creating a thread or reading an item of
the store. Its `allow` includes these calls, because callers need them to use the agents. Its `deny` does not.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from babelgate.canonical.fault import INSUFFICIENT_SCOPE, FaultCode, FaultError
from babelgate.canonical.principal import OPERATIONS, Operation, Principal
from babelgate.gateway.access.policy import AllowAll, Policy
from babelgate.gateway.settings.access import ALL, AccessRule

_VERBS: Final[Mapping[Operation, str]] = {"webhook": "use webhooks of", "admin": "administer"}
"""Verb phrases for error texts, by operation. The names of all other operations, such as `read`, are verbs
themselves."""
_OBJECTS: Final[Mapping[Operation, str]] = {
    "discover": "agents",
    "run": "agents",
    "answer": "questions",
    "cancel": "runs",
    "webhook": "runs",
    "admin": "the gateway",
}
"""Objects of the verbs in error texts about a call that concerns no agent, by operation. For all other operations the
object is `data`."""
_NAMES: Final = 10_000
"""Maximum number of agents' names for which a rule remembers whether it applies to them. Chosen: names come from the
configuration and from stored runs."""


class RulePolicy:
    """Policy from rules. A decision by 21 rules takes about a microsecond."""

    def __init__(self, rules: Sequence[AccessRule]) -> None:
        compiled = [_Rule(rule, denies=denies) for rule in rules for denies in (True, False)]
        # Denials are first, so that the first rule that applies decides.
        order = sorted(compiled, key=lambda rule: (not rule.denies, not rule.has_all_agents))
        ordered = [rule for rule in order if rule.operations]
        self._rules = {
            operation: tuple(rule for rule in ordered if operation in rule.operations) for operation in OPERATIONS
        }

    def has_rules_by_agent(self, principal: Principal, operation: Operation, protocol: str) -> bool:
        for rule in self._rules[operation]:
            if rule.has_protocol(protocol) and rule.has_caller(principal):
                if rule.denies:
                    return True
                if rule.has_all_agents:
                    return False
        return True

    def check(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> None:
        """Raise forbidden if no rule allows this operation on the agent, or if a rule denies it."""
        for rule in self._rules[operation]:
            if rule.has_protocol(protocol) and rule.has_agent(agent) and rule.has_caller(principal):
                if rule.denies:
                    raise _refusal(principal, operation, agent, "a rule of access denies it")
                return
        details = self._challenge(principal, operation, agent, protocol)
        raise _refusal(principal, operation, agent, "no rule of access allows it", **details)

    def _challenge(self, principal: Principal, operation: Operation, agent: str, protocol: str) -> Mapping[str, Any]:
        """Return the details of a refusal that a token with one more scope would avoid: a reason, and the scopes of
        which one suffices. Return no details if no scope helps, or if the caller sent no token."""
        if not principal.issuer:  # the scopes of an API key are in the configuration
            return {}
        rules = (rule for rule in self._rules[operation] if rule.has_protocol(protocol) and rule.has_agent(agent))
        scopes = dict.fromkeys(scope for rule in rules if not rule.denies for scope in rule.scopes_in_order)
        return {"reason": INSUFFICIENT_SCOPE, "scopes": list(scopes)} if scopes else {}


class _Rule:
    """One half of an access rule: the operations that it allows or, if `denies` is true, those that it denies."""

    def __init__(self, rule: AccessRule, *, denies: bool) -> None:
        self.denies = denies
        words = rule.deny if denies else rule.allow
        self.operations: frozenset[str] = frozenset(OPERATIONS if ALL in words else words)
        self.has_all_agents = rule.has_all_agents
        self._rule = rule
        self._by_name: dict[str, bool] = {"": self.has_all_agents or not denies}
        """Cache of whether the rule applies to an agent, by the agent's name. The empty name means a call that concerns
        no agent."""
        self._protocols = frozenset(rule.protocols)
        self._is_for_all = ALL in rule.who
        self._subjects = frozenset(value for value in rule.who if value.startswith(("key:", "user:")))
        self._owners = frozenset(rule.names_of("owner"))
        self._groups = frozenset(rule.names_of("group"))
        self.scopes_in_order = tuple(rule.names_of("scope"))
        self._scopes = frozenset(self.scopes_in_order)

    def has_protocol(self, protocol: str) -> bool:
        return not self._protocols or protocol in self._protocols

    def has_agent(self, name: str) -> bool:
        if self.has_all_agents:
            return True
        is_match = self._by_name.get(name)
        if is_match is None:
            is_match = self._rule.has_agent(name)
            if len(self._by_name) < _NAMES:
                self._by_name[name] = is_match
        return is_match

    def has_caller(self, principal: Principal) -> bool:
        return (
            self._is_for_all
            or principal.subject in self._subjects
            or not self._groups.isdisjoint(principal.groups)
            or not self._scopes.isdisjoint(principal.scopes)
            or principal.owner in self._owners
        )


def _refusal(principal: Principal, operation: Operation, agent: str, why: str, **details: Any) -> FaultError:
    what = f"{_VERBS.get(operation, operation)} {agent or _OBJECTS.get(operation, 'data')}"
    return FaultError(FaultCode.FORBIDDEN, f"{name_of(principal)} may not {what}: {why}.", **details)


def merge_challenges(refusals: Sequence[FaultError]) -> FaultError:
    """Return one error for several refusals of the same call, which needs several operations.

    If a scope helps with each refusal, the error is the first refusal, with the scopes of all. Otherwise it is the
    first refusal with which no scope helps.
    """
    for refusal in refusals:
        if refusal.fault.details.get("reason") != INSUFFICIENT_SCOPE:
            return refusal
    scopes = dict.fromkeys(scope for refusal in refusals for scope in refusal.fault.details["scopes"])
    first = refusals[0].fault
    return FaultError(first.code, first.message, reason=INSUFFICIENT_SCOPE, scopes=list(scopes))


def name_of(principal: Principal) -> str:
    """Return the name of a caller for error texts: its subject, without the prefix `user:`."""
    return principal.subject.removeprefix("user:")


def policy_of(rules: Sequence[AccessRule]) -> Policy:
    """Return the policy of the setting `access`."""
    return RulePolicy(rules) if rules else AllowAll()
