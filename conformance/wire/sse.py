"""Parser for server-sent events by the rules of the HTML standard. It keeps the raw text of each event.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator
from typing import Final

from babelgate.conformance.wire.exchange import SseFrame

_BOM: Final = "\ufeff"


class SseParser:
    """Incremental parser for a stream of server-sent events. It yields no comments and no events without data, as the
    standard requires."""

    def __init__(self) -> None:
        self._bytes = b""
        self._lines: list[str] = []
        self._is_first = True
        self.comments = 0

    def feed(self, content: bytes, at: float) -> Iterator[SseFrame]:
        """Yield the events that the next bytes of the stream complete. `at` is the time at which they arrived. Raises
        UnicodeDecodeError if the bytes are not UTF-8."""
        self._bytes += content
        while True:
            line = self._line()
            if line is None:
                return
            if line:
                self._lines.append(line)
            elif self._lines:
                frame = _frame(self._lines, at)
                self.comments += sum(1 for each in self._lines if each.startswith(":"))
                self._lines = []
                if frame is not None:
                    yield frame

    @property
    def rest(self) -> str:
        """Raw text of the incomplete event at the end of the bytes so far."""
        return "\n".join([*self._lines, self._bytes.decode(errors="backslashreplace")]).strip()

    def _line(self) -> str | None:
        ends = [at for at in (self._bytes.find(b"\n"), self._bytes.find(b"\r")) if at >= 0]
        if not ends:
            return None
        end = min(ends)
        width = 1
        if self._bytes[end : end + 1] == b"\r":
            if end + 1 == len(self._bytes):
                return None  # The line feed may still follow.
            width = 2 if self._bytes[end + 1 : end + 2] == b"\n" else 1
        line = self._bytes[:end].decode("utf-8")
        self._bytes = self._bytes[end + width :]
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        return line


def _frame(lines: list[str], at: float) -> SseFrame | None:
    data: list[str] = []
    event = id = ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            id = value
    return SseFrame(at, "\n".join(lines), "\n".join(data), event, id) if data else None
