"""Log lines as JSON: one object per line, with the ids of the request and the run during which the line was written."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from babelgate.canonical.fault import Fault, FaultError
from babelgate.canonical.printable import printable
from babelgate.gateway.observe import REQUEST, RUN, RequestContext

_LENGTH: Final = 16 * 1024
"""Maximum length of a message or a stack in a log line, in characters. Chosen: Docker splits lines at 16 KiB."""
_FAULT_DETAILS: Final = ("status", "body", "reason", "retry_after")
"""Names of the details of a fault that a line shows: the response of an agent's server. The client of the server has
redacted and shortened their values."""
_CALL: Final = ("trace_id", "span_id", "owner", "subject", "credential", "protocol", "operation", "agent")
"""Names of the request's fields in each line that was written during the request."""
REQUESTS: Final = "babelgate.request"
"""Name of the logger for access lines. Only these lines contain the status and duration of the request."""


class JsonFormatter(logging.Formatter):
    """Formatter that writes each record as one JSON object. Fields without a value are omitted."""

    def __init__(self, node: str | None = None, *, is_traced: bool = False) -> None:
        """Create the formatter. `node` is the name of this node for every line, or None to omit it.

        With `is_traced`, lines contain the trace id and span id of the current span."""
        super().__init__()
        self._find_span = make_span_finder() if is_traced else None
        self._node = node
        self._encoder = msgspec.json.Encoder(enc_hook=str)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage(), _LENGTH),
        }
        if self._node is not None:
            line["node"] = self._node
        _add_context(line, record)
        if self._find_span is not None and (ids := self._find_span()) is not None:
            line["trace_id"], line["span_id"] = ids
        fault = _fault_of(record)
        if fault is not None:
            line["fault"] = _describe_fault(fault)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)[-_LENGTH:]
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)[-_LENGTH:]
        # A surrogate, as in the name of a file, is not UTF-8.
        return self._encoder.encode(_encodable(line)).decode()


def make_span_finder() -> Callable[[], tuple[str, str] | None]:
    """Return a function that returns the trace id and span id of the current span in hex, or None if there is no span.

    The span may also be one that an agent in this process has started."""
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    def find_ids() -> tuple[str, str] | None:
        context = get_current_span().get_span_context()
        return (format_trace_id(context.trace_id), format_span_id(context.span_id)) if context.is_valid else None

    return find_ids


def _add_context(line: dict[str, Any], record: logging.LogRecord) -> None:
    request, run = REQUEST.get(), RUN.get()
    if request is not None:
        line["request_id"] = request.request_id
        _add(line, request, _CALL)
        _add(line, request, ("thread", "task", "run"))
        if record.name == REQUESTS:
            _add(line, request, ("status", "duration_ms"))
    if run is not None:
        line |= run._asdict()


def _add(line: dict[str, Any], request: RequestContext, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(request, name)
        if value:
            line[name] = value


def _fault_of(record: logging.LogRecord) -> Fault | None:
    """Return the fault that a log record reports: its `extra={"fault": …}`, or the fault of its exception.

    Return None if there is no fault."""
    fault = getattr(record, "fault", None)
    if isinstance(fault, Fault):
        return fault
    error = record.exc_info[1] if record.exc_info else None
    return error.fault if isinstance(error, FaultError) else None


def _describe_fault(fault: Fault) -> Mapping[str, Any]:
    details = {name: fault.details[name] for name in _FAULT_DETAILS if name in fault.details}
    return {"code": str(fault.code), "message": printable(fault.message, _LENGTH), **details}


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _encodable(each) for name, each in cast("dict[str, Any]", value).items()}
    return value
