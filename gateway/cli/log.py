"""Logging to stderr, safe from log injection: a record is a line.

Its texts come from callers, agents and servers. What in them would end a line, or move a terminal's cursor, is escaped
here, in the one place where all records pass; what is indented goes on with the record above.
"""

import logging
import sys
import threading
from typing import Any, Final

_INDENT: Final = "  "
_CALLERS: Final = frozenset(
    {"ASGI callable returned without completing handshake.", "Invalid UTF-8 sequence received from client."}
)
"""What uvicorn logs as errors of its own, and is what callers do: a WebSocket was refused, or told what is no text."""

log = logging.getLogger("babelgate")


def one_line(text: str) -> str:
    """With control characters, separators of lines and marks of direction escaped as in Python: `\\n`, `\\x1b`,
    `\\u2028`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class LineFormatter(logging.Formatter):
    """A line a record. The lines of a traceback stand below it, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return _below(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _below(super().formatStack(stack_info))


def _below(text: str) -> str:
    return "\n".join(f"{_INDENT}{one_line(line)}" for line in text.split("\n"))


def set_up_logging(level: str) -> None:
    """Our own lines at the level that was asked for; of the libraries, what goes wrong."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if level == "debug" else logging.WARNING)
    log.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg not in _CALLERS)
    for library in ("httpx", "httpcore"):  # they log whole URLs and headers, which may hold callers' secrets
        logging.getLogger(library).setLevel(logging.WARNING)
    _log_the_rest()


def _log_the_rest() -> None:
    """What Python itself would print to stderr, in as many lines as the text has."""
    logging.captureWarnings(True)
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable


def _thread_failed(failure: "threading.ExceptHookArgs") -> None:
    name = failure.thread.name if failure.thread else "unknown"
    if failure.exc_type is not SystemExit:  # how a thread may end itself
        log.error("Exception in thread %s", name, exc_info=failure.exc_value)


def _unraisable(failure: "sys.UnraisableHookArgs") -> None:
    log.error("%s: %r", failure.err_msg or "Exception ignored in", failure.object, exc_info=failure.exc_value)
