"""Servers of agents that a test scripts word by word.

Each has one run, which outlives the connection that started it. A client that reconnects gets the rest of it in its
protocol's way. The servers record all calls, so that a test can count them.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final

from babelgate.adapters.kit.server.sse import frame
from tests.adapters.a2a.far import CONTEXT, TASK, card_1_0
from tests.adapters.langchain.far import RUN, ai, chunk, human, metadata
from tests.bridge import read_body
from tests.gateway.hubs import within
from tests.serving import listen, serving

Wire = dict[str, Any]
Receive = Callable[[], Any]
Send = Callable[[Any], Any]

SESSION: Final = "11111111-1111-4111-8111-111111111111"


class Upstream(ABC):
    protocol: ClassVar[str]
    starts: ClassVar[str]
    """Call that starts a run."""
    answers: ClassVar[str]
    """Call that answers the run's question."""
    attaches: ClassVar[frozenset[str]]
    """Calls of clients that reconnect to the run."""
    streams_again: ClassVar[bool] = True
    """True if clients that reconnect receive the rest in a stream."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[str] = []
        """Calls in order, without those that describe the server."""
        self.words: list[str] = []
        self.frames: list[Any] = []
        """Frames of the run so far."""
        self.followers = 0
        """Number of open streams."""
        self.is_over = False
        self.question_text = ""
        """Text of the open question, or an empty text."""
        self._news = asyncio.Condition()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the agent in babelgate.yaml."""
        return {"url": self.url, "protocol": self.protocol, "agent": "far"}

    @property
    def text(self) -> str:
        return "".join(self.words)

    async def say(self, word: str) -> None:
        self.words.append(word)
        await self._publish(*self.word(word))

    async def end(self) -> None:
        self.is_over = True
        await self._publish(*self.last())

    async def ask(self, words: str) -> None:
        """Ask a question, which ends the streams."""
        self.question_text = words
        await self._publish(*self.question())

    async def attached(self) -> None:
        """Wait until a client has reconnected."""
        await self._until(lambda: bool(self.attaches & set(self.calls)), "who attaches to the run again")

    async def followed(self, by: int) -> None:
        """Wait until exactly this many streams are open."""
        await self._until(lambda: self.followers == by, f"that {by} follow")

    async def cancelled(self) -> None:
        await self._until(lambda: bool(self.cancels), "a cancel")

    @property
    def is_waiting(self) -> bool:
        """True if no more frames will follow without an answer."""
        return self.is_over or bool(self.question_text)

    async def take_answer(self) -> int:
        """Accept the answer, and return the position of the next frame."""
        async with self._news:
            self.question_text = ""
            return len(self.frames)

    @property
    def cancels(self) -> int:
        return sum("ancel" in call for call in self.calls)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        async with self._news:
            await within(self._news.wait_for(holds), what)

    async def _publish(self, *frames: Any) -> None:
        async with self._news:
            self.frames += frames
            self._news.notify_all()

    async def _called(self, call: str) -> None:
        async with self._news:
            self.calls.append(call)
            self._news.notify_all()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        raw = await read_body(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        answering = asyncio.ensure_future(
            self.answer(scope["method"], scope["path"], headers, json.loads(raw) if raw else {}, send)
        )
        leaving = asyncio.ensure_future(receive())
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not answering.done():
            answering.cancel()
        await asyncio.wait((answering,))
        if not answering.cancelled():
            answering.result()

    async def follow(
        self, send: Send, first: int, encode: Callable[[Any], bytes], *headers: tuple[bytes, bytes]
    ) -> None:
        """Stream the frames from a position to the end of the run, as they are added."""
        head = [(b"content-type", b"text/event-stream"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await self._count(1)
        try:
            at, ends = first, False
            while not ends:
                async with self._news:
                    await self._news.wait_for(lambda at=at: len(self.frames) > at or self.is_waiting)
                    new, at, ends = self.frames[at:], len(self.frames), self.is_waiting
                for each in new:
                    await send({"type": "http.response.body", "body": encode(each), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await self._count(-1)

    async def _count(self, more: int) -> None:
        async with self._news:
            self.followers += more
            self._news.notify_all()

    @abstractmethod
    def word(self, word: str) -> list[Any]:
        """Return the frames of a word."""

    @abstractmethod
    def last(self) -> list[Any]:
        """Return the frames of the end."""

    def question(self) -> list[Any]:
        """Return the frames of the question."""
        raise NotImplementedError

    @abstractmethod
    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any, send: Send) -> None: ...


async def reply(send: Send, value: Any, status: int = 200) -> None:
    head = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


def data(value: Any) -> bytes:
    return frame(json.dumps(value).encode())


class A2A(Upstream):
    """An A2A server. A client that reconnects subscribes, and its stream begins with the current task."""

    protocol = "a2a"
    starts = answers = "SendStreamingMessage"
    attaches = frozenset({"SubscribeToTask"})

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.frames.append({"task": self.task})

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"url": self.url, "protocol": self.protocol}

    @property
    def task(self) -> Wire:
        """Current state of the task."""
        state = "TASK_STATE_COMPLETED" if self.is_over else "TASK_STATE_WORKING"
        if self.question_text:
            state = "TASK_STATE_INPUT_REQUIRED"
        artifacts = [{"artifactId": "answer", "parts": [{"text": word} for word in self.words]}] if self.words else []
        return {"id": TASK, "contextId": CONTEXT, "status": {"state": state}, "artifacts": artifacts}

    def word(self, word: str) -> list[Any]:
        piece = {"artifactId": "answer", "parts": [{"text": word}]}
        ids = {"taskId": TASK, "contextId": CONTEXT}
        return [{"artifactUpdate": {**ids, "artifact": piece, "append": len(self.words) > 1, "lastChunk": False}}]

    def last(self) -> list[Any]:
        ids = {"taskId": TASK, "contextId": CONTEXT}
        return [{"statusUpdate": {**ids, "status": {"state": "TASK_STATE_COMPLETED"}}}]

    def question(self) -> list[Any]:
        message = {"messageId": "question", "role": "ROLE_AGENT", "parts": [{"text": self.question_text}]}
        status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}
        return [{"statusUpdate": {"taskId": TASK, "contextId": CONTEXT, "status": status}}]

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any, send: Send) -> None:
        if method == "GET":
            await reply(send, card_1_0(self.url))
            return
        await self._called(body["method"])

        def encode(result: Any) -> bytes:
            return data({"jsonrpc": "2.0", "id": body["id"], "result": result})

        match body["method"]:
            case self.starts:
                is_answer = "taskId" in body["params"]["message"]
                await self.follow(send, await self.take_answer() if is_answer else 0, encode)
            case "SubscribeToTask":
                await self.subscribe(send, body["id"], encode)
            case "CancelTask":
                cancelled = {**self.task, "status": {"state": "TASK_STATE_CANCELED"}}
                await reply(send, {"jsonrpc": "2.0", "id": body["id"], "result": cancelled})
            case "GetTask":
                await reply(send, {"jsonrpc": "2.0", "id": body["id"], "result": self.task})
            case _:
                await self.refuse(send, body["id"])

    async def subscribe(self, send: Send, number: Any, encode: Callable[[Any], bytes]) -> None:
        async with self._news:  # so that no frame is added between the task and the stream
            task_event, at = {"task": self.task}, len(self.frames)

        def once(result: Any) -> bytes:
            nonlocal task_event
            first, task_event = task_event, {}
            return (encode(first) if first else b"") + encode(result)

        await self.follow(send, at, once)

    async def refuse(self, send: Send, number: Any) -> None:
        error = {"code": -32601, "message": "Method not found"}
        await reply(send, {"jsonrpc": "2.0", "id": number, "error": error})


class LookedAt(A2A):
    """An A2A server without streams for clients that reconnect. They poll the task."""

    attaches = frozenset({"GetTask"})
    streams_again = False

    async def subscribe(self, send: Send, number: Any, encode: Callable[[Any], bytes]) -> None:
        await self.refuse(send, number)


class Acp(Upstream):
    """An ACP server. A client that reconnects reads the list of events."""

    protocol = "acp"
    starts = "POST /runs"
    answers = f"POST /runs/{RUN}"
    attaches = frozenset({f"GET /runs/{RUN}/events"})
    streams_again = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._output: list[Wire] = []
        self._first = 0
        """Position of the first word of the open message."""
        self.frames += [self.of_run("created"), *self._begin()]

    def _begin(self) -> list[Wire]:
        self._first = len(self.words)
        return [self.of_run("in-progress"), {"type": "message.created", "message": self.message}]

    @property
    def message(self) -> Wire:
        return {"role": "agent/far", "parts": [{"content": word} for word in self.words[self._first :]]}

    def _complete(self) -> Wire:
        self._output.append(self.message)
        return {"type": "message.completed", "message": self.message}

    def of_run(self, status: str) -> Wire:
        return {"type": f"run.{status}", "run": self.run(status)}

    def run(self, status: str) -> Wire:
        run: Wire = {"run_id": RUN, "agent_name": "far", "session_id": SESSION, "status": status}
        request = {"type": "message", "message": {"role": "agent", "parts": [{"content": self.question_text}]}}
        return {**run, "output": [*self._output], **({"await_request": request} if self.question_text else {})}

    def word(self, word: str) -> list[Any]:
        return [{"type": "message.part", "part": {"content": word}}]

    def last(self) -> list[Any]:
        return [self._complete(), self.of_run("completed")]

    def question(self) -> list[Any]:
        return [self._complete(), self.of_run("awaiting")]

    async def take_answer(self) -> int:
        at = await super().take_answer()
        await self._publish(*self._begin())
        return at

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any, send: Send) -> None:
        call = f"{method} {path}"
        if path.startswith("/agents"):
            await reply(send, {"agents": [{"name": "far", "description": "A test's."}]})
            return
        await self._called(call)
        if call == self.starts:
            await self.follow(send, 0, data, (b"run-id", RUN.encode()))
        elif call == f"POST /runs/{RUN}":
            await self.follow(send, await self.take_answer(), data, (b"run-id", RUN.encode()))
        elif call == f"GET /runs/{RUN}":
            status = "awaiting" if self.question_text else "completed" if self.is_over else "in-progress"
            await reply(send, self.run(status))
        elif call == f"GET /runs/{RUN}/events":
            await reply(send, {"events": self.frames})
        elif call == f"POST /runs/{RUN}/cancel":
            await reply(send, self.run("cancelling"), 202)
        else:
            await reply(send, {"code": "not_found", "message": f"{call} is not there"}, 404)


class LangGraph(Upstream):
    """A LangGraph server. A client that reconnects joins the stream after the event id that it names."""

    protocol = "langgraph"
    starts = "POST /threads/T/runs/stream"
    attaches = frozenset({"GET /threads/T/runs/R/stream"})

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread = ""
        for each in (metadata(), ("values", {"messages": [human("Hello")]})):
            self.frames.append(self._numbered(each))

    def _numbered(self, payload: tuple[str, Any]) -> tuple[str, Any, str]:
        return *payload, f"{1795299566000 + len(self.frames)}-0"

    def word(self, word: str) -> list[Any]:
        return [self._numbered(chunk(word))]

    def last(self) -> list[Any]:
        return [self._numbered(("values", {"messages": [human("Hello"), ai(self.text)]}))]

    async def answer(self, method: str, path: str, headers: Mapping[str, str], body: Any, send: Send) -> None:
        parts = path.split("/")
        if path == "/assistants/search":
            await reply(send, [{"assistant_id": RUN, "graph_id": "far", "metadata": {"created_by": "system"}}])
            return
        if parts[1] != "threads":
            await reply(send, {"detail": "Not Found"}, 404)
            return
        self._thread = self._thread or parts[2]
        call = f"{method} {path}".replace(self._thread, "T").replace(RUN, "R")
        await self._called(call)
        if call == self.starts:
            at = f"/threads/{self._thread}/runs/{RUN}".encode()
            await self.follow(send, 0, self._encode, (b"content-location", at))
        elif call == "GET /threads/T/runs/R/stream":
            after = headers.get("last-event-id")
            ids = ["-1", *(id for _, _, id in self.frames)]
            await self.follow(send, ids.index(after) if after in ids else len(self.frames), self._encode)
        elif call == "GET /threads/T/runs/R":
            status = "success" if self.is_over else "running"
            await reply(send, {"run_id": RUN, "thread_id": self._thread, "status": status, "metadata": {}})
        elif call == "POST /threads/T/runs/R/cancel":
            await reply(send, {}, 202)
        else:
            await reply(send, {"detail": "Not Found"}, 404)

    @staticmethod
    def _encode(each: tuple[str, Any, str]) -> bytes:
        event, payload, id = each
        return frame(json.dumps(payload).encode(), event=event, id=id)


@asynccontextmanager
async def upstream(kind: type[Upstream]) -> AsyncGenerator[Upstream]:
    """Run a server of this kind until its run has ended."""
    listener = listen()
    server = kind(f"http://127.0.0.1:{listener.getsockname()[1]}")
    async with serving(server, listener):
        try:
            yield server
        finally:
            if not server.is_over:
                await server.end()
