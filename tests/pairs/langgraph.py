"""Callers that speak LangGraph or the Agent Protocol.

Neither has tasks: a task is a chain of runs that answers connect. The callers find these runs by the gateway's ids in
their metadata. The stream of a task is the streams of its runs, one after the other.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from json import loads
from typing import Any, ClassVar, Final, Self

from tests.pairs.acp import named
from tests.pairs.caller import (
    Caller,
    Content,
    Data,
    Feed,
    File,
    Following,
    Frame,
    Ids,
    Question,
    RunFeed,
    TaskView,
    View,
)

Wire = dict[str, Any]

START: Final = "-1"
"""Event id before all others."""


def block_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            return {"type": "json", "json": content.value}
        case File():
            encoded = b64encode(content.content).decode()
            about = {"mime_type": content.media_type, "extras": {"filename": content.name}}
            return {"type": "file", "base64": encoded, **about}


def message_of(contents: tuple[Content, ...]) -> Wire:
    plain = len(contents) == 1 and isinstance(contents[0], str)
    return {"role": "user", "content": contents[0] if plain else [block_of(one) for one in contents]}


@dataclass
class _Output:
    """Output of an agent, accumulated from messages or their chunks."""

    text: str = ""
    data: list[Any] = field(default_factory=list[Any])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    thoughts: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Reasoning by message id and block, which may arrive in pieces."""
    written: Wire = field(default_factory=dict[str, Any])
    """Members that the runs wrote to the state, other than messages. A structured answer is there, and may also be in a
    message."""

    def add(self, message: Wire) -> None:
        content: str | list[Wire] = message["content"]
        if isinstance(content, str):
            self.text += content
            return
        for place, block in enumerate(content):
            match block["type"]:
                case "text":
                    self.text += block["text"]
                case "reasoning":
                    of = message["id"], block.get("index", place)
                    self.thoughts[of] = self.thoughts.get(of, "") + block["reasoning"]
                case "json":
                    self.data.append(block["json"])
                case "server_tool_call" | "server_tool_result" | "refusal":
                    pass
                case _:
                    self.file(block)

    def join(self, other: Self) -> None:
        self.text += other.text
        self.data += other.data
        self.files |= other.files
        self.thoughts |= other.thoughts

    def file(self, block: Wire) -> None:
        if "url" in block:
            self.files[block["url"]] = block["url"].encode()
            return
        if block["type"] == "text":  # a piece of an artifact
            self.files[""] = self.files.get("", b"") + block["text"].encode()
            return
        name = block["extras"]["filename"]
        self.files[name] = self.files.get(name, b"") + b64decode(block["base64"])

    @property
    def all_data(self) -> tuple[Any, ...]:
        return (*self.data, *([self.written] if self.written and self.written not in self.data else []))


def question_of(interrupt: Wire) -> Question:
    value = interrupt["value"]
    text = interrupt.get("message", value if isinstance(value, str) else "")
    return Question(text, interrupt.get("response_schema"), None if value == text else value, interrupt["id"])


def written(before: Wire, after: Wire) -> Wire:
    """Return the members of state `after` that are missing in or differ from state `before`, without messages and
    interrupts."""
    return {
        name: value
        for name, value in after.items()
        if name not in ("messages", "__interrupt__") and (name not in before or before[name] != value)
    }


class _View(View):
    def __init__(self, speaker: tuple[str, Set[str]]) -> None:
        self.speaker = speaker
        self.output = _Output()
        self.progress: list[str] = []
        self.chunks: dict[str, _Output] = {}
        """Accumulated chunks, by message id."""
        self.taken_back: dict[str, _Output] = {}
        """Chunks that were received before the run started over, by message id. They count only if a later state
        contains the message."""
        self.started: list[str] = []
        """Ids of the started runs."""
        self.before: list[tuple[_Output, list[str]]] = []
        """Output and progress at the start of each run."""
        self.state = "submitted"
        self.questions: tuple[Question, ...] = ()
        self.fault = ""
        self.values: Wire | None = None
        """Values of the followed run."""

    def read(self, frame: Frame) -> None:
        payload = loads(frame.data)
        assert frame.id, "every frame has an id"
        match frame.event:
            case "metadata":
                assert set(payload) == {"run_id", "attempt"}
                assert payload["run_id"] == self.ids.run
                if payload["run_id"] in self.started:
                    assert payload["attempt"] > 1, "a run that starts again must announce it"
                    self.output, self.progress = deepcopy(self.before[-1])
                    self.taken_back, self.chunks = {**self.taken_back, **self.chunks}, {}
                else:
                    self.started.append(payload["run_id"])
                    self.before.append(deepcopy((self.output, self.progress)))
                self.state, self.questions, self.values = "working", (), None
            case "messages":
                chunk, about = payload
                assert about["thread_id"] == self.ids.thread
                assert chunk["id"], "clients accumulate chunks by id"
                key, speakers = self.speaker
                if chunk[key] not in speakers:
                    self.progress.append(chunk["content"])
                    return
                if chunk["id"] in self.taken_back:
                    # The message is resumed: a client that accumulates by id has the earlier text.
                    self.chunks[chunk["id"]] = before = self.taken_back.pop(chunk["id"])
                    self.output.join(before)
                self.output.add(chunk)
                self.chunks.setdefault(chunk["id"], _Output()).add(chunk)
            case "values":
                self._values(payload)
            case "custom":
                self._custom(payload)
            case "error":
                assert set(payload) == {"error", "message"}
                self.fault = payload["message"]
            case _:
                raise AssertionError(frame)

    def _values(self, values: Wire) -> None:
        for message in values.get("messages", ()):
            if message["id"] in self.taken_back:
                self.chunks[message["id"]] = self.taken_back.pop(message["id"])
                self.output.add(message)
            if message["id"] in self.chunks:
                whole = _Output()
                whole.add(message)
                assert whole == self.chunks[message["id"]], "a message is the sum of its chunks"
        self.output.written |= written(self.values or {}, values)
        self.values = values
        self.questions = tuple(map(question_of, values.get("__interrupt__", ())))

    def _custom(self, value: Any) -> None:
        match value:
            case {"progress": str(progress)}:
                self.progress.append(progress)
            case {"artifact": artifact}:
                for block in artifact["content"]:
                    self.output.file(block)
            case _:
                pass

    @property
    def task(self) -> TaskView:
        return TaskView(
            state=self.state,
            text=self.output.text,
            data=self.output.all_data,
            files=self.output.files,
            questions=self.questions,
            fault=self.fault,
            asides=(*self.output.thoughts.values(), *self.progress),
            task_id=self.ids.task,
            context_id=self.ids.thread,
        )


class _Feed(RunFeed):
    """A stream of a run. It does not contain the result of the run, so its client requests that at the end."""

    view: _View

    def __init__(self, caller: "LangGraph", stack: AsyncExitStack, view: _View, *, onward: bool, **more: int) -> None:
        super().__init__(caller.http, stack, view, onward=onward, **more)
        self.last = START
        """Id of the newest frame of the run."""
        self._caller = caller

    async def join(self, run: Wire, after: str) -> Self:
        self.last = after
        url = f"{self._caller.runs_url(run['thread_id'])}/{run['run_id']}/stream"
        params = {"stream_mode": list(self._caller.modes)}
        return await self.open(method="GET", url=url, params=params, headers={"Last-Event-ID": after})

    def extend(self, back: Feed) -> None:
        super().extend(back)
        assert isinstance(back, _Feed)
        self.last = back.last

    def _take(self, raw: bytes) -> Frame:
        frame = super()._take(raw)
        self.last = frame.id
        return frame

    async def join_next(self) -> bool:
        runs = await self._caller.runs(self.ids.task)
        at = [run["run_id"] for run in runs].index(self.ids.run)
        if not self._onward or at == len(runs) - 1:
            self.view.state, _ = await self._caller.state(runs[: at + 1])
            return False
        await self.join(runs[at + 1], START)
        return True


class LangGraph(Caller):
    name: ClassVar[str] = "langgraph"
    speaks: ClassVar[str] = "langgraph"
    names_partial: ClassVar[bool] = False
    shows_state: ClassVar[bool] = True
    prefix: ClassVar[str] = ""
    speaker: ClassVar[tuple[str, Set[str]]] = ("type", {"ai", "AIMessageChunk"})
    """Member of a message that names its author, and the values of this member for messages of the agent."""
    modes: ClassVar[tuple[str, ...]] = ("values", "messages-tuple", "custom")
    joins: ClassVar[str] = "join"
    """Last path segment of the request that waits for the end of a run."""
    paused: ClassVar[str] = "success"
    """Status of a run that asked a question."""
    states: ClassVar[Mapping[str, str]] = {
        "pending": "submitted",
        "running": "working",
        "success": "completed",
        "error": "failed",
        "timeout": "failed",
        "interrupted": "cancelled",
    }
    """State of a task, by the status of its last run, unless that run asked a question."""

    def expected_question(self, question: Question) -> Question:
        """Return the question as LangGraph shows it: a call of a caller's tool becomes the interrupt value of a
        headless tool."""
        value = question.value
        if not (isinstance(value, dict) and "call_id" in value):
            return question
        call: Wire = value  # pyright: ignore[reportUnknownVariableType]
        tool_call = {"id": call["call_id"], "name": call["name"], "args": call["arguments"]}
        return replace(question, text="", value={"type": "tool", "tool_call": tool_call})

    # Requests

    _checkpoint: str | None = None
    """Checkpoint at which the next run starts; None for the newest."""

    def _run_body(self, contents: tuple[Content, ...]) -> Wire:
        body: Wire = {"assistant_id": self.agent, "input": {"messages": [message_of(contents)]}, **self._run_options()}
        if self._checkpoint is not None:
            body["checkpoint_id"], self._checkpoint = self._checkpoint, None
        return body

    def _answer_body(self, paused: TaskView, answers: tuple[Content, ...]) -> Wire:
        """Return a request with the answers. A single answer is the value itself; several are by question id."""
        values = [item.value if isinstance(item, Data) else item for item in answers]
        resume = values[0]
        if len(paused.questions) > 1:
            ids = [question.id for question in paused.questions]
            resume = dict(zip(ids, values, strict=False))
        return {"assistant_id": self.agent, "command": {"resume": resume}, **self._run_options()}

    def _run_options(self) -> Wire:
        tools = [{"type": "function", "function": each} for each in self.tools]
        config = {"config": {"configurable": {"tools": tools}}} if tools else {}
        return {**config, **({"metadata": self.metadata} if self.metadata else {})}

    def runs_url(self, thread_id: str) -> str:
        return f"{self.prefix}/threads/{thread_id}/runs"

    async def _json(self, method: str, path: str, status: int = 200, **request: Any) -> Any:
        response = await self.http.request(method, path, **request)
        assert response.status_code == status, response.text
        return response.json() if response.content else None

    async def _thread(self) -> str:
        if self.context_id is None:
            thread = await self._json("POST", f"{self.prefix}/threads", json={})
            self.context_id = thread["thread_id"]
        assert self.context_id is not None
        return self.context_id

    # Runs of a task

    async def runs(self, task_id: str) -> list[Wire]:
        """Return the runs of a task, oldest first."""
        listed = await self._json("GET", self.runs_url(Ids.thread_of(task_id)), params={"limit": 1000})
        return [run for run in reversed(listed) if run["metadata"]["babelgate"]["task_id"] == task_id]

    async def state(self, runs: list[Wire]) -> tuple[str, Wire]:
        """Return the state of a task after these runs, and the result of the last of them if it has ended."""
        last = runs[-1]
        if last["status"] in ("pending", "running"):
            return self.states[last["status"]], {}
        url = self.runs_url(last["thread_id"])
        ending = await self._json("GET", f"{url}/{last['run_id']}/{self.joins}")
        if last["status"] == self.paused and "__interrupt__" in ending:
            return "input_required", ending
        return self.states[last["status"]], ending

    # Sending

    async def _run_and_wait(self, body: Wire) -> TaskView:
        thread_id = await self._thread()
        response = await self.http.post(f"{self.runs_url(thread_id)}/wait", json=body)
        assert response.status_code == 200, response.text
        ids = Ids.of(response.headers)
        assert ids.thread == thread_id
        view = await self.look(ids.task)
        result = response.json()
        assert ("__interrupt__" in result) == (view.state == "input_required")
        assert ("__error__" in result) == (view.state == "failed")
        return view

    async def send(self, *contents: Content) -> TaskView:
        return await self._run_and_wait(self._run_body(contents))

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        self.context_id = paused.context_id
        return await self._run_and_wait(self._answer_body(paused, answers))

    async def cancel(self, task_id: str) -> TaskView:
        run = (await self.runs(task_id))[-1]
        path = f"{self.runs_url(run['thread_id'])}/{run['run_id']}/cancel"
        await self._json("POST", path, params={"wait": "true"})
        return await self.look(task_id)

    async def give_up(self, paused: TaskView) -> None:
        """Send another input, which ends the question. The run that asked has ended, so it cannot be cancelled."""
        self.context_id = paused.context_id
        await self.send("something else")

    # Looking

    async def look(self, task_id: str) -> TaskView:
        runs = await self.runs(task_id)
        state, ending = await self.state(runs)
        output = await self._output_of(runs)
        return TaskView(
            state=state,
            text=output.text,
            data=output.all_data,
            files=output.files,
            questions=tuple(map(question_of, ending.get("__interrupt__", ()))) if state == "input_required" else (),
            fault=ending["__error__"]["message"] if state == "failed" else "",
            asides=tuple(output.thoughts.values()),
            task_id=task_id,
            context_id=runs[-1]["thread_id"],
        )

    async def _output_of(self, runs: Iterable[Wire]) -> _Output:
        """Return the output that the states of these runs have and the states before them do not."""
        runs = list(runs)
        mine = {run["run_id"] for run in runs}
        path = f"{self.prefix}/threads/{runs[0]['thread_id']}/history"
        output, message_ids, values = _Output(), set[str](), Wire()
        key, speakers = self.speaker
        for state in reversed(await self._json("POST", path, json={"limit": 1000})):
            messages = [message for message in self._messages(state) if message["id"] not in message_ids]
            message_ids |= {message["id"] for message in messages}
            if state["metadata"].get("run_id") in mine:
                for message in messages:
                    if message[key] in speakers:
                        output.add(message)
                output.written |= written(values, state["values"])
            values = state["values"]
        return output

    def _messages(self, state: Wire) -> list[Wire]:
        return state["values"].get("messages", [])

    async def branch(self, task: TaskView) -> None:
        self._checkpoint = await self._newest(task)

    async def _newest(self, task: TaskView) -> str:
        """Return the newest checkpoint of a task."""
        mine = {run["run_id"] for run in await self.runs(task.task_id)}
        path = f"{self.prefix}/threads/{task.context_id}/history"
        states = await self._json("POST", path, json={"limit": 1000})
        return next(each["checkpoint"]["checkpoint_id"] for each in states if each["metadata"].get("run_id") in mine)

    async def values(self) -> Any:
        found = await self._json("GET", f"{self.prefix}/threads/{self.context_id}/state")
        return {name: value for name, value in found["values"].items() if name != "messages"}

    async def change(self, members: Mapping[str, Any]) -> None:
        await self._json("POST", f"{self.prefix}/threads/{self.context_id}/state", json={"values": dict(members)})

    async def losses(self, task_id: str) -> set[str]:
        lost: set[str] = set()
        for run in await self.runs(task_id):
            response = await self.http.get(f"{self.runs_url(run['thread_id'])}/{run['run_id']}")
            assert response.json()["metadata"] == run["metadata"]
            names = set(run["metadata"]["babelgate"].get("loss", ()))
            assert names == named(response.headers.get("babelgate-loss", ""))
            lost |= names
        return lost

    def later(self, streamed: TaskView) -> TaskView:
        """Return the state without the artifacts, which only streams show."""
        return replace(streamed.lasting, files={})

    # Streams

    @asynccontextmanager
    async def _created(self, body: Wire, view: _View, before: int = 0) -> AsyncGenerator[Feed]:
        url = f"{self.runs_url(await self._thread())}/stream"
        body = {**body, "stream_mode": list(self.modes)}
        async with AsyncExitStack() as stack:
            feed = _Feed(self, stack, view, onward=False, before=before)
            yield await feed.open(method="POST", url=url, json=body)

    def stream(self, *contents: Content) -> Following:
        return self._created(self._run_body(contents), _View(self.speaker))

    async def run_in_each_way(self, *contents: Content) -> Sequence[TaskView]:
        """Request also a stream with the modes `updates` and `debug`, which no other test uses."""
        other = type(self)(self.http, self.agent)
        body = {**other._run_body(contents), "stream_mode": ["updates", "debug"]}
        response = await self.http.post(f"{self.runs_url(await other._thread())}/stream", json=body)
        assert response.status_code == 200, response.text
        return await super().run_in_each_way(*contents)

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        self.context_id = paused.ids.thread
        assert isinstance(paused.view, _View)
        return self._created(self._answer_body(paused.task, answers), paused.view, paused.before + len(paused.frames))

    @asynccontextmanager
    async def _joined(
        self, task_id: str, run_id: str | None, view: _View, after: str, skip: int = 0
    ) -> AsyncGenerator[Feed]:
        """Follow a task's stream from the run, or from the first run if no `run_id` is given."""
        runs = await self.runs(task_id)
        run = next(run for run in runs if run_id in (None, run["run_id"]))
        async with AsyncExitStack() as stack:
            yield await _Feed(self, stack, view, onward=True, before=skip, skip=skip).join(run, after)

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        view = view or _View(self.speaker)
        assert isinstance(view, _View)
        return self._joined(task_id, None, view, START, skip)

    def reconnect(self, feed: Feed) -> Following:
        assert isinstance(feed, _Feed)
        return self._joined(feed.ids.task, feed.ids.run, feed.view, feed.last)


class AgentProtocol(LangGraph):
    """The Agent Protocol: messages are separate from the state, and runs have fewer statuses."""

    name: ClassVar[str] = "agent-protocol"
    speaks: ClassVar[str] = "agent-protocol"
    prefix: ClassVar[str] = "/agent-protocol"
    speaker: ClassVar[tuple[str, Set[str]]] = ("role", {"assistant"})
    modes: ClassVar[tuple[str, ...]] = ("values", "messages", "custom")
    joins: ClassVar[str] = "wait"
    paused: ClassVar[str] = "interrupted"

    def _run_body(self, contents: tuple[Content, ...]) -> Wire:
        body = {"agent_id": self.agent, "messages": [message_of(contents)], "on_disconnect": "continue"}
        return {**body, **self._run_options()}

    def _answer_body(self, paused: TaskView, answers: tuple[Content, ...]) -> Wire:
        body = super()._answer_body(paused, answers)
        del body["assistant_id"]
        return {"agent_id": self.agent, "on_disconnect": "continue", **body}

    async def cancel(self, task_id: str) -> TaskView:
        run = (await self.runs(task_id))[-1]
        await self._json("POST", f"{self.prefix}/runs/{run['run_id']}/cancel", 204, params={"wait": "true"})
        return await self.look(task_id)

    async def branch(self, task: TaskView) -> None:
        """Change the checkpoint of the thread."""
        checkpoint = {"checkpoint_id": await self._newest(task)}
        await self._json("PATCH", f"{self.prefix}/threads/{task.context_id}", json={"checkpoint": checkpoint})

    async def values(self) -> Any:
        return (await self._json("GET", f"{self.prefix}/threads/{self.context_id}"))["values"]

    async def change(self, members: Mapping[str, Any]) -> None:
        await self._json("PATCH", f"{self.prefix}/threads/{self.context_id}", json={"values": dict(members)})

    def _messages(self, state: Wire) -> list[Wire]:
        return state["messages"]
