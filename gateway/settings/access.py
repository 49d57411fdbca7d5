"""Settings of authorization: rules that say what callers may do with agents."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema, model_validator

from babelgate.canonical.principal import OPERATIONS
from babelgate.gateway.settings.fields import SettingsSection, Strings

ALL: Final = "*"
"""Wildcard of access rules: every caller in `who`, every agent in `agents`, every operation in `allow` and `deny`."""
_WHO: Final = re.compile(r"(?:key|group|scope|owner):.+|user:[^:]+:.+", re.DOTALL)
PATTERN: Final = re.compile(r"[a-z0-9._*?\[\]!-]+")
_OPERATION_WORDS: Final = f"allowed operations: {', '.join(OPERATIONS)}, or {ALL} for all"
_WHO_WORDS: Final = f"allowed callers: {ALL}, key:NAME, user:ISSUER:SUBJECT, group:NAME, scope:NAME, owner:NAME"
_OPERATION_SCHEMA: Final = {"enum": [*OPERATIONS, ALL]}


def _check_who(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values or not all(value == ALL or _WHO.fullmatch(value) for value in values):
        raise ValueError(_WHO_WORDS)
    return values


def _check_patterns(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values or not all(PATTERN.fullmatch(value) for value in values):
        raise ValueError("names of agents, or patterns with * and ?, such as dev-*")
    return values


def _check_protocols(values: tuple[str, ...]) -> tuple[str, ...]:
    from babelgate.adapters import ADAPTERS  # late: importing the web framework takes longer than reading the settings

    names = [adapter.name for adapter in ADAPTERS]
    if not set(values) <= set(names):
        raise ValueError(f"allowed protocols: {', '.join(names)}")
    return values


def _check_operations(values: tuple[str, ...]) -> tuple[str, ...]:
    if not set(values) <= {*OPERATIONS, ALL}:
        raise ValueError(_OPERATION_WORDS)
    return values


def _words(schema: Mapping[str, object]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{**schema, "type": "string"}, {"type": "array", "items": schema}]})


_Operations = Annotated[Strings, AfterValidator(_check_operations), _words(_OPERATION_SCHEMA)]
_Names = {"type": "string", "minLength": 1}


class AccessRule(SettingsSection):
    """One rule of `access`: the operations that some callers may or may not call, on some agents."""

    who: Annotated[Strings, AfterValidator(_check_who), _words(_Names)]
    """Callers that the rule applies to: `*`, `key:NAME`, `user:ISSUER:SUBJECT`, `group:NAME`, `scope:NAME` or
    `owner:NAME`, or a list of these."""
    agents: Annotated[Strings, AfterValidator(_check_patterns), _words(_Names)] = (ALL,)
    """Agents that the rule applies to: names, or patterns such as `dev-*`. By default all."""
    protocols: Annotated[Strings, AfterValidator(_check_protocols), _words(_Names)] = ()
    """Protocols of the calls that the rule applies to, such as `a2a`. By default all."""
    allow: _Operations = ()
    """Operations that the rule allows, or `*` for all."""
    deny: _Operations = ()
    """Operations that the rule denies, or `*` for all. A denial overrides what other rules allow."""

    @model_validator(mode="after")
    def _decides(self) -> "AccessRule":
        if not self.allow and not self.deny:
            raise ValueError("needs allow or deny, with a list of operations")
        return self

    @property
    def has_all_agents(self) -> bool:
        """True if the rule applies to every agent, and to calls that concern no agent."""
        return ALL in self.agents

    def has_agent(self, name: str) -> bool:
        """Return True if the rule applies to an agent of this name."""
        return any(fnmatchcase(name, pattern) for pattern in self.agents)

    def names_of(self, kind: str) -> Sequence[str]:
        """Return the names of one kind of caller in `who`: for the kind `key`, `ann` of `key:ann`."""
        return [value.removeprefix(f"{kind}:") for value in self.who if value.startswith(f"{kind}:")]


def scopes_of(rules: Sequence[AccessRule]) -> Sequence[str]:
    """Return the scopes in `who` of all rules that allow something, each once, in the order of the rules.

    The gateway's metadata for OAuth clients lists them as the scopes to request."""
    return list(dict.fromkeys(scope for rule in rules if rule.allow for scope in rule.names_of("scope")))


def find_access_doubts(
    rules: Sequence[AccessRule], *, agents: Sequence[str], keys: Sequence[str], issuers: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield a location and a text for each rule that names an agent, a key or an issuer that does not exist.

    `agents`, `keys` and `issuers` are the existing names. A location is a tuple such as `("access", "0")`."""
    for number, rule in enumerate(rules):
        for pattern in rule.agents:
            if not any(fnmatchcase(agent, pattern) for agent in agents):
                yield ("access", str(number)), f"no agent matches {pattern}"
        for name in rule.names_of("key"):
            if name not in keys:
                yield ("access", str(number)), "keys has no entry for one of its callers of the form key:NAME"
        for name in rule.names_of("user"):
            if name.partition(":")[0] not in issuers:
                yield ("access", str(number)), "issuers has no entry for one of its callers of the form user:ISSUER:…"
