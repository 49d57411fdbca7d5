"""Commits of other gateways on a shared database, as far as this one learns of them."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from babelgate.canonical.fault import FaultError
from babelgate.gateway.storage.listener import Listen, Listener
from babelgate.gateway.storage.live import Channels
from babelgate.gateway.storage.notices import Remote

log = logging.getLogger("babelgate.journal")

Note = Callable[[Remote], None]
"""Function that marks a thread in the memory of the writer as out of date."""
ReadEnds = Callable[[Sequence[int]], Awaitable[Mapping[int, int]]]
"""Function that reads the newest sequence numbers of threads, by key. It raises FaultError."""


class RemoteCommits:
    """Receiver of other gateways' notices. It passes them to the writer, to channels and to other functions."""

    def __init__(self, channels: Channels, listeners: Iterable[Callable[[Sequence[Remote]], None]]) -> None:
        """Pass notices to channels and to `listeners`. `start` begins to listen."""
        self._channels = channels
        self._listeners = [*listeners]
        self._listener: Listener | None = None
        self._looks: list[Callable[[], Awaitable[None]]] = []

    @property
    def is_listening(self) -> bool:
        """True while notices arrive, and all missed ones were looked for."""
        return self._listener is not None and self._listener.listens.is_set()

    async def start(self, node: str, listen: Listen, note: Note, read_ends: ReadEnds) -> None:
        """Start to listen for notices for the gateway `node`. Raises OperationalError if the first connection fails."""
        self._note = note
        self._read_ends = read_ends
        self._listener = Listener(node, listen, self._receive, self._look_for_missed)
        await self._listener.start()

    async def stop(self) -> None:
        """Stop listening. Does nothing if it has not started."""
        if self._listener is not None:
            await self._listener.stop()

    def add_listener(self, listener: Callable[[Sequence[Remote]], None]) -> None:
        """Register a function that receives notices before all others."""
        self._listeners.insert(0, listener)

    def add_look(self, look: Callable[[], Awaitable[None]]) -> None:
        """Register a function that looks for missed changes: after each connect, and periodically. It raises
        nothing."""
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
        """Find commits of other gateways whose notices did not arrive.

        A notice is lost with its gateway or with a connection. This looks at the threads that have a channel: those
        with readers or runs, and those used lately.
        """
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
