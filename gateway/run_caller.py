"""Caller in whose name the current task calls agents' servers. The caller's token is in memory only, as long as its
run."""

import base64
import json
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast

from babelgate.canonical.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatingCaller:
    """Caller in whose name the gateway calls an agent."""

    owner: str
    """Owner of the run's thread."""
    subject: str
    """Name of the caller (`babelgate.canonical.principal.Principal.subject`). Empty for runs of earlier releases."""
    token: str | None = field(default=None, repr=False)
    """Token that the caller has sent. None for callers with other credentials, and for runs that continue after a
    restart."""
    store: Any = field(default=None, repr=False)
    """Store of the tokens that users have granted by consent
    (`babelgate.gateway.storage.agent_tokens.AgentTokenStore`). None outside of a run, where the gateway cannot ask for
    consent."""

    @property
    def expires_at(self) -> float | None:
        """Time at which the caller's token expires, in seconds since 1970, UTC. None if there is no token or it has no
        claim `exp`."""
        return None if self.token is None else read_expiry(self.token)


RUN_CALLER: Final[ContextVar[DelegatingCaller | None]] = ContextVar("run_caller", default=None)
"""Caller of the run that the current task executes, or of the request that it handles. None for work of the gateway
itself."""


def act_for(principal: Principal) -> None:
    """Set the caller in whose name the current task calls agents' servers outside of a run."""
    RUN_CALLER.set(DelegatingCaller(owner=principal.owner, subject=principal.subject, token=principal.token))


def read_expiry(token: str) -> float | None:
    """Return the claim `exp` of a token that was verified before, in seconds since 1970. Return None if it has none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    expiry = cast("dict[str, Any]", claims).get("exp") if isinstance(claims, dict) else None
    return float(expiry) if isinstance(expiry, (int, float)) and not isinstance(expiry, bool) else None
