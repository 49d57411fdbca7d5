"""Rules for runs: the settings of one generation that the engine applies. A run keeps the rules with which it began."""

from dataclasses import dataclass, field
from typing import Literal

from babelgate.gateway.runs.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Limits of a run, from the settings of one generation. Times are in seconds, sizes in bytes."""

    timeout: float = 3600
    """Maximum duration of a run (`limits.run`), unless its agent has its own limit."""
    cancel_grace: float = 5
    """Time that an agent has to end after a cancel (`limits.cancel_grace`)."""
    event_limit: int = 8 * 2**20
    """Maximum size of one text or data part (`limits.event`)."""
    output_limit: int = 64 * 2**20
    """Maximum size of the stored output of a run (`limits.output`)."""
    attempts: int = 3
    """Number of process crashes after which a run is ended with a fault and not started again (`limits.attempts`)."""
    patience: float = 60
    """Time for which the gateway tries to reach the server of a run that a restart has interrupted
    (`recovery.patience`)."""
    owner_concurrency: int | None = None
    """Maximum number of active runs of one owner (`limits.concurrency.per_owner`); None if there is no limit."""
    wire: Literal["off", "failures", "all"] = "off"
    """Runs whose HTTP exchanges with their agents' servers are kept in memory for the console (`console.wire`)."""
    window: Window = field(default_factory=lambda: Window(0))
    """Commit window, for which tokens wait so that many are stored in one commit (`limits.window`)."""
