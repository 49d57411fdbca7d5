"""A caller that speaks the minimal runtime. It lists no runs: a task is those of which somebody was told, one after the
other."""

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from json import loads
from typing import Any, ClassVar, Final, Self

from tests.pairs.acp import named
from tests.pairs.caller import Caller, Data, Feed, File, Following, Frame, Ids, Question, RunFeed, Said, Seen, View

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
"""Of a task, by the status of its last run, if that does not ask."""


def part_of(said: Said) -> Wire:
    match said:
        case str():
            return {"kind": "text", "text": said}
        case Data():
            return {"kind": "data", "data": said.value}
        case File():
            inline = b64encode(said.content).decode()
            return {"kind": "file", "name": said.name, "media_type": said.media_type, "inline": inline}


def input_of(said: tuple[Said, ...]) -> Any:
    if len(said) == 1 and isinstance(said[0], str):
        return said[0]
    return {"messages": [{"role": "user", "parts": [part_of(one) for one in said]}]}


def question_of(message: Wire, schema: Any, value: Any, pointer: str) -> Question:
    text = "".join(part["text"] for part in message["parts"] if part["kind"] == "text")
    return Question(text, schema, value, pointer)


def asking(kinds: list[str]) -> str:
    return "auth_required" if "auth" in kinds else "input_required"


@dataclass
class _Told:
    """What a run has said."""

    messages: dict[str, Wire] = field(default_factory=dict[str, Wire])
    artifacts: dict[str, list[Wire]] = field(default_factory=dict[str, list[Wire]])
    """Parts, by the artifact's id."""
    output: Any = None

    def seen(self, state: str, before: Seen | None, **more: Any) -> Seen:
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
        return Seen(state, text=text, data=tuple(data), files=files, asides=tuple(asides), **more)


def content_of(part: Wire) -> bytes:
    """Of one by its URL, that."""
    if part["kind"] != "file":
        return part["text"].encode()
    return b64decode(part["inline"]) if part.get("inline") else part["url"].encode()


def seen_of(run: Wire, before: Seen | None = None) -> Seen:
    output: Wire = run["output"]
    told = _Told({each["message_id"]: each for each in output["messages"]}, output=output["data"])
    told.artifacts = {each["artifact_id"]: each["parts"] for each in output["artifacts"]}
    asked: list[Wire] = run["interrupt_state"] or []
    for each in asked:
        assert (each["task_id"], each["thread_id"]) == (run["task_id"], run["thread_id"])
    return told.seen(
        STATES.get(run["status"]) or asking([each["type"] for each in asked]),
        before,
        questions=tuple(
            question_of(each["message"], each["expected_input_schema"], each["value"], each["resume_state_pointer"])
            for each in asked
        ),
        fault=run["error"]["message"] if run["error"] else "",
        task_id=run["task_id"],
        context_id=run["thread_id"],
    )


class _View(View):
    def __init__(self) -> None:
        self.last = 0
        """The id of the newest event."""
        self.before: Seen | None = None
        """What the runs before this one have said."""
        self.run_id = ""
        self.told = _Told()
        self.status = ""
        self.asked: dict[str, tuple[str, Question]] = {}
        """By id: the kind, and the question."""
        self.fault = ""

    def read(self, frame: Frame) -> None:
        event = loads(frame.data)
        assert (frame.id, frame.event) == (str(event["event_id"]), event["event_type"])
        assert event["event_id"] > self.last, "events come in order, and each once"
        self.last = event["event_id"]
        payload: Wire = event["payload"]
        match event["event_type"]:
            case "run_created":
                self.before = self.seen if self.run_id else None
                self.told, self.status, self.run_id = _Told(), "pending", payload["run_id"]
            case "run_started":
                if payload["attempt"] > 1 and not payload["goes_on"]:  # it starts over
                    void = payload["void"]
                    kept = {} if void is None else {i: m for i, m in self.told.messages.items() if i not in void}
                    self.told = _Told(messages=deepcopy(kept))
                self.status = "running"
            case "message_started":
                self.told.messages.setdefault(payload["message_id"], {**payload, "parts": []})
            case "part_added":
                self.told.messages[payload["message_id"]]["parts"].append(payload["part"])
            case "part_delta":
                part = self.told.messages[payload["message_id"]]["parts"][payload["index"]]
                part["text" if "text" in part else "arguments"] += payload["text"]
            case "artifact_added":
                parts = self.told.artifacts.setdefault(payload["artifact_id"], [])
                parts[:] = [*(parts if payload["append"] else []), payload["part"]]
            case "interrupt_raised":
                question = question_of(
                    payload["message"], payload["answer_schema"], payload["value"], payload["interrupt_id"]
                )
                self.asked[payload["interrupt_id"]] = payload["ask"], question
            case "interrupt_answered":
                del self.asked[payload["interrupt_id"]]
            case "run_ended":
                self.status, self.told.output = payload["status"], payload["output"]
                self.fault = payload["fault"]["message"] if payload["fault"] and self.status == "error" else ""
            case _:
                pass
        assert event["run_id"] == self.run_id

    @property
    def seen(self) -> Seen:
        if not self.run_id:
            return Seen(state="")
        state = STATES.get(self.status) or asking([kind for kind, _ in self.asked.values()])
        questions = tuple(question for _, question in self.asked.values()) if self.status == "paused" else ()
        return self.told.seen(
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

    async def go_on(self) -> bool:
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
    """Where the next run starts, if not from the newest."""
    _left: ClassVar[dict[str, str]] = {}
    """By task: the checkpoint with which it left the thread."""

    async def _json(self, method: str, path: str, status: int = 200, **request: Any) -> Wire:
        response = await self.http.request(method, path, **request)
        assert response.status_code == status, response.text
        if "run_id" in response.json():
            Ids.of(response.headers)
        return response.json()

    def _asked(self, said: tuple[Said, ...], below: str = "") -> Wire:
        body: Wire = {"assistant_id": self.agent, "input": input_of(said), "metadata": self.metadata}
        if self.tools:
            body["tools"] = self.tools
        if self._checkpoint is not None:
            body["checkpoint_id"], self._checkpoint = self._checkpoint, None
        path = "/v1/runs" if self.context_id is None else f"/v1/threads/{self.context_id}/runs"
        return {"method": "POST", "url": path + below, "json": body}

    def _answered(self, asked: Seen, answers: tuple[Said, ...], **more: Any) -> Wire:
        """One answer is bare; of several, each names its question."""
        values = [said.value if isinstance(said, Data) else said for said in answers]
        if self.tools:
            more["tools"] = self.tools
        body: Wire = {"task_id": asked.task_id, "input": values[0], **more}
        if len(asked.questions) > 1:
            pointers = [question.id for question in asked.questions]
            body = {"task_id": asked.task_id, "answers": dict(zip(pointers, values, strict=False)), **more}
        return {"method": "POST", "url": f"/v1/threads/{asked.context_id}/resume", "json": body}

    async def _ran(self, before: Seen | None, /, **request: Any) -> Seen:
        run = await self._json(request["method"], request["url"], json=request["json"])
        self.context_id = run["thread_id"]
        self._left[run["task_id"]] = (await self._thread())["state_snapshot"]["checkpoint_id"]
        return seen_of(run, before)

    async def _thread(self) -> Wire:
        return await self._json("GET", f"/v1/threads/{self.context_id}")

    async def send(self, *said: Said) -> Seen:
        return await self._ran(None, **self._asked(said))

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        return await self._ran(asked, **self._answered(asked, answers))

    async def cancel(self, task_id: str) -> Seen:
        run_id = Ids.runs_of(task_id)[-1]
        return seen_of(await self._json("POST", f"/v1/runs/{run_id}/cancel", 202))

    async def look(self, task_id: str) -> Seen:
        seen: Seen | None = None
        for run_id in Ids.runs_of(task_id):
            seen = seen_of(await self._json("GET", f"/v1/runs/{run_id}"), seen)
        assert seen is not None
        return seen.lasting

    async def branch(self, told: Seen) -> None:
        self._checkpoint = self._left[told.task_id]

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

    def stream(self, *said: Said) -> Following:
        return self._opened(_View(), **self._asked(said, "/stream"))

    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        assert isinstance(asked.view, _View)
        return self._opened(
            asked.view, asked.before + len(asked.frames), **self._answered(asked.seen, answers, stream=True)
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

    def come_back(self, feed: Feed) -> Following:
        assert isinstance(feed.view, _View)
        return self._joined(feed.ids.task, feed.ids.run or "", feed.view, feed.view.last)
