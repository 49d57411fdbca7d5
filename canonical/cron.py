"""Crons: what is asked of an agent again and again, by a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from babelgate.canonical.listed import Listed
from babelgate.canonical.value import JsonObject, Value


class Cron(Value):
    cron_id: str
    """A UUID."""
    agent: str
    assistant_id: str
    """A UUID: of the agent itself, or as a caller has configured it."""
    protocol: str
    """Whose words the request is in."""
    request: JsonObject
    """The body of each run."""
    schedule: str
    """Five fields: minute, hour, day of month, month, day of week."""
    timezone: str | None = None
    """An IANA name; UTC without one."""
    thread_id: str | None = None
    """Where it runs; None = each run has a thread of its own."""
    keep: bool = False
    """Whether the thread of a run of its own is kept."""
    end_time: int | None = None
    """Microseconds since 1970, UTC; from then on it runs no more."""
    enabled: bool = True
    metadata: JsonObject = {}
    next_run: int | None = None
    """When it is to run; None where it is not."""
    created_at: int = 0
    updated_at: int = 0


CronOrder = Literal["cron_id", "assistant_id", "thread_id", "next_run", "end_time", "created_at", "updated_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CronQuery:
    assistant_id: str | None = None
    thread_id: str | None = None
    enabled: bool | None = None
    metadata: JsonObject = field(default_factory=dict[str, object])
    """Members that the metadata must have."""
    order: CronOrder = "created_at"
    descending: bool = True
    limit: int = 10
    offset: int = 0


CHANGEABLE: Final = frozenset({"request", "schedule", "timezone", "keep", "end_time", "enabled", "metadata"})
"""Fields of a cron that its owner may change. Members of `request` and `metadata` are added or replaced."""


class Crons(Protocol):
    """By owner; another owner's are not found."""

    async def create(self, owner: str, cron: Cron, webhook: str | None = None) -> Cron:
        """`webhook` = the URL that its runs report to. Raises invalid (a schedule or a time zone that is none),
        not_found (the thread), too_large, queue_full (there are too many)."""
        ...

    async def get(self, owner: str, cron_id: str) -> Cron | None: ...

    async def change(self, owner: str, cron_id: str, changes: Mapping[str, Any], webhook: str | None = None) -> Cron:
        """`changes` = fields among `CHANGEABLE`. Raises not_found, invalid, too_large."""
        ...

    async def delete(self, owner: str, cron_id: str) -> bool:
        """Whether there was one."""
        ...

    async def search(self, owner: str, query: CronQuery) -> Listed[Cron]: ...

    async def count(self, owner: str, query: CronQuery) -> int:
        """Of all pages."""
        ...
