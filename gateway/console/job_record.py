"""Records of the console's jobs: what was started, by whom, and the result."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import format_time

JobKind = Literal["check", "across", "bench"]
JobStatus = Literal["waiting", "running", "done", "failed", "cancelled"]
Place = Literal["gateway", "server"]
"""Place at which a job calls the agents: at this gateway, or directly at their servers."""

ENDED: Final[frozenset[JobStatus]] = frozenset({"done", "failed", "cancelled"})


class JobProgress(msgspec.Struct, frozen=True):
    """Progress of a running job, as its command reports it."""

    done: int = 0
    total: int | None = None
    """Number of all steps; None if it is not known. It grows if the command finds more to do."""
    text: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of one job, as it is stored in the job's file."""

    job: str
    """Id of the job."""
    kind: JobKind
    agents: tuple[str, ...]
    at: Place
    protocol: str | None = None
    options: Mapping[str, Any] = {}
    status: JobStatus = "waiting"
    created_at: int
    """Time at which the job was created, in microseconds since 1970, UTC, like the other times of the record."""
    started_at: int | None = None
    ended_at: int | None = None
    progress: JobProgress = JobProgress()
    summary: JsonObject | None = None
    """Most important figures of the result; None before the end. Their names depend on the kind of the job."""
    error: str | None = None
    """Reason for which the job failed, or could not be stored; None without one."""
    created_by: str
    """Subject of the caller who has started the job."""

    @property
    def cursor(self) -> str:
        """Cursor for pages: a text that sorts jobs by the time of their creation."""
        return f"{self.created_at:016}.{self.job}"

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


def encode_job(record: JobRecord, files: Mapping[str, int]) -> JsonObject:
    """Return a job as the API shows it. `files` are the sizes of its result files in bytes, by name."""
    return {
        **msgspec.to_builtins(record),
        "created_at": format_time(record.created_at),
        "started_at": format_time(record.started_at),
        "ended_at": format_time(record.ended_at),
        "files": files,
    }
