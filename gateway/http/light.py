"""Parts of a connection that take little memory while it is idle. They replace those of uvicorn and asyncio, which have
an empty deque of 600 bytes each."""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl


class LightEvent(asyncio.Event):
    """Event with few waiters. They are in a list."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters: Any = []


class LightFlow(FlowControl):
    """Flow control whose event takes little memory."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_writable_event = LightEvent()
        self._is_writable_event.set()


class Pipeline(list[Any]):
    """Requests that wait for the response to an earlier one, newest first."""

    def appendleft(self, request: Any) -> None:
        self.insert(0, request)
