"""Callers that speak LangGraph, and its kin, the Agent Protocol.

Neither knows tasks: a task is the runs that answers join. Those are found by the ids of the gateway in their metadata,
and a task's stream is the streams of its runs, one after the other.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from json import loads
from typing import Any, ClassVar, Final, Self

from tests.pairs.acp import named
from tests.pairs.caller import Caller, Data, Feed, File, Following, Frame, Ids, Question, RunFeed, Said, Seen, View

Wire = dict[str, Any]

START: Final = "-1"
"""The id of an event before all others."""


def block_of(said: Said) -> Wire:
    match said:
        case str():
            return {"type": "text", "text": said}
        case Data():
            return {"type": "json", "json": said.value}
        case File():
            encoded = b64encode(said.content).decode()
            about = {"mime_type": said.media_type, "extras": {"filename": said.name}}
            return {"type": "file", "base64": encoded, **about}


def message_of(said: tuple[Said, ...]) -> Wire:
    plain = len(said) == 1 and isinstance(said[0], str)
    return {"role": "user", "content": said[0] if plain else [block_of(one) for one in said]}


@dataclass
class _Told:
    """What was said, added up of messages, whole or in chunks."""

    text: str = ""
    data: list[Any] = field(default_factory=list[Any])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    thoughts: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """By message and block: they may come in pieces."""
    written: Wire = field(default_factory=dict[str, Any])
    """Members that came into the state: a structured answer, which may have been said in a message, too."""

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
    """The members of a state that the step to it wrote, without the messages."""
    return {
        name: value
        for name, value in after.items()
        if name not in ("messages", "__interrupt__") and (name not in before or before[name] != value)
    }


class _View(View):
    def __init__(self, speaker: tuple[str, Set[str]]) -> None:
        self.speaker = speaker
        self.told = _Told()
        self.progress: list[str] = []
        self.chunks: dict[str, _Told] = {}
        """By the message's id: its chunks added up."""
        self.taken_back: dict[str, _Told] = {}
        """The same, of messages that were said before a run started over. Those that a state holds stand."""
        self.started: list[str] = []
        """Runs."""
        self.before: list[tuple[_Told, list[str]]] = []
        """What had been said when each of them started."""
        self.state = "submitted"
        self.questions: tuple[Question, ...] = ()
        self.fault = ""
        self.values: Wire | None = None
        """Of the run that is followed."""

    def read(self, frame: Frame) -> None:
        told = loads(frame.data)
        assert frame.id, "every frame has an id"
        match frame.event:
            case "metadata":
                assert set(told) == {"run_id", "attempt"}
                assert told["run_id"] == self.ids.run
                if told["run_id"] in self.started:
                    assert told["attempt"] > 1, "a run that starts again says so"
                    self.told, self.progress = deepcopy(self.before[-1])
                    self.taken_back, self.chunks = {**self.taken_back, **self.chunks}, {}
                else:
                    self.started.append(told["run_id"])
                    self.before.append(deepcopy((self.told, self.progress)))
                self.state, self.questions, self.values = "working", (), None
            case "messages":
                chunk, about = told
                assert about["thread_id"] == self.ids.thread
                assert chunk["id"], "chunks are added up by it"
                key, speakers = self.speaker
                if chunk[key] not in speakers:
                    self.progress.append(chunk["content"])
                    return
                if chunk["id"] in self.taken_back:  # it goes on: whoever adds up by ids has what was said before
                    self.chunks[chunk["id"]] = before = self.taken_back.pop(chunk["id"])
                    self.told.join(before)
                self.told.add(chunk)
                self.chunks.setdefault(chunk["id"], _Told()).add(chunk)
            case "values":
                self._values(told)
            case "custom":
                self._custom(told)
            case "error":
                assert set(told) == {"error", "message"}
                self.fault = told["message"]
            case _:
                raise AssertionError(frame)

    def _values(self, values: Wire) -> None:
        for message in values.get("messages", ()):
            if message["id"] in self.taken_back:
                self.chunks[message["id"]] = self.taken_back.pop(message["id"])
                self.told.add(message)
            if message["id"] in self.chunks:
                whole = _Told()
                whole.add(message)
                assert whole == self.chunks[message["id"]], "a message is the sum of its chunks"
        self.told.written |= written(self.values or {}, values)
        self.values = values
        self.questions = tuple(map(question_of, values.get("__interrupt__", ())))

    def _custom(self, told: Any) -> None:
        match told:
            case {"progress": str(progress)}:
                self.progress.append(progress)
            case {"artifact": artifact}:
                for block in artifact["content"]:
                    self.told.file(block)
            case _:
                pass

    @property
    def seen(self) -> Seen:
        return Seen(
            state=self.state,
            text=self.told.text,
            data=self.told.all_data,
            files=self.told.files,
            questions=self.questions,
            fault=self.fault,
            asides=(*self.told.thoughts.values(), *self.progress),
            task_id=self.ids.task,
            context_id=self.ids.thread,
        )


class _Feed(RunFeed):
    """A run's stream does not say how the run has ended, so its client asks then."""

    view: _View

    def __init__(self, caller: "LangGraph", stack: AsyncExitStack, view: _View, *, onward: bool, **more: int) -> None:
        super().__init__(caller.http, stack, view, onward=onward, **more)
        self.last = START
        """The id of the newest frame of the run."""
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

    async def go_on(self) -> bool:
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
    """What marks a message of the agent."""
    modes: ClassVar[tuple[str, ...]] = ("values", "messages-tuple", "custom")
    joins: ClassVar[str] = "join"
    """Where the end of a run is awaited."""
    paused: ClassVar[str] = "success"
    """The status of a run that asks."""
    states: ClassVar[Mapping[str, str]] = {
        "pending": "submitted",
        "running": "working",
        "success": "completed",
        "error": "failed",
        "timeout": "failed",
        "interrupted": "cancelled",
    }
    """Of a task, by the status of its last run, if that does not ask."""

    def shown(self, question: Question) -> Question:
        """A call of a caller's tool is a headless tool."""
        value = question.value
        if not (isinstance(value, dict) and "call_id" in value):
            return question
        call: Wire = value  # pyright: ignore[reportUnknownVariableType]
        told = {"id": call["call_id"], "name": call["name"], "args": call["arguments"]}
        return replace(question, text="", value={"type": "tool", "tool_call": told})

    # Requests

    _checkpoint: str | None = None
    """Where the next run starts, if not from the newest."""

    def _asked(self, said: tuple[Said, ...]) -> Wire:
        body: Wire = {"assistant_id": self.agent, "input": {"messages": [message_of(said)]}, **self._given()}
        if self._checkpoint is not None:
            body["checkpoint_id"], self._checkpoint = self._checkpoint, None
        return body

    def _answered(self, asked: Seen, answers: tuple[Said, ...]) -> Wire:
        """One answer is bare; of several, each names its question."""
        values = [said.value if isinstance(said, Data) else said for said in answers]
        resume = values[0]
        if len(asked.questions) > 1:
            ids = [question.id for question in asked.questions]
            resume = dict(zip(ids, values, strict=False))
        return {"assistant_id": self.agent, "command": {"resume": resume}, **self._given()}

    def _given(self) -> Wire:
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
            made = await self._json("POST", f"{self.prefix}/threads", json={})
            self.context_id = made["thread_id"]
        assert self.context_id is not None
        return self.context_id

    # Runs of a task

    async def runs(self, task_id: str) -> list[Wire]:
        """Oldest first."""
        listed = await self._json("GET", self.runs_url(Ids.thread_of(task_id)), params={"limit": 1000})
        return [run for run in reversed(listed) if run["metadata"]["babelgate"]["task_id"] == task_id]

    async def state(self, runs: list[Wire]) -> tuple[str, Wire]:
        """Of a task, after these of its runs; and what a wait for the last of them ends with, if it has ended."""
        last = runs[-1]
        if last["status"] in ("pending", "running"):
            return self.states[last["status"]], {}
        url = self.runs_url(last["thread_id"])
        ending = await self._json("GET", f"{url}/{last['run_id']}/{self.joins}")
        if last["status"] == self.paused and "__interrupt__" in ending:
            return "input_required", ending
        return self.states[last["status"]], ending

    # Sending

    async def _waited(self, body: Wire) -> Seen:
        thread_id = await self._thread()
        response = await self.http.post(f"{self.runs_url(thread_id)}/wait", json=body)
        assert response.status_code == 200, response.text
        ids = Ids.of(response.headers)
        assert ids.thread == thread_id
        seen = await self.look(ids.task)
        result = response.json()
        assert ("__interrupt__" in result) == (seen.state == "input_required")
        assert ("__error__" in result) == (seen.state == "failed")
        return seen

    async def send(self, *said: Said) -> Seen:
        return await self._waited(self._asked(said))

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        self.context_id = asked.context_id
        return await self._waited(self._answered(asked, answers))

    async def cancel(self, task_id: str) -> Seen:
        run = (await self.runs(task_id))[-1]
        path = f"{self.runs_url(run['thread_id'])}/{run['run_id']}/cancel"
        await self._json("POST", path, params={"wait": "true"})
        return await self.look(task_id)

    async def give_up(self, asked: Seen) -> None:
        """The run that asked has ended. What ends its question is the next input."""
        self.context_id = asked.context_id
        await self.send("something else")

    # Looking

    async def look(self, task_id: str) -> Seen:
        runs = await self.runs(task_id)
        state, ending = await self.state(runs)
        told = await self._said(runs)
        return Seen(
            state=state,
            text=told.text,
            data=told.all_data,
            files=told.files,
            questions=tuple(map(question_of, ending.get("__interrupt__", ()))) if state == "input_required" else (),
            fault=ending["__error__"]["message"] if state == "failed" else "",
            asides=tuple(told.thoughts.values()),
            task_id=task_id,
            context_id=runs[-1]["thread_id"],
        )

    async def _said(self, runs: Iterable[Wire]) -> _Told:
        """What the states of these runs have that the states before them have not."""
        runs = list(runs)
        mine = {run["run_id"] for run in runs}
        path = f"{self.prefix}/threads/{runs[0]['thread_id']}/history"
        told, known, values = _Told(), set[str](), Wire()
        key, speakers = self.speaker
        for state in reversed(await self._json("POST", path, json={"limit": 1000})):
            messages = [message for message in self._messages(state) if message["id"] not in known]
            known |= {message["id"] for message in messages}
            if state["metadata"].get("run_id") in mine:
                for message in messages:
                    if message[key] in speakers:
                        told.add(message)
                told.written |= written(values, state["values"])
            values = state["values"]
        return told

    def _messages(self, state: Wire) -> list[Wire]:
        return state["values"].get("messages", [])

    async def branch(self, told: Seen) -> None:
        self._checkpoint = await self._newest(told)

    async def _newest(self, told: Seen) -> str:
        """The checkpoint that a task left the thread with."""
        mine = {run["run_id"] for run in await self.runs(told.task_id)}
        path = f"{self.prefix}/threads/{told.context_id}/history"
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
            told = set(run["metadata"]["babelgate"].get("loss", ()))
            assert told == named(response.headers.get("babelgate-loss", ""))
            lost |= told
        return lost

    def later(self, seen: Seen) -> Seen:
        """Artifacts are in streams alone."""
        return replace(seen.lasting, files={})

    # Streams

    @asynccontextmanager
    async def _created(self, body: Wire, view: _View, before: int = 0) -> AsyncGenerator[Feed]:
        url = f"{self.runs_url(await self._thread())}/stream"
        body = {**body, "stream_mode": list(self.modes)}
        async with AsyncExitStack() as stack:
            feed = _Feed(self, stack, view, onward=False, before=before)
            yield await feed.open(method="POST", url=url, json=body)

    def stream(self, *said: Said) -> Following:
        return self._created(self._asked(said), _View(self.speaker))

    async def told_all(self, *said: Said) -> Sequence[Seen]:
        """Steps have modes of their own."""
        other = type(self)(self.http, self.agent)
        body = {**other._asked(said), "stream_mode": ["updates", "debug"]}
        response = await self.http.post(f"{self.runs_url(await other._thread())}/stream", json=body)
        assert response.status_code == 200, response.text
        return await super().told_all(*said)

    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        self.context_id = asked.ids.thread
        assert isinstance(asked.view, _View)
        return self._created(self._answered(asked.seen, answers), asked.view, asked.before + len(asked.frames))

    @asynccontextmanager
    async def _joined(
        self, task_id: str, run_id: str | None, view: _View, after: str, skip: int = 0
    ) -> AsyncGenerator[Feed]:
        """From one of a task's runs on, the first if none is named."""
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

    def come_back(self, feed: Feed) -> Following:
        assert isinstance(feed, _Feed)
        return self._joined(feed.ids.task, feed.ids.run, feed.view, feed.last)


class AgentProtocol(LangGraph):
    """With messages beside the state and not in it, and fewer words for what a run is at."""

    name: ClassVar[str] = "agent-protocol"
    speaks: ClassVar[str] = "agent-protocol"
    prefix: ClassVar[str] = "/agent-protocol"
    speaker: ClassVar[tuple[str, Set[str]]] = ("role", {"assistant"})
    modes: ClassVar[tuple[str, ...]] = ("values", "messages", "custom")
    joins: ClassVar[str] = "wait"
    paused: ClassVar[str] = "interrupted"

    def _asked(self, said: tuple[Said, ...]) -> Wire:
        asked = {"agent_id": self.agent, "messages": [message_of(said)], "on_disconnect": "continue"}
        return {**asked, **self._given()}

    def _answered(self, asked: Seen, answers: tuple[Said, ...]) -> Wire:
        body = super()._answered(asked, answers)
        del body["assistant_id"]
        return {"agent_id": self.agent, "on_disconnect": "continue", **body}

    async def cancel(self, task_id: str) -> Seen:
        run = (await self.runs(task_id))[-1]
        await self._json("POST", f"{self.prefix}/runs/{run['run_id']}/cancel", 204, params={"wait": "true"})
        return await self.look(task_id)

    async def branch(self, told: Seen) -> None:
        """By a change of the thread."""
        checkpoint = {"checkpoint_id": await self._newest(told)}
        await self._json("PATCH", f"{self.prefix}/threads/{told.context_id}", json={"checkpoint": checkpoint})

    async def values(self) -> Any:
        return (await self._json("GET", f"{self.prefix}/threads/{self.context_id}"))["values"]

    async def change(self, members: Mapping[str, Any]) -> None:
        await self._json("PATCH", f"{self.prefix}/threads/{self.context_id}", json={"values": dict(members)})

    def _messages(self, state: Wire) -> list[Wire]:
        return state["messages"]
