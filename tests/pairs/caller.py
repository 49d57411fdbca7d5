"""What a caller does and sees, in no protocol's words."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

import httpx

from canonical import Carry, Feature

__all__ = ("Caller", "Data", "Feed", "File", "Ids", "Question", "Said", "Seen", "View")

BOUND: Final = 10.0
"""Seconds within which the next frame must come."""


@dataclass(frozen=True)
class File:
    name: str
    content: bytes
    media_type: str = "application/octet-stream"


@dataclass(frozen=True)
class Data:
    value: Any


Said = str | File | Data


@dataclass(frozen=True)
class Question:
    text: str
    schema: Any = None
    id: str = field(default="", compare=False)
    """Where the protocol has one."""


@dataclass(frozen=True)
class Seen:
    """What one caller has been told of one task. Two are equal if they were told the same, whatever the ids."""

    state: str
    """In the words of `canonical.TaskState`; cancelling may be a word that the protocol does not have."""
    text: str = ""
    data: tuple[Any, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    questions: tuple[Question, ...] = ()
    """That are open."""
    fault: str = ""
    asides: tuple[str, ...] = ()
    """Progress, and thoughts where the protocol has them: not every protocol can tell the one from the other, and not
    every one shows them to those who did not follow the stream."""
    task_id: str = field(default="", compare=False)
    context_id: str = field(default="", compare=False)
    """What this protocol calls the thread."""

    @property
    def lasting(self) -> "Seen":
        """What is known also to those who come later."""
        return replace(self, asides=())


@dataclass(frozen=True)
class Ids:
    """The gateway's own, of an answer's headers: they lead to the same run in every protocol."""

    thread: str
    task: str
    run: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Ids":
        return cls(headers["babelgate-thread"], headers["babelgate-task"], headers.get("babelgate-run"))


class View(ABC):
    """What a client of one protocol makes of its stream, event by event. What breaks the protocol fails the test."""

    @abstractmethod
    def read(self, event: bytes) -> None: ...

    @property
    @abstractmethod
    def seen(self) -> Seen: ...


class Feed:
    """A stream while its client reads it."""

    def __init__(self, response: httpx.Response, view: View, *, before: int = 0, skip: int = 0) -> None:
        self.ids = Ids.of(response.headers)
        self.view = view
        self.before = before
        """Frames of the task that come before those of this feed."""
        self.frames: list[bytes] = []
        """As they came, without those that were skipped."""
        self._skip = skip
        self._chunks = response.aiter_raw()
        self._rest = b""

    @property
    def seen(self) -> Seen:
        return self.view.seen

    async def next(self) -> bool:
        """Read one frame; false if the stream has ended."""
        while True:
            frame, end, rest = self._rest.partition(b"\n\n")
            if not end:
                async with asyncio.timeout(BOUND):
                    chunk = await anext(self._chunks, None)
                if chunk is None:
                    assert not self._rest, f"the stream was cut in the middle of a frame: {self._rest!r}"
                    return False
                self._rest += chunk
                continue
            self._rest = rest
            if frame.startswith(b":"):  # a heartbeat
                continue
            if self._skip:
                self._skip -= 1
                continue
            assert frame.startswith(b"data: "), frame
            self.frames.append(frame)
            self.view.read(frame.removeprefix(b"data: "))
            return True

    async def until(self, told: Callable[[Seen], bool]) -> Seen:
        while not told(self.seen):
            assert await self.next(), f"the stream ended before that, at {self.seen}"
        return self.seen

    async def said(self, text: str) -> Seen:
        return await self.until(lambda seen: seen.text == text)

    async def end(self) -> Seen:
        while await self.next():
            pass
        return self.seen


Following = AbstractAsyncContextManager[Feed]
"""Leaving the block hangs up."""


class Caller(ABC):
    """One conversation of a caller with an agent: all that is sent belongs to one session, context or thread."""

    name: ClassVar[str]
    carries: ClassVar[Mapping[Feature, Carry]]

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.http = http
        self.agent = agent
        self.context_id: str | None = None

    @abstractmethod
    async def send(self, *said: Said) -> Seen:
        """Start a task and wait until it stops."""

    @abstractmethod
    def stream(self, *said: Said) -> Following:
        """Start a task and follow it."""

    @abstractmethod
    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        """Answer the questions that are shown, in their order, and wait until the task stops."""

    @abstractmethod
    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        """Answer, and follow what comes of it. What was seen before is known to this feed too."""

    @abstractmethod
    async def cancel(self, task_id: str) -> Seen: ...

    @abstractmethod
    async def look(self, task_id: str) -> Seen:
        """The task as it is."""

    @abstractmethod
    async def losses(self, task_id: str) -> set[str]:
        """Of what the protocol says that it lost something."""

    @abstractmethod
    def attach(self, task_id: str) -> Following:
        """Follow a task of which this caller has seen nothing yet, as the protocol has it."""

    @abstractmethod
    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        """All frames of a task from its first on, without the first `skip`."""

    def come_back(self, feed: Feed) -> Following:
        """The frames that this feed has missed since it hung up."""
        return self.replay(feed.ids.task, view=feed.view, skip=feed.before + len(feed.frames))

    @abstractmethod
    def repeated(self, live: list[bytes]) -> list[bytes]:
        """Of the frames of an answer's stream, those that a replay has as well."""

    @asynccontextmanager
    async def _followed(self, view: View, before: int = 0, skip: int = 0, /, **request: Any) -> AsyncGenerator[Feed]:
        async with self.http.stream(**request) as response:
            if response.status_code != 200:
                await response.aread()
            assert response.status_code == 200, response.text
            assert response.headers["content-type"].startswith("text/event-stream"), response.headers
            yield Feed(response, view, before=before, skip=skip)
