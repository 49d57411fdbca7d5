"""Range reads of a log by turn: a turn is a run, or what a caller has said between runs. Some of them are found and
read without the rest of the log."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, false, func, or_, select

from babelgate.canonical.event import MessageStarted, Record, StateSaved
from babelgate.canonical.hub import Turn
from babelgate.canonical.state import ENDED
from babelgate.canonical.stored import decode_event
from babelgate.gateway.storage.log_pages import decode_records
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, lengthen, refer
from babelgate.gateway.storage.statements import Position, of_kind, table_of
from babelgate.gateway.storage.tables import EventRow, RunRow, TaskRow

_TASK, _RUN, _EVENT = table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_COLUMNS: Final = (_EVENT.c.seq, _EVENT.c.at, _EVENT.c.task_id, _EVENT.c.run_id, _EVENT.c.attempt, _EVENT.c.body)
_OF_NO_RUN: Final = (_EVENT.c.run_id.is_(None), _EVENT.c.task_id.is_(None))
_SPAN: Final = 8192
"""Records over which the turns of one answer reach, unless the first reaches further."""
_MOST_RECORDS: Final = 128
"""Records that are read at once, and bytes of them: several readers may hold as many each."""
_ROOM: Final = 64 * 1024
_ENDED: Final = frozenset(map(str, ENDED))
_CALL: Final = b'"kind":"tool_call"'
_FORGETS: Final = b'"forgets":['


_OF_MESSAGE: Final = ("part_added", "part_delta", "part_ended", "message_ended")
_SAID: Final = (*_OF_NO_RUN, of_kind("message_started"))
_TOLD: Final = of_kind("interrupt_raised", "interrupt_answered", "part_added")


def find_turns(connection: Connection, pk: int, *, limit: int, beyond: int | None, descending: bool) -> Sequence[Turn]:
    """As `babelgate.canonical.hub.Reads.turns`."""
    runs = _find_runs(connection, pk, limit, beyond, descending=descending)
    last = runs[-1].seq if len(runs) == limit else None
    said = _find_said(connection, pk, limit, beyond, last, descending=descending)
    turns = sorted((*runs, *said), key=lambda turn: turn.seq, reverse=descending)[:limit]
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
    found = (
        select(seq, _RUN.c.last_seq, _RUN.c.status, _RUN.c.run_id, _RUN.c.task_id)
        .where(_RUN.c.thread_pk == pk, _RUN.c.removed == false(), *_beyond(seq, beyond, descending=descending))
        .order_by(seq.desc() if descending else seq)
        .limit(limit)
    )
    return [
        Turn(seq=first, until=last if status in _ENDED else None, run_id=run_id, task_id=task_id)
        for first, last, status, run_id, task_id in connection.execute(found)
    ]


def _find_said(
    connection: Connection, pk: int, limit: int, beyond: int | None, last: int | None, *, descending: bool
) -> list[Turn]:
    """What was said outside of runs; none that comes after the turn `last`."""
    seq = _EVENT.c.seq
    found = select(seq, _EVENT.c.body).where(
        _EVENT.c.thread_pk == pk, *_SAID, *_beyond(seq, beyond, descending=descending)
    )
    if last is not None:
        found = found.where(seq > last if descending else seq < last)
    turns: list[Turn] = []
    for first, event in _messages(connection, found.order_by(seq.desc() if descending else seq)):
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
    """Of one outside of runs: all of it is committed at once."""
    other = or_(_EVENT.c.run_id.is_not(None), _EVENT.c.task_id.is_not(None), ~of_kind(*_OF_MESSAGE))
    after = (_EVENT.c.thread_pk == pk, _EVENT.c.seq > seq)
    end = select(_EVENT.c.seq - 1).where(*after, other).order_by(_EVENT.c.seq).limit(1)
    found = connection.execute(end).scalar()
    if found is None:
        found = connection.execute(select(func.max(_EVENT.c.seq)).where(*after)).scalar()
    return seq if found is None else found


@dataclass(frozen=True, slots=True)
class TurnRecords:
    """Which records tell of some turns."""

    first: int
    until: int | None
    """None = to the end of the log."""
    runs: frozenset[str | None]
    """What the log may hold in the place of their ids; so of the tasks."""
    tasks: frozenset[str | None]
    tasks_begun: frozenset[int]
    """The seqs of the records that create the tasks."""
    said: Sequence[tuple[int, int]]
    """From seq to seq, what was said outside of runs: in the turns, which follow each other, and what took the place of
    it later."""

    def where(self, after: int) -> ColumnElement[bool]:
        """`after` = a seq."""
        spans = [and_(_EVENT.c.seq >= first, _EVENT.c.seq <= last) for first, last in self.said]
        told = and_(_EVENT.c.task_id.in_(self.tasks), _TOLD)
        of_runs = or_(_EVENT.c.run_id.in_(self.runs), _EVENT.c.seq.in_(self.tasks_begun), told)
        # Around all of it, so that the database begins and ends there.
        within = [_EVENT.c.seq > max(after, self.first - 1)]
        if self.until is not None:
            of_runs = and_(of_runs, _EVENT.c.seq <= self.until)
            within.append(_EVENT.c.seq <= max(self.until, *(last for _, last in self.said), 0))
        return and_(*within, or_(of_runs, *(and_(*_OF_NO_RUN, span) for span in spans)))

    def has_row(self, row: Any) -> bool:
        """Of a row where that is so. Of the parts in other runs of the tasks only calls tell anything."""
        if row.run_id in self.runs or row.seq in self.tasks_begun or row.task_id is None:
            return True
        return not row.body.startswith(_PARTS) or _CALL in row.body


_PARTS: Final = beginnings("part_added")


def find_records(connection: Connection, pk: int, owner: str, turns: Sequence[Turn]) -> TurnRecords:
    task_ids = {turn.task_id for turn in turns if turn.task_id is not None}
    its = select(_TASK.c.task_id, _TASK.c.first_seq).where(_TASK.c.owner == owner, _TASK.c.task_id.in_(task_ids))
    tasks = {row.task_id: row.first_seq for row in connection.execute(its.where(_TASK.c.thread_pk == pk))}
    runs = [turn for turn in turns if turn.run_id is not None]
    is_running = any(turn.until is None for turn in runs)
    return TurnRecords(
        first=min((*tasks.values(), *(turn.seq for turn in turns))),
        until=None if is_running else max((turn.until or 0 for turn in runs), default=0),
        runs=frozenset(refer(turn.run_id, made) for turn in runs for made in (turn.seq, None)),
        tasks=frozenset(refer(task_id, made) for task_id, first in tasks.items() for made in (first, None)),
        tasks_begun=frozenset(tasks.values()),
        said=_find_spans(connection, pk, [turn for turn in turns if turn.run_id is None]),
    )


def _find_spans(connection: Connection, pk: int, said: Sequence[Turn]) -> Sequence[tuple[int, int]]:
    """Where a message with the id of an earlier one was said, that one shows as it."""
    if not said:
        return ()
    seqs, ids = [turn.seq for turn in said], {turn.message_id for turn in said}
    first, last = min(seqs), _end_of_message(connection, pk, max(seqs))
    later = select(_EVENT.c.seq, _EVENT.c.body).where(_EVENT.c.thread_pk == pk, *_SAID, _EVENT.c.seq > last)
    messages = _messages(connection, later.order_by(_EVENT.c.seq))
    newest = {event.message_id: seq for seq, event in messages if event.message_id in ids}
    return [(first, last), *((seq, _end_of_message(connection, pk, seq)) for seq in newest.values())]


def read_turns(connection: Connection, pk: int, wanted: TurnRecords, after: int) -> tuple[list[Record], bool]:
    """Some of the records after a seq, and whether there may be more."""
    log = select(*_COLUMNS).where(_EVENT.c.thread_pk == pk, wanted.where(after))
    kept: list[tuple[Any, ...]] = []
    size = 0
    with closing(connection.execute(stream_rows(log.order_by(_EVENT.c.seq)))) as rows:
        for row in rows:
            if wanted.has_row(row):
                kept.append(tuple(row))
                size += len(row.body)
            if size > _ROOM or len(kept) == _MOST_RECORDS:
                return decode_records(connection, pk, kept), True
    return decode_records(connection, pk, kept), False


def removed_messages(connection: Connection, pk: int) -> frozenset[str]:
    """As `babelgate.canonical.hub.Reads.removed_messages`."""
    saved = select(_EVENT.c.body).where(
        _EVENT.c.thread_pk == pk, of_kind("state_saved"), Position(_EVENT.c.body, _FORGETS) > 0
    )
    removed: set[str] = set()
    with closing(connection.execute(stream_rows(saved))) as rows:
        for (body,) in rows:
            event = decode_event(lengthen(body))
            if isinstance(event, StateSaved):
                removed.update(event.removed_ids)
    return frozenset(removed)
