"""Fan-out cache: the records of a task are encoded once for all readers of the same view.

Every reader is a separate cursor on the log, so a slow reader delays no other. The encoding of a record depends on the
earlier records and on the view, but not on the reader. So the readers of a view share a line: an encoder, and the
encoded form of the newest records. The first reader of a record encodes it, and the others get the cached bytes. A
reader that has fallen behind encodes for itself until it has caught up. A line exists as long as it has a reader.
"""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from babelgate.adapters.kit.server.passages import split_passages
from babelgate.canonical import Record

AHEAD: Final = 256
"""Default of `FanoutLimits.ahead`. Chosen."""
PAST_RECORDS: Final = AHEAD + 1
"""Number of the newest past records that a caller of `FanoutCache.join` must pass."""


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """Limits of one line: the records that it caches for its readers. Chosen."""

    records: int = 1024
    """Maximum number of encoded records that a line caches."""
    bytes: int = 4 * 1024 * 1024
    """Maximum size of the encoded records that a line caches, in bytes."""
    single_reader_bytes: int = 32 * 1024
    """Maximum size while the caller that started the run is the only reader of the line, in bytes. Chosen: most runs
    never get a second reader, and each would otherwise hold up to `bytes`."""
    ahead: int = AHEAD
    """Maximum number of records that a line encodes to reach the position of a reader that joins. If it is further
    behind, a new line begins."""


class EncodedRecord(msgspec.Struct, frozen=True):
    """The encoded form of one record, or of the records of one passage, in one view."""

    frames: Sequence[Any]
    """Frames to send, in order: bytes, or objects whose `len` is their size in bytes."""
    stopped: bool = False
    """True if the stream of the view ends with this record, because its run or task has ended or waits."""


class Encoder(Protocol):
    """Encoder of a task's records for one view. The records must be passed in order, because the earlier ones determine
    the result."""

    def write(self, record: Record, /) -> EncodedRecord:
        """Return the encoded form of the next record."""
        ...

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str], /) -> Sequence[bytes] | None:
        """Return one frame for each record of a passage: consecutive text deltas of one part, whose texts are `texts`.
        Return None, and change nothing, if these records must be encoded one by one."""


class _Line:
    """Cache of the encoded records of one view, with the encoder that continues them."""

    __slots__ = ("__weakref__", "_cached", "_encoder", "_records", "_size", "most", "seq")

    def __init__(self, encoder: Encoder, seq: int, records: int, size: int) -> None:
        self.seq = seq
        """Seq of the newest record that the encoder has read."""
        self.most = size
        """Maximum size of the cached frames, in bytes."""
        self._encoder = encoder
        self._records = records
        self._cached: dict[int, EncodedRecord | bytes] = {}
        """Encoded records by seq. For a record of a passage (consecutive text deltas), the value is its frame."""
        self._size = 0

    @property
    def oldest(self) -> int:
        """Seq of the oldest cached record."""
        return next(iter(self._cached), self.seq + 1)

    def get(self, record: Record) -> EncodedRecord | None:
        """Return a record's encoded form from the cache, or encode the record if it is newer than all before. Return
        None if it is no longer cached. All earlier records must have been requested."""
        if record.seq <= self.seq:
            cached = self._cached.get(record.seq)
            return EncodedRecord((cached,)) if isinstance(cached, bytes) else cached
        encoded = self._encoder.write(record)
        self.seq = record.seq
        self._cached[record.seq] = encoded
        self._size += sum(map(len, encoded.frames))
        self._trim()
        return encoded

    def get_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        """Return the frames of a passage (consecutive text deltas), from the cache or newly encoded. Return None if its
        records must be requested one by one with `get`."""
        if passage[0].seq <= self.seq:
            cached = [self._cached.get(record.seq) for record in passage]
            frames = [frame for frame in cached if isinstance(frame, bytes)]
            return frames if len(frames) == len(cached) else None
        written = self._encoder.write_passage(passage, texts)
        if written is not None:
            self.seq = passage[-1].seq
            self._cached.update(zip([record.seq for record in passage], written, strict=True))
            self._size += sum(map(len, written))
            self._trim()
        return written

    def _trim(self) -> None:
        surplus = len(self._cached) - self._records
        while surplus > 0 or (self._size > self.most and len(self._cached) > 1):
            # Remove several at once: the beginning of a dict is found by skipping all entries that were removed before.
            for seq in list(islice(self._cached, max(surplus, 1))):
                oldest = self._cached.pop(seq)
                self._size -= len(oldest) if isinstance(oldest, bytes) else sum(map(len, oldest.frames))
            surplus = 0


class Follower:
    """One reader of a line, at its own position. It must request every record in order."""

    def __init__(self, line: _Line, encoder: Encoder | None, rebuild: Callable[[int], Awaitable[Encoder]]) -> None:
        self._line = line
        self._encoder = encoder
        """Encoder for this reader alone, used while the reader is older than the oldest record that the line caches."""
        self._rebuild = rebuild

    async def write_all(self, records: Sequence[Record]) -> list[tuple[Sequence[Record], EncodedRecord]]:
        """Return the records in order, each with its encoded form. The records of a passage (consecutive text deltas)
        are one group, with one encoded form."""
        encoded: list[tuple[Sequence[Record], EncodedRecord]] = []
        for passage, texts in split_passages(records):
            frames = self._line.get_passage(passage, texts) if texts else None
            if frames is not None:
                self._encoder = None
            elif texts and self._encoder is not None and passage[-1].seq < self._line.oldest:
                frames = self._encoder.write_passage(passage, texts)
            if frames is None:
                encoded += [((record,), await self.write_record(record)) for record in passage]
            else:
                encoded.append((passage, EncodedRecord(frames)))
        return encoded

    async def write_record(self, record: Record) -> EncodedRecord:
        """Return the encoded form of the next record."""
        encoded = self._line.get(record)
        if encoded is not None:
            self._encoder = None
            return encoded
        if self._encoder is None:
            self._encoder = await self._rebuild(record.seq)
        return self._encoder.write(record)


class FanoutCache:
    """Registry of the lines that have readers, by view."""

    def __init__(self, limits: FanoutLimits | None = None) -> None:
        self._limits = limits or FanoutLimits()
        self._lines: WeakValueDictionary[Hashable, _Line] = WeakValueDictionary()

    def join(
        self,
        view: Hashable,
        encoder: Encoder,
        past: Sequence[Record],
        rebuild: Callable[[int], Awaitable[Encoder]],
        *,
        begins: int = 0,
        started_run: bool = False,
    ) -> Follower:
        """Return a follower of a view that continues after the records `past`, which `encoder` has read.

        - `past` begins after the seq `begins`, which is the same for all readers of the view.
        - `rebuild` returns an encoder that has read all records before a seq.
        - `started_run` is True if the stream is the response to the request that started the run.
        """
        seq = past[-1].seq if past else begins
        line = self._lines.get(view)
        if line is not None and line.seq < seq:
            missing = [record for record in past if record.seq > line.seq]
            if len(missing) <= self._limits.ahead:
                for record in missing:
                    line.get(record)
            else:
                line = None
        if line is None:
            size = self._limits.single_reader_bytes if started_run else self._limits.bytes
            line = self._lines[view] = _Line(encoder, seq, self._limits.records, size)
            return Follower(line, None, rebuild)
        line.most = self._limits.bytes
        return Follower(line, encoder, rebuild)
