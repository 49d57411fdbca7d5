"""Log lines as JSON: one object per line, with the request and the run during which the line was written."""

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from babelgate.canonical.fault import Fault, FaultError
from babelgate.canonical.printable import printable
from babelgate.gateway.observe import REQUEST, RUN, RequestContext

_LENGTH: Final = 16 * 1024
"""Maximum characters of a message or a stack, as of a line of text. Chosen: Docker cuts lines at 16 KiB."""
_FAULT_DETAILS: Final = ("status", "body", "reason", "retry_after")
"""Details of a fault in a line: what the server of an agent answered. Its client has redacted and cut them."""
_CALL: Final = ("trace_id", "span_id", "owner", "subject", "credential", "protocol", "operation", "agent")
"""Fields of a request in every line that was written during it."""
REQUESTS: Final = "babelgate.request"
"""Logger of the access lines, which have the status and the duration."""


class JsonFormatter(logging.Formatter):
    """Formatter that writes each record as one JSON object. Fields without a value are omitted."""

    def __init__(self, node: str | None = None, *, is_traced: bool = False) -> None:
        """Create the formatter. `node` is the name of this node in every line; None omits it. With `is_traced`, lines
        name the current span."""
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
    """Return a function that returns the ids of the current span, which may be one of an agent in this process."""
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
    """Return the fault of a line: its `extra={"fault": …}`, or that of the exception that it reports. Return None
    without a fault."""
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
