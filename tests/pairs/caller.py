"""What a caller does and sees, in no protocol's words."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NoReturn, Self

import httpx

from babelgate.canonical import Carry, Feature
from docs.pairing import SERVERS

BOUND: Final = 30.0
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
Function = Mapping[str, Any]
"""A tool of the caller's: name, description, parameters."""


@dataclass(frozen=True)
class Question:
    text: str
    schema: Any = None
    value: Any = None
    """Data that goes with it."""
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
        """Without what only those may have been told who followed the stream."""
        return replace(self, asides=())


_THREADS: Final[dict[str, str]] = {}
"""By task: the thread of each that any caller has been told of."""
_RUNS: Final[dict[str, list[str]]] = {}
"""By task: its runs of which any caller has been told, in their order."""


@dataclass(frozen=True)
class Ids:
    """The gateway's own, of an answer's headers: they lead to the same run in every protocol."""

    thread: str
    task: str
    run: str | None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Ids":
        found = cls(headers["babelgate-thread"], headers["babelgate-task"], headers.get("babelgate-run"))
        _THREADS[found.task] = found.thread
        runs = _RUNS.setdefault(found.task, [])
        if found.run is not None and found.run not in runs:
            runs.append(found.run)
        return found

    @staticmethod
    def thread_of(task_id: str) -> str:
        """Of a task that some caller has been told of: a protocol that has no tasks finds it there."""
        return _THREADS[task_id]

    @staticmethod
    def runs_of(task_id: str) -> list[str]:
        """The same, for a protocol that knows nothing but runs."""
        return _RUNS[task_id]

    @staticmethod
    def task_of(run_id: str) -> str:
        return next(task for task, runs in _RUNS.items() if run_id in runs)


@dataclass(frozen=True)
class Frame:
    """One event of a stream."""

    data: bytes
    event: str = ""
    id: str = ""

    @classmethod
    def parse(cls, raw: bytes) -> "Frame":
        fields: dict[bytes, list[bytes]] = {b"data": [], b"event": [], b"id": []}
        for line in raw.split(b"\n"):
            name, _, value = line.partition(b": ")
            fields[name].append(value)
        assert fields[b"data"] and len(fields[b"event"]) < 2 and len(fields[b"id"]) < 2, raw
        event, id_ = (b"".join(fields[name]).decode() for name in (b"event", b"id"))
        return cls(b"\n".join(fields[b"data"]), event, id_)

    @property
    def bare(self) -> bytes:
        """The data, where the protocol has nothing beside it."""
        assert not self.event and not self.id, self
        return self.data


class View(ABC):
    """What a client of one protocol makes of its stream, event by event. What breaks the protocol fails the test."""

    ids: Ids
    """Of the run that is read, where the view needs them."""

    @abstractmethod
    def read(self, frame: Frame) -> None: ...

    @property
    @abstractmethod
    def seen(self) -> Seen: ...


class Feed:
    """A stream while its client reads it."""

    ids: Ids

    def __init__(self, view: View, *, before: int = 0, skip: int = 0) -> None:
        self.view = view
        self.before = before
        """Frames of the task that come before those of this feed."""
        self.frames: list[bytes] = []
        """As they came, without those that were skipped."""
        self._skip = skip
        self._rest = b""

    async def listen(self, response: httpx.Response) -> Self:
        if response.status_code != 200:
            await response.aread()
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream"), response.headers
        self.ids = Ids.of(response.headers)
        self._chunks = response.aiter_raw()
        return self

    def hear(self, ids: Ids, chunks: AsyncGenerator[bytes]) -> None:
        """In the place of one answer's stream, those of several."""
        self.ids, self._chunks = ids, chunks

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
            self._take(frame)
            return True

    def _take(self, raw: bytes) -> Frame:
        frame = Frame.parse(raw)
        self.frames.append(raw)
        self.view.read(frame)
        return frame

    def extend(self, back: "Feed") -> None:
        """By what was missed: who comes back once more misses only what came after that."""
        self.frames += back.frames

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


class RunFeed(Feed):
    """The stream of one run; `onward`, it goes on with the next run of the task, if there is one."""

    def __init__(
        self, http: httpx.AsyncClient, stack: AsyncExitStack, view: View, *, onward: bool, **more: int
    ) -> None:
        super().__init__(view, **more)
        self._http = http
        self._stack = stack
        self._onward = onward

    async def open(self, **request: Any) -> Self:
        await self.listen(await self._stack.enter_async_context(self._http.stream(**request)))
        self.view.ids = self.ids
        return self

    def extend(self, back: Feed) -> None:
        super().extend(back)
        self.ids = back.ids

    async def next(self) -> bool:
        while not await super().next():
            if not await self.go_on():
                return False
        return True

    @abstractmethod
    async def go_on(self) -> bool:
        """Join the next run; return false if there is none, or it is not wanted."""


Following = AbstractAsyncContextManager[Feed]
"""Leaving the block hangs up."""


class Caller(ABC):
    """One conversation of a caller with an agent: all that is sent belongs to one session, context or thread."""

    name: ClassVar[str]
    speaks: ClassVar[str]
    """Which protocol, of `docs.pairing.SERVERS`."""
    names_partial: ClassVar[bool] = True
    """Whether the protocol's losses name also what it carries in part. Where such a thing is told in another place than
    others have for it, nothing is lost that could be named."""

    shows_state: ClassVar[bool] = False
    """Whether what it is shown of a task that is over is the agent's own state, if the agent has one."""

    shows_end: ClassVar[bool] = True
    """Whether who looks at a question again is shown that its task was cancelled since: what an answer said once may be
    what it says for ever."""

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.http = http
        self.agent = agent
        self.context_id: str | None = None
        self.metadata: Mapping[str, str] = {}
        """Of the next task, where the protocol has such."""
        self.tools: Sequence[Function] = ()
        """That are offered with each request, where the protocol has such."""

    @abstractmethod
    async def send(self, *said: Said) -> Seen:
        """Start a task and wait until it stops."""

    def stream(self, *said: Said) -> Following:
        """Start a task and follow it."""
        self._lacks(Feature.STREAM)

    @abstractmethod
    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        """Answer the questions that are shown, in their order, all or the first of them, and wait until the task
        stops."""

    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        """Answer, and follow what comes of it. What was seen before is known to this feed too."""
        self._lacks(Feature.STREAM)

    async def cancel(self, task_id: str) -> Seen:
        self._lacks(Feature.CANCEL)

    async def give_up(self, asked: Seen) -> None:
        """End a task that waits for an answer."""
        await self.cancel(asked.task_id)

    @abstractmethod
    async def look(self, task_id: str) -> Seen:
        """The task as it is."""

    async def branch(self, told: Seen) -> None:
        """Go on from where the conversation was after that task."""
        self._lacks(Feature.FORK)

    async def values(self) -> Any:
        """Of the conversation: all its members without the messages."""
        self._lacks(Feature.STATE)

    async def change(self, members: Mapping[str, Any]) -> None:
        """Members of the state of the conversation."""
        self._lacks(Feature.STATE)

    def shown(self, question: Question) -> Question:
        """How a question looks in this protocol."""
        return question

    @property
    def carries(self) -> Mapping[Feature, Carry]:
        return SERVERS[self.speaks].carries

    @property
    def follows(self) -> bool:
        """Whether its protocol has streams."""
        return self.carries[Feature.STREAM].level != "dropped"

    def later(self, seen: Seen) -> Seen:
        """Of what was told in a stream, what `look` shows when it is over."""
        return seen.lasting

    async def told(self, *said: Said) -> Seen:
        """Start a task; all that is said of it up to its stop, by a stream where the protocol has streams."""
        if not self.follows:
            return await self.send(*said)
        async with self.stream(*said) as feed:
            seen = await feed.end()
        assert seen.task_id == feed.ids.task
        return seen

    async def told_all(self, *said: Said) -> Sequence[Seen]:
        """What there is to be seen of such a task, in each form that the protocol has."""
        return await self.told(*said), await type(self)(self.http, self.agent).send(*said)

    @abstractmethod
    async def losses(self, task_id: str) -> set[str]:
        """Of what the protocol says that it lost something."""

    def attach(self, task_id: str) -> Following:
        """Follow a task of which this caller has seen nothing yet, as the protocol has it."""
        self._lacks(Feature.REATTACH)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        """All frames of a task from its first on, without the first `skip`."""
        self._lacks(Feature.REATTACH)

    def come_back(self, feed: Feed) -> Following:
        """The frames that this feed has missed since it hung up."""
        return self.replay(feed.ids.task, view=feed.view, skip=feed.before + len(feed.frames))

    def repeated(self, live: list[bytes]) -> list[bytes]:
        """Of the frames of an answer's stream, those that a replay has as well."""
        return live

    def _lacks(self, feature: Feature) -> NoReturn:
        """Refuse what the protocol does not have. Tests ask `carries` first."""
        raise NotImplementedError(f"{feature}: {self.carries[feature].how}")

    @asynccontextmanager
    async def _followed(self, view: View, before: int = 0, skip: int = 0, /, **request: Any) -> AsyncGenerator[Feed]:
        async with self.http.stream(**request) as response:
            yield await Feed(view, before=before, skip=skip).listen(response)


class _Recorded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, told: bytearray) -> None:
        self._stream = stream
        self._told = told

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._told += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def recording(caller: Caller, told: bytearray) -> AsyncGenerator[None]:
    """Adds the bodies of all that the caller is answered."""

    async def record(response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Recorded(response.stream, told)

    before = caller.http.event_hooks
    caller.http.event_hooks = {"response": [record]}
    try:
        yield
    finally:
        caller.http.event_hooks = before
