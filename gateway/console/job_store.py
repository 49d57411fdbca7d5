"""Store of the console's jobs: one folder for each job, next to the database. Ended jobs survive a restart of the
gateway."""

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
"""Names of the files in a job's result. Not every kind of job has all of them."""
STOPPED: Final = "the gateway stopped"
"""Error of a job that was queued or running when the gateway stopped."""
MAX_JOBS: Final = 100
"""Maximum number of stored jobs; the oldest are removed. Chosen."""
MAX_BYTES: Final = 512 * 2**20
"""Maximum total size of all stored jobs' files, in bytes. Chosen: a check of four protocols with all messages takes 14
MB (measured, 2026-11)."""
_MAX_CHECKS: Final = 3
"""Maximum number of finished checks that the console shows with an agent. Chosen."""
RECORD: Final = "job.json"
"""Name of the file with the record of a job, in the job's folder."""


class JobStore:
    """Store of this gateway's jobs: records in memory and in files, and files of results.

    Any thread may use it. The lock protects the memory, and is never held while a result is read or removed.
    """

    def __init__(self, find_folder: Callable[[], Path | None], *, max_bytes: int = MAX_BYTES) -> None:
        """Create the store. `find_folder` is called at the first use. It returns the folder of the jobs, or None to
        store them in a temporary folder until the gateway stops."""
        self._find_folder = find_folder
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.RLock()
        self._records: dict[str, JobRecord] | None = None
        self._sizes: dict[str, dict[str, int]] = {}
        """Sizes of the result files of each job in bytes, by job id and file name."""
        self._readable: set[str] = set()
        """Ids of the jobs whose report is known to be JSON."""

    def all(self) -> Sequence[JobRecord]:
        """Return all jobs, the newest one first."""
        with self._lock:
            records = list(self._load().values())
        return sorted(records, key=lambda record: record.cursor, reverse=True)

    def find(self, job_id: str) -> JobRecord | None:
        with self._lock:
            return self._load().get(job_id)

    def files(self, job_id: str) -> Mapping[str, int]:
        """Return the sizes of the files in a job's result in bytes, by file name."""
        with self._lock:
            return self._sizes.get(job_id, {})

    def path(self, job_id: str, name: str = "") -> Path:
        """Return the path of a file in a job's folder, or of the folder if `name` is empty."""
        assert self._folder is not None
        return self._folder / job_id / name

    def open_file(self, job_id: str, name: str) -> BinaryIO | None:
        """Open a file of a job's result. Return None if it does not exist, or if it is a report that is not JSON.

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
        """Return the three newest finished checks of an agent, as the API shows them."""
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
        """Add a job and create its folder. Raises OSError if its files cannot be written."""
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
        """Replace the record of a job in memory, but not in its file."""
        with self._lock:
            self._load()[record.job] = record

    def save(self, record: JobRecord) -> None:
        """Replace the record of a job in memory and in its file. Raises OSError if its files cannot be written."""
        self.show(record)
        write_atomically(self.path(record.job, RECORD), msgspec.json.encode(record))

    def remove(self, job_id: str) -> None:
        """Remove a job and all its files."""
        with self._lock:
            self._load().pop(job_id, None)
            self._sizes.pop(job_id, None)
            self._readable.discard(job_id)
        shutil.rmtree(self.path(job_id), ignore_errors=True)

    def measure(self, job_id: str) -> None:
        """Read the sizes of a job's result files into memory. Raises OSError if its folder cannot be read."""
        sizes = self._measure(job_id)
        with self._lock:
            if job_id in self._load():
                self._sizes[job_id] = sizes

    def prune(self) -> None:
        """Remove the oldest ended jobs that exceed the maximum number or total size. The newest job stays. Raises
        OSError if a folder cannot be removed."""
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
        """Remove the temporary folder, if the jobs are stored in one."""
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
        """Mark a job as failed that was queued or running when an earlier gateway process ended."""
        ended = msgspec.structs.replace(record, status="failed", error=STOPPED)
        self.show(ended)
        try:
            self.save(ended)
        except OSError as error:
            log.warning("job not stored job=%s error=%s", record.job, error)


def _is_json(file: BinaryIO) -> bool:
    """Return True if the content of a file is JSON. The file is mapped into memory and not copied."""
    if os.fstat(file.fileno()).st_size == 0:
        return False
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        try:
            msgspec.json.decode(memoryview(content), type=msgspec.Raw)
        except msgspec.MsgspecError:
            return False
    return True
