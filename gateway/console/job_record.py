"""Jobs of the console: what each one is, and how it went."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import format_time

JobKind = Literal["check", "across", "bench"]
JobStatus = Literal["waiting", "running", "done", "failed", "cancelled"]
Place = Literal["gateway", "server"]
"""Place of the calls: through this gateway, or directly at the server of the agent."""

ENDED: Final[frozenset[JobStatus]] = frozenset({"done", "failed", "cancelled"})


class JobProgress(msgspec.Struct, frozen=True):
    """Progress of a running job."""

    done: int = 0
    total: int | None = None
    """Number of all steps, as far as they are known. It grows if the command finds more to do."""
    text: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as its file has it."""

    job: str
    """Id of the job."""
    kind: JobKind
    agents: tuple[str, ...]
    at: Place
    protocol: str | None = None
    options: Mapping[str, Any] = {}
    status: JobStatus = "waiting"
    created_at: int
    """Times are in microseconds since 1970, UTC."""
    started_at: int | None = None
    ended_at: int | None = None
    progress: JobProgress = JobProgress()
    summary: JsonObject | None = None
    """The most important figures of the result. Their names depend on the kind."""
    error: str | None = None
    """Reason of a failure, or that the job could not be stored."""
    created_by: str
    """Subject of the caller who has started the job."""

    @property
    def cursor(self) -> str:
        """Text whose order is that of the jobs."""
        return f"{self.created_at:016}.{self.job}"

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED


def encode_job(record: JobRecord, files: Mapping[str, int]) -> JsonObject:
    """Return a job as the API shows it. `files` are the sizes of its files by name."""
    return {
        **msgspec.to_builtins(record),
        "created_at": format_time(record.created_at),
        "started_at": format_time(record.started_at),
        "ended_at": format_time(record.ended_at),
        "files": files,
    }
