"""Callbacks for callers that disconnect before their response."""

from collections.abc import Callable


class Disconnect:
    """Callbacks for the case that a caller disconnects, or cancels its request, before the response.

    A callback that is added after that is called at once, because the stream of a response begins before its run is
    submitted.
    """

    def __init__(self) -> None:
        self._has_fired = False
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        """Add a callback. Call it at once if the caller has disconnected already."""
        if self._has_fired:
            callback()
        else:
            self._callbacks.append(callback)

    def fire(self) -> None:
        """Call all callbacks, once."""
        callbacks, self._callbacks, self._has_fired = self._callbacks, [], True
        for each in callbacks:
            each()
