"""Base of the scripted servers of the Agent Protocol and LangGraph Platform: threads, runs and their agents."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast
from urllib.parse import unquote
from urllib.request import Request as Call
from urllib.request import urlopen
from uuid import uuid4

from tests.conformance.servers.kit import TRACE, Answer, Request, ScriptedServer, is_uuid

Message = dict[str, Any]

_LATE: Final = 2.0
"""Seconds until a run ends after its cancel was answered, in a server that does not wait for the end."""

_RACE: Final = 0.05
"""Seconds between the check of a condition and the change that relies on it, in a server with a race condition."""


class Refused(Exception):
    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(eq=False)
class State:
    id: str
    parent: str | None
    messages: list[Message]
    values: dict[str, Any]
    metadata: dict[str, Any]
    next: list[str] = field(default_factory=list[str])
    asks: list[str] = field(default_factory=list[str])
    """Open questions."""
    created: str = field(default_factory=lambda: now())


@dataclass(eq=False)
class Thread:
    id: str
    owner: str
    metadata: dict[str, Any]
    created: str = field(default_factory=lambda: now())
    updated: str = field(default_factory=lambda: now())
    states: list[State] = field(default_factory=list[State])
    """States, oldest first."""
    runs: list["Run"] = field(default_factory=list["Run"])
    status: str = "idle"
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def messages(self) -> list[Message]:
        return self.states[-1].messages if self.states else []

    @property
    def values(self) -> dict[str, Any]:
        return self.states[-1].values if self.states else {}


@dataclass(eq=False)
class Run:
    id: str
    thread: Thread
    agent: str
    body: Mapping[str, Any]
    text: str
    messages: list[Message]
    """Messages of the input."""
    answers: list[str] = field(default_factory=list[str])
    """Answers to questions."""
    status: str = "pending"
    """One of pending, running, success, error, interrupted, or asking (the agent waits for an answer)."""
    created: str = field(default_factory=lambda: now())
    frames: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_active(self) -> bool:
        return self.status in ("pending", "running")


class ThreadServer(ScriptedServer):
    """State of threads and runs. A subclass per protocol defines their JSON."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.threads: dict[str, Thread] = {}
        self._webhooks: set[asyncio.Task[None]] = set()

    # Differences between the protocols

    async def route(self, request: Request, path: Sequence[str]) -> Any:
        """Return an answer, or its JSON. Raises Refused."""
        raise NotImplementedError

    async def handle(self, request: Request) -> Answer:
        try:
            answer = await self.route(request, [unquote(each) for each in request.path.split("/") if each])
        except Refused as error:
            return json_answer(error.body, error.status)
        return answer if isinstance(answer, Answer) else json_answer(answer, is_text=self.is_text)

    @property
    def is_text(self) -> bool:
        return self.does("answers are plain text")

    def text(self, message: Message) -> str:
        return self.ascii_if("words are ASCII", message["text"])

    def error(self, status: int, text: str) -> Refused:
        raise NotImplementedError

    def refuse_if(self, violation: str, status: int, text: str, *, when: object = True) -> None:
        """Refuse a request that a conforming server accepts."""
        if when and self.does(violation):
            raise self.error(status, text)

    def refuse_unless(self, violation: str, status: int, text: str, *, when: object = True) -> None:
        """Refuse a request that a conforming server refuses."""
        if when and not self.does(violation):
            raise self.error(status, text)

    def message_view(self, message: Message) -> Any:
        raise NotImplementedError

    def values_view(self, state: State | None) -> dict[str, Any]:
        """Return the values of a state as the stream mode `values` shows them."""
        messages = state.messages if state else []
        return {**(state.values if state else {}), "messages": [self.message_view(each) for each in messages]}

    def thread_view(self, thread: Thread) -> dict[str, Any]:
        raise NotImplementedError

    def wait_view(self, run: Run) -> dict[str, Any]:
        raise NotImplementedError

    def patch(self, request: Request, thread: Thread) -> Answer | None:
        """Change a thread. Return None to answer with the thread itself."""
        raise NotImplementedError

    def node(self, run: Run) -> str:
        return run.agent

    # Requests

    def body(self, request: Request) -> dict[str, Any]:
        if not request.body:
            return {}
        try:
            body = request.json
        except ValueError:
            status = 500 if self.does("broken JSON is a server error") else 422
            raise self.error(status, TRACE if self.does("errors show a stack trace") else "no JSON") from None
        if not isinstance(body, dict):
            raise self.error(422, "an object is expected")
        return cast("dict[str, Any]", body)

    def thread(self, request: Request, id: str) -> Thread:
        self.refuse_if("odd ids are server errors", 500, "no UUID", when=not is_uuid(id))
        found = self.threads.get(id)
        if found is None:
            raise self.error(404, f"Thread {id} not found")
        if self._is_open(request):
            return found
        if found.owner != request.caller and not self.does("threads are open to all callers"):
            raise self.error(404, f"Thread {id} not found")
        return found

    def _is_open(self, request: Request) -> bool:
        """Return True if a violation opens the requested thread to callers that do not own it."""
        end = request.path.rpartition("/")[2]
        return (
            (request.method == "DELETE" and self.does("any caller can delete threads"))
            or (end == "history" and self.does("histories are open to all callers"))
            or (end == "cancel" and self.does("any caller can cancel runs"))
            or (end == "stream" and self.does("streams are open to all callers"))
        )

    def run(self, request: Request, thread_id: str | None, id: str) -> Run:
        """Return a run of one thread, or of any thread if `thread_id` is None."""
        if thread_id is None or (thread_id in self.threads and self.does("runs are open to all callers")):
            threads = list(self.threads.values())
        else:
            threads = [self.thread(request, thread_id)]
        for thread in threads:
            for run in thread.runs:
                is_shown = thread.owner == request.caller or self._is_open(request)
                if run.id == id and (is_shown or self.does("runs are open to all callers")):
                    return run
        raise self.error(404, "Run not found")

    # Threads

    def create_thread(self, request: Request) -> Thread:
        body = self.body(request)
        id = body.get("thread_id")
        self.check_thread(body)
        if id is not None and id in self.threads:
            if body.get("if_exists") == "do_nothing":
                if self.does("an existing thread is replaced"):
                    self.threads[id].metadata = {}
                return self.threads[id]
            self.refuse_unless("an id can be used twice", 409, "Conflict")
        if self.does("all threads have one id") and id is None:
            id = "11111111-1111-4111-8111-111111111111"
        if self.does("ids of callers are ignored"):
            id = None
        requested = body.get("metadata")
        metadata = dict(cast("dict[str, Any]", requested)) if isinstance(requested, dict) else {}
        if self.does("metadata loses nested objects"):
            metadata = {name: value for name, value in metadata.items() if not isinstance(value, dict)}
        thread = Thread(id or str(uuid4()), request.caller, metadata)
        thread.status = "busy" if self.does("new threads are busy") else "idle"
        self.threads[thread.id] = thread
        return thread

    async def pause_in_race(self, request: Request, thread_id: str | None) -> None:
        """Pause between the check whether a thread exists or is busy and the change, in a server with that race."""
        wanted = str(self.body(request).get("thread_id"))
        thread = self.threads.get(thread_id or wanted)
        if thread is None and self.does("an id can be used twice concurrently"):
            await asyncio.sleep(_RACE)
            self.threads.pop(wanted, None)
        if thread is not None and thread.status != "busy" and self.does("concurrent runs are both accepted"):
            thread.extra["racers"] = thread.extra.get("racers", 0) + 1
            await asyncio.sleep(_RACE)

    def check_thread(self, body: Mapping[str, Any]) -> None:
        id = body.get("thread_id")
        if id is not None and not is_uuid(id) and not self.does("any text is a thread's id"):
            raise self.error(422, "Invalid thread ID: must be a UUID")
        if self.does("types are ignored"):
            return
        if not isinstance(body.get("metadata") or {}, dict):
            raise self.error(422, "metadata is an object")
        if body.get("if_exists", "raise") not in ("raise", "do_nothing"):
            raise self.error(422, "if_exists")

    def answer_thread(self, request: Request, id: str) -> Any:
        """Answer a GET, PATCH or DELETE request for one thread."""
        if id not in self.threads and is_uuid(id):
            if request.method == "GET" and self.does("unknown threads exist"):
                return self.thread_view(Thread(id, "", {}))
            if request.method == "PATCH" and self.does("unknown threads are changed"):
                return self.thread_view(Thread(id, "", {}))
            if request.method == "DELETE" and self.does("unknown threads are deleted"):
                return Answer(204)
        thread = self.thread(request, id)
        if request.method == "DELETE":
            self.delete_thread(thread)
            return Answer(204)
        if request.method == "PATCH" and (answer := self.patch(request, thread)) is not None:
            return answer
        view = self.thread_view(thread)
        is_get = request.method == "GET"
        self.set_if("get returns another thread", view, created_at="2001-01-01T00:00:00+00:00", when=is_get)
        return view

    def patch_metadata(self, thread: Thread, metadata: Mapping[str, Any]) -> None:
        thread.metadata = dict(metadata) if self.does("metadata is replaced") else {**thread.metadata, **metadata}

    def delete_thread(self, thread: Thread) -> None:
        if not self.does("deleted threads stay"):
            del self.threads[thread.id]

    def copy_thread(self, request: Request, id: str) -> Thread:
        if id not in self.threads and self.does("an unknown thread is copied as an empty one"):
            return Thread(str(uuid4()), request.caller, {})
        source = self.thread(request, id)
        copy = Thread(str(uuid4()), source.owner, dict(source.metadata))
        if self.does("a copy is its source"):
            return source
        if not self.does("a copy is empty"):
            copy.states = source.states if self.does("a copy shares its states") else list(source.states)
        self.threads[copy.id] = copy
        return copy

    def search_threads(self, request: Request) -> list[Thread]:
        body = self.body(request)
        limit, offset = self.page_bounds(body, 10)
        return self.slice_page(list(reversed(self.matching(request, body))), limit, offset)

    def matching(self, request: Request, body: Mapping[str, Any]) -> list[Thread]:
        """Return the threads that match a search, oldest first."""
        found = [each for each in self.threads.values() if self.is_shown_to(each, request)]
        if not self.does("metadata is not searched"):
            found = [each for each in found if has(each.metadata, body.get("metadata") or {})]
        if not self.does("status is not searched"):
            found = [each for each in found if body.get("status") in (None, each.status)]
        return [each for each in found if has(each.values, body.get("values") or {})]

    def is_shown_to(self, thread: Thread, request: Request) -> bool:
        return thread.owner == request.caller or self.does("lists are open to all callers")

    def page_bounds(self, body: Mapping[str, Any], default: int) -> tuple[int, int]:
        limit, offset = body.get("limit", default), body.get("offset", 0)
        if not isinstance(limit, int) or not isinstance(offset, int):
            raise self.error(422, "limit and offset are numbers")
        if (limit < 1 or offset < 0) and not self.does("bounds are ignored"):
            raise self.error(422, "limit is at least 1, offset at least 0")
        return limit, offset

    def slice_page(self, items: list[Any], limit: int, offset: int) -> list[Any]:
        start = 0 if self.does("offset is ignored") else offset
        return items[start:] if self.does("limit is ignored") else items[start : start + limit]

    def history(self, thread: Thread, limit: int, before: str | None) -> list[State]:
        states = list(thread.states) if self.does("history begins with the oldest") else list(reversed(thread.states))
        ids = [each.id for each in states]
        if before in ids and not self.does("before is ignored"):
            states = states[ids.index(before) + 1 :]
        return states if self.does("histories have no limit") else states[:limit]

    def add_state(self, thread: Thread, source: str, *, base: State | None = None, **changes: Any) -> State:
        last = base or (thread.states[-1] if thread.states else None)
        metadata = {"source": source, "step": len(thread.states) - 1, "thread_id": thread.id}
        state = State(
            str(uuid4()),
            last.id if last else None,
            list(changes.get("messages", last.messages if last else [])),
            dict(changes.get("values", last.values if last else {})),
            metadata,
            list(changes.get("next", ())),
            list(changes.get("asks", ())),
        )
        thread.states.append(state)
        thread.updated = now()
        return state

    # Runs

    def thread_of_run(self, request: Request, id: str | None, body: Mapping[str, Any]) -> Thread:
        if id is None:
            self.refuse_if("a run needs a thread", 422, "thread_id is missing")
            thread = Thread(str(uuid4()), request.caller, {}, extra={"is_own": True})
        elif id in self.threads:
            return self.thread(request, id)
        elif (body.get("if_not_exists") == "create" and not self.does("if_not_exists is ignored")) or self.does(
            "streams on unknown threads are empty" if "stream_mode" in body else "runs make their threads"
        ):
            thread = Thread(id, request.caller, {})
        else:
            raise self.error(404, "Thread not found")
        self.threads[thread.id] = thread
        return thread

    async def join(self, run: Run) -> dict[str, Any]:
        """Wait for the end of a run and return its result."""
        is_late = run.ended.is_set() and run.body.get("waited")
        run.body = {**run.body, "waited": True}
        await run.ended.wait()
        view = self.wait_view(run)
        is_silent = (is_late and self.does("outputs are returned once")) or self.does("a wait returns no messages")
        return {**view, "messages": []} if is_silent else view

    def is_run(self, id: str) -> bool:
        return any(run.id == id for thread in self.threads.values() for run in thread.runs)

    def begin(self, run: Run) -> None:
        """Start a run. It also ends here, unless its text starts with "long"."""
        run.status = "running"
        if not self.does("streams do not name the run"):
            self.frame(run, "metadata", {"run_id": run.id, "attempt": 1})
        thread = run.thread
        base = self.base(run)
        waits = bool(base and base.asks)
        if run.messages:
            before = base.messages if base and not self.does("runs start without messages") else []
            messages = [*before, *run.messages]
            self.on_state(run, self.add_state(thread, "input", base=base, messages=messages, next=[self.node(run)]))
        open_questions = base.asks[len(run.answers) :] if base and run.answers else []
        if base and base.asks and run.answers and self.does("answered questions are asked again"):
            open_questions = base.asks
        if open_questions:
            self.ask(run, open_questions)
        elif waits and run.answers:
            self.say(run, [f"Hello, {' and '.join(run.answers)}."])
        elif self.stops_early(run):
            self.end(run, "asking")
        else:
            self.work(run, run.text or (base.messages[-1]["text"] if base and base.messages else ""))

    def stops_early(self, run: Run) -> bool:
        """Return True if the run stops before its first node."""
        return False

    def work(self, run: Run, text: str) -> None:
        if text.startswith(("ask", "several")):
            self.ask(run, ["Who are you?", "And you?"] if text.startswith("several") else ["Who are you?"])
        elif text.startswith("fail"):
            self.fail(run)
        elif not text.startswith("long"):
            self.say(run, text.split() if text.startswith("stream") else [text])

    def base(self, run: Run) -> State | None:
        """Return the state that a run starts from."""
        return run.thread.states[-1] if run.thread.states else None

    def on_state(self, run: Run, state: State) -> None:
        self.frame(run, "values", self.values_view(state))

    def say(self, run: Run, words: Sequence[str]) -> None:
        message = {"role": "ai", "text": " ".join(words), "id": str(uuid4())}
        self.stream_message(run, message, words)
        self.frame(run, "updates", {self.node(run): {"messages": [self.message_view(message)]}})
        state = self.add_state(run.thread, "loop", messages=[*run.thread.messages, message])
        if not self.does("the last values are not streamed"):
            self.on_state(run, state)
        self.end(run, "success")

    def stream_message(self, run: Run, message: Message, words: Sequence[str]) -> None:
        """Stream the pieces of a message."""
        for number, word in enumerate(words):
            text = word if number == 0 else f" {word}"
            piece = {**message, "text": "" if self.does("pieces of messages are empty") else text}
            self.frame(run, "messages", [self.message_view(piece), self.piece_metadata(run)])

    def piece_metadata(self, run: Run) -> Any:
        return {"node": self.node(run)}

    def ask(self, run: Run, questions: list[str]) -> None:
        run.thread.states[-1].asks = questions
        self.end(run, "asking")

    def fail(self, run: Run) -> None:
        if not self.does("failures are not streamed"):
            self.frame(run, "error", {"error": "ValueError", "message": "it failed"})
        self.end(run, "success" if self.does("failures are a success") else "error")

    def end(self, run: Run, status: str) -> None:
        if status == "error" and self.does("failures are timeouts"):
            run.status = "timeout"
        else:
            run.status = "running" if self.does("runs never end") and status == "success" else status
        thread = run.thread
        if not any(each.is_active for each in thread.runs):
            thread.status = {"asking": "interrupted", "error": "error"}.get(status, "idle")
            if status == "asking" and self.does("threads that ask are idle"):
                thread.status = "idle"
            if status == "error" and self.does("threads that failed are idle"):
                thread.status = "idle"
            if status == "interrupted" and self.does("threads stay busy after a cancel"):
                thread.status = "busy"
        run.ended.set()
        self.on_end(run)
        waiting = next((each for each in thread.runs if each.status == "pending" and self.is_due(each)), None)
        if waiting is not None and not any(each.status == "running" for each in thread.runs):
            self.begin(waiting)

    def on_end(self, run: Run) -> None:
        url = str(run.body.get("webhook") or "")
        if url.startswith("http://127.0.0.1:") and not self.does("webhooks are not called"):
            task = asyncio.get_running_loop().create_task(asyncio.to_thread(_post_webhook, url))
            self._webhooks.add(task)
            task.add_done_callback(self._webhooks.discard)

    def is_due(self, run: Run) -> bool:
        return not run.body.get("after_seconds") or self.does("after_seconds is ignored")

    def stop(self, run: Run, action: str = "interrupt") -> None:
        if action == "rollback" and not self.does("a rollback deletes nothing"):
            run.thread.runs.remove(run)
        if run.status == "pending" and self.does("a cancel of a queued run cancels the first"):
            for each in [each for each in run.thread.runs if each.status == "running"]:
                self.end(each, "interrupted")
        if run.is_active:
            self.end(run, "success" if self.does("cancelled runs are a success") else "interrupted")

    def delete_run(self, run: Run) -> None:
        if run.is_active:
            self.stop(run)
        if not self.does("deleted runs stay"):
            run.thread.runs.remove(run)

    def frame(self, run: Run, event: str, data: Any) -> None:
        run.frames.append((event, data))

    def add_run(self, run: Run, strategy: str) -> None:
        """Add a run to its thread, with a strategy for the runs that are active there."""
        thread = run.thread
        active = [each for each in thread.runs if each.is_active]
        racers = thread.extra.get("racers", 0)
        thread.extra["racers"] = 0 if racers == 0 else racers - 1
        if active and strategy == "reject" and not racers and not self.does("busy threads accept another run"):
            raise self.error(409, "Thread is already running a task.")
        if strategy == "interrupt" and not self.does("interrupt is enqueue"):
            for each in active:
                self.stop(each)
        if strategy == "rollback" and not self.does("rollback is enqueue"):
            for each in active:
                self.stop(each, "rollback")
        thread.runs.append(run)
        thread.status = "idle" if self.does("active threads are idle") else "busy"
        is_free = not any(each.status == "running" for each in thread.runs) or self.does(
            "enqueued runs start immediately"
        )
        if is_free and self.is_due(run):
            self.begin(run)

    def on_disconnect(self, body: Mapping[str, Any], default: str) -> str:
        if "on_disconnect" not in body and self.does("on_disconnect has another default"):
            return "cancel" if default == "continue" else "continue"
        return body.get("on_disconnect", default)

    async def cancel_run(self, request: Request, run: Run) -> None:
        action = request.query.get("action", "interrupt")
        waits = request.query.get("wait") in ("true", "1")
        if waits and self.does("cancels do not wait"):
            asyncio.get_running_loop().call_later(_LATE, self.stop, run)
            return
        self.stop(run, action)

    # Streams

    def mode(self, event: str) -> str:
        """Return the stream mode of an event."""
        return event

    def stream(
        self, run: Run, modes: Sequence[str], encode: Callable[[int, str, Any], bytes], *, after: int = -1
    ) -> AsyncGenerator[bytes]:
        return self._frames(run, modes, encode, after, None)

    def creator_stream(
        self, run: Run, modes: Sequence[str], encode: Callable[[int, str, Any], bytes], on_disconnect: str
    ) -> AsyncGenerator[bytes]:
        """Stream a run to the client that created it. `on_disconnect` is `cancel` or `continue`."""
        return self._frames(run, modes, encode, -1, on_disconnect)

    async def _frames(
        self,
        run: Run,
        modes: Sequence[str],
        encode: Callable[[int, str, Any], bytes],
        after: int,
        on_disconnect: str | None,
    ) -> AsyncGenerator[bytes]:
        number = after + 1
        has_ended = False
        try:
            while True:
                has_ended = run.ended.is_set()
                while number < len(run.frames):
                    event, data = run.frames[number]
                    is_always_sent = event in ("metadata", "error")
                    if self.mode(event) in modes or is_always_sent or self.does("every mode is streamed"):
                        yield encode(number, event, data)
                    number += 1
                if has_ended:
                    break
                await run.ended.wait()
            if self.does("streams stay open"):
                await asyncio.Event().wait()
        finally:
            if not has_ended and on_disconnect is not None:
                is_cancel = on_disconnect == "cancel"
                if (is_cancel and not self.does("a disconnect never cancels")) or (
                    not is_cancel and self.does("a disconnect always cancels")
                ):
                    self.stop(run)


def has(whole: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return all(whole.get(name) == value for name, value in part.items())


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, is_text: bool = False
) -> Answer:
    kind = "text/plain" if is_text else "application/json"
    return Answer(status, json.dumps(value), {"content-type": kind, **(headers or {})})


def modes_of(body: Mapping[str, Any]) -> list[str]:
    modes = body.get("stream_mode", ["values"])
    return [modes] if isinstance(modes, str) else list(modes)


def now() -> str:
    return datetime.now(UTC).isoformat()


def _post_webhook(url: str) -> None:
    with urlopen(Call(url, b"{}", {"Content-Type": "application/json"}, method="POST"), timeout=5):
        pass
