"""Receiver of OTLP (oteltap) for tests, and the traces that it gets."""

import json
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, Final

from tests.gateway.command import bound_socket
from tests.interop.peers import peer_python

KINDS: Final = {1: "internal", 2: "server", 3: "client"}
BOUND: Final = 30.0
"""Timeout for the next span, in seconds."""
ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SPAN: Final = "00f067aa0ba902b7"


class Tap:
    """Receiver of OTLP (oteltap), which prints each span as a line of JSON."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.variables = {
            ENDPOINT: f"http://127.0.0.1:{port}",
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        self._process = process
        self._lines: Queue[str | None] = Queue()
        self._spans: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert "Listening" in (self._next() or "")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _next(self) -> str | None:
        try:
            return self._lines.get(timeout=BOUND)
        except Empty:
            names = [
                (each["traceId"][:4], each["parentSpanId"][:4], each["spanId"][:4], each["name"])
                for each in self._spans
            ]
            raise AssertionError(f"no span in {BOUND} s; so far: {names}") from None

    def wait(self, trace: str, is_complete: Callable[["Trace"], bool]) -> "Trace":
        """Return the spans of a trace as soon as they are complete."""
        while True:
            found = Trace([each for each in self._spans if each["traceId"] == trace])
            if is_complete(found):
                return found
            line = self._next()
            assert line is not None, "the receiver has ended"
            if line.startswith("{"):
                self._spans.append(json.loads(line))


@dataclass
class Trace:
    """Spans of one trace."""

    spans: list[dict[str, Any]]

    def names(self) -> list[str]:
        return [each["name"] for each in self.spans]

    def named(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.spans if each["name"] == name]

    def draw(self, parent: str = SPAN, depth: int = 0) -> list[str]:
        """Return the tree of spans below a span, one line each."""
        lines: list[str] = []
        below = [each for each in self.spans if each["parentSpanId"] == parent]
        for each in sorted(below, key=lambda each: int(each["startTimeUnixNano"])):
            lines += [f"{'  ' * depth}{each['name']} ({KINDS[each['kind']]})", *self.draw(each["spanId"], depth + 1)]
        return lines

    @property
    def roots(self) -> list[str]:
        """Names of the spans whose parent is not in the trace."""
        ids = {each["spanId"] for each in self.spans}
        return [each["name"] for each in self.spans if each["parentSpanId"] not in ids]

    def path(self, span: dict[str, Any]) -> list[str]:
        """Return the names of a span and of the spans above it, top down."""
        by_id = {each["spanId"]: each for each in self.spans}
        names: list[str] = []
        above: dict[str, Any] | None = span
        while above is not None:
            names.insert(0, above["name"])
            above = by_id.get(above["parentSpanId"])
        return names


@contextmanager
def tapped() -> Generator[Tap]:
    with bound_socket() as reserved:
        port = reserved.getsockname()[1]
    command = [str(peer_python("oteltap")), "-u", "-m", "oteltap", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Tap(process, port)
    finally:
        process.terminate()
        process.wait(BOUND)
        assert process.stdout is not None
        process.stdout.close()
