"""Fan-out cache: the records of a task are encoded once for all who follow the same view of it.

Every reader is a cursor of its own on the log, so a slow one holds nobody up; and what a record becomes depends on the
records before it and on the view, not on who reads. So readers share a line: the first to come to a record encodes it,
the others find the bytes. A line keeps the newest records only: who has fallen behind encodes for itself until it has
caught up. It lives as long as somebody follows it.
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
SEEN: Final = AHEAD + 1
"""Records that a reader need have at hand of those that it has read when it joins: the newest."""


@dataclass(frozen=True, slots=True)
class FanoutLimits:
    """Of one line."""

    records: int = 1024
    bytes: int = 4 * 1024 * 1024
    alone: int = 32 * 1024
    """Maximum bytes while only the caller that started the run follows it. Chosen: such a run rarely has a second
    follower, and each of them would otherwise hold up to `bytes`."""
    ahead: int = AHEAD
    """Records by which it is brought up to a reader who is ahead of it; beyond that a new one begins."""


class EncodedRecord(msgspec.Struct, frozen=True):
    """What one record became."""

    frames: Sequence[Any]
    """Bytes, or what tells by `len` as how many bytes it counts."""
    stopped: bool = False
    """Whether what is shown stops with it, for now or for good."""


class Encoder(Protocol):
    """Fed with the records of a task in order; what it has read decides what the next one becomes."""

    def write(self, record: Record, /) -> EncodedRecord: ...

    def write_passage(self, passage: Sequence[Record], texts: Sequence[str], /) -> Sequence[bytes] | None:
        """A frame for each of its records. None where these have to be written one by one: then nothing is done."""


class _Line:
    __slots__ = ("__weakref__", "_encoder", "_kept", "_records", "_size", "most", "seq")

    def __init__(self, encoder: Encoder, seq: int, records: int, size: int) -> None:
        self.seq = seq
        """Of the newest record that the encoder has read."""
        self.most = size
        """Maximum bytes of what is kept."""
        self._encoder = encoder
        self._records = records
        self._kept: dict[int, EncodedRecord | bytes] = {}
        """By seq; of a record of a passage, its frame."""
        self._size = 0

    @property
    def oldest(self) -> int:
        """The seq of the oldest record that is kept."""
        return next(iter(self._kept), self.seq + 1)

    def get(self, record: Record) -> EncodedRecord | None:
        """None if it is kept no longer. Whoever asks has asked for, or was told of, all records before."""
        if record.seq <= self.seq:
            kept = self._kept.get(record.seq)
            return EncodedRecord((kept,)) if isinstance(kept, bytes) else kept
        told = self._encoder.write(record)
        self.seq = record.seq
        self._kept[record.seq] = told
        self._size += sum(map(len, told.frames))
        self._trim()
        return told

    def get_passage(self, passage: Sequence[Record], texts: Sequence[str]) -> Sequence[bytes] | None:
        """The frames of its records; None where these have to be asked for one by one."""
        if passage[0].seq <= self.seq:
            kept = [self._kept.get(record.seq) for record in passage]
            frames = [frame for frame in kept if isinstance(frame, bytes)]
            return frames if len(frames) == len(kept) else None
        written = self._encoder.write_passage(passage, texts)
        if written is not None:
            self.seq = passage[-1].seq
            self._kept.update(zip([record.seq for record in passage], written, strict=True))
            self._size += sum(map(len, written))
            self._trim()
        return written

    def _trim(self) -> None:
        surplus = len(self._kept) - self._records
        while surplus > 0 or (self._size > self.most and len(self._kept) > 1):
            # Several at once: the beginning of a dict is looked for behind all that was taken from it before.
            for seq in list(islice(self._kept, max(surplus, 1))):
                oldest = self._kept.pop(seq)
                self._size -= len(oldest) if isinstance(oldest, bytes) else sum(map(len, oldest.frames))
            surplus = 0


class Follower:
    """One reader on its line. Ask it for every record in turn."""

    def __init__(self, line: _Line, own: Encoder | None, again: Callable[[int], Awaitable[Encoder]]) -> None:
        self._line = line
        self._own = own
        """Where the line does not reach back to this reader."""
        self._again = again

    async def write_all(self, records: Sequence[Record]) -> list[tuple[Sequence[Record], EncodedRecord]]:
        """What each became, in order; those of a passage are told of together."""
        told: list[tuple[Sequence[Record], EncodedRecord]] = []
        for passage, texts in split_passages(records):
            frames = self._line.get_passage(passage, texts) if texts else None
            if frames is not None:
                self._own = None
            elif texts and self._own is not None and passage[-1].seq < self._line.oldest:
                frames = self._own.write_passage(passage, texts)
            if frames is None:
                told += [((record,), await self.write_record(record)) for record in passage]
            else:
                told.append((passage, EncodedRecord(frames)))
        return told

    async def write_record(self, record: Record) -> EncodedRecord:
        told = self._line.get(record)
        if told is not None:
            self._own = None
            return told
        if self._own is None:
            self._own = await self._again(record.seq)
        return self._own.write(record)


class FanoutCache:
    """The lines that are followed now."""

    def __init__(self, bounds: FanoutLimits | None = None) -> None:
        self._bounds = bounds or FanoutLimits()
        self._lines: WeakValueDictionary[Hashable, _Line] = WeakValueDictionary()

    def join(
        self,
        view: Hashable,
        encoder: Encoder,
        seen: Sequence[Record],
        again: Callable[[int], Awaitable[Encoder]],
        *,
        begins: int = 0,
        started_run: bool = False,
    ) -> Follower:
        """Follow a view from where `encoder` stands, which has read the records `seen`; they begin after the seq
        `begins`, for all who follow the view. `again` makes one that has read everything before a seq. `started_run`:
        the stream answers the request that started the run."""
        seq = seen[-1].seq if seen else begins
        line = self._lines.get(view)
        if line is not None and line.seq < seq:
            missing = [record for record in seen if record.seq > line.seq]
            if len(missing) <= self._bounds.ahead:
                for record in missing:
                    line.get(record)
            else:
                line = None
        if line is None:
            size = self._bounds.alone if started_run else self._bounds.bytes
            line = self._lines[view] = _Line(encoder, seq, self._bounds.records, size)
            return Follower(line, None, again)
        line.most = self._bounds.bytes
        return Follower(line, encoder, again)
