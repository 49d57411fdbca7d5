"""Table of grants: which threads an owner shares with which other owners and groups.

A grant belongs to the database key of a thread. It applies only if the thread is older than the grant, so it never
opens a thread that was created later under the same key."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, or_, select, update

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.grant import Grant, GrantLevel
from babelgate.canonical.message import FilePart
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.audit import Act, ActTarget
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import has_only_agents
from babelgate.gateway.storage.notices import GRANTS, Remote
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import BlobUseRow, GrantRow, RunRow, TaskRow, ThreadRow
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.journal")

Kind = Literal["thread", "task", "run"]

_GRANT, _THREAD, _USE = table_of(GrantRow), table_of(ThreadRow), table_of(BlobUseRow)
_TASK, _RUN, _OWN = table_of(TaskRow), table_of(RunRow), _THREAD.alias()
_COLUMNS: Final = (
    _THREAD.c.thread_id,
    _THREAD.c.owner,
    _GRANT.c.grantee,
    _GRANT.c.level,
    _GRANT.c.by,
    _GRANT.c.at,
    _GRANT.c.expires,
)
_JOIN: Final = and_(_THREAD.c.pk == _GRANT.c.thread_pk, _THREAD.c.created_at <= _GRANT.c.at)
_GRANTEE: Final = re.compile(r"(owner|group):[^\x00]{1,256}")
_MAX_GRANTS: Final = 100
"""Maximum number of grants per thread. Chosen: a thread for more grantees is shared with a group."""
_MAX_LISTED: Final = 1000
"""Maximum number of grants in a list. Chosen."""


class GrantStore:
    """Grants in the database, with an in-memory set of the grantees that spares all other callers a query."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._grantees: set[str] = set()
        """All owners and groups that have ever received a grant, as `owner:NAME` or `group:NAME`."""
        self._is_current = False
        self._notices = 0
        """Number of received notices that another gateway has given a grant to a new grantee."""
        self._tasks = Tasks()
        if journal.is_shared:
            journal.add_listener(self._handle_remotes)
            journal.add_look(self._refresh)

    async def start(self) -> None:
        notices = self._notices
        self._grantees |= await self._journal.query(_grantees)
        self._is_current = notices == self._notices

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    def has_grantee(self, grantees: Set[str]) -> bool:
        """Return False if it is certain that none of these grantees has a grant, so that no query is needed.

        Return True also while notices of other gateways do not arrive, because they may have given grants."""
        is_known = self._is_current and (self._journal.is_listening or not self._journal.is_shared)
        return not (is_known and self._grantees.isdisjoint(grantees))

    def _handle_remotes(self, remotes: Sequence[Remote]) -> None:
        if any(remote.pk == GRANTS for remote in remotes):
            self._is_current = False
            self._notices += 1
            self._tasks.spawn(self._refresh(), "grants")

    async def _refresh(self) -> None:
        """Read the grantees from the database again. If that fails, `has_grantee` returns True until it succeeds."""
        try:
            await self.start()
        except FaultError as error:
            self._is_current = False
            log.warning("grants not read error=%s", error)

    async def give(
        self, owner: str, thread_id: str, grantee: str, level: GrantLevel, by: str, expires: int | None
    ) -> Grant:
        """Share a thread of an owner with a grantee, or replace the existing grant, as
        `babelgate.canonical.grant.Grants.give` specifies.

        Raises not_found, invalid, and queue_full if the thread has `_MAX_GRANTS` grants."""
        now = self._clock.now()
        if not _GRANTEE.fullmatch(grantee):
            raise FaultError(FaultCode.INVALID, "grantee: expected owner:NAME or group:NAME.")
        if expires is not None and expires <= now:
            raise FaultError(FaultCode.INVALID, "expires: the time is in the past.")
        grant = Grant(thread_id=thread_id, owner=owner, grantee=grantee, level=level, by=by, at=now, expires=expires)
        self._grantees.add(grantee)
        return await self._journal.write_audited(_act("give", owner, thread_id, f"{grantee} {level}"), _give, grant)

    async def delete(self, owner: str, thread_id: str, grantee: str) -> bool:
        return await self._journal.write_audited(
            _act("delete", owner, thread_id, grantee), _delete, owner, thread_id, grantee
        )

    async def list_given(self, owner: str, thread_id: str | None = None) -> Sequence[Grant]:
        return await self._journal.query(_read_given, owner, thread_id, self._clock.now())

    async def list_received(self, owner: str, grantees: Collection[str]) -> Sequence[Grant]:
        return await self._journal.query(_read_received, owner, grantees, self._clock.now())

    async def find(self, grantees: Collection[str], kind: Kind, shared_id: str) -> Grant | None:
        """Return the grant by which one of the grantees may use a thread, task or run, or None if there is none.

        If several threads have the id, the oldest is used. Of several grants of one thread, one with the level `write`
        is returned."""
        return await self._journal.query(_find, grantees, kind, shared_id, self._clock.now())

    async def find_threads(self, owner: str, grantees: Collection[str], thread_ids: Collection[str]) -> Set[int]:
        """Return the database keys of the threads with these ids that are shared with the grantees.

        An id is left out if `owner` has a thread with this id. If several owners share threads with one id, the oldest
        is returned."""
        return await self._journal.query(_find_threads, owner, grantees, thread_ids, self._clock.now())

    async def find_file(self, grantees: Collection[str], blob: str, agents: Set[str] | None) -> FilePart | None:
        """Return the description of a file that a thread shared with the grantees refers to, or None.

        With `agents`, only threads count on which no other agents ran."""
        return await self._journal.query(_find_file, grantees, blob, agents, self._clock.now())


def _act(name: str, owner: str, thread_id: str, reason: str) -> Act:
    return Act(action=f"grant.{name}", target=ActTarget("thread", thread_id, owner=owner), reason=reason)


def _grantees(connection: Connection) -> set[str]:
    return set(connection.execute(select(_GRANT.c.grantee).distinct()).scalars())


def _applies(now: int) -> ColumnElement[bool]:
    return or_(_GRANT.c.expires.is_(None), _GRANT.c.expires > now)


def _give(tx: Transaction, grant: Grant) -> Grant:
    state = tx.need_thread(grant.owner, grant.thread_id)
    pk = state.pk
    grant = grant.replace(at=max(grant.at, state.thread.created_at))  # the clock may have been set back
    this = and_(_GRANT.c.thread_pk == pk, _GRANT.c.grantee == grant.grantee)
    row = {"level": grant.level, "by": grant.by, "at": grant.at, "expires": grant.expires}
    if tx.connection.execute(update(_GRANT).where(this), row).rowcount:
        return grant
    counted = select(func.count()).select_from(_GRANT).where(_GRANT.c.thread_pk == pk)
    if tx.connection.execute(counted).scalar_one() >= _MAX_GRANTS:
        raise FaultError(
            FaultCode.QUEUE_FULL, f"The thread has {_MAX_GRANTS} grants: delete one first, or share it with a group."
        )
    other = select(_GRANT.c.grantee).where(_GRANT.c.grantee == grant.grantee).limit(1)
    if tx.connection.execute(other).first() is None:
        tx.announce_grants()
    tx.connection.execute(insert(_GRANT), {"thread_pk": pk, "grantee": grant.grantee, **row})
    return grant


def _delete(tx: Transaction, owner: str, thread_id: str, grantee: str) -> bool:
    pk = tx.need_thread(owner, thread_id).pk
    this = and_(_GRANT.c.thread_pk == pk, _GRANT.c.grantee == grantee)
    return tx.connection.execute(delete(_GRANT).where(this)).rowcount > 0


def _grants(connection: Connection, *conditions: ColumnElement[bool]) -> list[Grant]:
    selected = select(*_COLUMNS).join(_THREAD, _JOIN).where(*conditions)
    ordered = selected.order_by(_GRANT.c.at.desc(), _THREAD.c.thread_id, _GRANT.c.grantee).limit(_MAX_LISTED)
    return [_grant(row) for row in connection.execute(ordered).mappings()]


def _grant(row: Mapping[Any, Any]) -> Grant:
    return Grant(**row)


def _read_given(connection: Connection, owner: str, thread_id: str | None, now: int) -> list[Grant]:
    conditions = [_THREAD.c.owner == owner, _applies(now)]
    if thread_id is not None:
        conditions.append(_THREAD.c.thread_id == thread_id)
    return _grants(connection, *conditions)


def _read_received(connection: Connection, owner: str, grantees: Collection[str], now: int) -> list[Grant]:
    return _grants(connection, _GRANT.c.grantee.in_(sorted(grantees)), _THREAD.c.owner != owner, _applies(now))


def _find(connection: Connection, grantees: Collection[str], kind: Kind, shared_id: str, now: int) -> Grant | None:
    selected = select(*_COLUMNS).join(_THREAD, _JOIN)
    match kind:
        case "thread":
            selected = selected.where(_THREAD.c.thread_id == shared_id)
        case "task":
            selected = selected.join(_TASK, _TASK.c.thread_pk == _THREAD.c.pk).where(_TASK.c.task_id == shared_id)
        case "run":
            selected = selected.join(_RUN, _RUN.c.thread_pk == _THREAD.c.pk).where(_RUN.c.run_id == shared_id)
    selected = selected.where(_GRANT.c.grantee.in_(sorted(grantees)), _applies(now))
    # Two owners may share threads of the same id: the oldest thread precedes.
    ordered = selected.order_by(_THREAD.c.pk, _GRANT.c.level.desc()).limit(1)
    row = connection.execute(ordered).mappings().first()
    return None if row is None else _grant(row)


def _find_threads(
    connection: Connection, owner: str, grantees: Collection[str], thread_ids: Collection[str], now: int
) -> Set[int]:
    is_own = and_(_OWN.c.owner == owner, _OWN.c.thread_id == _THREAD.c.thread_id)
    selected = select(func.min(_THREAD.c.pk)).select_from(_GRANT).join(_THREAD, _JOIN).group_by(_THREAD.c.thread_id)
    selected = selected.where(_GRANT.c.grantee.in_(sorted(grantees)), _applies(now))
    selected = selected.where(_THREAD.c.thread_id.in_(thread_ids), ~exists().where(is_own))
    return set(connection.execute(selected).scalars())


def _find_file(
    connection: Connection, grantees: Collection[str], blob: str, agents: Set[str] | None, now: int
) -> FilePart | None:
    conditions = [_USE.c.blob == blob, _GRANT.c.grantee.in_(sorted(grantees)), _applies(now)]
    if agents is not None:
        conditions.append(has_only_agents(agents))
    selected = select(_USE.c.body).select_from(_GRANT).join(_THREAD, _JOIN)
    selected = selected.join(_USE, _USE.c.thread_pk == _THREAD.c.pk).where(*conditions).limit(1)
    body = connection.execute(selected).scalar()
    return None if body is None else decode_row(FilePart, body)
