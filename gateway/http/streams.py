"""Open streams by caller, so that the change or the end of a credential reaches them."""

from typing import Protocol

from babelgate.canonical import Principal


class CallerStream(Protocol):
    """A stream that ends when the credential of its caller expires."""

    def change_caller(self, caller: Principal | None) -> None:
        """Apply a change of the caller's credential, or end the stream because it was revoked (None)."""
        ...


class OpenStreams:
    """Streams of callers with a credential that can be changed or revoked."""

    def __init__(self) -> None:
        self._by_caller: dict[Principal, list[CallerStream]] = {}

    def add(self, caller: Principal, stream: CallerStream) -> None:
        """Add a stream that begins."""
        if caller.credential_id:
            self._by_caller.setdefault(caller, []).append(stream)

    def discard(self, caller: Principal, stream: CallerStream) -> None:
        """Remove a stream that has ended."""
        streams = self._by_caller.get(caller)
        if streams is not None and stream in streams:
            streams.remove(stream)
            if not streams:
                del self._by_caller[caller]

    def replace(self, before: Principal, after: Principal | None) -> None:
        """Apply a change of a credential to the streams of its caller. None means that it was revoked."""
        streams = self._by_caller.pop(before, [])
        if streams and after is not None:
            self._by_caller.setdefault(after, []).extend(streams)
        for stream in streams:
            stream.change_caller(after)
