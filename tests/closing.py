"""Event loops that wait for closing sockets: a socket whose other end closed in the last turn of a test is no leak."""

import asyncio
from time import monotonic
from typing import Any, Final

PATIENCE: Final = 1.0
"""Time to wait for the end of a connection, in seconds. One that is left open is still reported as unclosed."""
_TURN: Final = 0.01


class ClosingLoop(asyncio.SelectorEventLoop):
    def close(self) -> None:
        until = monotonic() + PATIENCE
        while not (self.is_running() or self.is_closed()) and self._has_connections() and monotonic() < until:
            self.run_until_complete(asyncio.sleep(_TURN))
        super().close()

    def _has_connections(self) -> bool:
        transports: Any = getattr(self, "_transports", {})  # by file descriptor, as long as something references them
        return any(getattr(each, "_sock", None) is not None for each in list(transports.values()))


def close_connections() -> None:
    """Use this loop for all loops that asyncio creates by default."""
    policy: Any = asyncio.DefaultEventLoopPolicy
    policy._loop_factory = ClosingLoop
