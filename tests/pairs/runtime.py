"""A caller that speaks the minimal runtime.

The API lists no runs: a task is the runs that some caller has received, one after the other.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
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

STATES: Final[Mapping[str, str]] = {
    "pending": "submitted",
    "running": "working",
    "cancelling": "cancelling",
    "success": "completed",
    "error": "failed",
    "timeout": "failed",
    "cancelled": "cancelled",
}
"""State of a task, by the status of its last run, unless that run asked a question."""


def part_of(content: Content) -> Wire:
    match content:
        case str():
            return {"kind": "text", "text": content}
        case Data():
            return {"kind": "data", "data": content.value}
        case File():
            inline = b64encode(content.content).decode()
            return {"kind": "file", "name": content.name, "media_type": content.media_type, "inline": inline}


def input_of(contents: tuple[Content, ...]) -> Any:
    if len(contents) == 1 and isinstance(contents[0], str):
        return contents[0]
    return {"messages": [{"role": "user", "parts": [part_of(one) for one in contents]}]}


def question_of(message: Wire, schema: Any, value: Any, pointer: str) -> Question:
    text = "".join(part["text"] for part in message["parts"] if part["kind"] == "text")
    return Question(text, schema, value, pointer)


def asking(kinds: list[str]) -> str:
    return "auth_required" if "auth" in kinds else "input_required"


@dataclass
class _Output:
    """Output of one run."""

    messages: dict[str, Wire] = field(default_factory=dict[str, Wire])
    artifacts: dict[str, list[Wire]] = field(default_factory=dict[str, list[Wire]])
    """Parts of the artifacts, by artifact id."""
    output: Any = None

    def as_task(self, state: str, before: TaskView | None, **more: Any) -> TaskView:
        text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
        if before is not None:
            text, data, files, asides = before.text, [*before.data], dict(before.files), [*before.asides]
        for message in self.messages.values():
            for part in message["parts"]:
                match part["kind"]:
                    case "text" if message["phase"] == "progress":
                        asides.append(part["text"])
                    case "text":
                        text += part["text"]
                    case "reasoning":
                        asides.append(part["text"])
                    case "data":
                        data.append(part["data"])
                    case "file":
                        files[part["name"]] = content_of(part)
                    case _:
                        pass
        for parts in self.artifacts.values():
            for part in parts:
                name = part.get("name", "")
                files[name] = files.get(name, b"") + content_of(part)
        if self.output is not None and self.output not in data:
            data.append(self.output)
        return TaskView(state, text=text, data=tuple(data), files=files, asides=tuple(asides), **more)


def content_of(part: Wire) -> bytes:
    """Return the content of a part: its text, its bytes, or its URL if it has no bytes."""
    if part["kind"] != "file":
        return part["text"].encode()
    return b64decode(part["inline"]) if part.get("inline") else part["url"].encode()


def task_view_of(run: Wire, before: TaskView | None = None) -> TaskView:
    output: Wire = run["output"]
    produced = _Output({each["message_id"]: each for each in output["messages"]}, output=output["data"])
    produced.artifacts = {each["artifact_id"]: each["parts"] for each in output["artifacts"]}
    interrupts: list[Wire] = run["interrupt_state"] or []
    for each in interrupts:
        assert (each["task_id"], each["thread_id"]) == (run["task_id"], run["thread_id"])
    return produced.as_task(
        STATES.get(run["status"]) or asking([each["type"] for each in interrupts]),
        before,
        questions=tuple(
            question_of(each["message"], each["expected_input_schema"], each["value"], each["resume_state_pointer"])
            for each in interrupts
        ),
        fault=run["error"]["message"] if run["error"] else "",
        task_id=run["task_id"],
        context_id=run["thread_id"],
    )


class _View(View):
    def __init__(self) -> None:
        self.last = 0
        """Id of the newest event."""
        self.before: TaskView | None = None
        """State after the earlier runs."""
        self.run_id = ""
        self.produced = _Output()
        self.status = ""
        self.open_questions: dict[str, tuple[str, Question]] = {}
        """Open questions with their kind, by id."""
        self.fault = ""

    def read(self, frame: Frame) -> None:
        event = loads(frame.data)
        assert (frame.id, frame.event) == (str(event["event_id"]), event["event_type"])
        assert event["event_id"] > self.last, "events come in order, and each once"
        self.last = event["event_id"]
        payload: Wire = event["payload"]
        match event["event_type"]:
            case "run_created":
                self.before = self.task if self.run_id else None
                self.produced, self.status, self.run_id = _Output(), "pending", payload["run_id"]
            case "run_started":
                if payload["attempt"] > 1 and not payload["goes_on"]:  # the run starts over
                    void = payload["void"]
                    messages = (
                        {} if void is None else {i: m for i, m in self.produced.messages.items() if i not in void}
                    )
                    self.produced = _Output(messages=deepcopy(messages))
                self.status = "running"
            case "message_started":
                self.produced.messages.setdefault(payload["message_id"], {**payload, "parts": []})
            case "part_added":
                self.produced.messages[payload["message_id"]]["parts"].append(payload["part"])
            case "part_delta":
                part = self.produced.messages[payload["message_id"]]["parts"][payload["index"]]
                part["text" if "text" in part else "arguments"] += payload["text"]
            case "artifact_added":
                parts = self.produced.artifacts.setdefault(payload["artifact_id"], [])
                parts[:] = [*(parts if payload["append"] else []), payload["part"]]
            case "interrupt_raised":
                question = question_of(
                    payload["message"], payload["answer_schema"], payload["value"], payload["interrupt_id"]
                )
                self.open_questions[payload["interrupt_id"]] = payload["ask"], question
            case "interrupt_answered":
                del self.open_questions[payload["interrupt_id"]]
            case "run_ended":
                self.status, self.produced.output = payload["status"], payload["output"]
                self.fault = payload["fault"]["message"] if payload["fault"] and self.status == "error" else ""
            case _:
                pass
        assert event["run_id"] == self.run_id

    @property
    def task(self) -> TaskView:
        if not self.run_id:
            return TaskView(state="")
        state = STATES.get(self.status) or asking([kind for kind, _ in self.open_questions.values()])
        questions = tuple(question for _, question in self.open_questions.values()) if self.status == "paused" else ()
        return self.produced.as_task(
            state,
            self.before,
            questions=questions,
            fault=self.fault,
            task_id=self.ids.task,
            context_id=self.ids.thread,
        )


class _Feed(RunFeed):
    view: _View

    async def join(self, run_id: str, after: int = 0) -> Self:
        headers = {"Last-Event-ID": str(after)} if after else {}
        return await self.open(method="GET", url=f"/v1/runs/{run_id}/stream", headers=headers)

    async def join_next(self) -> bool:
        runs = Ids.runs_of(self.ids.task)
        at = runs.index(self.ids.run or "")
        if not self._onward or at == len(runs) - 1:
            return False
        await self.join(runs[at + 1])
        return True


class Runtime(Caller):
    name: ClassVar = "runtime"
    speaks: ClassVar = "runtime"

    _checkpoint: str | None = None
    """Checkpoint at which the next run starts; None for the newest."""
    _last_checkpoints: ClassVar[dict[str, str]] = {}
    """Id of the last checkpoint of each task, by task id."""

    async def _json(self, method: str, path: str, status: int = 200, **request: Any) -> Wire:
        response = await self.http.request(method, path, **request)
        assert response.status_code == status, response.text
        if "run_id" in response.json():
            Ids.of(response.headers)
        return response.json()

    def _start_request(self, contents: tuple[Content, ...], below: str = "") -> Wire:
        body: Wire = {"assistant_id": self.agent, "input": input_of(contents), "metadata": self.metadata}
        if self.tools:
            body["tools"] = self.tools
        if self._checkpoint is not None:
            body["checkpoint_id"], self._checkpoint = self._checkpoint, None
        path = "/v1/runs" if self.context_id is None else f"/v1/threads/{self.context_id}/runs"
        return {"method": "POST", "url": path + below, "json": body}

    def _answer_request(self, paused: TaskView, answers: tuple[Content, ...], **more: Any) -> Wire:
        """Return a request with the answers. A single answer is the value itself; several are by question id."""
        values = [item.value if isinstance(item, Data) else item for item in answers]
        if self.tools:
            more["tools"] = self.tools
        body: Wire = {"task_id": paused.task_id, "input": values[0], **more}
        if len(paused.questions) > 1:
            pointers = [question.id for question in paused.questions]
            body = {"task_id": paused.task_id, "answers": dict(zip(pointers, values, strict=False)), **more}
        return {"method": "POST", "url": f"/v1/threads/{paused.context_id}/resume", "json": body}

    async def _run_to_stop(self, before: TaskView | None, /, **request: Any) -> TaskView:
        run = await self._json(request["method"], request["url"], json=request["json"])
        self.context_id = run["thread_id"]
        self._last_checkpoints[run["task_id"]] = (await self._thread())["state_snapshot"]["checkpoint_id"]
        return task_view_of(run, before)

    async def _thread(self) -> Wire:
        return await self._json("GET", f"/v1/threads/{self.context_id}")

    async def send(self, *contents: Content) -> TaskView:
        return await self._run_to_stop(None, **self._start_request(contents))

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        return await self._run_to_stop(paused, **self._answer_request(paused, answers))

    async def cancel(self, task_id: str) -> TaskView:
        run_id = Ids.runs_of(task_id)[-1]
        return task_view_of(await self._json("POST", f"/v1/runs/{run_id}/cancel", 202))

    async def look(self, task_id: str) -> TaskView:
        view: TaskView | None = None
        for run_id in Ids.runs_of(task_id):
            view = task_view_of(await self._json("GET", f"/v1/runs/{run_id}"), view)
        assert view is not None
        return view.lasting

    async def branch(self, task: TaskView) -> None:
        self._checkpoint = self._last_checkpoints[task.task_id]

    async def values(self) -> Any:
        state: Wire = (await self._thread())["state_snapshot"]
        return {name: value for name, value in state["values"].items() if name != "messages"}

    async def change(self, members: Mapping[str, Any]) -> None:
        await self._json("PATCH", f"/v1/threads/{self.context_id}", json={"values": dict(members)})

    async def losses(self, task_id: str) -> set[str]:
        lost: set[str] = set()
        for run_id in Ids.runs_of(task_id):
            lost |= named((await self.http.get(f"/v1/runs/{run_id}")).headers.get("babelgate-loss", ""))
        return lost

    # Streams

    @asynccontextmanager
    async def _opened(self, view: _View, before: int = 0, /, **request: Any) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            feed = await _Feed(self.http, stack, view, onward=False, before=before).open(**request)
            self.context_id = feed.ids.thread
            yield feed

    def stream(self, *contents: Content) -> Following:
        return self._opened(_View(), **self._start_request(contents, "/stream"))

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        assert isinstance(paused.view, _View)
        return self._opened(
            paused.view, paused.before + len(paused.frames), **self._answer_request(paused.task, answers, stream=True)
        )

    @asynccontextmanager
    async def _joined(
        self, task_id: str, run_id: str, view: _View, after: int = 0, skip: int = 0
    ) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            yield await _Feed(self.http, stack, view, onward=True, before=skip, skip=skip).join(run_id, after)

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        view = view or _View()
        assert isinstance(view, _View)
        return self._joined(task_id, Ids.runs_of(task_id)[0], view, skip=skip)

    def reconnect(self, feed: Feed) -> Following:
        assert isinstance(feed.view, _View)
        return self._joined(feed.ids.task, feed.ids.run or "", feed.view, feed.view.last)
