"""Notifier (NOTIFY): the connection on which a gateway notifies the others of its commits.

PostgreSQL holds one lock for the whole server from NOTIFY until the commit is flushed. A notice in the transaction of
the commit would therefore make all gateways commit one after the other. The notifier sends notices after the commit, in
separate transactions that do not wait for the flush.

No data depends on a notice. It is lost if its gateway stops between the commit and the notice, or if too many are
pending. The listeners of the other gateways check the database every ten seconds for missed changes."""

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Sequence
from time import monotonic
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from babelgate.gateway.background import Failures, until_ended
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.notices import Remote, encode_notices, merge
from babelgate.gateway.storage.unavailable import reason_of
from babelgate.gateway.storage.writer_link import discard

log = logging.getLogger("babelgate.journal")

_GATHER: Final = 0.001
"""Minimum seconds between two notices. Commits within that time are merged. The first one after a pause is sent at
once. Chosen: readers do not notice another millisecond."""
_MAX_PENDING: Final = 10_000
"""Maximum number of threads with an unsent notice. Beyond it, the oldest notice is dropped. Chosen: 2 MB."""
_RETRY_DELAY: Final = 1.0
"""Seconds between a failed attempt to send and the next one. Chosen: as for the listener."""
_ANSWER: Final = 10.0
"""Seconds without a response to a statement after which the connection counts as dead. Chosen: as for the listener."""
_CLOSING: Final = 2.0
"""Maximum seconds that a stopping gateway waits for its last notices. Chosen."""


class Notifier:
    """Sender of notices to the other gateways. It has its own thread, so that neither the writer nor the event loop
    waits."""

    def __init__(self, node: str, database: Database) -> None:
        self._node = node
        self._database = database
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._pending: OrderedDict[int, Remote] = OrderedDict()
        """Unsent notices, by the database key of the thread. Guarded by the lock."""
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item whenever the first notice becomes pending, and one when the notifier ends. This queue costs a fifth
        of the CPU time of a condition variable."""
        self._sent_at = 0.0
        self._ends = threading.Event()
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._failures = Failures("the notifier")
        self._asked_at: float | None = None
        """Time at which the statement without a response was sent, in seconds of the monotonic clock. None if none is
        open."""
        self._is_lost = False
        self._is_full = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="babelgate-notifier", daemon=True)
        self._thread.start()

    def add(self, remotes: Sequence[Remote]) -> None:
        """Queue notices of committed changes for the other gateways.

        Any thread may call this method. It does not block. It interrupts the connection if a statement has had no
        response for `_ANSWER` seconds."""
        if not remotes:
            return
        self._merge_all(remotes)
        asked_at = self._asked_at
        if asked_at is not None and monotonic() - asked_at > _ANSWER:
            self._hang_up()

    async def close(self, seconds: float = _CLOSING) -> None:
        """Send the pending notices, for at most `seconds`, and stop the thread."""
        if self._thread is None:
            return
        self._ends.set()
        self._wakes.put(None)
        if not await until_ended(self._thread.join, self._hang_up, seconds):
            log.warning("last notices not sent: the database did not answer within seconds=%g", seconds)

    def _merge_all(self, remotes: Sequence[Remote], *, before: bool = False) -> None:
        """Merge notices into the pending ones. With `before`, the notices are older than the pending ones: their
        sending failed."""
        with self._lock:
            is_first = not self._pending
            if before:
                remotes = (*remotes, *self._pending.values())
                self._pending.clear()
            for remote in remotes:
                self._merge(remote)
        if is_first:
            self._wakes.put(None)

    def _merge(self, remote: Remote) -> None:
        pending = self._pending.get(remote.pk)
        self._pending[remote.pk] = remote if pending is None else merge(pending, remote)
        if len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)
            if not self._is_full:
                log.warning("notices dropped: other gateways find these commits by themselves limit=%d", _MAX_PENDING)
            self._is_full = True

    def _hang_up(self) -> None:
        if (engine := self._engine) is not None:
            self._database.abort(engine)

    # In the thread

    def _run(self) -> None:
        engine = self._engine = self._database.open_writer()
        try:
            while (remotes := self._take()) or not self._ends.is_set():
                try:
                    self._send(engine, remotes)
                except Exception as error:
                    if isinstance(error, DBAPIError):
                        self._note_loss(error)
                    else:
                        self._failures.note(error)
                        self._disconnect()
                    self._merge_all(remotes, before=True)  # the server may have sent them, which does no harm
                    if self._ends.wait(_RETRY_DELAY):
                        return
                else:
                    self._note_success()
        finally:
            self._disconnect()
            engine.dispose()

    def _take(self) -> list[Remote]:
        """Wait until notices are pending, remove and return them. Return an empty list if the notifier ends."""
        self._wakes.get()
        early = self._sent_at + _GATHER - monotonic()
        if early > 0:
            self._ends.wait(early)
        with self._lock:
            remotes = list(self._pending.values())
            self._pending.clear()
        return remotes

    def _send(self, engine: Engine, remotes: Sequence[Remote]) -> None:
        """Connect if necessary, and send notices to the other gateways. Raises DBAPIError if the database cannot be
        reached."""
        if self._connection is not None and self._database.is_lost(self._connection):
            self._disconnect()
        if self._connection is None:
            self._connection = engine.connect()
        self._asked_at = monotonic()
        try:
            self._database.notify(self._connection, list(encode_notices(self._node, remotes)))
        except DBAPIError:
            self._disconnect()
            raise
        finally:
            self._asked_at = None
        self._sent_at = monotonic()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            discard(connection)

    def _note_loss(self, error: DBAPIError) -> None:
        if not self._is_lost:
            log.error("notice connection lost: other gateways learn of commits late error=%s", reason_of(error))
        self._is_lost = True

    def _note_success(self) -> None:
        if self._is_lost:
            log.warning("notice connection restored")
        self._is_lost = self._is_full = False
