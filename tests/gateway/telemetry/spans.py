"""Spans of gateways in the test's process."""

import asyncio
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.trace import format_span_id, format_trace_id

from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.telemetry.traces import Traces
from tests.bridge import BOUND

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1", "baggage": "color=blue"}
"""Headers with the trace context that a caller sends."""


class _Kept(InMemorySpanExporter):
    """Exporter that reports new spans, which end in the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.news = asyncio.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.news.set()
        return super().export(spans)


class Spans(GatewayObserver):
    """Observer whose spans are kept in memory."""

    def __init__(self, *, has_content: bool = False, sampler: Sampler = DEFAULT_ON) -> None:
        self._kept = _Kept()
        provider = TracerProvider(sampler)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.traces = Traces(provider.get_tracer("test"), has_content=has_content)

    @property
    def ended(self) -> list["Ended"]:
        """Spans that have ended, in this order."""
        return [Ended(each) for each in self._kept.get_finished_spans()]

    async def wait_for(self, name: str) -> "Ended":
        """Wait until a span with a name has ended, and return it."""
        async with asyncio.timeout(BOUND):
            while not self.named(name):
                self._kept.news.clear()
                await self._kept.news.wait()
        return self.named(name)[0]

    def named(self, name: str) -> list["Ended"]:
        """Return the spans with a name."""
        return [each for each in self.ended if each.name == name]

    def one(self, name: str) -> "Ended":
        """Return the only span with a name."""
        found = self.named(name)
        assert len(found) == 1, f"{name}: {len(found)} of {[each.name for each in self.ended]}"
        return found[0]


class Ended:
    """A span that has ended, with its ids as text."""

    def __init__(self, span: ReadableSpan) -> None:
        assert span.context is not None
        self.name = span.name
        self.kind = span.kind.name
        self.trace = format_trace_id(span.context.trace_id)
        self.id = format_span_id(span.context.span_id)
        self.parent = None if span.parent is None else format_span_id(span.parent.span_id)
        self.links = [format_span_id(link.context.span_id) for link in span.links]
        self.attributes: dict[str, Any] = dict(span.attributes or {})
        self.has_failed = not span.status.is_ok and not span.status.is_unset
