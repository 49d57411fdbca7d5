"""Reads of one run's log for people: whole records, or the deltas of each part joined to one record.

A run of 50,000 tokens is 50,000 records, and a few folded ones. The log is read in pieces, so that a long run neither
occupies a reader for long nor fills the memory.
"""

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
"""Maximum number of records that one query reads. Chosen: 30 ms of a reader."""
_Part = tuple[str | None, int | None]
"""Id of a message, and index of a part in it."""


@dataclass(slots=True)
class FoldedRecord:
    """A record, or several deltas of one part."""

    record: Record
    """First record."""
    last_seq: int
    """Sequence number of the last record."""
    last_at: int
    """Time of the last record, in microseconds since 1970, UTC."""
    count: int = 1
    """Number of records."""
    texts: list[str] = field(default_factory=list[str])
    """Texts of all deltas. Empty for any other record."""
    starts: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Groups of deltas with consecutive sequence numbers and one time: the position of the first text of each group in
    `texts`, its sequence number, and the time. Empty for any other record."""

    @classmethod
    def of(cls, record: Record) -> "FoldedRecord":
        if type(record.event) is not PartDelta:
            return cls(record, record.seq, record.at)
        return cls(record, record.seq, record.at, texts=[record.event.text], starts=[(0, record.seq, record.at)])

    def append(self, seq: int, at: int, text: str) -> None:
        """Append the next delta of the part."""
        if seq != self.last_seq + 1 or at != self.last_at:
            self.starts.append((len(self.texts), seq, at))
        self.texts.append(text)
        self.count += 1
        self.last_seq, self.last_at = seq, at

    def extend(self, later: "FoldedRecord") -> None:
        """Append the deltas of a later record of the part."""
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
        """Return the first record with the text of all deltas."""
        event = self.record.event
        if not isinstance(event, PartDelta) or self.count == 1:
            return self.record
        return self.record.replace(event=event.replace(text="".join(self.texts)))


class RecordFolder:
    """Records in order. With `folds`, consecutive deltas are joined by part. Deltas of several parts may alternate."""

    def __init__(self, *, folds: bool) -> None:
        self.records: list[FoldedRecord] = []
        self._folds = folds
        self._open: dict[_Part, FoldedRecord] = {}
        """Deltas since the last record of another kind, by part."""
        self._last: FoldedRecord | None = None
        """Deltas that `has_extended` continues."""
        self._head = b""
        """Stored form of each of them up to its text."""

    def add(self, added: FoldedRecord) -> None:
        """Add the next record, or the next deltas of a part."""
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
        """Add a stored delta if it continues the part of the delta before, and return True if it does.

        Most records of a long answer do. This takes a quarter of the time of decoding the record: measured, 2026-11.
        """
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
        """Remember the stored form of the event that was added last, for `has_extended`."""
        self._last = None
        if self._folds and isinstance(event, PartDelta) and (start := body.find(_TEXT)) >= 0:
            self._last = self._open.get((event.message_id, event.index))
            self._head = body[: start + len(_TEXT)]


_TEXT: Final = b'"text":'
"""Name of the last member of a stored delta. In a string that is stored before it, the quotes would be escaped."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Piece of a run's log."""

    records: list[FoldedRecord]
    until: int
    """Sequence number up to which the log was read."""
    size: int
    """Size of the records that were read, in bytes as stored."""


def read_piece(
    connection: Connection, pk: int, run: Run, after: int, until: int, *, limit: int, room: int, folds: bool
) -> LogPiece:
    """Return the records of a run after one sequence number and up to another, at most `PIECE` numbers later.

    The piece ends before a record that would exceed `limit` records or, except for the first, `room` bytes. It ends
    where it began if the thread was erased meanwhile.
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
