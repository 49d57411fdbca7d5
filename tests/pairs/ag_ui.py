"""A caller that speaks AG-UI.

A thread's name is its id here, and a task is the runs of its questions and answers, one after the other.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Self
from uuid import uuid4

import httpx

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

VERSION: Final = "1.0"


def part_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            text = json.dumps(content.value)
            return {"type": "text", "text": text, "metadata": {"babelgate": {"data": content.value}}}
        case File():
            source = {"type": "data", "value": b64encode(content.content).decode(), "mimeType": content.media_type}
            return {"type": "document", "source": source, "metadata": {"filename": content.name}}


def message_of(contents: tuple[Content, ...]) -> Wire:
    plain = len(contents) == 1 and isinstance(contents[0], str)
    content = contents[0] if plain else [part_of(one) for one in contents]
    return {"id": str(uuid4()), "role": "user", "content": content}


def own_of(event: Wire) -> Wire:
    return event.get("metadata", {}).get("babelgate", {})


class PendingCall(Question):
    """Question that is a call of the caller's tool."""


def question_of(interrupt: Wire) -> Question:
    marks = own_of(interrupt)
    schema = None if marks.get("anySchema") else interrupt["responseSchema"]
    return Question(interrupt["message"], schema, marks.get("value"), interrupt["id"])


class AgUiView(View):
    """Client's state of a task over all of its runs, built from their events."""

    def __init__(self, before: TaskView | None = None) -> None:
        self.before = TaskView("") if before is None else before
        """State of the task before the runs that this view reads."""
        self.state = ""
        self.said: dict[str, list[tuple[str, Any]]] = {}
        """Kind and value of each piece of each message, by message id. The kind is `text` or `data`."""
        self.result: Any = None
        self.artifacts: dict[str, Wire] = {}
        self.questions: tuple[Question, ...] = ()
        self.fault = ""
        self.asides: list[str] = []
        self.thoughts: dict[str, str] = {}
        self.calls: dict[str, Wire] = {}
        self.open: set[str] = set()
        """Ids of the messages, calls and steps that have started and not ended."""
        self.losses: set[str] = set()
        self.run = ""
        self.last = ""
        """Id of the newest frame."""

    def read(self, frame: Frame) -> None:
        assert not frame.event
        event = json.loads(frame.data)
        assert None not in event.values(), "old clients refuse null"
        self.last = frame.id
        kind: str = event["type"]
        if kind == "RUN_STARTED":
            assert self.state != "working", "runs do not nest"
            self.state, self.questions, self.run = "working", (), event["runId"]
            return
        assert self.state == "working", "nothing precedes RUN_STARTED or follows the end"
        self._read(kind, event)

    def _read(self, kind: str, event: Wire) -> None:
        match kind:
            case "TEXT_MESSAGE_START" | "TOOL_CALL_START" | "REASONING_MESSAGE_START" | "STEP_STARTED":
                self._open(event)
            case "TEXT_MESSAGE_CONTENT":
                self._say(event)
            case "REASONING_MESSAGE_CONTENT":
                self.thoughts[event["messageId"]] = self.thoughts.get(event["messageId"], "") + event["delta"]
            case "TOOL_CALL_ARGS":
                self.calls[event["toolCallId"]]["arguments"] += event["delta"]
            case "TEXT_MESSAGE_END" | "TOOL_CALL_END" | "STEP_FINISHED" | "REASONING_MESSAGE_END":
                self.open.remove(_name(event))
                if kind.startswith("REASONING"):
                    self.asides.append(self.thoughts[event["messageId"]])
            case "CUSTOM" if event["name"] == "babelgate.loss":
                self.losses.add(event["value"]["feature"])
            case "MESSAGES_SNAPSHOT":
                self._correct(event["messages"])
            case "RUN_FINISHED":
                assert not self.open, "everything is closed before the end"
                self._finish(event)
            case "RUN_ERROR":
                was_replaced = event.get("code") in ("superseded", "rolled_back")  # by another run of the thread
                self.state, self.fault = "cancelled" if was_replaced else "failed", event["message"]
            case _:
                self._read_activity(kind, event)

    def _say(self, event: Wire) -> None:
        assert event["messageId"] in self.open and event["delta"]
        match own_of(event).get("kind"):
            case "data":
                self.said[event["messageId"]].append(("data", json.loads(event["delta"])))
            case "separator":
                pass
            case _:
                self.said[event["messageId"]].append(("text", event["delta"]))

    def _open(self, event: Wire) -> None:
        name = _name(event)
        assert name not in self.open
        self.open.add(name)
        if event["type"] == "TEXT_MESSAGE_START":
            assert name not in self.said, "an id is used once"
            self.said[name] = []
        if "toolCallId" in event:
            assert name not in self.calls and event["parentMessageId"]
            self.calls[name] = {"name": event["toolCallName"], "arguments": ""}

    def _read_activity(self, kind: str, event: Wire) -> None:
        if kind == "ACTIVITY_DELTA":
            parts = self.artifacts[event["messageId"]]["parts"]
            parts += [each["value"] for each in event["patch"] if each["op"] == "add"]
        content: Wire = event.get("content", {})
        match event.get("activityType") if content else None:
            case "babelgate.progress":
                self.asides.append(content["text"])
            case "babelgate.file":
                self.artifacts[event["messageId"]] = {"name": content.get("name"), "parts": [content]}
            case "babelgate.artifact":
                self.artifacts[event["messageId"]] = content
            case _:
                pass

    def _finish(self, event: Wire) -> None:
        outcome = event.get("outcome", {"type": "success"})
        interrupts = outcome.get("interrupts", [])
        pending = outcome.get("pendingToolCallIds", [])
        self.questions = (*map(question_of, interrupts), *(self._call(each) for each in pending))
        self.state = "cancelled" if outcome["type"] == "cancelled" else "completed"
        self.result = event.get("result")

    def _call(self, call_id: str) -> Question:
        call = self.calls[call_id]
        return PendingCall(f"{call['name']}({call['arguments']})", None, call, call_id)

    def _join(self, kind: str) -> str:
        return "".join(value for pieces in self.said.values() for each, value in pieces if each == kind)

    def _data(self) -> tuple[Any, ...]:
        spoken = [value for pieces in self.said.values() for kind, value in pieces if kind == "data"]
        found = [*self.before.data, *spoken]
        return (*found, *([self.result] if self.result is not None and self.result not in found else ()))

    def _files(self) -> dict[str, bytes]:
        named = {each["name"]: _bytes(each) for each in self.artifacts.values()}
        return {name: content for name, content in named.items() if content is not None}

    def _correct(self, messages: list[Wire]) -> None:
        """Keep only the messages of a snapshot: the run has started over."""
        assert not self.open
        listed = {message["id"] for message in messages}
        self.said = {name: pieces for name, pieces in self.said.items() if name in listed}
        self.artifacts = {name: artifact for name, artifact in self.artifacts.items() if name in listed}

    @property
    def task(self) -> TaskView:
        if not self.state:
            return TaskView(state="")
        state = self.state
        if self.questions:
            state = "input_required"
        return TaskView(
            state,
            text=self.before.text + self._join("text"),
            data=self._data(),
            files={**self.before.files, **self._files()},
            questions=self.questions,
            fault=self.fault,
            asides=(*self.before.asides, *self.asides),
            task_id=self.ids.task,
            context_id=self.ids.thread,
        )


def _name(event: Wire) -> str:
    return event.get("messageId") or event.get("toolCallId") or f"step {event['stepName']}"


def _bytes(artifact: Wire) -> bytes | None:
    """Return the bytes of an artifact; None for a file elsewhere."""
    content = b""
    for part in artifact["parts"]:
        if part.get("type") == "text":
            content += part["text"].encode()
        elif part.get("type") == "data":
            return None
        elif part["source"]["type"] == "data":
            content += b64decode(part["source"]["value"])
        else:
            return None
    return content


class _Feed(RunFeed):
    view: AgUiView

    async def join(self, agent: str, task_id: str, run_id: str, after: str = "") -> Self:
        body = {"threadId": Ids.thread_of(task_id), "runId": run_id, "protocolVersion": VERSION, "after": after}
        return await self.open(method="POST", url=f"/ag-ui/{agent}/connect", json=body)

    async def join_next(self) -> bool:
        runs = Ids.runs_of(self.ids.task)
        at = runs.index(self.ids.run or "")
        if not self._onward or at == len(runs) - 1:
            return False
        await self.join(self.view_agent, self.ids.task, runs[at + 1])
        return True

    view_agent = ""
    """Name of the agent, which the request for the next run contains."""


class AgUi(Caller):
    name: ClassVar = "ag-ui"
    speaks: ClassVar = "ag-ui"

    _parent: str | None = None
    """Run whose state the next run continues from; None for the newest."""
    _changes: Mapping[str, Any] | None = None
    """Members of the state that the next run changes, with their values; None for no change."""

    def expected_question(self, question: Question) -> Question:
        """Return the question unchanged: AG-UI shows every question as the agent asked it."""
        return question

    def _body(self, **members: Any) -> Wire:
        if self.context_id is None:
            self.context_id = str(uuid4())
        marks: Wire = {"metadata": self.metadata} if self.metadata else {}
        return {
            "threadId": self.context_id,
            "runId": str(uuid4()),
            "protocolVersion": VERSION,
            "state": {},
            "messages": [],
            "tools": list(self.tools),
            "context": [],
            "forwardedProps": {"babelgate": marks} if marks else {},
            **members,
        }

    async def _start_request(self, contents: tuple[Content, ...]) -> Wire:
        body = self._body(messages=[message_of(contents)])
        if self._parent is not None:
            body["parentRunId"], self._parent = self._parent, None
        if self._changes is not None:
            body["state"], self._changes = {**await self._state(), **self._changes}, None
        return {"method": "POST", "url": f"/ag-ui/{self.agent}", "json": body}

    def _answer_request(self, paused: TaskView, answers: tuple[Content, ...]) -> Wire:
        self.context_id = paused.context_id
        resume, messages = list[Wire](), list[Wire]()
        pending = {each.id for each in paused.questions if isinstance(each, PendingCall)}
        for question, answer in zip(paused.questions, answers, strict=False):
            value = answer.value if isinstance(answer, Data) else answer
            if question.id in pending:
                text = value if isinstance(value, str) else json.dumps(value)
                messages.append({"id": str(uuid4()), "role": "tool", "toolCallId": question.id, "content": text})
            else:
                resume.append({"interruptId": question.id, "status": "resolved", "payload": value})
        body = self._body(messages=messages, resume=resume)
        return {"method": "POST", "url": f"/ag-ui/{self.agent}", "json": body}

    async def _run(self, view: AgUiView, request: Wire) -> TaskView:
        async with self._opened(view, 0, request) as feed:
            return await feed.end()

    @asynccontextmanager
    async def _opened(self, view: AgUiView, before: int, request: Wire) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            yield await _Feed(self.http, stack, view, onward=False, before=before).open(**request)

    async def send(self, *contents: Content) -> TaskView:
        return (await self._run(AgUiView(), await self._start_request(contents))).lasting

    @asynccontextmanager
    async def _streamed(self, contents: tuple[Content, ...]) -> AsyncGenerator[Feed]:
        async with self._opened(AgUiView(), 0, await self._start_request(contents)) as feed:
            yield feed

    def stream(self, *contents: Content) -> Following:
        return self._streamed(contents)

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        return (await self._run(AgUiView(paused), self._answer_request(paused, answers))).lasting

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        assert isinstance(paused.view, AgUiView)
        before = paused.before + len(paused.frames)
        return self._opened(paused.view, before, self._answer_request(paused.task, answers))

    async def cancel(self, task_id: str) -> TaskView:
        body = {"threadId": Ids.thread_of(task_id), "runId": Ids.runs_of(task_id)[-1]}
        response = await self.http.post(f"/ag-ui/{self.agent}/cancel", json=body)
        assert response.status_code == 202, response.text
        assert Ids.of(response.headers).task == task_id
        return TaskView("cancelling")

    async def _replayed(self, task_id: str) -> AgUiView:
        view = AgUiView()
        async with self.replay(task_id, view=view) as feed:
            await feed.end()
        return view

    async def _restated(self, thread_id: str, run_id: str | None = None) -> list[Wire]:
        """Return the events that the gateway sends to a client that connects to the thread without earlier state."""
        body = {"threadId": thread_id, "protocolVersion": VERSION, "runId": run_id}
        response = await self.http.post(f"/ag-ui/{self.agent}/connect", json=body)
        assert response.status_code == 200, response.text
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    async def look(self, task_id: str) -> TaskView:
        """Return the state of the task's runs. A replay does not show that a question was cancelled after its run, so
        the outcome of the last run is requested in addition."""
        view = (await self._replayed(task_id)).task
        if view.questions:
            last = (await self._restated(view.context_id, Ids.runs_of(task_id)[-1]))[-1]
            if last.get("outcome") == {"type": "cancelled"}:
                view = replace(view, state="cancelled", questions=())
        return view.lasting

    async def losses(self, task_id: str) -> set[str]:
        return (await self._replayed(task_id)).losses

    async def branch(self, task: TaskView) -> None:
        self._parent = (await self._replayed(task.task_id)).run

    async def _state(self) -> Wire:
        assert self.context_id is not None
        events = await self._restated(self.context_id)
        found: list[Wire] = [each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"]
        return found[0] if found else {}

    async def values(self) -> Any:
        state = await self._state()
        return {name: value for name, value in {**state, **(self._changes or {})}.items() if name != "messages"}

    async def change(self, members: Mapping[str, Any]) -> None:
        self._changes = {**(self._changes or {}), **members}

    # Streams

    @asynccontextmanager
    async def _joined(
        self, task_id: str, run_id: str, view: AgUiView, after: str = "", skip: int = 0
    ) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            feed = _Feed(self.http, stack, view, onward=True, before=skip, skip=skip)
            feed.view_agent = self.agent
            yield await feed.join(self.agent, task_id, run_id, after)

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        view = view or AgUiView()
        assert isinstance(view, AgUiView)
        return self._joined(task_id, Ids.runs_of(task_id)[0], view, skip=skip)

    def reconnect(self, feed: Feed) -> Following:
        assert isinstance(feed.view, AgUiView)
        return self._joined(feed.ids.task, feed.ids.run or "", feed.view, feed.view.last)


def events_of(response: httpx.Response) -> list[Wire]:
    """Return the events of a stream that has ended."""
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")]
