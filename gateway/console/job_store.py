"""Store of jobs: one folder for each job, next to the database. Finished jobs survive a restart of the gateway."""

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.job_record import JobRecord

log = logging.getLogger("babelgate.console")

REPORT: Final = "report.json"
HTML: Final = "report.html"
JUNIT: Final = "junit.xml"
FILES: Final = (REPORT, HTML, JUNIT)
"""File names of a result. Not every kind of job has all of them."""
STOPPED: Final = "the gateway stopped"
"""Reason for the failure of a job that was running when the gateway stopped."""
MAX_JOBS: Final = 100
"""Maximum number of kept jobs. Chosen."""
MAX_BYTES: Final = 512 * 2**20
"""Maximum total size of all kept jobs' files, in bytes. Chosen: a check of four protocols with all messages takes
14 MB (measured, 2026-11)."""
_MAX_CHECKS: Final = 3
"""Maximum number of checks that an agent shows."""
_RECORD: Final = "job.json"


class JobStore:
    """Jobs of this gateway, in memory and in files. It is used on the event loop, and writes only small files there."""

    def __init__(self, find_folder: Callable[[], Path | None], *, max_bytes: int = MAX_BYTES) -> None:
        """Create the store. `find_folder` returns the folder of the jobs, or None to keep them only until the gateway
        stops. It is called when the store is first used."""
        self._find_folder = find_folder
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._records: dict[str, JobRecord] | None = None
        self._sizes: dict[str, dict[str, int]] = {}
        """File sizes of each job, in bytes."""

    def all(self) -> Sequence[JobRecord]:
        """Return all jobs, the newest one first."""
        return sorted(self._load().values(), key=lambda record: record.cursor, reverse=True)

    def find(self, job_id: str) -> JobRecord | None:
        return self._load().get(job_id)

    def files(self, job_id: str) -> Mapping[str, int]:
        """Return the file sizes of a job's result, by name."""
        return self._sizes.get(job_id, {})

    def path(self, job_id: str, name: str = "") -> Path:
        """Return the path of one of a job's files, or that of its folder."""
        assert self._folder is not None
        return self._folder / job_id / name

    def checks_of(self, agent: str) -> Sequence[JsonObject]:
        """Return the newest finished checks of an agent."""
        checks = [
            {
                "job": record.job,
                "at": format_time(record.ended_at),
                "passed": record.summary.get("passed"),
                "failed": record.summary.get("failed"),
                "total": record.summary.get("total"),
            }
            for record in self.all()
            if record.kind == "check" and agent in record.agents and record.status == "done" and record.summary
        ]
        return checks[:_MAX_CHECKS]

    def add(self, record: JobRecord) -> None:
        """Add a job and create its folder. Raises OSError."""
        self._load()
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="babelgate-jobs-", ignore_cleanup_errors=True)
            self._folder = Path(self._temporary.name)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path(record.job).mkdir(mode=0o700)
        self.save(record)

    def show(self, record: JobRecord) -> None:
        """Replace a job in memory."""
        self._load()[record.job] = record

    def save(self, record: JobRecord) -> None:
        """Replace a job in memory and in its file. Raises OSError."""
        self.show(record)
        path = self.path(record.job, _RECORD)
        part = path.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(msgspec.json.encode(record))
        part.replace(path)

    def remove(self, job_id: str) -> None:
        """Remove an ended job and its files."""
        self._load().pop(job_id, None)
        self._sizes.pop(job_id, None)
        shutil.rmtree(self.path(job_id), ignore_errors=True)

    def measure(self, job_id: str) -> None:
        """Read the file sizes of a job that has ended."""
        self._sizes[job_id] = self._measure(job_id)

    def prune(self) -> None:
        """Read the sizes of new files, and remove the oldest jobs that are too many or too large. The newest job
        stays."""
        records = self.all()
        for record in records:
            if record.has_ended and record.job not in self._sizes:
                self._sizes[record.job] = self._measure(record.job)
        total = 0
        for number, record in enumerate(records):
            total += sum(self.files(record.job).values())
            if record.has_ended and number > 0 and (number >= MAX_JOBS or total > self._max_bytes):
                self.remove(record.job)

    def close(self) -> None:
        """Remove a temporary folder."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def _measure(self, job_id: str) -> dict[str, int]:
        paths = {name: self.path(job_id, name) for name in FILES}
        return {name: path.stat().st_size for name, path in paths.items() if path.is_file()}

    def _load(self) -> dict[str, JobRecord]:
        if self._records is not None:
            return self._records
        self._records = {}
        self._folder = self._find_folder()
        if self._folder is None or not self._folder.is_dir():
            return self._records
        for path in self._folder.glob(f"*/{_RECORD}"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=JobRecord)
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("job not read path=%s error=%s", path, error)
                continue
            if record.job != path.parent.name:
                continue
            self._records[record.job] = record
            self._sizes[record.job] = self._measure(record.job)
            if not record.has_ended:
                self._end(record)
        return self._records

    def _end(self, record: JobRecord) -> None:
        """End a job that was running when an earlier gateway ended."""
        ended = msgspec.structs.replace(record, status="failed", error=STOPPED)
        self.show(ended)
        try:
            self.save(ended)
        except OSError as error:
            log.warning("job not stored job=%s error=%s", record.job, error)
