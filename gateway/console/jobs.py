"""Jobs of the console: checks, comparisons of protocols and benchmarks, which operators start."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from litestar import Response
from litestar.params import FromPath
from litestar.response import File

from babelgate.adapters.kit.server.caller import caller
from babelgate.adapters.kit.server.encoding import json_response
from babelgate.adapters.kit.server.handlers import Handlers
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import JsonObject
from babelgate.gateway.access.guard import GuardedHub
from babelgate.gateway.console.gate import need_operator
from babelgate.gateway.console.job_command import at_server
from babelgate.gateway.console.job_order import read_order
from babelgate.gateway.console.job_record import JobRecord, encode_job
from babelgate.gateway.console.job_runner import JobRunner
from babelgate.gateway.console.job_store import HTML, JUNIT, REPORT, JobStore
from babelgate.gateway.console.parameters import AnyRequest, Parameters, encode_page, read_id
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
"""Headers of reports. They contain texts of agents, so no browser may run them in the origin of the gateway."""
_ANY: Final = frozenset({"0.0.0.0", "::", ""})


def has_jobs(settings: Settings) -> bool:
    """Return True if operators can start jobs."""
    return settings.console.jobs and settings.workers == 1


def jobs_folder(settings: Settings) -> Path | None:
    """Return the folder of the jobs, next to the SQLite database. PostgreSQL has none."""
    is_file = settings.database.startswith("sqlite:")
    return settings.database_path.with_suffix(".jobs").absolute() if is_file else None


class JobHandlers(Handlers):
    """Handlers of jobs. All are for operators."""

    def __init__(self, hub: GatewayHub, guarded_hub: GuardedHub, port: GatewayPort) -> None:
        self._hub = hub
        self._guarded_hub = guarded_hub
        self._port = port
        self.store = JobStore(lambda: jobs_folder(port.settings()))
        """Jobs of this process."""
        self._runner = JobRunner(hub, port, self.store)

    async def create_job(self, request: AnyRequest) -> Response[Any]:
        """Queue a job. Raises forbidden, invalid, not_found, queue_full, shutting_down, too_large, unavailable."""
        self._check(request)
        order, choices = await read_order(request)
        principal = caller(request).principal
        for name in order.agents:
            info = self._guarded_hub.agent(principal, name)
            if order.at == "server":
                at_server(self._hub.registry.get(info.name))
        record = self._runner.submit(order, choices, principal, _own_url(request, self._port.settings()))
        return json_response({"job": record.job}, status=202)

    async def list_jobs(self, request: AnyRequest) -> Response[Any]:
        """List the jobs, the newest one first. Raises forbidden, invalid."""
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
        """Return a job with the report of its command. Raises forbidden, not_found."""
        record = self._find(request, job_id)
        body = msgspec.json.encode(self._encode(record))
        if REPORT not in self.store.files(record.job):
            return Response(body[:-1] + b',"result":null}', media_type="application/json")
        # The report may have some MB. It is JSON already, and is sent unread.
        report = await asyncio.to_thread(self.store.path(record.job, REPORT).read_bytes)
        return Response(b'%b,"result":%b}' % (body[:-1], report.strip()), media_type="application/json")

    async def get_html(self, request: AnyRequest, job_id: FromPath[str]) -> File:
        """Return the report as one HTML page, to be saved. Raises forbidden, not_found."""
        return self._file(request, job_id, HTML, "text/html")

    async def get_junit(self, request: AnyRequest, job_id: FromPath[str]) -> File:
        """Return the report as JUnit XML. Raises forbidden, not_found."""
        return self._file(request, job_id, JUNIT, "application/xml")

    async def delete_job(self, request: AnyRequest, job_id: FromPath[str]) -> Response[Any]:
        """Cancel a job, or remove one that has ended. Raises forbidden, not_found."""
        record = self._find(request, job_id)
        if not record.has_ended:
            return json_response(self._encode(await self._runner.cancel(record.job)))
        self.store.remove(record.job)
        self._hub.changes.note_job(record.job, "removed")
        return json_response({**self._encode(record), "status": "removed"})

    def _check(self, request: AnyRequest) -> None:
        """Raise an error for a caller who may not use jobs. Raises forbidden."""
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

    def _file(self, request: AnyRequest, job_id: str, name: str, media_type: str) -> File:
        record = self._find(request, job_id)
        if name not in self.store.files(record.job):
            raise FaultError(FaultCode.NOT_FOUND, f"Job {job_id} has no {name}: it is {record.status}")
        filename = f"{record.kind}-{'-'.join(record.agents)[:60]}-{record.job[:8]}.{name.partition('.')[2]}"
        return File(
            self.store.path(record.job, name),
            filename=filename,
            media_type=media_type,
            content_disposition_type="attachment",
            headers=_FILE_HEADERS,
        )


def _own_url(request: AnyRequest, settings: Settings) -> str:
    """Return the URL of this process: the address on which it got a request. Raises invalid for a socket without
    one."""
    scope = cast("Mapping[str, Any]", request.scope)
    host, port = cast("tuple[str, int | None]", scope.get("server") or ("", None))
    if port is None:
        raise FaultError(FaultCode.INVALID, "at: this gateway listens on no TCP port; use at: server")
    if settings.host in _ANY:
        host = "::1" if ":" in host and "." not in host else "127.0.0.1"
    scheme = "http" if settings.tls is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
