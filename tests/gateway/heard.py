"""What is logged while something runs, at every level and by everybody."""

import logging
from collections.abc import Generator
from contextlib import contextmanager


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def text(self) -> str:
        """As it would stand in a file, tracebacks and all."""
        return "\n".join(self.format(record) for record in self.records)

    def of(self, name: str) -> list[str]:
        """The messages of one logger."""
        return [record.getMessage() for record in self.records if record.name == name]

    @property
    def errors(self) -> list[str]:
        return [self.format(record) for record in self.records if record.levelno >= logging.ERROR]


@contextmanager
def hearing(level: int = logging.INFO) -> Generator[Heard]:
    heard, root = Heard(), logging.getLogger()
    before = root.level
    root.addHandler(heard)
    root.setLevel(level)
    try:
        yield heard
    finally:
        root.setLevel(before)
        root.removeHandler(heard)
