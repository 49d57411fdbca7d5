"""Journal (event store): the one writer, group commit, and pages for readers.

Commands queue up and run on the writer's thread, in the order in which they were queued. One transaction holds all
commands that arrived during the last commit. If the writer is idle, a command is committed at once. The failure of one
command does not affect the others in its transaction. Records are published, and callers get their results, only after
the commit.

Gateways that share a database have one writer each. If two of them write to a thread at the same time, the second one
repeats its commands (`babelgate.gateway.storage.shared`).
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from sqlalchemy import Connection, Engine, select
from sqlalchemy.exc import IntegrityError

from babelgate.canonical.event import Record
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.thread import Run, Task, Thread
from babelgate.gateway.background import STOPPING, Failures, until_ended
from babelgate.gateway.clock import Clock
from babelgate.gateway.ids import new_id
from babelgate.gateway.storage import queries, unavailable
from babelgate.gateway.storage.database import migrate, open_database
from babelgate.gateway.storage.listener import Listener
from babelgate.gateway.storage.live import Channels
from babelgate.gateway.storage.locked import Locked
from babelgate.gateway.storage.log_pages import CreatedIds, read_ends, read_page, read_sized_page
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.notifier import Notifier
from babelgate.gateway.storage.row_cache import Row, RowCache, RowChange
from babelgate.gateway.storage.shared import SharedTransaction, Stale
from babelgate.gateway.storage.statements import sql_of, table_of
from babelgate.gateway.storage.tables import InterruptRow, RunRow, TaskRow, ThreadRow
from babelgate.gateway.storage.transaction import Published, Transaction, latest_pk
from babelgate.gateway.storage.unavailable import Unreachable, Unsettled, Unstored, keep_trying, reason_of

T = TypeVar("T")
P = ParamSpec("P")

_ROW_READS: Final[Mapping[type, Callable[[Connection, str, str], object]]] = {
    Thread: queries.thread,
    Task: queries.task,
    Run: queries.run,
}
"""Functions that read one row by owner and id, by type of the row."""
log = logging.getLogger("babelgate.journal")

_GROUP = 512
"""Maximum number of commands in one transaction. Chosen, not measured: the writer never waits for more commands."""
_READERS = 4
"""Number of reader threads, each with its own connection. Chosen, not measured."""
_RETRY_DELAY: Final = 1.0
"""Seconds from one attempt to reconnect to the next, while no commands are queued."""
_NOTICES: Final = 2.0
"""Maximum seconds that the last notices may take at shutdown. Chosen: other gateways look every ten seconds."""
_ROOM: Final = 256 * 1024
"""Maximum size of one page for readers that share pages, in bytes. Chosen: 512 tokens take a third of it."""
_TRIES: Final = 12
"""Maximum number of attempts at a command that loses races against other gateways. There is no delay between them:
the loser has already waited for the commit of the winner."""
_TRIES_TOGETHER: Final = 3
"""Maximum number of attempts at several commands together. A single command reserves its thread after as many."""


@dataclass(slots=True, eq=False)
class _Write:
    command: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]
    done: "asyncio.Future[Any]"

    def run(self, tx: Transaction) -> Any:
        return self.command(tx, *self.args, **self.named)


@dataclass(slots=True, eq=False)
class _Result:
    write: _Write
    value: Any
    error: BaseException | None


@dataclass(slots=True, eq=False)
class _Commit:
    """Outcome of one group: records to publish, changed rows, one result per command, notices for other gateways."""

    published: Sequence[Published] = ()
    changed: Sequence[RowChange] = ()
    results: Sequence[_Result] = ()
    remotes: Sequence[Remote] = ()


def _refuse(results: "Iterable[_Result]") -> _Commit:
    return _Commit(results=[_Result(each.write, None, Unstored()) for each in results])


def _refuse_all(writes: Iterable[_Write]) -> _Commit:
    return _refuse(_Result(write, None, None) for write in writes)


class _Spoiled(Exception):
    """A command failed after it had changed something."""


class Journal:
    def __init__(
        self,
        url: str,
        *,
        power: bool = False,
        pooler: str | None = None,
        clock: Clock | None = None,
        on_commit: Callable[[Sequence[Published]], None] | None = None,
        shared: bool = False,
        node: str = "",
        on_remote: Callable[[Sequence[Remote]], None] | None = None,
    ) -> None:
        """Create a journal for the database at a URL. `open` connects it.

        `power` and `pooler` are options of `open_database`. `shared` = other gateways use the database at the same
        time, each with a different `node` id. `on_commit` receives the records of each commit of this gateway on the
        event loop. `on_remote` receives notices of the commits of other gateways there, in order of commit for each
        thread.
        """
        self.database = open_database(url, power=power, shared=shared, pooler=pooler)
        self.is_shared = shared
        self.node = node or (new_id() if shared else "")
        self.channels = Channels()
        self._rows = RowCache()
        self._clock = clock or Clock()
        self._on_commit = on_commit
        self._on_remote = [on_remote] if on_remote is not None else []
        self._listener: Listener | None = None
        self._notifier = Notifier(self.node, self.database) if shared else None
        self.races = 0
        """Number of transactions that were repeated because another gateway committed first."""
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failed: str | None = None
        self._closed = False
        self._stopping = False
        self._is_abandoned = False
        """True if the gateway stops without waiting for the database any longer."""
        self._superseded: FaultError | None = None
        """Error raised because another gateway took the database over. Permanent."""
        self._writer: Engine | None = None
        self._connection: Connection | None = None
        """Connection of the writer."""
        self._unclear: _Commit | None = None
        """Commit during which the connection was lost. Its callers get their results once its outcome is known."""
        self._created: CreatedIds = {}
        self._readers: Engine | None = None
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="babelgate-read")
        self._reading = threading.local()
        """Connection of each reader thread. Taking one from SQLAlchemy's pool costs as much as a small read."""
        self._open_connections: list[Connection] = []

    async def open(self, *, wait: bool = False) -> None:
        """Take the lock, migrate the schema, and start the writer.

        Raises conflict if another gateway uses the database. With `wait`, wait until it has stopped instead.
        """
        self._loop = asyncio.get_running_loop()
        is_logged = False
        while not await self._try_to_open(wait=wait):
            if not is_logged:
                log.warning("database is in use by another gateway: waiting until that gateway ends")
            is_logged = True
            await asyncio.sleep(_RETRY_DELAY)
        if self._notifier is not None:
            self._notifier.start()
        self._thread = threading.Thread(target=self._write_forever, name="babelgate-writer", daemon=True)
        self._thread.start()
        if self.is_shared:
            self._listener = Listener(self.node, self.database.listen, self._hear, self._look_for_missed)
            try:
                await self._listener.start()
            except BaseException:
                await self.close()
                raise

    async def _try_to_open(self, *, wait: bool) -> bool:
        """Open the database. Return False if it is locked and `wait` is set."""
        try:
            self.database.acquire()
            await asyncio.to_thread(self._open)
        except BaseException as error:
            self._dispose()
            if wait and isinstance(error, Locked):
                return False
            raise
        return True

    def _open(self) -> None:
        self._writer = self.database.open_writer()
        self._connection = connection = self.database.connect(self._writer)
        self._tx = self._make_transaction(self._writer)
        with self.database.writing(connection):
            stale = migrate(connection, self.database.prepare_migration, shared=self.is_shared)
            self.database.claim(connection)
            self._tx.begin(connection)
            self._tx.begin_keys(latest_pk(connection))
            if stale:
                _rebuild_rows(self._tx)
        self._readers = self.database.open_readers(_READERS)

    def _make_transaction(self, writer: Engine) -> Transaction:
        sql = sql_of(writer.dialect)
        if not self.is_shared:
            return Transaction(sql, self._clock)
        return SharedTransaction(sql, self._clock, self.node)

    async def close(self, seconds: float = 2 * STOPPING) -> None:
        """Commit what is queued, then release the database.

        A statement that the server does not answer in its share of `seconds` is interrupted. Its command fails. Notices
        of the last commits are sent, unless that takes longer than `Notifier.close` waits.
        """
        self._closed = True
        if self._listener is not None:
            await self._listener.stop()
        if self._thread is not None:
            self._queue.put(None)
            if not await until_ended(self._thread.join, self._give_up_writing, seconds / 2):
                log.error("the database does not answer: the gateway stops without closing its connections")
                return
            self._thread = None
        if self._notifier is not None:
            await self._notifier.close(min(_NOTICES, seconds / 4))
        if await until_ended(self._pool.shutdown, self._give_up_reading, seconds / 2):
            self._dispose()

    def _give_up_writing(self) -> None:
        self._is_abandoned = True
        if self._writer is not None:
            self.database.abort(self._writer)

    def _give_up_reading(self) -> None:
        if self._readers is not None:
            self.database.abort(self._readers)

    def _dispose(self) -> None:
        for connection in (self._connection, *self._open_connections):
            if connection is not None and self.database.is_lost(connection):
                _discard(connection)
            elif connection is not None:
                connection.close()
        self._connection = None
        self._open_connections.clear()
        for engine in (self._writer, self._readers):
            if engine is not None:
                engine.dispose()
        self.database.release()

    @property
    def folders(self) -> Sequence[Path]:
        """Folders of this machine that hold the database. Empty if it is on a server."""
        return self.database.folders

    @property
    def failure(self) -> str | None:
        """Reason why the last transaction could not be stored. None after the next success."""
        return self._failed

    @property
    def is_superseded(self) -> bool:
        """True if another gateway has taken the database over. This one will not write any more."""
        return self._superseded is not None

    @property
    def is_closed(self) -> bool:
        return self._closed

    # Writing

    def write(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> "asyncio.Future[T]":
        """Queue a command with its arguments. Return a future of its result, which is set after the commit.

        A FaultError of the command becomes the exception of the future. A command may run twice, and only the second
        run counts, so it must not have effects outside of its transaction.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            done.set_exception(FaultError(FaultCode.SHUTTING_DOWN, "The gateway is shutting down."))
        else:
            self._queue.put(_Write(command, args, named, done))
        return done

    async def write_patiently(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Return the result of `write`, and retry for half a minute while the database refuses the command.

        A refused command is known not to be stored, so nothing is stored twice.
        """

        def write() -> Awaitable[T]:
            return self.write(command, *args, **named)

        return await keep_trying(write, Unstored, seconds=unavailable.PATIENCE_OF_RUNS)

    def _write_forever(self) -> None:
        commit = self._commit_shared if self.is_shared else self._commit
        failures = Failures("the writer of the journal")
        while (group := self._next_group()) is not None:
            if self._is_abandoned:
                self._hand_over(_refuse_all(group))
                continue
            try:
                commit(group)
            except Exception as error:  # the writer must continue, and every caller must get an answer
                failures.note(error)
                self._tx.forget()
                self._hand_over(_refuse_all(group))
        if self._unclear is not None:
            self._hand_over(_Commit(results=[_Result(each.write, None, Unsettled()) for each in self._unclear.results]))
        if self._connection is not None and not (self._is_abandoned or self._is_lost()):
            self.database.leave(self._connection)

    def _next_group(self) -> list[_Write] | None:
        """Wait for queued commands and return them, or None at the end.

        While the connection is lost, return an empty list after `_RETRY_DELAY`, so that the writer reconnects.
        """
        if self._stopping:
            return None
        try:
            first = self._queue.get(timeout=_RETRY_DELAY if self._is_lost() and not self.is_superseded else None)
        except queue.Empty:
            return []
        if first is None:
            return None
        group = [first]
        while len(group) < _GROUP:
            try:
                write = self._queue.get_nowait()
            except queue.Empty:
                break
            if write is None:
                self._stopping = True
                break
            group.append(write)
        return group

    def _ready_connection(self, group: Sequence[_Write]) -> Connection | None:
        """Return the connection of the writer, and reconnect if it was lost.

        If that fails, refuse the group, of which no command has run, and return None.
        """
        try:
            return self._reconnect() if self._is_lost() else self._connection
        except Exception as error:
            self._note_failure(error, len(group))
            self._hand_over(_refuse_all(group))
            return None

    def _is_lost(self) -> bool:
        return self._connection is None or self.database.is_lost(self._connection)

    def _reconnect(self) -> Connection:
        """Reconnect the writer, and settle a commit whose outcome is unknown. Raises OperationalError, FaultError."""
        assert self._writer is not None
        if self._superseded is not None:
            raise self._superseded
        lost, self._connection = self._connection, None
        if lost is not None:
            _discard(lost)
        self._tx.forget_all()
        connection = self.database.connect(self._writer)
        try:
            is_stored = self.database.settle(connection)
            if self._unclear is not None:
                unclear, self._unclear = self._unclear, None
                self._hand_over(unclear if is_stored else _refuse(unclear.results))
            with self.database.writing(connection):
                self.database.claim(connection)
        except BaseException as error:
            _discard(connection)
            if isinstance(error, FaultError):
                self._superseded = error
            raise
        self._connection = connection
        log.warning("database connection restored")
        return connection

    def _commit(self, group: list[_Write]) -> None:
        """Run a group of commands in one transaction, and hand over the outcome.

        If a command fails after a change, the group is rolled back and repeated with a savepoint around each command,
        so that only the faulty ones fail. If the database refuses the transaction, as on a full disk, every command
        fails and no record is published.
        """
        tx, database = self._tx, self.database
        done = _Commit()
        connection = self._ready_connection(group)
        if connection is None:
            return
        try:
            try:
                with database.writing(connection):
                    tx.begin(connection)
                    done.results = [_Result(write, *self._run_unguarded(write)) for write in group]
                    with database.together(connection):
                        done.published = tx.finish()
                    done.changed = tx.changed
            except Exception as error:
                if self._is_unstorable(error):
                    raise
                with database.writing(connection):
                    tx.forget()
                    tx.begin(connection)
                    done.results = [_Result(write, *self._run_guarded(connection, write)) for write in group]
                    done.published, done.changed = tx.finish(), tx.changed
            self._failed = None
        except Exception as error:
            self._note_failure(error, len(group))
            tx.forget()
            if database.is_unclear:
                self._unclear = done
                return
            done = _refuse_all(group)
        self._hand_over(done)

    def _commit_shared(self, group: list[_Write]) -> None:
        """Run a group of commands like `_commit`, on a database that other gateways write to.

        A part of the group that lost a race is repeated. If a command fails, the group is divided until the command is
        alone. There are no savepoints, because these would hold row locks that other gateways wait for.
        """
        tx, database = cast("SharedTransaction", self._tx), self.database
        parts, tries = [group], 0
        while parts:
            part = parts.pop()
            done = _Commit()
            connection = self._ready_connection([write for each in (part, *reversed(parts)) for write in each])
            if connection is None:
                return
            try:
                with database.writing(connection):
                    tx.begin(connection)
                    tx.reserves = tries >= _TRIES_TOGETHER
                    done.results = [_Result(write, *self._run_or_raise_stale(write)) for write in part]
                    with database.together(connection):
                        done.published = tx.finish()
                    done.remotes = tx.remotes
                    tx.confirm()
                self._failed = None
            except Exception as error:
                tx.forget()
                if isinstance(error, FaultError) or self._is_unstorable(error):
                    remaining = [write for each in (part, *reversed(parts)) for write in each]
                    self._note_failure(error, len(remaining))
                    if database.is_unclear:
                        self._unclear = done
                        remaining = remaining[len(part) :]
                    self._hand_over(_refuse_all(remaining))
                    return
                tries += 1
                if self._is_race(error) and tries < (_TRIES if len(part) == 1 else _TRIES_TOGETHER):
                    self.races += 1
                    database.make_way(connection, error)
                    parts.append(part)
                    continue
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
                else:
                    cause = error.__cause__ if isinstance(error, _Spoiled) else None
                    fault = self._fault_of(cause if isinstance(cause, Exception) else error)
                    self._hand_over(_Commit(results=[_Result(part[0], None, fault)]))
            else:
                self._hand_over(done)
            tries = 0

    def _run_or_raise_stale(self, write: _Write) -> tuple[Any, BaseException | None]:
        """Run a command. Raises Stale if it failed because another gateway has changed a thread that it read."""
        try:
            return self._run_unguarded(write)
        except _Spoiled as spoiled:
            error = cast("Exception", spoiled.__cause__)
            if self._is_race(error):
                raise error from None
            if cast("SharedTransaction", self._tx).is_stale():
                raise Stale from error
            raise

    def _is_race(self, error: Exception) -> bool:
        return isinstance(error, Stale) or self.database.is_race(error)

    def _is_unstorable(self, error: Exception) -> bool:
        """Return True if the database or its disk failed, as opposed to one command."""
        return self.database.is_unstorable(error) and self.database.fault_of(error) is None

    def _note_failure(self, error: Exception, commands: int) -> None:
        self._failed = reason = reason_of(error)
        if not commands:
            return
        if isinstance(error, FaultError) or self._is_unstorable(error):  # a failure of the database or the disk
            log.error(
                "commands could not be stored: callers receive an error, and runs retry. Check that the database can "
                "be reached and has free space count=%d error=%s",
                commands,
                reason,
            )
        else:
            log.exception("commands could not be stored count=%d", commands)

    def _hand_over(self, done: "_Commit") -> None:
        """Publish a committed group here, then tell the other gateways. Neither may happen before the commit."""
        self._loop.call_soon_threadsafe(self._deliver, done.published, done.changed, done.results)
        if self._notifier is not None:
            self._notifier.add(done.remotes)

    def _run_unguarded(self, write: _Write) -> tuple[Any, BaseException | None]:
        """Run a command without a savepoint, and return its result or fault.

        Nearly all commands succeed, or fail before they change anything. Raises _Spoiled for the others.
        """
        touched = self._tx.touched
        try:
            return write.run(self._tx), None
        except FaultError as error:
            if self._tx.touched != touched:
                raise _Spoiled from error
            return None, error
        except Exception as error:
            if self._is_unstorable(error):
                raise
            raise _Spoiled from error

    def _run_guarded(self, connection: Connection, write: _Write) -> tuple[Any, BaseException | None]:
        tx = self._tx
        tx.seal()
        published, changed = len(tx.published), len(tx.changed)
        connection.exec_driver_sql("SAVEPOINT command")
        try:
            result = write.run(tx)
            tx.flush()
        except Exception as error:
            if self._is_unstorable(error):
                raise
            connection.exec_driver_sql("ROLLBACK TO command")
            connection.exec_driver_sql("RELEASE command")
            del tx.published[published:], tx.changed[changed:]
            tx.forget()
            return None, self._fault_of(error)
        connection.exec_driver_sql("RELEASE command")
        return result, None

    def _fault_of(self, error: Exception) -> FaultError:
        """Return the fault that the caller of one failed command receives."""
        if isinstance(error, FaultError):
            return error
        if isinstance(error, IntegrityError):
            return FaultError(FaultCode.CONFLICT, "An id in this request is taken already.")
        if self._is_race(error):
            return Unstored()
        fault = self.database.fault_of(error)
        if fault is not None:
            return fault
        log.error("command failed", exc_info=error)
        return FaultError(FaultCode.INTERNAL, "The gateway failed to do this; nothing was changed.")

    def _deliver(
        self, published: Sequence[Published], changed: Sequence[RowChange], results: Sequence[_Result]
    ) -> None:
        self._rows.apply(changed)
        if published:
            for each in published:
                self.channels.publish(each.pk, each.records, each.sizes)
            if self._on_commit is not None:
                self._on_commit(published)
        for result in results:
            done = result.write.done
            if done.done():
                continue
            if result.error is None:
                done.set_result(result.value)
            else:
                done.set_exception(result.error)

    # Commits of other gateways

    def add_hearer(self, hearer: Callable[[Sequence[Remote]], None]) -> None:
        """Register a function that receives notices of other gateways, before `on_remote` does."""
        self._on_remote.insert(0, hearer)

    def _hear(self, remotes: Sequence[Remote]) -> None:
        tx = cast("SharedTransaction", self._tx)
        for remote in remotes:
            tx.note_remote(remote)
            if remote.rewritten:
                self.channels.forget(remote.pk)
            if remote.erased:
                self.channels.close(remote.pk)
            else:
                self.channels.note(remote.pk, remote.seq)
        for hearer in self._on_remote:
            hearer(remotes)

    async def _look_for_missed(self) -> None:
        """Find commits of other gateways whose notices did not arrive.

        A notice is lost with its gateway or with a connection. This looks at the threads that have a channel: those
        with readers or runs, and those used lately.
        """
        ends_here = self.channels.ends()
        if not ends_here:
            return
        try:
            ends = await self.query(read_ends, list(ends_here))
        except FaultError as error:  # the next look finds them
            log.warning("commits of other gateways not read error=%s", error)
            return
        missed = [Remote(pk, ends[pk], rewritten=True) for pk, seq in ends_here.items() if ends.get(pk, 0) > seq]
        missed += [Remote(pk, seq, erased=True) for pk, seq in ends_here.items() if pk not in ends]
        if missed:
            self._hear(missed)

    # Reading

    async def row(self, kind: type[Row], owner: str, row_id: str) -> Row | None:
        """Return a thread, task or run, or None if it does not exist. Raises shutting_down.

        One that changed recently is in memory. The others are read from the database.
        """
        self._check_open()
        row = None if self.is_shared else self._rows.get(kind, owner, row_id)
        if row is None:
            row = await self.query(_read_row, kind, owner, row_id)
        return row

    async def query(self, read: Callable[Concatenate[Connection, P], T], /, *args: P.args, **named: P.kwargs) -> T:
        """Run a read with its arguments in a transaction, on a reader thread, and return its result.

        Raises shutting_down, and unavailable if the database cannot be reached within `PATIENCE` seconds.
        """
        self._check_open()
        try:
            return await self._loop.run_in_executor(self._pool, self._query, read, args, named)
        except Unreachable:
            pass  # the closure below is not created for the many reads that succeed

        async def again() -> T:
            self._check_open()
            return await self._loop.run_in_executor(self._pool, self._query, read, args, named)

        return await keep_trying(again, Unreachable, seconds=unavailable.PATIENCE)

    def _check_open(self) -> None:
        if self._closed:
            raise FaultError(FaultCode.SHUTTING_DOWN, "The gateway is shutting down.")

    def _query(self, read: Callable[..., T], args: tuple[Any, ...], named: Mapping[str, Any]) -> T:
        for is_last in (False, True):
            connection = self._reader()
            try:
                return self._read(connection, read, args, named)
            except Exception as error:
                if not self.database.is_unreadable(error):
                    raise
                is_lost = self.database.is_lost(connection)
                if is_lost:
                    self._forget_reader(connection)
                if is_last or not is_lost:
                    raise Unreachable from error
        raise AssertionError

    def _read(
        self, connection: Connection, read: Callable[..., T], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> T:
        try:
            if read in _WITHOUT_TRANSACTION:
                return read(connection, *args, **named)
            with self.database.reading(connection):
                return read(connection, *args, **named)
        except Exception as error:
            fault = self.database.fault_of(error)
            if fault is not None:
                raise fault from error
            raise

    def _reader(self) -> Connection:
        """Return the connection of the current reader thread. Raises unavailable."""
        connection: Connection | None = getattr(self._reading, "connection", None)
        if connection is None:
            assert self._readers is not None
            try:
                connection = self._readers.connect()
            except Exception as error:
                if not self.database.is_unreadable(error):
                    raise
                raise Unreachable from error
            self._reading.connection = connection
            self._open_connections.append(connection)
        return connection

    def _forget_reader(self, connection: Connection) -> None:
        self._reading.connection = None
        self._open_connections.remove(connection)
        _discard(connection)

    async def page(self, pk: int, after: int, limit: int = 512, until: int | None = None) -> list[Record]:
        """Return up to `limit` records of a thread after a sequence number, and not after `until`.

        Large records make the page shorter. It is empty only if there are no more records.
        """
        return await self.query(read_page, pk, after, limit, until, self._created)

    async def sized_page(self, pk: int, after: int, until: int) -> tuple[Sequence[Record], Sequence[int], bool]:
        """Return records after one sequence number and up to another, their sizes in bytes, and if the page is cut.

        A page is cut before `until` if its records are large. Raises the same errors as `query`.
        """
        return await self.query(read_sized_page, pk, after, until, _ROOM, self._created)


def _discard(connection: Connection) -> None:
    """Close a connection that cannot be used any more."""
    if not connection.closed:
        connection.invalidate()
        connection.close()


def _rebuild_rows(tx: Transaction) -> None:
    """Rebuild the rows of tasks, runs and questions from the logs. An earlier release folded them differently."""
    connection, thread = tx.connection, table_of(ThreadRow)
    for row in (TaskRow, RunRow, InterruptRow):
        connection.execute(table_of(row).delete())
    threads = connection.execute(select(thread.c.pk, thread.c.owner, thread.c.thread_id)).all()
    for pk, owner, thread_id in threads:
        tx.fold_anew(pk, owner, thread_id, _records(connection, pk))
    log.info("threads of an earlier release folded again count=%d", len(threads))


def _records(connection: Connection, pk: int) -> Iterator[Record]:
    """Yield all records of a log, and read them page by page."""
    after = 0
    while page := read_page(connection, pk, after, 2048):
        yield from page
        after = page[-1].seq


def _read_row(connection: Connection, kind: type[Row], owner: str, row_id: str) -> Row | None:
    return cast("Row | None", _ROW_READS[kind](connection, owner, row_id))


_WITHOUT_TRANSACTION: Final = frozenset[Callable[..., object]](
    (queries.thread_key, queries.standing, queries.task, queries.run, _read_row, read_page, read_sized_page)
)
"""Reads that need no transaction, which would cost two more round trips to a server. They execute one statement, or
otherwise read only data that never changes."""
