"""The caller of a run, for those who act on its behalf. The caller's token is in memory only, as long as its run."""

import base64
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast

from babelgate.canonical.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatingCaller:
    """Caller on whose behalf the gateway calls an agent."""

    owner: str
    """Owner of the run's thread."""
    subject: str
    """Name of the caller (`babelgate.canonical.principal.Principal.subject`). Empty for runs of earlier releases."""
    token: str | None = field(default=None, repr=False)
    """Token that the caller has sent. None for callers with an API key, and for runs that continue after a restart."""
    store: Any = field(default=None, repr=False)
    """Tokens to which the caller has agreed (`babelgate.gateway.storage.agent_tokens.AgentTokenStore`). None outside of
    a run, where the gateway cannot ask for an agreement."""

    @property
    def expires_at(self) -> float | None:
        """Time at which the token expires, in seconds since 1970, UTC. None if that is not known."""
        return None if self.token is None else read_expiry(self.token)


RUN_CALLER: Final[ContextVar[DelegatingCaller | None]] = ContextVar("run_caller", default=None)
"""Caller of the run of the current task, or of its request. None for work without a request."""


def act_for(principal: Principal) -> None:
    """Set the caller of the requests to agents' servers that the current task makes without a run."""
    RUN_CALLER.set(DelegatingCaller(owner=principal.owner, subject=principal.subject, token=principal.token))


def read_expiry(token: str) -> float | None:
    """Return the claim `exp` of a token that was verified before. Return None if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    expiry = cast("dict[str, Any]", claims).get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, (int, float)) and not isinstance(expiry, bool) else None
