"""Receipt of the commits that other gateways make on a shared database."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from babelgate.canonical.fault import FaultError
from babelgate.gateway.storage.listener import Listen, Listener
from babelgate.gateway.storage.live import Channels
from babelgate.gateway.storage.notices import Remote

log = logging.getLogger("babelgate.journal")

Note = Callable[[Remote], None]
"""Function that receives a notice, and marks its thread as out of date in the writer's memory."""
ReadEnds = Callable[[Sequence[int]], Awaitable[Mapping[int, int]]]
"""Function that returns the newest sequence number of threads, by database key, from the database. It raises
FaultError."""


class RemoteCommits:
    """Receiver of the notices of other gateways. It passes them to the writer, the channels and the listeners."""

    def __init__(self, channels: Channels, listeners: Iterable[Callable[[Sequence[Remote]], None]]) -> None:
        """Create a receiver that passes notices to `channels` and then to `listeners`. `start` connects it."""
        self._channels = channels
        self._listeners = [*listeners]
        self._listener: Listener | None = None
        self._looks: list[Callable[[], Awaitable[None]]] = []

    @property
    def is_listening(self) -> bool:
        """True while notices arrive, and the check for those missed before has been made."""
        return self._listener is not None and self._listener.listens.is_set()

    async def start(self, node: str, listen: Listen, note: Note, read_ends: ReadEnds) -> None:
        """Start to receive notices for the gateway `node`. Raises OperationalError if the first connection fails.

        `note` marks a thread as out of date in the writer's memory. `read_ends` reads newest sequence numbers from the
        database."""
        self._note = note
        self._read_ends = read_ends
        self._listener = Listener(node, listen, self._receive, self._look_for_missed)
        await self._listener.start()

    async def stop(self) -> None:
        """Stop listening. Does nothing if it has not started."""
        if self._listener is not None:
            await self._listener.stop()

    def add_listener(self, listener: Callable[[Sequence[Remote]], None]) -> None:
        """Add a function that receives all notices, before the functions that were added earlier."""
        self._listeners.insert(0, listener)

    def add_look(self, look: Callable[[], Awaitable[None]]) -> None:
        """Add a function that checks the database for missed changes: after each connect, and periodically. It must
        raise nothing."""
        self._looks.append(look)

    def _receive(self, remotes: Sequence[Remote]) -> None:
        for remote in (each for each in remotes if each.is_thread):
            self._note(remote)
            if remote.rewritten:
                self._channels.forget(remote.pk)
            if remote.erased:
                self._channels.close(remote.pk)
            else:
                self._channels.note(remote.pk, remote.seq)
        for listener in self._listeners:
            listener(remotes)

    async def _look_for_missed(self) -> None:
        """Check the database for commits of other gateways whose notices did not arrive, and handle them as notices.

        A notice is lost if its gateway or a connection fails. The check covers the threads that have a channel: those
        with readers or active runs, and those used recently."""
        for look in self._looks:
            await look()
        ends_here = self._channels.ends()
        if not ends_here:
            return
        try:
            ends = await self._read_ends(list(ends_here))
        except FaultError as error:  # the next look finds them
            log.warning("commits of other gateways not read error=%s", error)
            return
        missed = [Remote(pk, ends[pk], rewritten=True) for pk, seq in ends_here.items() if ends.get(pk, 0) > seq]
        missed += [Remote(pk, seq, erased=True) for pk, seq in ends_here.items() if pk not in ends]
        if missed:
            self._receive(missed)
