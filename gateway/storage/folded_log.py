"""Reads of one run's log for people: whole records, or the deltas of each part joined to one record.

A run of 50,000 tokens is 50,000 records, and a few folded ones. The log is read in pieces, so that a long run neither
occupies a reader for long nor fills the memory.
"""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import msgspec
from sqlalchemy import Connection

from babelgate.canonical.event import Event, PartDelta, Record
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Run
from babelgate.gateway.storage.short_form import beginnings, lengthen, refer
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

    @classmethod
    def of(cls, record: Record) -> "FoldedRecord":
        texts = [record.event.text] if type(record.event) is PartDelta else []
        return cls(record, record.seq, record.at, texts=texts)

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
        """First bytes of their stored forms."""
        self._index: int | None = None

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
        earlier.count += added.count
        earlier.last_seq, earlier.last_at = added.last_seq, added.last_at
        earlier.texts += added.texts

    def has_extended(self, seq: int, at: int, body: bytes) -> bool:
        """Add a stored delta if it continues the part of the delta before, and return True if it does.

        Most records of a long answer do. This takes a third of the time of decoding the record.
        """
        last = self._last
        if last is None or not body.startswith(self._head):
            return False
        try:
            delta = _DELTA.decode(b"{" + body[_HEAD + 1 :])
        except msgspec.DecodeError:
            return False
        if delta.index != self._index:
            return False
        last.count += 1
        last.last_seq, last.last_at = seq, at
        last.texts.append(delta.text)
        return True

    def remember(self, event: Event, body: bytes) -> None:
        """Remember the stored form of the event that was added last, for `has_extended`."""
        self._last = None
        if self._folds and body[:1] == _CODE and isinstance(event, PartDelta):
            self._last = self._open.get((event.message_id, event.index))
            self._head, self._index = body[:_HEAD], event.index


class _Delta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Members of a stored delta after its message id."""

    text: str
    index: int | None = None


_DELTA: Final = msgspec.json.Decoder(_Delta)
_CODE: Final = beginnings("part_delta")[1]
"""First byte of a stored delta whose message has a UUID."""
_HEAD: Final = 17
"""Bytes that a message's kind and UUID take in the stored form."""


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
