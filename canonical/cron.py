"""Crons: requests to an agent that the gateway repeats on a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.principal import Principal
from babelgate.canonical.value import JsonObject, Value


class Cron(Value):
    cron_id: str
    """UUID of the cron."""
    agent: str
    assistant_id: str
    """UUID of the agent itself, or of an assistant that a caller has configured."""
    protocol: str
    """Name of the protocol whose request body `request` is, for example `langgraph`."""
    request: JsonObject
    """Body of the request that starts each run."""
    schedule: str
    """Cron expression with five fields: minute, hour, day of month, month, day of week. Example: `0 9 * * 1-5`."""
    timezone: str | None = None
    """IANA name of the time zone in which `schedule` is read, such as `Europe/Paris`; None means UTC."""
    thread_id: str | None = None
    """Thread on which all runs of the cron start; None gives each run a new thread."""
    keep: bool = False
    """True if the gateway keeps the new thread of each run after the run, and False if it erases the thread. Without
    effect if the cron has a `thread_id`, because its runs then have no new threads."""
    end_time: int | None = None
    """Time from which the cron starts no more runs, in microseconds since 1970, UTC; None means no end."""
    enabled: bool = True
    metadata: JsonObject = {}
    next_run: int | None = None
    """Time of the next run, in microseconds since 1970, UTC; None if there is no next run."""
    created_at: int = 0
    updated_at: int = 0
    principal: Principal | None = None
    """Caller who created the cron or changed it last. The access rules for this caller apply to its runs. None for a
    cron that an earlier release stored."""


CronOrder = Literal["cron_id", "assistant_id", "thread_id", "next_run", "end_time", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CronQuery:
    assistant_id: str | None = None
    thread_id: str | None = None
    enabled: bool | None = None
    agents: frozenset[str] | None = None
    """Names of the agents whose crons match. None means all. The guard sets it to those that the caller may read."""
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the cron's metadata must have, with these values."""
    order: CronOrder = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


CHANGEABLE: Final = frozenset(
    {"request", "schedule", "timezone", "keep", "end_time", "enabled", "metadata", "principal"}
)
"""Fields of a cron that `Crons.change` accepts. The guard sets `principal`, and callers set the others. New `request`
and `metadata` add or replace single members; all other fields are replaced."""


class Crons(Protocol):
    """Store of crons, by owner. Another owner's crons are not found."""

    async def create(self, principal: Principal, cron: Cron, webhook: str | None = None) -> Cron:
        """Create a cron. `webhook` is the URL in its request to which its runs report, if any; the URL is checked.
        Raises invalid (a wrong schedule or time zone), not_found (the thread), too_large, queue_full (too many
        crons)."""
        ...

    async def get(self, principal: Principal, cron_id: str) -> Cron | None: ...

    async def change(
        self, principal: Principal, cron_id: str, changes: Mapping[str, Any], webhook: str | None = None
    ) -> Cron:
        """Change the fields in `changes`, which are among `CHANGEABLE`.

        `webhook` is the URL in a changed request to which its runs report, if any; the URL is checked. Raises
        not_found, invalid (a wrong schedule, time zone or webhook), too_large (the request).
        """
        ...

    async def delete(self, principal: Principal, cron_id: str) -> bool:
        """Delete a cron. Return True if it existed."""
        ...

    async def search(self, principal: Principal, query: CronQuery) -> Listed[Cron]: ...

    async def count(self, principal: Principal, query: CronQuery) -> int:
        """Return the number of crons that match the query, on all pages."""
        ...
