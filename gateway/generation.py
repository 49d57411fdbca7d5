"""Generation of a hub: the agents and settings that a reload can change.

The parts of the hub do not copy them. Each gets a function that returns the value of the current generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.runs.retry_schedule import RetrySchedule
from babelgate.gateway.runs.rules import RunRules
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.runs.threads import PausedCalls
from babelgate.gateway.runs.webhooks import DeliveryRules
from babelgate.gateway.runs.window import Window
from babelgate.gateway.settings.limits import BudgetSettings
from babelgate.gateway.settings.model import Limits, Webhooks
from babelgate.gateway.settings.model import Retention as RetentionPolicy

_SHARED_WINDOW: Final = 0.005
"""Commit window of a node in a cluster, in seconds, unless the settings have `limits.window`.

Chosen: readers may be at other nodes, which get the tokens of one commit by one notice.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSettings:
    """Settings of a hub that a reload can change. A `HubGeneration` is created from them."""

    limits: Limits = field(default_factory=Limits)
    budgets: Mapping[str, BudgetSettings] = field(default_factory=dict[str, BudgetSettings])
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    patience: float = 60.0
    """Seconds for which the gateway tries to reach the server of an interrupted run before it fails the run
    (`recovery.patience`)."""
    webhook_secret: str | None = None
    webhook_retries: Sequence[float] = field(default_factory=lambda: Webhooks().retries)
    """Pauses before the retries of a webhook delivery, in seconds."""
    wire: Literal["off", "failures", "all"] = "off"
    """Runs whose HTTP exchanges with their agents' servers are kept in memory for the console (`console.wire`)."""
    is_shared: bool = False
    """True if other nodes share the database."""
    public_url: str | None = None
    """URL at which browsers reach the gateway (`public_url`); None if that is not set."""
    secrets_key: str | None = None
    """Key by which tokens in the database are encrypted (`secrets_key`); None if that is not set."""
    issuer_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs of the trusted token issuers, by the names that the settings give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubGeneration:
    """Agents and settings of a hub. A reload replaces all of them together."""

    registry: Registry
    limits: Limits
    budgets: Mapping[str, BudgetSettings]
    retention: RetentionPolicy
    rules: RunRules
    delivery: DeliveryRules
    in_process: Sequence[PausedCalls]
    """Agents that keep paused calls in this process, or in processes that it has started."""
    public_url: str | None = None
    """URL at which browsers reach the gateway (`public_url`); None if that is not set."""
    secrets_key: str | None = field(default=None, repr=False)
    """Key by which tokens in the database are encrypted (`secrets_key`); None if that is not set."""
    issuer_urls: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs of the trusted token issuers, by the names that the settings give them."""

    @classmethod
    def of(cls, registry: Registry, fetcher: Fetcher, settings: HubSettings) -> "HubGeneration":
        """Return a generation with these agents and settings. `fetcher` calls the URLs of webhooks."""
        limits, secret = settings.limits, settings.webhook_secret
        has_own_window = not settings.is_shared or "window" in limits.model_fields_set
        return cls(
            registry=registry,
            limits=limits,
            budgets=settings.budgets,
            retention=settings.retention,
            rules=RunRules(
                timeout=limits.run,
                cancel_grace=limits.cancel_grace,
                event_limit=limits.event,
                output_limit=limits.output,
                attempts=limits.attempts,
                patience=settings.patience,
                wire=settings.wire,
                owner_concurrency=limits.concurrency.per_owner,
                window=Window(limits.window if has_own_window else _SHARED_WINDOW),
            ),
            delivery=DeliveryRules(
                fetcher, RetrySchedule(settings.webhook_retries), None if secret is None else Signer(secret)
            ),
            public_url=settings.public_url,
            secrets_key=settings.secrets_key,
            issuer_urls=settings.issuer_urls,
            in_process=[agent for agent in registry.all_agents() if isinstance(agent, PausedCalls)],
        )
