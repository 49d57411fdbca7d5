"""Runner of jobs: executes one at a time in a child process, and has a queue of limited length."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from babelgate.canonical import FaultCode, FaultError, Principal
from babelgate.gateway.background import Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.console.job_command import JobEndpoint, at_server, command_of, through_gateway
from babelgate.gateway.console.job_order import Choices, JobOrder
from babelgate.gateway.console.job_record import JobProgress, JobRecord, JobStatus
from babelgate.gateway.console.job_result import collect_files, read_summary
from babelgate.gateway.console.job_store import REPORT, STOPPED, JobStore
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.ids import new_id
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.storage.audit import Act, ActTarget
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.console")

MAX_WAITING: Final = 10
"""Maximum number of queued jobs. Chosen."""
_JUDGED: Final = frozenset({0, 1, 3})
"""Exit codes with which a command has completed and written a report."""
_INTERRUPTED: Final = 3.0
"""Seconds after SIGINT until the processes of a command are killed. Chosen: a benchmark stops its own gateway in that
time."""
_LINE: Final = 64 * 2**10
"""Maximum length of a line that a command writes, in bytes. Chosen: the commands cut the text of progress at 200
characters."""
_ERROR: Final = 1000
"""Maximum length of a job's error text, in characters. Chosen."""
_NOT_STORED: Final = "this job is not stored, and is lost when the gateway stops:"
"""First words of the error of a job whose file cannot be written."""


@dataclass(slots=True)
class _Pending:
    """Queued or running job."""

    record: JobRecord
    choices: Choices
    principal: Principal
    base_url: str
    """URL of this process, at which the job calls the gateway."""
    process: Process | None = None
    ended_by: tuple[JobStatus, str | None] | None = None
    """Final status and error if the job was cancelled, timed out or stopped with the gateway; None otherwise."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class JobRunner:
    """Runner of the console's jobs in one gateway, one after the other."""

    def __init__(self, hub: GatewayHub, port: GatewayPort, store: JobStore, clock: Clock | None = None) -> None:
        self._hub = hub
        self._port = port
        self._store = store
        self._clock = clock or Clock()
        self._waiting: deque[_Pending] = deque()
        self._running: _Pending | None = None
        self._submitting = asyncio.Lock()
        self._tasks = Tasks()
        self._is_working = False
        self._is_stopped = False

    async def submit(self, order: JobOrder, choices: Choices, principal: Principal, base_url: str) -> JobRecord:
        """Record a new job in the audit log, add it to the queue and return it. `base_url` is the URL of this process.

        Raises queue_full, shutting_down, and unavailable if the job or its audit record cannot be stored.
        """
        async with self._submitting:  # so that the queue has its limit although the audit log takes a while
            self._check_room()
            record = JobRecord(
                job=new_id(),
                kind=order.kind,
                agents=order.agents,
                at=order.at,
                protocol=order.protocol,
                options=msgspec.to_builtins(choices),
                created_at=self._clock.now(),
                created_by=principal.subject,
            )
            try:
                self._store.add(record)
            except OSError as error:
                log.error("job not stored error=%s", error)
                raise FaultError(FaultCode.UNAVAILABLE, f"The job cannot be stored: {error.strerror}") from None
            try:
                await self.record_act("create", record)
                self._check_room()  # the gateway may stop meanwhile
            except BaseException:
                self._store.remove(record.job)
                raise
            self._hub.before_drain = self.stop
            self._waiting.append(_Pending(record, choices, principal, base_url))
        self._hub.changes.note_job(record.job, record.status)
        if not self._is_working:
            self._is_working = True
            self._tasks.spawn(self._work(), "jobs of the console")
        return record

    async def record_act(self, name: str, record: JobRecord) -> None:
        """Record in the audit log that the current caller acts on a job. `name` is the act: `create`, `cancel` or
        `delete`. Raises unavailable if the database cannot be written."""
        agents = ", ".join(record.agents)
        target = ActTarget("job", record.job, agent=record.agents[0] if len(record.agents) == 1 else "")
        act = Act(action=f"job.{name}", target=target, reason=f"{record.kind} of {agents} at the {record.at}")
        await self._hub.journal.write_audited(act, _change_nothing)

    def _check_room(self) -> None:
        """Check that a job can be added to the queue. Raises queue_full if too many jobs wait, and shutting_down."""
        if self._is_stopped or self._hub.is_stopping:
            raise FaultError(FaultCode.SHUTTING_DOWN, "The gateway is shutting down and starts no more jobs.")
        if len(self._waiting) >= MAX_WAITING:
            words = f"{MAX_WAITING} jobs are waiting: wait until one has ended, or cancel one"
            raise FaultError(FaultCode.QUEUE_FULL, words)

    async def cancel(self, job_id: str) -> JobRecord:
        """Cancel a queued or running job, and return it after its end. Raises not_found."""
        pending = self._running
        if pending is not None and pending.record.job == job_id:
            self._interrupt(pending, "cancelled", None)
            await pending.ended.wait()
            return pending.record
        for waiting in self._waiting:
            if waiting.record.job == job_id:
                self._waiting.remove(waiting)
                await self._finish(waiting, "cancelled", None)
                return waiting.record
        raise FaultError(FaultCode.NOT_FOUND, f"Job {job_id} has ended or is not here")

    async def stop(self) -> None:
        """End all jobs, because the gateway stops. They fail with a reason."""
        self._is_stopped = True
        while self._waiting:
            await self._finish(self._waiting.popleft(), "failed", STOPPED)
        if self._running is not None:
            self._interrupt(self._running, "failed", STOPPED)
        await self._tasks.drain(2 * _INTERRUPTED)
        await self._tasks.stop()
        self._store.close()

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._running = pending = self._waiting.popleft()
                try:
                    await self._run_and_finish(pending)
                finally:
                    self._running = None
                    _kill(pending.process)
                    pending.ended.set()
        finally:
            self._is_working = False

    async def _run_and_finish(self, pending: _Pending) -> None:
        try:
            await self._run(pending)
        except Exception as error:
            log.error("job failed job=%s", pending.record.job, exc_info=error)
            reason = "the gateway has failed to run it; its log has the reason"
            if isinstance(error, OSError):
                reason = f"the gateway could not run it: {error.strerror or error}"
            await self._finish(pending, *(pending.ended_by or ("failed", reason)))

    async def _run(self, pending: _Pending) -> None:
        record = pending.record
        self._change(pending, status="running", started_at=self._clock.now())
        key = self._issue_key(pending)
        try:
            endpoints = self._endpoints(pending, key)
            folder = self._store.path(record.job)
            command = command_of(record, pending.choices, endpoints, folder)
            command.write_config(folder)
            pending.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "babelgate.gateway.console.job_process", *command.arguments),
                cwd=folder,
                env=dict(command.environment),
                stdin=PIPE,  # it ends with this process, and so does the job
                stdout=DEVNULL,
                stderr=PIPE,
                start_new_session=True,
            )
            lines = await self._follow(pending, pending.process)
        except FaultError as error:  # the agent is gone, or has no server any more
            await self._finish(pending, "failed", error.fault.message)
            return
        finally:
            if key is not None:
                self._port.revoke_key(key)
        await self._conclude(pending, pending.process, lines)

    def _issue_key(self, pending: _Pending) -> str | None:
        """Return a temporary API key with the rights of the job's caller. Return None if the job does not call the
        gateway, or needs no key."""
        if pending.record.at != "gateway" or not self._port.settings().has_credentials:
            return None
        until = self._clock.now() / 1e6 + pending.choices.max_seconds + _INTERRUPTED
        return self._port.issue_key(pending.principal, until)

    def _endpoints(self, pending: _Pending, key: str | None) -> Sequence[JobEndpoint]:
        """Return the endpoints at which the job calls its agents. Raises not_found for an agent that no longer exists,
        and invalid for one without a server that the job can call."""
        record = pending.record
        if record.at == "server":
            return [at_server(self._hub.registry.get(name)) for name in record.agents]
        tls = self._port.settings().tls
        return [through_gateway(pending.base_url, name, record.protocol, key, tls) for name in record.agents]

    async def _follow(self, pending: _Pending, process: Process) -> Sequence[str]:
        """Publish the progress that a command writes to stderr until it has ended. Return the last ten other lines.

        A command that exceeds its time limit is interrupted.
        """
        assert process.stderr is not None
        lines: deque[str] = deque(maxlen=10)
        if pending.ended_by is not None:  # it was cancelled before the process started
            self._interrupt(pending, *pending.ended_by)
        try:
            async with asyncio.timeout(pending.choices.max_seconds):
                await self._read(pending, process.stderr, lines.append)
                await process.wait()
        except TimeoutError:
            words = f"not finished after {pending.choices.max_seconds:g} s, the limit options.max_seconds"
            self._interrupt(pending, "failed", words)
            await process.wait()
        return lines

    async def _read(self, pending: _Pending, stream: asyncio.StreamReader, add_line: Callable[[str], Any]) -> None:
        rest = b""
        while chunk := await stream.read(_LINE):
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[-_LINE:]
            for line in whole:
                try:
                    progress = msgspec.json.decode(line, type=JobProgress)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    add_line(line.decode(errors="replace")[:_ERROR])
                else:
                    self._show(pending, progress)

    def _show(self, pending: _Pending, progress: JobProgress) -> None:
        pending.record = msgspec.structs.replace(pending.record, progress=progress)
        self._store.show(pending.record)
        self._hub.changes.note_job(pending.record.job, pending.record.status)

    async def _conclude(self, pending: _Pending, process: Process, lines: Sequence[str]) -> None:
        """Store the result of a job whose command has ended. `lines` are the last lines of its stderr, for the error
        text."""
        folder, kind = self._store.path(pending.record.job), pending.record.kind
        await asyncio.to_thread(collect_files, kind, folder)
        if pending.ended_by is not None:
            await self._finish(pending, *pending.ended_by)
            return
        if process.returncode in _JUDGED and (folder / REPORT).is_file():
            try:
                summary = await asyncio.to_thread(read_summary, kind, folder)
            except (OSError, msgspec.MsgspecError) as error:
                await self._finish(pending, "failed", f"its report cannot be read: {error}")
                return
            self._change(pending, summary={**summary, "exit_code": process.returncode})
            await self._finish(pending, "done", None)
            return
        text = "\n".join(line.removeprefix("babelgate: ") for line in lines).strip()
        await self._finish(pending, "failed", text[-_ERROR:] or f"the command ended with status {process.returncode}")

    def _interrupt(self, pending: _Pending, status: JobStatus, error: str | None) -> None:
        """Send SIGINT to the command of a job, and kill its processes if it does not end. The job then gets this status
        and error."""
        if pending.ended_by is None:
            pending.ended_by = (status, error)
        process = pending.process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            asyncio.get_running_loop().call_later(_INTERRUPTED, _kill, process)

    def _change(self, pending: _Pending, **members: Any) -> None:
        """Change members of a job's record, and store it. If it cannot be stored, the job continues, and its error says
        so."""
        before, pending.record = pending.record, msgspec.structs.replace(pending.record, **members)
        try:
            self._store.save(pending.record)
        except OSError as error:
            log.warning("job not stored job=%s error=%s", pending.record.job, error)
            words = f"{_NOT_STORED} {error.strerror or error}"
            why = pending.record.error
            text = words if why is None or why.startswith(_NOT_STORED) else f"{why}; {words}"
            pending.record = msgspec.structs.replace(pending.record, error=text)
            self._store.show(pending.record)
        if before.status != pending.record.status:
            self._hub.changes.note_job(pending.record.job, pending.record.status)

    async def _finish(self, pending: _Pending, status: JobStatus, error: str | None) -> None:
        """Store the end of a job. A full disk or a missing folder is only logged."""
        ended_at = self._clock.now()
        try:
            # Before anybody reads that it has ended.
            await self._use_files(pending, self._store.measure, pending.record.job)
            self._change(pending, status=status, error=error, ended_at=ended_at)
            await self._use_files(pending, self._store.prune)
            log.info("job ended job=%s kind=%s status=%s", pending.record.job, pending.record.kind, status)
        finally:
            pending.ended.set()

    async def _use_files(self, pending: _Pending, act: Callable[..., None], *arguments: str) -> None:
        """Call a function that uses files, in a thread. Log its OSError."""
        try:
            await asyncio.to_thread(act, *arguments)
        except OSError as error:
            log.warning("files of jobs not read or removed job=%s error=%s", pending.record.job, error)


def _change_nothing(tx: Transaction) -> bool:
    """Do nothing in the transaction that records an act, because jobs are not in the database."""
    return True


def _kill(process: Process | None) -> None:
    """Kill the process group of a command, if it has not ended."""
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
