"""Reads of single turns of a thread. A turn is a run, or a message that a caller added outside of runs.

The turns of a page are found and read without reading the rest of the log."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, false, or_, select

from babelgate.canonical.event import MessageStarted, Record, StateSaved
from babelgate.canonical.hub import Turn
from babelgate.canonical.state import ENDED
from babelgate.canonical.stored import decode_event
from babelgate.gateway.storage.log_key import IN_ORDER, is_in_log, newest_seq
from babelgate.gateway.storage.log_pages import decode_records
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, lengthen, refer
from babelgate.gateway.storage.statements import Position, of_kind, table_of
from babelgate.gateway.storage.tables import EventRow, RunRow, TaskRow

_TASK, _RUN, _EVENT = table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_COLUMNS: Final = (_EVENT.c.seq, _EVENT.c.at, _EVENT.c.task_id, _EVENT.c.run_id, _EVENT.c.attempt, _EVENT.c.body)
_OF_NO_RUN: Final = (_EVENT.c.run_id.is_(None), _EVENT.c.task_id.is_(None))
_SPAN: Final = 8192
"""Maximum number of records that the turns of one page may have together. The first turn may have more. Chosen."""
_MOST_RECORDS: Final = 128
"""Maximum number of records that one query reads. Chosen: several readers may hold as many each."""
_ROOM: Final = 64 * 1024
"""Maximum stored size of the records that one query reads, in bytes. Chosen: several readers may hold as much each."""
_ENDED: Final = frozenset(map(str, ENDED))
_CALL: Final = b'"kind":"tool_call"'
_FORGETS: Final = b'"forgets":['


_OF_MESSAGE: Final = ("part_added", "part_delta", "part_ended", "message_ended")
_IS_MESSAGE: Final = (*_OF_NO_RUN, of_kind("message_started"))
_MATTERS_IN_OTHER_RUNS: Final = of_kind("interrupt_raised", "interrupt_answered", "part_added")


def find_turns(connection: Connection, pk: int, *, limit: int, beyond: int | None, descending: bool) -> Sequence[Turn]:
    """Return one page of the turns of a thread, as `babelgate.canonical.hub.Reads.turns` specifies."""
    runs = _find_runs(connection, pk, limit, beyond, descending=descending)
    last = runs[-1].seq if len(runs) == limit else None
    messages = _find_messages(connection, pk, limit, beyond, last, descending=descending)
    turns = sorted((*runs, *messages), key=lambda turn: turn.seq, reverse=descending)[:limit]
    reach = accumulate(max(0, (turn.until or turn.seq) - turn.seq) for turn in turns)
    return [
        turn for place, (turn, records) in enumerate(zip(turns, reach, strict=True)) if not place or records <= _SPAN
    ]


def _beyond(column: ColumnElement[int], beyond: int | None, *, descending: bool) -> list[ColumnElement[bool]]:
    if beyond is None:
        return []
    return [column < beyond if descending else column > beyond]


def _find_runs(connection: Connection, pk: int, limit: int, beyond: int | None, *, descending: bool) -> list[Turn]:
    seq = _RUN.c.first_seq
    selected = (
        select(seq, _RUN.c.last_seq, _RUN.c.status, _RUN.c.run_id, _RUN.c.task_id)
        .where(_RUN.c.thread_pk == pk, _RUN.c.removed == false(), *_beyond(seq, beyond, descending=descending))
        .order_by(seq.desc() if descending else seq)
        .limit(limit)
    )
    return [
        Turn(seq=first, until=last if status in _ENDED else None, run_id=run_id, task_id=task_id)
        for first, last, status, run_id, task_id in connection.execute(selected)
    ]


def _find_messages(
    connection: Connection, pk: int, limit: int, beyond: int | None, last: int | None, *, descending: bool
) -> list[Turn]:
    """Return up to `limit` messages outside of runs as turns, in the order of `find_turns`.

    `beyond` and `last` are sequence numbers between which the messages must begin. None means no bound."""
    newest, oldest = (beyond, last) if descending else (last, beyond)
    here = is_in_log(pk, after=oldest, until=None if newest is None else newest - 1)
    selected = select(_EVENT.c.seq, _EVENT.c.body).where(here, *_IS_MESSAGE)
    turns: list[Turn] = []
    for first, event in _messages(connection, selected.order_by(IN_ORDER.desc() if descending else IN_ORDER)):
        turns.append(Turn(seq=first, until=first, message_id=event.message_id))
        if len(turns) == limit:
            break
    return turns


def _messages(connection: Connection, wanted: Select[int, bytes]) -> Iterator[tuple[int, MessageStarted]]:
    with closing(connection.execute(stream_rows(wanted))) as rows:
        for seq, body in rows:
            event = decode_event(lengthen(body))
            if isinstance(event, MessageStarted):
                yield seq, event


def _end_of_message(connection: Connection, pk: int, seq: int) -> int:
    """Return the sequence number of the last record of a message outside of runs that begins at `seq`.

    All records of such a message are committed together, so they are consecutive."""
    other = or_(_EVENT.c.run_id.is_not(None), _EVENT.c.task_id.is_not(None), ~of_kind(*_OF_MESSAGE))
    end = select(_EVENT.c.seq - 1).where(is_in_log(pk, after=seq), other).order_by(IN_ORDER).limit(1)
    last = connection.execute(end).scalar()
    if last is None:
        last = connection.execute(select(newest_seq(pk))).scalar()
    return seq if last is None else last


@dataclass(frozen=True, slots=True)
class TurnRecords:
    """Description of the records that are needed to show some turns of a thread."""

    first: int
    """Sequence number of the first needed record."""
    until: int | None
    """Sequence number of the last record of the runs among the turns. None if one of them is active: up to the end of
    the log."""
    runs: frozenset[str | None]
    """Texts by which rows of the log may refer to the runs: their ids and short references."""
    tasks: frozenset[str | None]
    """Texts by which rows of the log may refer to the tasks of the runs: their ids and short references."""
    tasks_begun: frozenset[int]
    """Sequence numbers of the records that created the tasks of the runs."""
    message_ranges: Sequence[tuple[int, int]]
    """Ranges of sequence numbers, first and last, that contain the messages outside of runs: those of the turns, and
    later ones that replace them."""

    def where(self, pk: int, after: int) -> ColumnElement[bool]:
        """Return the SQL condition for the needed records of the thread with a sequence number above `after`.

        It may select a few more: `has_row` excludes them."""
        spans = [and_(_EVENT.c.seq >= first, _EVENT.c.seq <= last) for first, last in self.message_ranges]
        of_tasks = and_(_EVENT.c.task_id.in_(self.tasks), _MATTERS_IN_OTHER_RUNS)
        of_runs = or_(_EVENT.c.run_id.in_(self.runs), _EVENT.c.seq.in_(self.tasks_begun), of_tasks)
        # The outer bounds of all ranges, so that the database scans no further.
        until = None
        if self.until is not None:
            of_runs = and_(of_runs, _EVENT.c.seq <= self.until)
            until = max(self.until, *(last for _, last in self.message_ranges), 0)
        within = is_in_log(pk, after=max(after, self.first - 1), until=until)
        return and_(within, or_(of_runs, *(and_(*_OF_NO_RUN, span) for span in spans)))

    def has_row(self, row: Any) -> bool:
        """Return True if a row that meets the SQL condition is really needed.

        Of the parts that belong to other runs of the same tasks, only tool calls are needed."""
        if row.run_id in self.runs or row.seq in self.tasks_begun or row.task_id is None:
            return True
        return not row.body.startswith(_PARTS) or _CALL in row.body


_PARTS: Final = beginnings("part_added")


def find_records(connection: Connection, pk: int, owner: str, turns: Sequence[Turn]) -> TurnRecords:
    task_ids = {turn.task_id for turn in turns if turn.task_id is not None}
    selected = select(_TASK.c.task_id, _TASK.c.first_seq).where(_TASK.c.owner == owner, _TASK.c.task_id.in_(task_ids))
    tasks = {row.task_id: row.first_seq for row in connection.execute(selected.where(_TASK.c.thread_pk == pk))}
    runs = [turn for turn in turns if turn.run_id is not None]
    is_running = any(turn.until is None for turn in runs)
    return TurnRecords(
        first=min((*tasks.values(), *(turn.seq for turn in turns))),
        until=None if is_running else max((turn.until or 0 for turn in runs), default=0),
        runs=frozenset(refer(turn.run_id, created) for turn in runs for created in (turn.seq, None)),
        tasks=frozenset(refer(task_id, created) for task_id, first in tasks.items() for created in (first, None)),
        tasks_begun=frozenset(tasks.values()),
        message_ranges=_find_spans(connection, pk, [turn for turn in turns if turn.run_id is None]),
    )


def _find_spans(connection: Connection, pk: int, turns: Sequence[Turn]) -> Sequence[tuple[int, int]]:
    """Return the range of sequence numbers of the turns' messages, and that of the newest message that replaces each of
    them.

    A later message with the same id replaces an earlier one."""
    if not turns:
        return ()
    seqs, ids = [turn.seq for turn in turns], {turn.message_id for turn in turns}
    first, last = min(seqs), _end_of_message(connection, pk, max(seqs))
    later = select(_EVENT.c.seq, _EVENT.c.body).where(is_in_log(pk, after=last), *_IS_MESSAGE)
    messages = _messages(connection, later.order_by(IN_ORDER))
    newest = {event.message_id: seq for seq, event in messages if event.message_id in ids}
    return [(first, last), *((seq, _end_of_message(connection, pk, seq)) for seq in newest.values())]


def read_turns(connection: Connection, pk: int, wanted: TurnRecords, after: int) -> tuple[list[Record], bool]:
    """Return the next needed records with a sequence number above `after`, and True if there may be more."""
    log = select(*_COLUMNS).where(wanted.where(pk, after))
    rows_read: list[tuple[Any, ...]] = []
    size = 0
    with closing(connection.execute(stream_rows(log.order_by(IN_ORDER)))) as rows:
        for row in rows:
            if wanted.has_row(row):
                rows_read.append(tuple(row))
                size += len(row.body)
            if size > _ROOM or len(rows_read) == _MOST_RECORDS:
                return decode_records(connection, pk, rows_read), True
    return decode_records(connection, pk, rows_read), False


def removed_messages(connection: Connection, pk: int) -> frozenset[str]:
    """Return the ids of the messages that a saved state of the thread has removed."""
    saved = select(_EVENT.c.body).where(is_in_log(pk), of_kind("state_saved"), Position(_EVENT.c.body, _FORGETS) > 0)
    removed: set[str] = set()
    with closing(connection.execute(stream_rows(saved))) as rows:
        for (body,) in rows:
            event = decode_event(lengthen(body))
            if isinstance(event, StateSaved):
                removed.update(event.removed_ids)
    return frozenset(removed)
