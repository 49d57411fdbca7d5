"""Callers: requests that callers send and results that they receive, independent of the protocol."""

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
"""Timeout for the next frame, in seconds."""


@dataclass(frozen=True)
class File:
    name: str
    content: bytes
    media_type: str = "application/octet-stream"


@dataclass(frozen=True)
class Data:
    value: Any


Content = str | File | Data
Function = Mapping[str, Any]
"""A tool of the caller: its name, description and parameters."""


@dataclass(frozen=True)
class Question:
    text: str
    schema: Any = None
    value: Any = None
    """Data that belongs to the question."""
    id: str = field(default="", compare=False)
    """Id of the question, in protocols that have one."""


@dataclass(frozen=True)
class TaskView:
    """State of one task as one caller has received it. Two are equal if all but their ids are equal."""

    state: str
    """State of the task, as in `canonical.TaskState`. Not every protocol has `cancelling`."""
    text: str = ""
    data: tuple[Any, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    questions: tuple[Question, ...] = ()
    """Open questions, oldest first."""
    fault: str = ""
    asides: tuple[str, ...] = ()
    """Progress messages, and thoughts in protocols that have them.

    Some protocols do not distinguish the two, and some show them only in a stream.
    """
    task_id: str = field(default="", compare=False)
    context_id: str = field(default="", compare=False)
    """Id of the thread in this protocol."""

    @property
    def lasting(self) -> "TaskView":
        """The state without progress messages and thoughts, which some protocols show only in a stream."""
        return replace(self, asides=())


_THREADS: Final[dict[str, str]] = {}
"""Thread of each task that any caller has received, by task id."""
_RUNS: Final[dict[str, list[str]]] = {}
"""Runs of each task that any caller has received, oldest first, by task id."""


@dataclass(frozen=True)
class Ids:
    """Ids of the gateway in the headers of a response. They lead to the same run in every protocol."""

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
        """Return the thread of a task that some caller has received. Protocols without tasks find it here."""
        return _THREADS[task_id]

    @staticmethod
    def runs_of(task_id: str) -> list[str]:
        """Return the runs of a task that some caller has received, oldest first."""
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
        """Data of a frame without event name and id, for protocols that use neither."""
        assert not self.event and not self.id, self
        return self.data


class View(ABC):
    """State that a client of one protocol builds from a stream, event by event.

    A violation of the protocol fails the test.
    """

    ids: Ids
    """Ids of the run that is read, for views that need them."""

    @abstractmethod
    def read(self, frame: Frame) -> None: ...

    @property
    @abstractmethod
    def task(self) -> TaskView: ...


class Feed:
    """A stream while its client reads it."""

    ids: Ids

    def __init__(self, view: View, *, before: int = 0, skip: int = 0) -> None:
        self.view = view
        self.before = before
        """Number of frames of the task before those of this feed."""
        self.frames: list[bytes] = []
        """Frames as received, without the skipped ones."""
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

    def read_chunks(self, ids: Ids, chunks: AsyncGenerator[bytes]) -> None:
        """Read the chunks of several responses as if they were one stream."""
        self.ids, self._chunks = ids, chunks

    @property
    def task(self) -> TaskView:
        return self.view.task

    async def next(self) -> bool:
        """Read one frame. Return False if the stream has ended."""
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
        """Append the missed frames, so that the next reconnect continues after them."""
        self.frames += back.frames

    async def until(self, condition: Callable[[TaskView], bool]) -> TaskView:
        while not condition(self.task):
            assert await self.next(), f"the stream ended before that, at {self.task}"
        return self.task

    async def until_text(self, text: str) -> TaskView:
        return await self.until(lambda view: view.text == text)

    async def end(self) -> TaskView:
        while await self.next():
            pass
        return self.task


class RunFeed(Feed):
    """Stream of one run. If `onward`, the feed continues with the task's next run when the stream ends, and so on until
    its last run."""

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
            if not await self.join_next():
                return False
        return True

    @abstractmethod
    async def join_next(self) -> bool:
        """Open the stream of the task's next run. Return False if there is no such run, or if the feed shows only one
        run."""


Following = AbstractAsyncContextManager[Feed]
"""Context manager of a feed, which disconnects at the end of the block."""


class Caller(ABC):
    """One conversation of a caller with an agent. All requests belong to one session, context or thread."""

    name: ClassVar[str]
    speaks: ClassVar[str]
    """Protocol of the caller, a key of `docs.pairing.SERVERS`."""
    names_partial: ClassVar[bool] = True
    """True if the protocol reports a loss for a feature that it carries with a loss. A protocol that shows such a
    feature in another place has no loss to report."""

    shows_state: ClassVar[bool] = False
    """True if the result of a finished task includes the agent's own state, if the agent has one."""

    shows_end: ClassVar[bool] = True
    """True if `look` shows that a task with an open question was cancelled later. False for protocols whose responses
    never change after the run."""

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.http = http
        self.agent = agent
        self.context_id: str | None = None
        self.metadata: Mapping[str, str] = {}
        """Metadata of the next task, in protocols that have it."""
        self.transcript: bytearray | None = None
        """Body to which callers on a WebSocket append what they receive, during a `recording`."""
        self.tools: Sequence[Function] = ()
        """Tools offered with each request, in protocols that have them."""

    @abstractmethod
    async def send(self, *contents: Content) -> TaskView:
        """Start a task and wait until it stops."""

    def stream(self, *contents: Content) -> Following:
        """Start a task and follow it."""
        self._lacks(Feature.STREAM)

    @abstractmethod
    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        """Answer all shown questions, or the first ones, in their order, and wait until the task stops."""

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        """Answer, and follow the run that the answer starts. The new feed starts with the state of `paused`."""
        self._lacks(Feature.STREAM)

    async def cancel(self, task_id: str) -> TaskView:
        self._lacks(Feature.CANCEL)

    async def give_up(self, paused: TaskView) -> None:
        """End a task that waits for an answer."""
        await self.cancel(paused.task_id)

    @abstractmethod
    async def look(self, task_id: str) -> TaskView:
        """Return the current state of the task."""

    async def branch(self, task: TaskView) -> None:
        """Let the next task continue from the state of the conversation after `task`."""
        self._lacks(Feature.FORK)

    async def values(self) -> Any:
        """Return all members of the conversation's state except the messages."""
        self._lacks(Feature.STATE)

    async def change(self, members: Mapping[str, Any]) -> None:
        """Change members of the conversation's state."""
        self._lacks(Feature.STATE)

    def expected_question(self, question: Question) -> Question:
        """Return the question as this protocol shows it."""
        return question

    @property
    def carries(self) -> Mapping[Feature, Carry]:
        return SERVERS[self.speaks].carries

    @property
    def follows(self) -> bool:
        """True if the protocol has streams."""
        return self.carries[Feature.STREAM].level != "dropped"

    def later(self, streamed: TaskView) -> TaskView:
        """Return the part of a streamed state that `look` shows after the end."""
        return streamed.lasting

    async def run_to_end(self, *contents: Content) -> TaskView:
        """Start a task, and return its state when it stops. Use a stream if the protocol has streams."""
        if not self.follows:
            return await self.send(*contents)
        async with self.stream(*contents) as feed:
            view = await feed.end()
        assert view.task_id == feed.ids.task
        return view

    async def run_in_each_way(self, *contents: Content) -> Sequence[TaskView]:
        """Start the task in each way that the protocol has, and return each final state."""
        return await self.run_to_end(*contents), await type(self)(self.http, self.agent).send(*contents)

    @abstractmethod
    async def losses(self, task_id: str) -> set[str]:
        """Return the names of the features that the protocol reports as lost."""

    def attach(self, task_id: str) -> Following:
        """Follow a task of which this caller has received nothing yet, as clients of the protocol do."""
        self._lacks(Feature.REATTACH)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        """Yield all frames of a task from the first one, without the first `skip`."""
        self._lacks(Feature.REATTACH)

    def reconnect(self, feed: Feed) -> Following:
        """Yield the frames that this feed has missed since it disconnected."""
        return self.replay(feed.ids.task, view=feed.view, skip=feed.before + len(feed.frames))

    def repeated(self, live: list[bytes]) -> list[bytes]:
        """Return the frames of `live`, the stream of an answer, that a replay repeats."""
        return live

    def _lacks(self, feature: Feature) -> NoReturn:
        """Raise NotImplementedError for a feature that the protocol does not have. Tests check `carries` before they
        use a feature."""
        raise NotImplementedError(f"{feature}: {self.carries[feature].how}")

    @asynccontextmanager
    async def _followed(self, view: View, before: int = 0, skip: int = 0, /, **request: Any) -> AsyncGenerator[Feed]:
        async with self.http.stream(**request) as response:
            yield await Feed(view, before=before, skip=skip).listen(response)


class _Recorded(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, body: bytearray) -> None:
        self._stream = stream
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._body += chunk
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def recording(caller: Caller, body: bytearray) -> AsyncGenerator[None]:
    """Append the bodies of all responses to the caller."""

    async def record(response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Recorded(response.stream, body)

    before = caller.http.event_hooks
    caller.http.event_hooks = {"response": [record]}
    caller.transcript = body
    try:
        yield
    finally:
        caller.http.event_hooks = before
        caller.transcript = None
