"""Capture of the log records of all loggers during a block."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


class LogCapture(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        """The records as they would be in a log file, with tracebacks."""
        return "\n".join(self.format(record) for record in self.records)

    def of(self, name: str) -> list[str]:
        """Return the messages of one logger."""
        return [record.getMessage() for record in self.records if record.name == name]

    @property
    def errors(self) -> list[str]:
        return [self.format(record) for record in self.records if record.levelno >= logging.ERROR]


@contextmanager
def capture_log(level: int = logging.INFO) -> Generator[LogCapture]:
    capture, root = LogCapture(), logging.getLogger()
    before = root.level
    root.addHandler(capture)
    root.setLevel(level)
    try:
        yield capture
    finally:
        root.setLevel(before)
        root.removeHandler(capture)
