"""Subscriptions: what readers of the log of a thread, a task or a run are shown, from a cursor on."""

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
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.fold_cache import SnapshotCache
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.live import Channel
from babelgate.gateway.storage.log_pages import read_ends, read_tasks
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.page_cache import Page, PageCache
from babelgate.gateway.storage.shared import REWRITES
from babelgate.gateway.storage.transaction import Erased, Published

S = TypeVar("S", bound=Snapshot)

_FRESH: Final = 30.0
"""Seconds for which a page is shared where another gateway may have rewritten its log unheard. Chosen."""
_LOOK: Final = 10.0
"""Seconds from one look for an awaited thread to the next. Another gateway may have created it, and its notice may be
lost. Chosen: the same as the listener's interval."""
_BATCH: Final = 128
"""Records that a reader is given at once. Chosen, not measured: as many as a pump stores together (`runs.pump`)."""
_ROOM: Final = 16 * 1024
"""Bytes, as in the log, of the records that a reader is given at once, unless it is one: decoded and encoded they take
several times as much, and the reader holds that until its client has taken it."""
_FILES: Final = 64 * 1024
"""Bytes of the files in records that a reader is given at once, unless it is one record."""
Kind = Literal["task", "run"]

_WITH_FILES: Final = frozenset((PartAdded, ArtifactAdded, RunCreated, InterruptRaised))
"""Events that may carry some."""
_ENDS: Final = frozenset((RunEnded, RunRemoved, TaskChanged))
"""Events that may end what a reader follows."""
_OPENS_OR_ENDS: Final = frozenset((TaskCreated, RunCreated, RunEnded, TaskChanged))
"""Tasks and runs."""


class LogReader:
    def __init__(self, journal: Journal, blobs: Blobs, inline: int, largest: int) -> None:
        self._journal = journal
        self._blobs = blobs
        self._most = inline
        """Bytes of a file that travels inside a message."""
        self._keys: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._erasures = 0
        """How many threads were erased: a key that was read meanwhile may be one of theirs."""
        self._live: set[tuple[int, Kind, str]] = set()
        """Tasks that are not terminal and runs that have not ended, each with the key of its thread: another thread may
        hold the same id."""
        self._awaited: dict[tuple[str, str], set[asyncio.Future[bool]]] = {}
        """Threads that there are not yet, and who waits for them."""
        self._closed = False
        self._shared = journal.is_shared
        """Other gateways write to the same threads: what is open, and where threads are, is asked of the database."""
        self._pages = PageCache(journal.sized_page)
        self.snapshots = SnapshotCache(largest, rewrites=REWRITES if self._shared else ())
        if self._shared:
            journal.add_hearer(self._handle_remotes)

    # What is open, and where threads are: kept on the loop, before anybody hears of a commit

    def mark_open(self, pk: int, kind: Kind, open_id: str) -> None:
        if not self._shared:
            self._live.add((pk, kind, open_id))

    def handle_commit(self, published: Published) -> Sequence[str]:
        """The ids of the tasks that ended."""
        pk = published.pk
        if published.records[0].seq == 1:
            self._keys[published.owner, published.thread_id] = pk
            if self._awaited:
                self._tell(published.owner, published.thread_id)
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
        if self._keys.get((owner, thread_id)) == erased.pk:  # else the id was given out again already
            del self._keys[owner, thread_id]
        self._live.difference_update((erased.pk, "task", task_id) for task_id in erased.tasks)
        self._live.difference_update((erased.pk, "run", run_id) for run_id in erased.runs)
        self.forget_log(erased.pk)

    def forget_log(self, pk: int) -> None:
        """Drop what is in memory of a thread that was erased, or whose log was rewritten."""
        self._pages.forget(pk)
        self.snapshots.forget(pk)

    def _handle_remotes(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            if remote.erased or remote.rewritten:
                self.forget_log(remote.pk)
        if any(remote.created for remote in remotes):  # which ones is not told
            for owner, thread_id in list(self._awaited):
                self._tell(owner, thread_id)

    def close(self) -> None:
        """Nobody waits for a thread any longer."""
        self._closed = True
        for waiter in [waiter for waiters in self._awaited.values() for waiter in waiters if not waiter.done()]:
            waiter.set_result(False)

    def _tell(self, owner: str, thread_id: str) -> None:
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
            del page  # it is not held while the reader is suspended
            after = some[-1].seq
            held = [record for record in some if scope.has_record(record)]
            del some
            async for batch in self._with_files(held, inline=inline):
                yield batch
            if time_slice.is_used_up:
                await time_slice.pause()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _read_page(self, pk: int, after: int, until: int | None, begun: float) -> Page | None:
        """Return the page with the next record, or None if there is none. `begun`: when the reading did."""
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
        """The records, a few at a time, so that the reader does not hold the loop for long; with `inline`, as many as
        their files allow."""
        time_slice = TimeSlice()
        while records:
            if time_slice.is_used_up:
                await time_slice.pause()
            some = records[:_BATCH]
            filled = await self._fill_files(some) if inline else some
            records = records[len(filled) :]
            yield filled

    async def _fill_files(self, records: Sequence[Record]) -> Sequence[Record]:
        """As many of them as their files allow, with the bytes of these."""
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
                    closed = channel.closed
                    if closed and self._journal.is_closed:
                        self._cut_short()
                        return
                    page = await self._read_page(pk, after, None, begun)
                    batch = () if page is None else page.select(after, None, _BATCH, _ROOM)
                    del page  # it is not held while the reader is suspended
                    if not batch and channel.seq > after and not closed:
                        if self._shared and not await self._journal.query(read_ends, [pk]):
                            return  # erased by another gateway, which will be heard of
                        continue  # published while the page was read
                if batch:
                    after = batch[-1].seq
                    held, ended = await self._select_in_scope(owner, pk, scope, batch)
                    if held and not (inline and _name_files(held)):
                        yield held  # most commits: one more generator for each would cost as much as all else here
                    elif held:
                        async for some in self._with_files(held, inline=inline):
                            yield some
                            if channel.closed and not self._closed:
                                break
                    if channel.closed and not self._closed:
                        return  # erased meanwhile: what was read before is shown no further
                    if ended:
                        return
                    if time_slice.is_used_up:
                        await time_slice.pause()
                    continue
                if not (may_grow and self._is_open(pk, scope)):
                    return
                if channel.closed:
                    self._cut_short()
                    return
                await channel.more()
        finally:
            channel.readers -= 1

    def _cut_short(self) -> None:
        """Close the connection of a reader that waits for more, if the gateway stops: a response without the rest must
        not look whole."""
        if self._closed:
            hang_up()

    async def await_thread(self, owner: str, thread_id: str) -> bool:
        while (found := await self._await_thread(owner, thread_id)) is None:
            pass
        return found

    async def _await_thread(self, owner: str, thread_id: str) -> bool | None:
        """None where it is to be looked for again."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiters = self._awaited.setdefault((owner, thread_id), set())
        waiters.add(waiter)  # before the look: a thread that is made meanwhile is told of
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
        """Whether more may come. A thread is never over; it can only be erased. Who shares the database has asked when
        it began, and reads the end if it was not there yet."""
        return scope.kind == "thread" or self._shared or (pk, scope.kind, scope.id or "") in self._live

    async def _enter(self, owner: str, scope: Scope) -> tuple[int, Channel, bool]:
        """The thread's key, its channel with one more reader, and whether more may come. Where gateways share the
        database, it begins with what is committed at this moment, wherever it was: the caller may have heard of it from
        another one sooner than this one has. Raises not_found."""
        # What this gateway has made, another one may have erased.
        known = self._keys.get((owner, scope.thread_id)) if self._shared else None
        while True:
            pk = await self.key(owner, scope.thread_id) if known is None else known
            channel = self._journal.channels.get(pk)
            channel.readers += 1  # before the look: what is committed meanwhile is heard of
            if not self._shared:
                return pk, channel, True
            try:
                found = await self._journal.query(queries.standing, owner, scope)
            except BaseException:
                channel.readers -= 1
                raise
            if found is not None and found.pk == pk:
                self._journal.channels.note(pk, found.end)
                return pk, channel, found.is_open
            channel.readers -= 1
            known = None

    async def _select_in_scope(
        self, owner: str, pk: int, scope: Scope, batch: Sequence[Record]
    ) -> tuple[Sequence[Record], bool]:
        """The part of a batch that is in the scope, up to its end, and whether it ends there. What comes after the end
        of a task (the removal of a run of it) is for readers of the thread: one that was there before, and left at the
        end, has not seen it either."""
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
        """Raises not_found."""
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
        """The record with the bytes of small stored files in the parts that name them."""
        event = record.event
        match event:
            case PartAdded() | ArtifactAdded():
                part = await self._inline(event.part)
                return record if part is event.part else record.replace(event=event.replace(part=part))
            case RunCreated():
                messages = tuple([await self._inline_message(message) for message in event.messages])
                same = all(a is b for a, b in zip(messages, event.messages, strict=True))
                return record if same else record.replace(event=event.replace(messages=messages))
            case InterruptRaised():
                message = await self._inline_message(event.message)
                same = message is event.message
                return record if same else record.replace(event=event.replace(message=message))
            case _:
                return record

    async def _inline(self, part: Part) -> Part:
        return await self._blobs.load(part, self._most) if isinstance(part, FilePart) else part

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
    """Those that it names."""
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
