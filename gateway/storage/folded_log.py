"""Reads of one run's log for display: each record as it is, or all deltas of one part joined into one record.

A run of 50,000 tokens has 50,000 records, but only a few joined ones. The log is read in pieces, so that a long run
neither occupies a reader thread for long nor fills the memory."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from babelgate.canonical.event import Event, PartDelta, Record
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Run
from babelgate.gateway.storage.short_form import lengthen, refer
from babelgate.gateway.storage.statements import sql_of

PIECE: Final = 8192
"""Maximum number of records that one query reads. Chosen: 30 ms of a reader thread."""
_Part = tuple[str | None, int | None]
"""Id of a message, and index of a part in it."""


@dataclass(slots=True)
class FoldedRecord:
    """One record of a log, or consecutive deltas of one part that are shown as one record."""

    record: Record
    """The record, or the first one of the deltas."""
    last_seq: int
    """Sequence number of the last joined record."""
    last_at: int
    """Time of the last joined record, in microseconds since 1970, UTC."""
    count: int = 1
    """Number of joined records."""
    texts: list[str] = field(default_factory=list[str])
    """Texts of the deltas, in order. Empty for any other event."""
    starts: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Groups of deltas with consecutive numbers and the same time. For each group: the index of its first text in
    `texts`, the sequence number of that delta, and the time in microseconds. Empty for any other event."""

    @classmethod
    def of(cls, record: Record) -> "FoldedRecord":
        if type(record.event) is not PartDelta:
            return cls(record, record.seq, record.at)
        return cls(record, record.seq, record.at, texts=[record.event.text], starts=[(0, record.seq, record.at)])

    def append(self, seq: int, at: int, text: str) -> None:
        """Join the next delta of the same part, given by its sequence number, its time and its text."""
        if seq != self.last_seq + 1 or at != self.last_at:
            self.starts.append((len(self.texts), seq, at))
        self.texts.append(text)
        self.count += 1
        self.last_seq, self.last_at = seq, at

    def extend(self, later: "FoldedRecord") -> None:
        """Join all deltas of a later `FoldedRecord` of the same part."""
        position = len(self.texts)
        self.starts += [(position + index, seq, at) for index, seq, at in later.starts]
        self.texts += later.texts
        self.count += later.count
        self.last_seq, self.last_at = later.last_seq, later.last_at

    def groups(self) -> Iterator[tuple[int, int, Sequence[str]]]:
        """Yield the first sequence number, the time and the texts of each group of deltas."""
        ends = [start for start, _, _ in self.starts[1:]]
        for (start, seq, at), end in zip(self.starts, [*ends, len(self.texts)], strict=False):
            yield seq, at, self.texts[start:end]

    def join(self) -> Record:
        """Return the first record with the texts of all deltas as its text. A record of another event is returned
        unchanged."""
        event = self.record.event
        if not isinstance(event, PartDelta) or self.count == 1:
            return self.record
        return self.record.replace(event=event.replace(text="".join(self.texts)))


class RecordFolder:
    """Collector of the records of a run, in order.

    With `folds`, the deltas of one part between two records of other events become one record, even if deltas of
    several parts alternate."""

    def __init__(self, *, folds: bool) -> None:
        self.records: list[FoldedRecord] = []
        self._folds = folds
        self._open: dict[_Part, FoldedRecord] = {}
        """Joined deltas that a further delta of the same part extends, by part. Any record of another event empties
        it."""
        self._last: FoldedRecord | None = None
        """Joined deltas of the part that the last added event belongs to. None if that was no delta."""
        self._head = b""
        """First bytes of the stored form of a delta of the part in `_last`, up to and including `"text":`."""

    def add(self, added: FoldedRecord) -> None:
        """Add the next record. A delta is joined to the open deltas of its part, if there are any."""
        event = added.record.event
        if not self._folds or type(event) is not PartDelta:
            self._open = {}
            self.records.append(added)
            return
        part = (event.message_id, event.index)
        earlier = self._open.get(part)
        if earlier is None:
            self._open[part] = added
            self.records.append(added)
            return
        earlier.extend(added)

    def has_extended(self, seq: int, at: int, body: bytes) -> bool:
        """Join a stored delta without decoding its JSON, and return True. Return False if it must be decoded and added.

        It is joined if it belongs to the same part as the previous delta, as most records of a long answer do. This
        takes a quarter of the time of decoding. Measured: 2026-11."""
        last = self._last
        if last is None or not body.startswith(self._head):
            return False
        text = body[len(self._head) : -1]
        # A text with an escape is decoded with its record. So is one that other members follow.
        if b"\\" in text or text.count(b'"') != 2 or text[-1:] != b'"':
            return False
        last.append(seq, at, text[1:-1].decode())
        return True

    def remember(self, event: Event, body: bytes) -> None:
        """Remember the part and the first stored bytes of the event that was just added, for `has_extended`."""
        self._last = None
        if self._folds and isinstance(event, PartDelta) and (start := body.find(_TEXT)) >= 0:
            self._last = self._open.get((event.message_id, event.index))
            self._head = body[: start + len(_TEXT)]


_TEXT: Final = b'"text":'
"""Last member name in the stored form of a delta. It cannot occur inside an earlier string, whose quotes are
escaped."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive records of a run that `read_piece` has read."""

    records: list[FoldedRecord]
    until: int
    """Sequence number of the thread up to which the log was read; the next piece continues after it."""
    size: int
    """Total stored size of the records that were read, in bytes."""


def read_piece(
    connection: Connection, pk: int, run: Run, after: int, until: int, *, limit: int, room: int, folds: bool
) -> LogPiece:
    """Return the records of a run with a sequence number above `after` and up to `until`, at most `after + PIECE`. With
    `folds`, deltas of one part are joined (`RecordFolder`).

    The piece ends before a record that would exceed `limit` joined records or `room` stored bytes. At least one record
    is read. If the thread was erased meanwhile, the piece is empty.
    """
    wanted = (pk, after, min(until, after + PIECE))
    references = {refer(run.run_id, run.first_seq), refer(run.run_id, None)}
    folder, last, size = RecordFolder(folds=folds), after, 0
    with closing(sql_of(connection.dialect).page.iterate(connection, wanted)) as rows:
        for seq, at, _, reference, attempt, body in rows:
            if reference in references:
                if size and size + len(body) > room:
                    break
                if folder.has_extended(seq, at, body):
                    size, last = size + len(body), seq
                    continue
                if len(folder.records) == limit:
                    break
                size += len(body)
                event = decode_event(lengthen(body))
                folder.add(FoldedRecord.of(Record(seq, at, run.task_id, run.run_id, attempt, event)))
                folder.remember(event, body)
            last = seq
    return LogPiece(folder.records, last, size)
