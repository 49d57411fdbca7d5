"""Logging to stderr, safe from log injection: each record is one line.

Records contain text of callers, agents and servers. All records pass through this module, which escapes characters that
would end a line or move a terminal's cursor. An indented line belongs to the record above it.
"""

import json
import logging
import sys
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Final, TextIO

from babelgate.canonical.printable import printable
from babelgate.gateway.observe import REQUEST
from babelgate.gateway.telemetry.json_lines import JsonFormatter, make_span_finder

_INDENT: Final = "  "
_CALLERS: Final = frozenset(
    {"ASGI callable returned without completing handshake.", "Invalid UTF-8 sequence received from client."}
)
"""Messages in uvicorn's log about errors of callers: a WebSocket was refused, or received invalid text. They are not
logged."""

DELAY: Final = 0.1
"""Maximum seconds that a line waits to be written together with others. Chosen."""
_LINES: Final = 512
_LINE_LENGTH: Final = 16 * 1024
"""Maximum length of one line, in characters. Chosen: journald cuts lines at 48 KiB, Docker at 16 KiB."""

HIDDEN: Final = "***"
"""Text that replaces a secret."""
_SHORTEST: Final = 4
"""Minimum length of a secret that is hidden, in characters. Chosen: a shorter one would also hide other words."""

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
"""Format of lines that are text and not JSON."""

log = logging.getLogger("babelgate")


class HidingFormatter(logging.Formatter):
    """Formatter that hides secrets in the lines of another formatter."""

    secrets: tuple[str, ...] = ()
    """Texts to hide in all lines, the longest first, because a shorter one may be a part of a longer one."""

    def __init__(self, inner: logging.Formatter) -> None:
        """Create the formatter. `inner` formats the lines."""
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        line = self._inner.format(record)
        for secret in HidingFormatter.secrets:
            if secret in line:
                line = line.replace(secret, HIDDEN)
        return line


def hide_in_log(secrets: Iterable[str]) -> None:
    """Hide these texts in all further log lines of this process, instead of those of an earlier call."""
    # A line escapes some characters: those that would end the line, and then those of JSON.
    texts = {form for each in secrets for form in (each, printable(each, _LINE_LENGTH))}
    forms = {form for each in texts for form in (each, json.dumps(each, ensure_ascii=False)[1:-1])}
    HidingFormatter.secrets = tuple(sorted((form for form in forms if len(form) >= _SHORTEST), key=len, reverse=True))


class LineFormatter(logging.Formatter):
    """Formatter that puts each record on one line, and the lines of a traceback below it, indented."""

    def __init__(self, form: str = _TEXT, *, is_traced: bool = False) -> None:
        """Create the formatter. `form` is the format of a line. With `is_traced`, lines end with the id of the current
        trace."""
        super().__init__(form)
        self._find_span = make_span_finder() if is_traced else None

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = printable(super().formatMessage(record), _LINE_LENGTH)
        if self._find_span is None:
            return line
        span, request = self._find_span(), REQUEST.get()
        trace_id = span[0] if span is not None else "" if request is None else request.trace_id
        return f"{line} trace={trace_id}" if trace_id else line

    def formatException(self, ei: Any) -> str:
        return _below(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _below(super().formatStack(stack_info))


def _below(text: str) -> str:
    return "\n".join(f"{_INDENT}{printable(line, _LINE_LENGTH)}" for line in text.split("\n"))


class BufferedHandler(logging.StreamHandler[TextIO]):
    """Handler that writes lines in batches. To write the line of each request separately would release the
    interpreter's lock each time, and a busy gateway waits to get it back.

    A line is written at most `DELAY` seconds after it was logged. A warning or an error is written at once, with all
    lines before it. Lines that a killed process (SIGKILL) had not written are lost.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._waiting = threading.Event()
        self._ended = threading.Event()
        self._flusher: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.append(self.format(record))
            if record.levelno >= logging.WARNING or len(self._lines) >= _LINES:
                self.flush()
            elif not self._waiting.is_set():
                self._waiting.set()
                if self._flusher is None:
                    self._flusher = threading.Thread(target=self._flush_forever, name="babelgate-log", daemon=True)
                    self._flusher.start()
        except Exception:  # like all handlers of the standard library: a failure to log must not stop the program
            self.handleError(record)

    def flush(self) -> None:
        with self.lock or nullcontext():
            if self._lines:
                text = self.terminator.join((*self._lines, ""))
                self._lines.clear()
                self.stream.write(text)
            super().flush()

    def close(self) -> None:
        self._ended.set()
        self._waiting.set()
        super().close()

    def _flush_forever(self) -> None:
        while not self._ended.is_set():
            self._waiting.wait()
            self._ended.wait(DELAY)
            self._waiting.clear()  # first: a line that arrives meanwhile is written now, or wakes this thread again
            try:
                self.flush()
            except (OSError, ValueError):  # the reader is gone, or the stream is closed
                self._lines.clear()


def set_up_logging(
    level: str, *, buffered: bool = True, is_json: bool = False, node: str | None = None, is_traced: bool = False
) -> None:
    """Log the gateway's own lines from this level on, and the warnings of libraries. The last call determines the
    level.

    With `buffered`, a thread writes the lines in batches. With `is_json` each line is a JSON object, with the `node` if
    it is set. With `is_traced` lines have the id of the current trace.
    """
    handler = BufferedHandler(sys.stderr) if buffered else logging.StreamHandler(sys.stderr)
    formatter = JsonFormatter(node, is_traced=is_traced) if is_json else LineFormatter(is_traced=is_traced)
    handler.setFormatter(HidingFormatter(formatter))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if level == "debug" else logging.WARNING)
    log.setLevel(level.upper())
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg not in _CALLERS)
    for library in ("httpx", "httpcore"):  # they log whole URLs and headers, which may hold callers' secrets
        logging.getLogger(library).setLevel(logging.WARNING)
    _log_the_rest()


def _log_the_rest() -> None:
    """Send messages that Python itself would print to stderr through the log, such as warnings and unhandled
    exceptions. Each line of the text becomes a log line."""
    logging.captureWarnings(True)
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable


def _thread_failed(failure: "threading.ExceptHookArgs") -> None:
    name = failure.thread.name if failure.thread else "unknown"
    if failure.exc_type is not SystemExit:  # a thread may end itself in this way
        log.error("Exception in thread %s", name, exc_info=failure.exc_value)


def _unraisable(failure: "sys.UnraisableHookArgs") -> None:
    log.error("%s: %r", failure.err_msg or "Exception ignored in", failure.object, exc_info=failure.exc_value)
