"""Store of jobs: one folder for each job, next to the database. Finished jobs survive a restart of the gateway."""

import logging
import mmap
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from babelgate.canonical.value import JsonObject
from babelgate.gateway.clock import format_time
from babelgate.gateway.console.job_record import JobRecord
from babelgate.gateway.files import write_atomically

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
RECORD: Final = "job.json"
"""Name of the file of a job itself."""


class JobStore:
    """Jobs of this gateway, in memory and in files.

    Any thread may use it. The lock protects what is in memory, and is never held while a result is read or removed.
    """

    def __init__(self, find_folder: Callable[[], Path | None], *, max_bytes: int = MAX_BYTES) -> None:
        """Create the store. `find_folder` returns the folder of the jobs, or None to keep them only until the gateway
        stops. It is called when the store is first used."""
        self._find_folder = find_folder
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.RLock()
        self._records: dict[str, JobRecord] | None = None
        self._sizes: dict[str, dict[str, int]] = {}
        """File sizes of each job, in bytes."""
        self._readable: set[str] = set()
        """Jobs whose report was read and is JSON."""

    def all(self) -> Sequence[JobRecord]:
        """Return all jobs, the newest one first."""
        with self._lock:
            records = list(self._load().values())
        return sorted(records, key=lambda record: record.cursor, reverse=True)

    def find(self, job_id: str) -> JobRecord | None:
        with self._lock:
            return self._load().get(job_id)

    def files(self, job_id: str) -> Mapping[str, int]:
        """Return the file sizes of a job's result, by name."""
        with self._lock:
            return self._sizes.get(job_id, {})

    def path(self, job_id: str, name: str = "") -> Path:
        """Return the path of one of a job's files, or that of its folder."""
        assert self._folder is not None
        return self._folder / job_id / name

    def open_file(self, job_id: str, name: str) -> BinaryIO | None:
        """Open a file of a job's result. Return None if there is none, or if it is a report that is not JSON.

        An open file can be read even if the job is removed meanwhile. Called in a thread, because a report can be
        large.
        """
        if name not in self.files(job_id):
            return None
        try:
            file = self.path(job_id, name).open("rb")
        except OSError:  # the job was removed, or the file
            return None
        if name != REPORT or job_id in self._readable:
            return file
        if not _is_json(file):
            file.close()
            log.warning("report of a job is not JSON job=%s", job_id)
            return None
        with self._lock:
            if job_id in self._load():
                self._readable.add(job_id)
        return file

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
        with self._lock:
            self._load()
            if self._folder is None:
                self._temporary = tempfile.TemporaryDirectory(prefix="babelgate-jobs-", ignore_cleanup_errors=True)
                self._folder = Path(self._temporary.name)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path(record.job).mkdir(mode=0o700)
        try:
            self.save(record)
        except OSError:
            self.remove(record.job)
            raise

    def show(self, record: JobRecord) -> None:
        """Replace a job in memory."""
        with self._lock:
            self._load()[record.job] = record

    def save(self, record: JobRecord) -> None:
        """Replace a job in memory and in its file. Raises OSError."""
        self.show(record)
        write_atomically(self.path(record.job, RECORD), msgspec.json.encode(record))

    def remove(self, job_id: str) -> None:
        """Remove an ended job and its files."""
        with self._lock:
            self._load().pop(job_id, None)
            self._sizes.pop(job_id, None)
            self._readable.discard(job_id)
        shutil.rmtree(self.path(job_id), ignore_errors=True)

    def measure(self, job_id: str) -> None:
        """Read the file sizes of a job that has ended. Raises OSError."""
        sizes = self._measure(job_id)
        with self._lock:
            if job_id in self._load():
                self._sizes[job_id] = sizes

    def prune(self) -> None:
        """Remove the oldest jobs that are too many or too large. The newest job stays. Raises OSError."""
        records = self.all()
        with self._lock:
            new = [record.job for record in records if record.has_ended and record.job not in self._sizes]
        for job_id in new:
            self.measure(job_id)
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
        for path in self._folder.glob(f"*/{RECORD}"):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=JobRecord)
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("job not read path=%s error=%s", path, error)
                continue
            if record.job != path.parent.name:
                continue
            self._records[record.job] = record
            try:
                self._sizes[record.job] = self._measure(record.job)
            except OSError as error:
                log.warning("files of a job not read job=%s error=%s", record.job, error)
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


def _is_json(file: BinaryIO) -> bool:
    """Return True if the content of a file is JSON. It is mapped and not copied into memory."""
    if os.fstat(file.fileno()).st_size == 0:
        return False
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            msgspec.json.decode(memoryview(content), type=msgspec.Raw)
        except msgspec.MsgspecError:
            return False
    return True
