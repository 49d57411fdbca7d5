"""Console API for jobs: checks, comparisons of protocols and benchmarks, which operators start."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from litestar import Response
from litestar.params import FromPath
from litestar.response import Stream

from babelgate.adapters.kit.request import AnyRequest
from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.console.gate import need_operator, server_of
from babelgate.gateway.console.job_command import at_server
from babelgate.gateway.console.job_order import read_order
from babelgate.gateway.console.job_record import JobRecord, encode_job
from babelgate.gateway.console.job_runner import JobRunner
from babelgate.gateway.console.job_store import HTML, JUNIT, REPORT, JobStore
from babelgate.gateway.console.parameters import Parameters, encode_page, read_id
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.port import GatewayPort
from babelgate.gateway.settings.model import Settings

_KINDS: Final = ("check", "across", "bench")
_OFF: Final = "Jobs are off: set console.jobs: true in the settings."
_WORKERS: Final = (
    "A gateway with several workers runs no jobs, because each request may reach another worker. Use babelgate check "
    "and babelgate bench on the command line."
)
_FILE_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    "Cache-Control": "no-store",
}
"""Headers of responses with a report. Reports contain texts of agents, so no browser may run them in the origin of the
gateway."""
_CHUNK: Final = 256 * 2**10
"""Number of bytes of a file that are read at a time. Chosen."""
_ANY: Final = frozenset({"0.0.0.0", "::", ""})


def has_jobs(settings: Settings) -> bool:
    """Return True if the settings let operators start jobs: `console.jobs` is on, and there is one worker."""
    return settings.console.jobs and settings.workers == 1


def jobs_folder(settings: Settings) -> Path | None:
    """Return the folder of the jobs, next to the SQLite database. Return None for PostgreSQL."""
    is_file = settings.database.startswith("sqlite:")
    return settings.database_path.with_suffix(".jobs").absolute() if is_file else None


class JobHandlers(Handlers):
    """HTTP handlers of the console for jobs. All are for operators."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._port = port
        self.store = JobStore(lambda: jobs_folder(port.settings()))
        """Store of the jobs that this process has started."""
        self._runner = JobRunner(hub, port, self.store)

    async def create_job(self, request: AnyRequest) -> Response[Any]:
        """Queue a job. Raises forbidden if the caller is no operator or jobs are off, not_found for an unknown agent,
        and the faults of `read_order` and `JobRunner.submit`."""
        self._check(request)
        order, choices = await read_order(request)
        principal = caller(request).principal
        for name in order.agents:
            info = self._guarded_hub.agent(principal, name)
            if order.at == "server":
                at_server(self._hub.registry.get(info.name))
        record = await self._runner.submit(order, choices, principal, _own_url(request, self._port.settings()))
        return json_response({"job": record.job}, status=202)

    async def list_jobs(self, request: AnyRequest) -> Response[Any]:
        """List the jobs, the newest one first. Raises forbidden if the caller is no operator or jobs are off, and
        invalid for a wrong query parameter."""
        self._check(request)
        parameters = Parameters(request, "kind", "after", "limit")
        kind, after, limit = parameters.text("kind"), parameters.cursor(), parameters.limit()
        if kind is not None and kind not in _KINDS:
            words = f"kind: expected one of {', '.join(_KINDS)}, got {kind[:40]!r}"
            raise FaultError(FaultCode.INVALID, words)
        records = [record for record in self.store.all() if kind in (None, record.kind)]
        left = [record for record in records if after is None or record.cursor < after]
        items = [self._encode(record) for record in left[:limit]]
        return json_response(encode_page(items, left[limit - 1].cursor if len(left) > limit else None))

    async def get_job(self, request: AnyRequest, job_id: FromPath[str]) -> Response[Any]:
        """Return a job with the report of its command. Raises forbidden if the caller is no operator or jobs are off,
        and not_found."""
        record = self._find(request, job_id)
        file = await asyncio.to_thread(self.store.open_file, record.job, REPORT)
        body = msgspec.json.encode(self._encode(record))
        if file is None:
            return Response(body[:-1] + b',"result":null}', media_type="application/json")
        return _stream(file, {}, "application/json", before=body[:-1] + b',"result":', after=b"}")

    async def get_html(self, request: AnyRequest, job_id: FromPath[str]) -> Response[Any]:
        """Return the report as one HTML page, to be saved. Raises forbidden if the caller is no operator or jobs are
        off, and not_found."""
        return await self._file(request, job_id, HTML, "text/html")

    async def get_junit(self, request: AnyRequest, job_id: FromPath[str]) -> Response[Any]:
        """Return the report as JUnit XML. Raises forbidden if the caller is no operator or jobs are off, and
        not_found."""
        return await self._file(request, job_id, JUNIT, "application/xml")

    async def delete_job(self, request: AnyRequest, job_id: FromPath[str]) -> Response[Any]:
        """Cancel a job, or remove one that has ended. Raises forbidden if the caller is no operator or jobs are off,
        not_found, and unavailable if the act cannot be recorded in the audit log."""
        record = self._find(request, job_id)
        await self._runner.record_act("delete" if record.has_ended else "cancel", record)
        if not record.has_ended:
            return json_response(self._encode(await self._runner.cancel(record.job)))
        self.store.remove(record.job)
        self._hub.changes.note_job(record.job, "removed")
        return json_response({**self._encode(record), "status": "removed"})

    def _check(self, request: AnyRequest) -> None:
        """Check that the caller is an operator and that jobs can be started. Raises forbidden if one of them does not
        hold."""
        need_operator(request)
        settings = self._port.settings()
        if not has_jobs(settings):
            raise FaultError(FaultCode.FORBIDDEN, _OFF if not settings.console.jobs else _WORKERS)

    def _find(self, request: AnyRequest, job_id: str) -> JobRecord:
        self._check(request)
        record = self.store.find(read_id(job_id, "Job"))
        if record is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Job {job_id} not found")
        return record

    def _encode(self, record: JobRecord) -> JsonObject:
        return encode_job(record, self.store.files(record.job))

    async def _file(self, request: AnyRequest, job_id: str, name: str, media_type: str) -> Response[Any]:
        record = self._find(request, job_id)
        file = await asyncio.to_thread(self.store.open_file, record.job, name)
        if file is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Job {job_id} has no {name}: it is {record.status}")
        filename = f"{record.kind}-{'-'.join(record.agents)[:60]}-{record.job[:8]}.{name.partition('.')[2]}"
        headers = {**_FILE_HEADERS, "Content-Disposition": f'attachment; filename="{filename}"'}
        return _stream(file, headers, media_type)


def _stream(
    file: BinaryIO, headers: Mapping[str, str], media_type: str, *, before: bytes = b"", after: bytes = b""
) -> Stream:
    """Return a streamed response with the content of a file between the texts `before` and `after`. The file is closed
    afterwards."""
    size = os.fstat(file.fileno()).st_size

    async def chunks() -> AsyncGenerator[bytes]:
        with file:
            yield before
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                yield chunk
            yield after

    length = {"Content-Length": str(len(before) + size + len(after))}
    return Stream(chunks(), headers={**headers, **length}, media_type=media_type)


def _own_url(request: AnyRequest, settings: Settings) -> str:
    """Return the URL at which this process serves the protocols, for jobs that call it. Raises invalid if it listens on
    no TCP port."""
    host, port = server_of(request)
    if port is None:
        raise FaultError(FaultCode.INVALID, "at: this gateway listens on no TCP port; use at: server")
    if settings.host in _ANY:
        host = "::1" if ":" in host and "." not in host else "127.0.0.1"
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
