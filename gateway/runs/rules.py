"""Rules for runs: the settings of one generation that the engine applies. A run keeps the rules with which it began."""

from dataclasses import dataclass, field
from typing import Literal

from babelgate.gateway.runs.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """Limits of a run. Times are in seconds, sizes in bytes."""

    timeout: float = 3600
    """Maximum duration of a run whose agent has no separate limit (`limits.run`)."""
    cancel_grace: float = 5
    """Time that an agent has to end after a cancel (`limits.cancel_grace`)."""
    event_limit: int = 8 * 2**20
    """Maximum size of one text or data part (`limits.event`)."""
    output_limit: int = 64 * 2**20
    """Maximum size of the stored output of a run (`limits.output`)."""
    attempts: int = 3
    """Maximum number of starts of a run whose process crashes (`limits.attempts`)."""
    patience: float = 60
    """Time for which the server of an interrupted run is retried (`recovery.patience`)."""
    owner_concurrency: int | None = None
    """Maximum number of active runs of one owner (`limits.concurrency.per_owner`); None if there is no limit."""
    wire: Literal["off", "failures", "all"] = "off"
    """Runs whose exchanges with their servers stay in memory (`console.wire`)."""
    window: Window = field(default_factory=lambda: Window(0))
    """Commit window of tokens (`limits.window`)."""
