"""Exporter of traces: the SDK of OpenTelemetry, which sends spans by OTLP over HTTP.

The SDK reads its standard variables: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER` and
others. Only `gateway/telemetry/process.py` imports this module, in each worker after the fork: the SDK has a thread.
"""

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
"""Seconds that the last spans have to be sent. Chosen, not measured."""


class TraceExporter:
    """Sender of this process's spans."""

    def __init__(self, node: str | None, *, has_content: bool) -> None:
        """Start the exporter. `node` is the name of this node of a cluster; None for a single gateway. `has_content`
        adds the content of messages and tool calls to the spans."""
        named = {} if node is None else {"service.instance.id": node}
        resource = Resource.create({"service.version": version("babelgate"), **named})
        if os.environ.get("OTEL_SERVICE_NAME") is None and _is_unnamed(resource):
            resource = resource.merge(Resource({SERVICE_NAME: "babelgate"}))
        self._provider = TracerProvider(_sampler(), resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(self._provider)  # agents in Python may create spans, too
        self.traces = Traces(self._provider.get_tracer("babelgate", version("babelgate")), has_content=has_content)

    def stop(self) -> None:
        """Send the last spans. The SDK has no time limit for this."""
        sender = threading.Thread(target=self._provider.shutdown, name="babelgate-traces", daemon=True)
        sender.start()
        sender.join(_STOP_TIMEOUT)
        if sender.is_alive():
            log.warning("last spans not sent in time seconds=%g", _STOP_TIMEOUT)


def _sampler() -> Sampler | None:
    """Return the sampler, or None if the variable of the SDK decides."""
    return None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(_RATIO)


def _is_unnamed(resource: Resource) -> bool:
    return str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
