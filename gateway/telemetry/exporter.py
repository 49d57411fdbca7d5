"""Exporter of traces: the OpenTelemetry SDK, which sends spans by OTLP over HTTP.

The SDK reads its standard environment variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER` and others. Only `gateway/telemetry/process.py` imports this module, in each worker process after
the fork, because the SDK starts a thread."""

import logging
import os
import threading
from importlib.metadata import version
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio, Sampler

from babelgate.gateway.telemetry.traces import Traces

log = logging.getLogger("babelgate")

_RATIO: Final = 0.1
"""Share of traces that are sampled if `OTEL_TRACES_SAMPLER` is not set. Chosen."""
_STOP_TIMEOUT: Final = 3.0
"""Maximum seconds for sending the last spans at shutdown. Chosen."""


class TraceExporter:
    """OpenTelemetry SDK of this process: it collects spans and sends them in batches."""

    def __init__(self, node: str | None, *, has_content: bool) -> None:
        """Start the SDK. `node` is the name of this node of a cluster, or None for a single gateway.

        With `has_content`, spans contain the text of messages and the arguments and results of tools."""
        named = {} if node is None else {"service.instance.id": node}
        resource = Resource.create({"service.version": version("babelgate"), **named})
        if os.environ.get("OTEL_SERVICE_NAME") is None and _is_unnamed(resource):
            resource = resource.merge(Resource({SERVICE_NAME: "babelgate"}))
        self._provider = TracerProvider(_sampler(), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(self._provider)  # agents in Python may create spans, too
        self.traces = Traces(self._provider.get_tracer("babelgate", version("babelgate")), has_content=has_content)

    def stop(self) -> None:
        """Send the last spans, and stop waiting after `_STOP_TIMEOUT` seconds, because the SDK has no timeout for
        this."""
        sender = threading.Thread(target=self._provider.shutdown, name="babelgate-traces", daemon=True)
        sender.start()
        sender.join(_STOP_TIMEOUT)
        if sender.is_alive():
            log.warning("last spans not sent in time seconds=%g", _STOP_TIMEOUT)


def _sampler() -> Sampler | None:
    """Return a sampler for `_RATIO` of the traces, or None if `OTEL_TRACES_SAMPLER` is set and the SDK creates the
    sampler."""
    return None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(_RATIO)


def _is_unnamed(resource: Resource) -> bool:
    return str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
