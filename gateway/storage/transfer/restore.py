"""Import of the threads in an export file. Each thread is imported completely or not at all.

A section is read twice. The first pass checks everything and stores the files, to which no thread refers yet. The
second pass writes the section in one transaction. The rows of tasks, runs and questions are computed from the log."""

import hashlib
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final, Literal, TypeVar

import msgspec
from sqlalchemy import Connection, Table, func, insert, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from babelgate.canonical.assistant import Assistant
from babelgate.canonical.cron import Cron
from babelgate.canonical.event import Event, Record, RunCreated, TaskCreated, ThreadChanged, encode_event, files_of
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.fold import thread_after, thread_created
from babelgate.canonical.json import is_equal
from babelgate.canonical.message import FilePart
from babelgate.canonical.stored import decode_event, decode_snapshot, encode_snapshot
from babelgate.canonical.value import Value
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.items import encode_value
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.short_form import encode_row, refer, shorten
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import (
    LIVE,
    AliasRow,
    AssistantRow,
    AssistantVersionRow,
    BlobUseRow,
    CheckpointRow,
    CheckpointValueRow,
    CheckpointWriteRow,
    CronRow,
    ItemRow,
    RunRow,
    ThreadRow,
    WebhookRow,
)
from babelgate.gateway.storage.transaction import ThreadState, Transaction
from babelgate.gateway.storage.transfer.form import (
    AliasLine,
    AssistantLine,
    Begin,
    BytesLine,
    CheckpointLine,
    CheckpointValueLine,
    CheckpointWriteLine,
    CronLine,
    FileLine,
    ItemLine,
    LineStart,
    OfOwner,
    OfThread,
    Reader,
    RecordLine,
    ThreadLine,
    TransferError,
    WebhookLine,
    is_id,
    is_number,
)

V = TypeVar("V", bound=Value)

_TABLES: Final[dict[type, Table]] = {
    AliasLine: table_of(AliasRow),
    WebhookLine: table_of(WebhookRow),
    CheckpointLine: table_of(CheckpointRow),
    CheckpointValueLine: table_of(CheckpointValueRow),
    CheckpointWriteLine: table_of(CheckpointWriteRow),
}
_THREAD, _USE, _RUN = table_of(ThreadRow), table_of(BlobUseRow), table_of(RunRow)
_ITEM, _ASSISTANT, _VERSION, _CRON = (table_of(row) for row in (ItemRow, AssistantRow, AssistantVersionRow, CronRow))
_BYTES: Final = 2 * 2**20
"""Maximum total size of the records that one statement writes, in bytes. Chosen."""
_RECORDS: Final = 2048
_OWNER: Final = 128

Outcome = Literal["added", "same"]


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of importing one thread: it was added, or it existed with the same log."""

    outcome: Outcome
    live: int = 0
    """Number of the thread's pending and running runs. The next gateway that opens the database recovers them, as after
    a crash."""


@dataclass(slots=True)
class RestoredOwner:
    """Result of importing the store items, assistants and crons of an owner: how many were added, and how many
    existed."""

    added: int = 0
    same: int = 0
    conflicts: list[str] = field(default_factory=list[str])
    """One line for each entry that exists with another content. Such entries were not changed."""


@dataclass(slots=True)
class Checked:
    """Facts about a section that the first pass collects while it checks the lines."""

    records: int = 0
    at: int = 0
    """Time of the last checked record, in microseconds since 1970."""
    files: int = 0
    blobs: set[str] = field(default_factory=set[str])
    """Hashes of the files whose bytes are in the section."""
    named: set[str] = field(default_factory=set[str])
    """Hashes of the files to which events of the section refer."""
    tasks: set[str] = field(default_factory=set[str])
    runs: set[str] = field(default_factory=set[str])


def check_section(reader: Reader, begin: LineStart, blobs: Blobs) -> Checked:
    """Check a whole section, put its files into the store, and return the collected facts. Raises TransferError for
    content that is no valid export."""
    checked = Checked()
    with tempfile.TemporaryFile() as spool, closing(reader.section(begin)) as lines:
        files = _Files(blobs, checked, spool)
        place, first = next(lines)
        with _at(place):
            _check_begin(first)
        for place, line in lines:
            with _at(place):
                _check_texts(line)
                if isinstance(first, ThreadLine):
                    _check_of_thread(line, checked, files)
                else:
                    _check_of_owner(line)
        with _at(begin):
            files.end()
            if isinstance(first, ThreadLine):
                _require(checked.records > 0, "the thread has no log")
                _require(
                    checked.named == checked.blobs, "the files of the thread are not the ones that its log refers to"
                )
    return checked


@contextmanager
def _at(place: LineStart) -> Generator[None]:
    """Convert an error inside this context into a TransferError with the number of the line."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, TypeError, FaultError) as error:
        raise TransferError(f"line {place.number}: {error}") from None


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_begin(line: object) -> None:
    assert isinstance(line, Begin)
    _require(
        0 < len(line.owner) <= _OWNER and line.owner.isprintable(), f"owner: must be 1 to {_OWNER} printable characters"
    )
    if isinstance(line, ThreadLine):
        _require(is_id(line.thread_id), "thread_id: must be a UUID")


def _check_texts(line: msgspec.Struct) -> None:
    for name in line.__struct_fields__:
        value = getattr(line, name)
        if isinstance(value, str):
            _require("\0" not in value, f"{name}: must not contain NUL characters")
        elif isinstance(value, int):
            _require(is_number(value), f"{name}: the number is too large")


def _check_of_thread(line: object, checked: Checked, files: "_Files") -> None:
    match line:
        case FileLine():
            _require(checked.records == 0, "a file header must come before the log")
            files.begin(_decode(FilePart, line.part))
        case BytesLine():
            files.write(line.data)
        case RecordLine():
            files.end()
            _check_record(line, checked)
        case WebhookLine():
            _require(line.task_id in checked.tasks, "the webhook refers to a task that the log has not created")
            _require(isinstance(msgspec.json.decode(line.config), dict), "webhook config must be an object")
        case AliasLine() | CheckpointLine() | CheckpointValueLine() | CheckpointWriteLine():
            _require(checked.records > 0, "this kind of line must come after the log")
        case _:
            raise ValueError("this kind of line does not belong in a thread")


def _check_record(line: RecordLine, checked: Checked) -> None:
    record = _record_of(line)
    event = record.event
    _require(
        record.seq == checked.records + 1,
        f"seq: the next event must have number {checked.records + 1}, not {record.seq}",
    )
    _require(record.at >= checked.at, "at: the event is earlier than the one before it")
    if record.seq == 1:
        is_beginning = isinstance(event, ThreadChanged) and record.task_id is record.run_id is None
        _require(is_beginning, "the log must begin with a thread_changed event of no task or run")
    if isinstance(event, TaskCreated):
        _require(
            is_id(event.task_id) and event.task_id not in checked.tasks,
            "task_id: must be a UUID that no other task has",
        )
        checked.tasks.add(event.task_id)
    elif isinstance(event, RunCreated):
        _require(
            is_id(event.run_id) and event.run_id not in checked.runs, "run_id: must be a UUID that no other run has"
        )
        checked.runs.add(event.run_id)
    is_of_task = record.task_id is None or record.task_id in checked.tasks
    _require(is_of_task, "the event refers to a task that the log has not created")
    is_of_run = record.run_id is None or record.run_id in checked.runs
    _require(is_of_run, "the event refers to a run that the log has not created")
    checked.records, checked.at = record.seq, record.at
    checked.named.update(part.blob for part in _files_in(event) if part.blob is not None)


def _files_in(event: Event) -> list[FilePart]:
    if not isinstance(event, RunCreated):
        return files_of(event)
    return [part for message in event.messages for part in message.parts if isinstance(part, FilePart)]


def _record_of(line: RecordLine) -> Record:
    return Record(line.seq, line.at, line.task_id, line.run_id, line.attempt, decode_event(bytes(line.event)))


def _decode(kind: type[V], body: msgspec.Raw) -> V:
    return decode_snapshot(kind, bytes(body))


def _check_of_owner(line: object) -> None:
    match line:
        case ItemLine():
            _require(
                isinstance(msgspec.json.decode(line.value), dict), "value: the value of a store item must be an object"
            )
            _require(
                line.namespace.endswith(".") and line.key != "",
                "a store item needs a namespace that ends with a dot, and a key",
            )
        case AssistantLine():
            assistant = _decode(Assistant, line.in_use)
            versions = [_decode(Assistant, each) for each in line.versions]
            _require(is_id(assistant.assistant_id), "assistant_id: must be a UUID")
            same = {each.assistant_id for each in versions} == {assistant.assistant_id}
            _require(same, "the assistant has no versions, or one of another assistant")
            numbers = [each.version for each in versions]
            distinct = assistant.version in numbers and len(numbers) == len({*numbers})
            _require(distinct, "two versions have the same number, or the version in use is missing")
        case CronLine():
            cron = _decode(Cron, line.cron)
            _require(is_id(cron.cron_id), "cron_id: must be a UUID")
            _require(is_number(cron.next_run), "next_run: the number is too large")
        case _:
            raise ValueError("this kind of line does not belong in the section of an owner")


class _Files:
    """Upload of a section's files to the store. A temporary file has the bytes of a file until it is complete and its
    hash is checked."""

    def __init__(self, blobs: Blobs, checked: Checked, spool: IO[bytes]) -> None:
        self._blobs = blobs
        self._checked = checked
        self._part: FilePart | None = None
        self._spool = spool
        self._digest = hashlib.sha256()
        self._size = 0

    def begin(self, part: FilePart) -> None:
        self.end()
        is_new = part.blob is not None and part.blob not in self._checked.blobs
        _require(is_new, "the file header has no hash (blob), or one that another file of the thread has")
        self._part = part

    def write(self, data: bytes) -> None:
        _require(self._part is not None, "file data before any file header")
        self._size += len(data)
        _require(
            self._size <= self._blobs.limit,
            f"the file is larger than the limit of {self._blobs.limit} bytes (limits.artifact)",
        )
        self._digest.update(data)
        self._spool.write(data)

    def end(self) -> None:
        if self._part is None:
            return
        blob = self._digest.hexdigest()
        _require(self._part.blob == blob, f"the data of file {self._part.blob} does not match its hash")
        _require(
            self._part.size in (None, self._size),
            f"file {blob} has {self._size} bytes, and its header says {self._part.size}",
        )
        self._spool.seek(0)
        self._blobs.put_file(self._spool, blob)
        self._checked.blobs.add(blob)
        self._checked.files += 1
        self._part = None
        self._spool.seek(0)
        self._spool.truncate()
        self._digest, self._size = hashlib.sha256(), 0


# In the transaction


def restore_thread(tx: Transaction, reader: Reader, begin: LineStart, owner: str, thread_id: str) -> Restored:
    """Write a checked thread in the current transaction. If it exists with the same log, change nothing.

    Raises conflict if the thread exists with another log, and invalid if the section cannot be written."""
    try:
        with closing(reader.section(begin)) as lines:
            next(lines)
            of_thread = (line for _, line in lines)
            existing = tx.thread(owner, thread_id)
            if existing is not None:
                _compare(tx.connection, existing, of_thread)
                return Restored("same")
            tx.touched += 1
            tx.forget_erased(owner, thread_id)
            pk = tx.new_key()
            _Thread(tx, pk, owner, thread_id).write(of_thread)
    except (OperationalError, IntegrityError):
        raise
    except TransferError as error:
        raise FaultError(FaultCode.INVALID, str(error)) from error
    except Exception as error:
        if isinstance(error, FaultError) and error.fault.code is FaultCode.CONFLICT:
            raise
        reason = str(error).removesuffix(".")
        message = (
            f"line {begin.number}: the log of thread {thread_id} is invalid: {reason}. Nothing of it was imported."
        )
        raise FaultError(FaultCode.INVALID, message) from error
    live = select(func.count()).select_from(_RUN).where(_RUN.c.thread_pk == pk, text(f"run.{LIVE}"))
    return Restored("added", tx.connection.execute(live).scalar_one())


def _compare(connection: Connection, existing: ThreadState, lines: Iterator[Begin | OfThread | OfOwner]) -> None:
    """Compare the log of an existing thread with the export. The existing log may have further records.

    Raises conflict if a record differs or is missing."""
    stored_log = _log(connection, existing.pk)
    for line in lines:
        if isinstance(line, RecordLine):
            stored, imported = next(stored_log, None), _record_of(line)
            if stored is None or _content(stored) != _content(imported):
                where = "ends before" if stored is None else "differs at"
                raise FaultError(
                    FaultCode.CONFLICT, f"the thread exists already, and its log {where} event {imported.seq}"
                )


def _content(record: Record) -> tuple[object, ...]:
    return (record.seq, record.at, record.task_id, record.run_id, record.attempt, encode_event(record.event))


def _log(connection: Connection, pk: int) -> Iterator[Record]:
    after = 0
    while page := read_page(connection, pk, after, _RECORDS):
        yield from page
        after = page[-1].seq


class _Thread:
    """Writer of the rows of one imported thread."""

    def __init__(self, tx: Transaction, pk: int, owner: str, thread_id: str) -> None:
        self._tx = tx
        self._pk = pk
        self._owner = owner
        self._thread_id = thread_id
        self._references: dict[str | None, str | None] = {None: None}
        """Map from the id of each task and run to the short reference, such as `#17`, that the log stores instead of
        the id."""
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def write(self, lines: Iterator[Begin | OfThread | OfOwner]) -> None:
        key = {"owner": self._owner, "thread_id": self._thread_id}
        for line in lines:
            match line:
                case RecordLine():
                    self._add(_record_of(line))
                case FileLine():
                    part = _decode(FilePart, line.part).replace(inline=None)
                    row = {"thread_pk": self._pk, "blob": part.blob, "body": encode_row(part)}
                    self._tx.connection.execute(insert(_USE), row)
                case AliasLine() | CheckpointLine() | CheckpointValueLine() | CheckpointWriteLine() | WebhookLine():
                    self._tx.connection.execute(insert(_TABLES[type(line)]), {**key, **_columns(line)})
                case _:
                    pass
        self._flush()
        self._tx.rebuild_rows(self._pk, self._owner, self._thread_id, _log(self._tx.connection, self._pk))

    def _add(self, record: Record) -> None:
        if record.seq == 1:
            self._add_thread(record)
        event = record.event
        if isinstance(event, TaskCreated):
            self._references[event.task_id] = refer(event.task_id, record.seq)
        elif isinstance(event, RunCreated):
            self._references[event.run_id] = refer(event.run_id, record.seq)
        task, run = self._references[record.task_id], self._references[record.run_id]
        body = shorten(encode_event(event))
        self._rows.append((self._pk, record.seq, record.at, task, run, record.attempt, body))
        self._size += len(body)
        if self._size > _BYTES or len(self._rows) == _RECORDS:
            self._flush()

    def _add_thread(self, first: Record) -> None:
        """Insert the row of the thread. `rebuild_rows` later sets the columns that depend on the whole log."""
        thread = thread_after(thread_created(self._thread_id, self._owner, first), first)
        row = {
            "pk": self._pk,
            "owner": self._owner,
            "thread_id": self._thread_id,
            "created_at": thread.created_at,
            "changed_at": thread.changed_at,
            "ephemeral": thread.ephemeral,
            "expires": thread.can_expire,
            "body": encode_row(thread),
        }
        self._tx.connection.execute(insert(_THREAD), row)

    def _flush(self) -> None:
        if self._rows:
            self._tx.sql.insert_event.run_many(self._tx.connection, self._rows)
            self._rows, self._size = [], 0


def _columns(line: msgspec.Struct) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(line, name) for name in line.__struct_fields__}
    if isinstance(line, WebhookLine):
        values["body"] = bytes(values.pop("config"))
    elif isinstance(line, CheckpointLine) and line.channels is not None:
        values["channels"] = msgspec.json.encode(line.channels)
    return values


def restore_owner(tx: Transaction, reader: Reader, begin: LineStart, owner: str) -> RestoredOwner:
    """Write the checked store items, assistants and crons of an owner in the current transaction. Raises invalid if
    they do not conform to the export's format."""
    done = RestoredOwner()
    try:
        with closing(reader.section(begin)) as lines:
            next(lines)
            tx.touched += 1
            for _, line in lines:
                match line:
                    case ItemLine():
                        _restore_item(tx.connection, owner, line, done)
                    case AssistantLine():
                        _restore_assistant(tx.connection, owner, line, done)
                    case CronLine():
                        _restore_cron(tx.connection, owner, line, done)
                    case _:
                        pass
    except TransferError as error:
        raise FaultError(FaultCode.INVALID, str(error)) from error
    return done


def _restore_item(connection: Connection, owner: str, line: ItemLine, done: RestoredOwner) -> None:
    key = {"owner": owner, "namespace": line.namespace, "key": line.key}
    existing = select(_ITEM.c.value).where(*(_ITEM.c[name] == value for name, value in key.items()))
    value = encode_value(_json(bytes(line.value)))
    stored = connection.execute(existing).scalar()
    if _is_new(
        stored is None or is_equal(_json(stored), _json(value)), stored, f"item {line.namespace}{line.key}", done
    ):
        times = {name: getattr(line, name) for name in ("created_at", "updated_at", "expires_at", "ttl")}
        connection.execute(insert(_ITEM), {**key, **times, "value": value})


def _restore_assistant(connection: Connection, owner: str, line: AssistantLine, done: RestoredOwner) -> None:
    assistant = _decode(Assistant, line.in_use)
    versions = [_decode(Assistant, each) for each in line.versions]
    key = {"owner": owner, "assistant_id": assistant.assistant_id}
    existing = select(_ASSISTANT.c.body).where(*(_ASSISTANT.c[name] == value for name, value in key.items()))
    stored = connection.execute(existing).scalar()
    same = stored is None or decode_snapshot(Assistant, stored) == assistant
    if _is_new(same, stored, f"assistant {assistant.assistant_id}", done):
        connection.execute(insert(_ASSISTANT), {**key, "body": encode_snapshot(assistant)})
        rows = [{**key, "version": each.version, "body": encode_snapshot(each)} for each in versions]
        connection.execute(insert(_VERSION), rows)


def _restore_cron(connection: Connection, owner: str, line: CronLine, done: RestoredOwner) -> None:
    cron = _decode(Cron, line.cron)
    key = {"owner": owner, "cron_id": cron.cron_id}
    rows = connection.execute(select(_CRON.c.body).where(*(_CRON.c[name] == value for name, value in key.items())))
    body = rows.scalar()
    # The time of the next run is not compared, because the cron may have run here meanwhile.
    same = body is None or decode_snapshot(Cron, body).replace(next_run=None) == cron.replace(next_run=None)
    if _is_new(same, body, f"cron {cron.cron_id}", done):
        connection.execute(insert(_CRON), {**key, "next_run": cron.next_run, "body": encode_snapshot(cron)})


def _is_new(same: bool, stored: bytes | None, name: str, done: RestoredOwner) -> bool:
    if stored is None:
        done.added += 1
    elif same:
        done.same += 1
    else:
        done.conflicts.append(f"{name} exists already with other contents")
    return stored is None


def _json(body: bytes) -> Any:
    return msgspec.json.decode(body)
