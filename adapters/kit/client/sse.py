"""Parser of Server-Sent Events, for the streams of agents' servers."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from babelgate.adapters.kit.client.answers import ANSWER_LIMIT
from babelgate.canonical import FaultCode, FaultError


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of an event stream, with the fields of the specification (HTML, section 9.2.6)."""

    data: bytes
    event: str = "message"
    id: str = ""
    """The most recent id of the stream, from this or an earlier event."""


class LineSplitter:
    """Converter from chunks of bytes to whole lines. LF, CRLF and CR end a line. A chunk may end within a line."""

    def __init__(self, limit: int = ANSWER_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that a chunk completes. Raises agent_invalid for a line above the limit."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            return
        self._after_cr = chunk.endswith(b"\r")
        for line in chunk.splitlines(keepends=True):
            if len(self._rest) + len(line) > self._limit:
                raise _too_long(self._limit)
            if not line.endswith((b"\n", b"\r")):
                self._rest += line
                return
            whole = line.rstrip(b"\r\n")
            if self._rest:
                whole = bytes(self._rest) + whole
                self._rest.clear()
            yield whole


class Frames:
    """Converter from chunks of bytes to frames. An incomplete frame at the end of the stream is dropped, as the
    specification requires."""

    def __init__(self, limit: int = ANSWER_LIMIT) -> None:
        self._lines = LineSplitter(limit)
        self._limit = limit
        self._data: bytes | bytearray | None = None
        """Data of the current event. It becomes a bytearray only if there are several lines."""
        self._size = 0
        """Size of the data lines as received, in bytes."""
        self._event = ""
        self._id = ""
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that a chunk completes. Raises agent_invalid for a frame above the limit."""
        for line in self._lines.feed(chunk):
            if self._first:
                line = line.removeprefix(b"\xef\xbb\xbf")
                self._first = False
            if line:
                self._field(line)
                continue
            data, event = self._data, self._event
            self._data, self._event, self._size = None, "", 0
            if data is not None:
                yield Frame(bytes(data), event or "message", self._id)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._size += len(line)
                if self._size > self._limit:
                    raise _too_long(self._limit)
                if self._data is None:
                    self._data = value
                else:
                    self._data = bytearray(self._data) if isinstance(self._data, bytes) else self._data
                    self._data += b"\n" + value
            case b"event":
                self._event = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case _:  # a comment has an empty name; `retry` and unknown fields are ignored
                pass

    def all(self, chunks: Iterable[bytes]) -> list[Frame]:
        """Return all frames of the chunks. Raises agent_invalid for a frame above the limit."""
        return [frame for chunk in chunks for frame in self.feed(chunk)]


def _too_long(limit: int) -> FaultError:
    return FaultError(FaultCode.AGENT_INVALID, f"An event of the agent's stream is larger than {limit} bytes.")
