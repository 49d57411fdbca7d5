"""Subscriptions: readers that follow the log of a thread, a task or a run from a cursor on."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeVar

from babelgate.adapters.kit.aside import TimeSlice
from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptRaised,
    PartAdded,
    Record,
    RunCreated,
    RunEnded,
    RunRemoved,
    TaskChanged,
    TaskCreated,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Scope, Snapshot
from babelgate.canonical.message import FilePart, Message, Part
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Task
from babelgate.gateway.exchange import hang_up
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.fold_cache import SnapshotCache
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.live import Channel
from babelgate.gateway.storage.log_pages import read_ends, read_tasks
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.page_cache import PageCache, RecordPage
from babelgate.gateway.storage.shared import REWRITES
from babelgate.gateway.storage.transaction import Erased, Published

S = TypeVar("S", bound=Snapshot)

_FRESH: Final = 30.0
"""Maximum age of a cached page on a shared database, in seconds. Chosen: another gateway may have changed earlier
records, and the notice of it may be lost."""
_LOOK: Final = 10.0
"""Seconds between two queries for a thread that a caller waits for, on a shared database. Chosen: the interval of the
listener.

Another gateway may create the thread, and the notice may be lost."""
_BATCH: Final = 128
"""Maximum number of records in one batch for a reader. Chosen: as many as a pump commits together (`runs.pump`)."""
_ROOM: Final = 16 * 1024
"""Maximum stored size of one batch, in bytes. A larger record is a batch alone. Chosen.

Decoded and encoded records take several times as much, and the reader holds them until its client has received them."""
_FILES: Final = 64 * 1024
"""Maximum size of the files in one batch, in bytes. A record with larger files is a batch alone. Chosen."""
Kind = Literal["task", "run"]

_WITH_FILES: Final = frozenset((PartAdded, ArtifactAdded, RunCreated, InterruptRaised))
"""Types of events that may contain files."""
_ENDS: Final = frozenset((RunEnded, RunRemoved, TaskChanged))
"""Types of events that may end the task or run that a reader follows."""
_OPENS_OR_ENDS: Final = frozenset((TaskCreated, RunCreated, RunEnded, TaskChanged))
"""Types of events that begin or end a task or a run."""


class LogReader:
    """Reader of logs for all callers of this gateway: it reads committed records, and follows new ones."""

    def __init__(self, journal: Journal, blobs: Blobs, limits: Callable[[], Limits]) -> None:
        """Create a reader. `limits` returns the current limits of the settings."""
        self._journal = journal
        self._blobs = blobs
        self._limits = limits
        self._keys: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._erasures = 0
        """Number of threads that were erased so far. If it changes during a query for a thread's key, the query is
        repeated: the key may belong to an erased thread."""
        self._live: set[tuple[int, Kind, str]] = set()
        """Tasks and runs that have not ended: the database key of the thread, the kind, and the id. Ids may repeat
        across threads."""
        self._awaited: dict[tuple[str, str], set[asyncio.Future[bool]]] = {}
        """Futures of callers that wait until a thread is created, by owner and thread id."""
        self._closed = False
        self._shared = journal.is_shared
        """True if other gateways write to the database. Keys of threads and open tasks are then always read from it."""
        self._pages = PageCache(journal.sized_page)
        self.snapshots = SnapshotCache(lambda: limits().thread, rewrites=REWRITES if self._shared else ())
        if self._shared:
            journal.add_listener(self._handle_remotes)

    # Open tasks and runs, and keys of threads: updated on the loop, before readers receive a commit

    def mark_open(self, pk: int, kind: Kind, open_id: str) -> None:
        if not self._shared:
            self._live.add((pk, kind, open_id))

    def handle_commit(self, published: Published) -> Sequence[str]:
        """Update the open tasks and runs, and wake callers that wait for the thread. Return the ids of the tasks that
        ended.

        Called on the event loop for each commit of this gateway, before its readers receive the records."""
        pk = published.pk
        if published.records[0].seq == 1:
            self._keys[published.owner, published.thread_id] = pk
            if self._awaited:
                self._wake(published.owner, published.thread_id)
        ended: list[str] = []
        for record in published.records:
            event = record.event
            if type(event) not in _OPENS_OR_ENDS:
                continue
            match event:
                case TaskCreated():
                    self.mark_open(pk, "task", event.task_id)
                case RunCreated():
                    self.mark_open(pk, "run", event.run_id)
                case RunEnded():
                    self._live.discard((pk, "run", record.run_id or ""))
                case TaskChanged() if event.state in TERMINAL:
                    self._live.discard((pk, "task", record.task_id or ""))
                    ended.append(record.task_id or "")
                case _:
                    pass
        return ended

    def handle_erase(self, owner: str, thread_id: str, erased: Erased) -> None:
        self._erasures += 1
        self._journal.changes.note_erased(owner, thread_id)
        if self._keys.get((owner, thread_id)) == erased.pk:  # else the id is in use again
            del self._keys[owner, thread_id]
        self._live.difference_update((erased.pk, "task", task_id) for task_id in erased.tasks)
        self._live.difference_update((erased.pk, "run", run_id) for run_id in erased.runs)
        self.forget_log(erased.pk)

    def forget_log(self, pk: int) -> None:
        """Drop the cached pages and snapshots of a thread that was erased, or whose earlier records have changed."""
        self._pages.forget(pk)
        self.snapshots.forget(pk)

    def _handle_remotes(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            if remote.erased or remote.rewritten:
                self.forget_log(remote.pk)
        if any(remote.created for remote in remotes):  # the notices do not contain the ids of the threads
            for owner, thread_id in list(self._awaited):
                self._wake(owner, thread_id)

    def close(self) -> None:
        """Wake all callers that wait for a thread to be created. Called when the gateway stops."""
        self._closed = True
        for waiter in [waiter for waiters in self._awaited.values() for waiter in waiters if not waiter.done()]:
            waiter.set_result(False)

    def _wake(self, owner: str, thread_id: str) -> None:
        for waiter in self._awaited.get((owner, thread_id), ()):
            if not waiter.done():
                waiter.set_result(True)

    def trim(self) -> None:
        while len(self._keys) > 10_000:
            self._keys.popitem(last=False)

    # Reading

    async def log(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        pk = await self.key(owner, scope.thread_id)
        until: int | None = None
        if scope.kind == "task":
            task = await self._task(owner, scope)
            after = max(after, task.first_seq - 1)
            until = task.last_seq if task.is_terminal else None
        begun, time_slice = self._now(), TimeSlice()
        while page := await self._read_page(pk, after, until, begun):
            some = page.select(after, until, _BATCH, _ROOM)
            del page  # not held while the reader is suspended
            after = some[-1].seq
            held = [record for record in some if scope.has_record(record)]
            del some
            async for batch in self._with_files(held, inline=inline):
                yield batch
            if time_slice.is_used_up:
                await time_slice.pause()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _read_page(self, pk: int, after: int, until: int | None, begun: float) -> RecordPage | None:
        """Return the page that contains the record after `after`, or None if there is none up to `until` (None: no
        limit).

        `begun` is the time of the event loop at which the caller's read began. On a shared database, older pages are
        not used."""
        since = max(begun, self._now() - _FRESH) if self._shared else None
        page = await self._pages.get(pk, after, until, since=since)
        return page if page.last > after and (until is None or after < until) else None

    async def logs(
        self, owner: str, task_ids: Sequence[str], *, inline: bool = False
    ) -> Mapping[str, Sequence[Record]]:
        read: dict[str, Sequence[Record]] = {**await self._journal.query(read_tasks, owner, task_ids)}
        if inline:
            filled = {task_id: await self._fill_files(records) for task_id, records in read.items()}
            read = {task_id: records for task_id, records in filled.items() if len(records) == len(read[task_id])}
        return read

    async def _with_files(self, records: Sequence[Record], *, inline: bool) -> AsyncGenerator[Sequence[Record]]:
        """Yield the records in batches, with pauses so that the event loop is not blocked.

        With `inline`, load the bytes of files into the records. Their size limits the batches then."""
        time_slice = TimeSlice()
        while records:
            if time_slice.is_used_up:
                await time_slice.pause()
            some = records[:_BATCH]
            filled = await self._fill_files(some) if inline else some
            records = records[len(filled) :]
            yield filled

    async def _fill_files(self, records: Sequence[Record]) -> Sequence[Record]:
        """Load the bytes of files into the first records, up to `_FILES` bytes but at least one record. Return these
        records."""
        if not _name_files(records):
            return records
        filled: list[Record] = []
        size = 0
        for record in records:
            filled.append(await self._inline_files(record))
            size += 0 if filled[-1] is record else _file_bytes(filled[-1])
            if size > _FILES:
                break
        return filled

    async def snapshot(
        self,
        owner: str,
        thread_id: str,
        name: Hashable,
        empty: Callable[[], S],
        *,
        until: int | None = None,
        inline: bool = False,
    ) -> S:
        pk = await self.key(owner, thread_id)
        page = partial(self._page, pk, self._now(), inline=inline)
        return await self.snapshots.get(pk, (name, inline), empty, page, until)

    async def _page(self, pk: int, begun: float, after: int, until: int | None, *, inline: bool) -> Sequence[Record]:
        recent = None if self._shared else self._journal.channels.get(pk).after(after)
        if recent is None:
            page = await self._read_page(pk, after, until, begun)
            records = () if page is None else page.select(after, until)
        else:
            records = recent if until is None else [record for record in recent if record.seq <= until]
        return await self._fill_files(records) if inline else records

    async def follow(
        self, owner: str, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        pk, channel, may_grow = await self._enter(owner, scope)
        begun, time_slice = self._now(), TimeSlice()
        try:
            while True:
                batch: Sequence[Record] | None = channel.after(after, _BATCH, _ROOM)
                if batch is None:
                    batch = await self._read_batch(pk, channel, after, begun)
                    if batch is None:
                        return
                if batch:
                    after = batch[-1].seq
                    held, ended = await self._select_in_scope(owner, pk, scope, batch)
                    if held and not (inline and _name_files(held)):
                        yield held  # most commits: another generator would double the time
                    elif held:
                        async for some in self._with_files(held, inline=inline):
                            yield some
                            if channel.closed and not self._closed:
                                break
                    if ended or (channel.closed and not self._closed):
                        return  # if the thread was erased meanwhile, the rest of it is not shown
                    if time_slice.is_used_up:
                        await time_slice.pause()
                    continue
                if not (may_grow and self._must_wait(pk, scope, channel)):
                    return
                held = batch = ()  # a silent reader holds no records
                await channel.more()
        finally:
            channel.readers -= 1

    async def _read_batch(self, pk: int, channel: Channel, after: int, begun: float) -> Sequence[Record] | None:
        """Return the next records for a follower whose cursor `after` is behind the ring of its channel. `begun` is the
        time of the event loop at which the follower began.

        Return an empty batch if there are none yet. Return None if the follower must end, because the thread was erased
        or the gateway stops.
        """
        while True:
            closed = channel.closed
            if closed and self._journal.is_closed:
                self._cut_short()
                return None
            page = await self._read_page(pk, after, None, begun)
            batch = () if page is None else page.select(after, None, _BATCH, _ROOM)
            del page  # not held while the reader is suspended
            if batch or closed or channel.seq <= after:
                return batch
            if self._shared and not await self._journal.query(read_ends, [pk]):
                return None  # erased by another gateway, whose notice will follow
            recent = channel.after(after, _BATCH, _ROOM)
            if recent is not None:  # published while the page was read
                return recent

    def _must_wait(self, pk: int, scope: Scope, channel: Channel) -> bool:
        """Return True if a follower that has read everything must wait for more records, and False if it ends.

        If the gateway is stopping, abort the connection of the client instead, and return False."""
        if not self._is_open(pk, scope):
            return False
        if channel.closed:
            self._cut_short()
            return False
        return True

    def _cut_short(self) -> None:
        """Abort the connection of a client whose stream has not ended, if the gateway stops.

        So the client does not take the truncated response for a complete one."""
        if self._closed:
            hang_up()

    async def await_thread(self, owner: str, thread_id: str) -> bool:
        while (exists := await self._await_thread(owner, thread_id)) is None:
            pass
        return exists

    async def _await_thread(self, owner: str, thread_id: str) -> bool | None:
        """Wait once for the creation of a thread. Return True if it exists, False if the gateway stops, and None if the
        method has to be called again."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiters = self._awaited.setdefault((owner, thread_id), set())
        waiters.add(waiter)  # before the query, so that the creation of the thread during it is noticed
        try:
            await self.key(owner, thread_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.NOT_FOUND:
                raise
            if not (self._closed or self._shared):
                await waiter
            elif not self._closed:
                await asyncio.wait([waiter], timeout=_LOOK)
            if self._closed:
                hang_up()
                return False
            return None if self._shared else waiter.result()
        else:
            return True
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._awaited.pop((owner, thread_id), None)

    def _is_open(self, pk: int, scope: Scope) -> bool:
        """Return True if more records of a scope may follow. A thread has no end; it can only be erased.

        On a shared database this is always True: the reader queried the state when it began, and later reads the record
        of the end."""
        return scope.kind == "thread" or self._shared or (pk, scope.kind, scope.id or "") in self._live

    async def _enter(self, owner: str, scope: Scope) -> tuple[int, Channel, bool]:
        """Return the database key of the thread, its channel, and True if more records may follow. Raises not_found.

        The channel then counts one more reader. On a shared database, the channel is advanced to the newest committed
        record of any gateway: the caller may have learned of a commit from another gateway before this one has."""
        # Another gateway may have erased a thread that this one has created.
        cached_key = self._keys.get((owner, scope.thread_id)) if self._shared else None
        while True:
            pk = await self.key(owner, scope.thread_id) if cached_key is None else cached_key
            channel = self._journal.channels.get(pk)
            channel.readers += 1  # before the query, so that commits during it arrive
            if not self._shared:
                return pk, channel, True
            try:
                found = await self._journal.query(queries.log_position, owner, scope)
            except BaseException:
                channel.readers -= 1
                raise
            if found is not None and found.pk == pk:
                self._journal.channels.note(pk, found.end)
                return pk, channel, found.is_open
            channel.readers -= 1
            cached_key = None

    async def _select_in_scope(
        self, owner: str, pk: int, scope: Scope, batch: Sequence[Record]
    ) -> tuple[Sequence[Record], bool]:
        """Return the records of a batch that are in the scope, up to the end of the scope, and True if the batch
        contains that end.

        Records of a task after its end, such as the removal of one of its runs, are only for readers of the whole
        thread. So a reader that follows the task later sees the same records as one that left at the end."""
        held: Sequence[Record] = batch
        if scope.kind == "task":
            held = [record for record in batch if record.task_id == scope.id]
        elif scope.kind == "run":
            held = [record for record in batch if record.run_id == scope.id]
        for place, record in enumerate(held):
            if type(record.event) not in _ENDS:
                continue
            if scope.kind == "task" and isinstance(record.event, RunRemoved):
                ended = self._shared or not self._is_open(pk, scope)
                if ended and await self._is_after_end(owner, scope, record):
                    return held[:place], True
            if _ends(scope, record):
                return held[: place + 1], True
        return held, False

    async def _is_after_end(self, owner: str, scope: Scope, record: Record) -> bool:
        task = await self._task(owner, scope)
        return task.is_terminal and record.seq > task.last_seq

    async def key(self, owner: str, thread_id: str) -> int:
        """Return the database key of a thread, from memory if the database is not shared. Raises not_found."""
        while self._shared or (owner, thread_id) not in self._keys:
            erasures = self._erasures
            key = await self._journal.query(queries.thread_key, owner, thread_id)
            if key is None:
                raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
            if self._shared:
                return key
            if self._erasures == erasures:
                self._keys[owner, thread_id] = key
                self.trim()
                return key
        return self._keys[owner, thread_id]

    async def _inline_files(self, record: Record) -> Record:
        """Return the record with the bytes of its stored files, except of files larger than `limits.inline`."""
        event = record.event
        match event:
            case PartAdded() | ArtifactAdded():
                part = await self._inline(event.part)
                return record if part is event.part else record.replace(event=event.replace(part=part))
            case RunCreated():
                messages = tuple([await self._inline_message(message) for message in event.messages])
                is_same = all(a is b for a, b in zip(messages, event.messages, strict=True))
                return record if is_same else record.replace(event=event.replace(messages=messages))
            case InterruptRaised():
                message = await self._inline_message(event.message)
                is_same = message is event.message
                return record if is_same else record.replace(event=event.replace(message=message))
            case _:
                return record

    async def _inline(self, part: Part) -> Part:
        return await self._blobs.load(part, self._limits().inline) if isinstance(part, FilePart) else part

    async def _inline_message(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        return message.replace(parts=tuple([await self._inline(part) for part in message.parts]))

    async def _task(self, owner: str, scope: Scope) -> Task:
        task = await self._journal.row(Task, owner, scope.id or "")
        if task is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Task {scope.id} not found")
        return task


def _files(record: Record) -> list[FilePart]:
    """Return the file parts of a record."""
    event = record.event
    parts: tuple[Part, ...]
    match event:
        case PartAdded() | ArtifactAdded():
            parts = (event.part,)
        case RunCreated():
            parts = tuple(part for message in event.messages for part in message.parts)
        case InterruptRaised():
            parts = event.message.parts
        case _:
            parts = ()
    return [part for part in parts if isinstance(part, FilePart)]


def _name_files(records: Sequence[Record]) -> bool:
    return any(_files(record) for record in records if type(record.event) in _WITH_FILES)


def _file_bytes(record: Record) -> int:
    return sum(len(part.inline or b"") for part in _files(record))


def _ends(scope: Scope, record: Record) -> bool:
    event = record.event
    if scope.kind == "run":
        return isinstance(event, RunEnded)
    return scope.kind == "task" and isinstance(event, TaskChanged) and event.state in TERMINAL
