"""A caller that speaks ACP."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final

from tests.pairs.caller import Caller, Content, Data, Feed, File, Frame, Ids, Question, TaskView, View
from tests.pairs.cast import STEP

STATES: Final = {
    "created": "submitted",
    "in-progress": "working",
    "awaiting": "input_required",
    "cancelling": "cancelling",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
SCHEMA: Final = "application/schema+json"


def part_of(item: Content) -> dict[str, Any]:
    match item:
        case str():
            return {"content_type": "text/plain", "content": item}
        case Data():
            return {"content_type": "application/json", "content": json.dumps(item.value)}
        case File():
            content = b64encode(item.content).decode()
            encoded = {"content": content, "content_encoding": "base64"}
            return {"name": item.name, "content_type": item.media_type, **encoded}


def message_of(contents: tuple[Content, ...]) -> dict[str, Any]:
    return {"role": "user", "parts": [part_of(one) for one in contents]}


def question_of(run: Mapping[str, Any]) -> tuple[Question, ...]:
    if run["status"] != "awaiting":
        return ()
    request = run["await_request"]
    listed = request.get("babelgate", {}).get("questions", [{"id": "", "message": request["message"]}])
    assert request["message"] == listed[0]["message"]
    return tuple(_question(each["message"]["parts"], each["id"]) for each in listed)


def _question(parts: list[dict[str, Any]], id: str) -> Question:
    text = "".join(part["content"] or "" for part in parts if part["content_type"] == "text/plain")
    schema, value = (
        next((json.loads(part["content"]) for part in parts if part["content_type"] == kind), None)
        for kind in (SCHEMA, "application/json")
    )
    return Question(text, schema, value, id)


def task_view_of(run: Mapping[str, Any], output: list[dict[str, Any]]) -> TaskView:
    text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
    for part in (part for message in output for part in message["parts"]):
        content = part["content"]
        about: dict[str, Any] = part["metadata"] or {}
        if about.get("kind") == "trajectory":
            aside: str | None = about["message"]
            is_step = aside is not None and (aside.startswith(STEP) or aside == run["agent_name"])
            asides += [] if aside is None or is_step else [aside]
        if content is None:
            continue
        if part["name"] is not None:
            assert part["name"] not in files
            files[part["name"]] = b64decode(content) if part["content_encoding"] == "base64" else content.encode()
        elif part["content_type"] == "application/json":
            data.append(json.loads(content))
        else:
            assert part["content_type"] == "text/plain", part
            text += content
    return TaskView(
        state=STATES[run["status"]],
        text=text,
        data=tuple(data),
        files=files,
        questions=question_of(run),
        fault=run["error"]["message"] if run["error"] else "",
        asides=tuple(asides),
        task_id=run["run_id"],
        context_id=run["session_id"],
    )


class _View(View):
    def __init__(self) -> None:
        self.run: dict[str, Any] = {}
        self.output: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None
        self.last = ""
        """Kind of the last event of the run."""

    def read(self, frame: Frame) -> None:
        event = json.loads(frame.bare)
        match event["type"]:
            case "generic":
                pass
            case "message.created":
                assert self.open is None, "one message is open at a time"
                self.open = {**event["message"], "parts": list(event["message"]["parts"])}
            case "message.part":
                assert self.open is not None, "a part belongs to an open message"
                self.open["parts"].append(event["part"])
            case "message.completed":
                assert self.open is not None
                assert event["message"]["parts"] == self.open["parts"], "a complete message is the sum of its parts"
                self.output.append(event["message"])
                self.open = None
            case kind:
                assert kind == ("run." + event["run"]["status"]), event
                assert (kind == "run.created") == (self.run == {}), "a run is created once, and first"
                if kind == "run.in-progress" == self.last:  # the run starts over
                    assert len(event["run"]["output"]) < len(self.output)
                    self.output = [message for message in self.output if message in event["run"]["output"]]
                self.last = kind
                assert event["run"]["output"] == self.output, "a run's output is the sum of its messages"
                self.run = event["run"]

    @property
    def task(self) -> TaskView:
        if not self.run:
            return TaskView(state="")
        return task_view_of(self.run, self.output if self.open is None else [*self.output, self.open])


class Acp(Caller):
    name: ClassVar = "acp"
    speaks: ClassVar = "acp"

    def _start_request(self, contents: tuple[Content, ...], mode: str) -> dict[str, Any]:
        body: dict[str, Any] = {"agent_name": self.agent, "input": [message_of(contents)], "mode": mode}
        if self.context_id is not None:
            body["session_id"] = self.context_id
        if self.metadata:
            body["metadata"] = self.metadata
        return {"method": "POST", "url": "/acp/runs", "json": body}

    def _answer_request(
        self, paused: TaskView, task_id: str, answers: tuple[Content, ...], mode: str
    ) -> dict[str, Any]:
        resume: dict[str, Any] = {"type": "message", "message": message_of(answers)}
        if len(answers) > 1:
            values = [each.value if isinstance(each, Data) else each for each in answers]
            named = zip(paused.questions, values, strict=True)
            resume["babelgate"] = {"answers": [{"interrupt_id": each.id, "value": value} for each, value in named]}
        body = {"await_resume": resume, "mode": mode}
        return {"method": "POST", "url": f"/acp/runs/{task_id}", "json": body}

    async def _run(self, status: int, /, **request: Any) -> TaskView:
        response = await self.http.request(**request)
        assert response.status_code == status, response.text
        run = response.json()
        ids = Ids.of(response.headers)
        assert (ids.task, ids.thread) == (run["run_id"], run["session_id"])
        self.context_id = run["session_id"]
        return task_view_of(run, run["output"])

    async def send(self, *contents: Content) -> TaskView:
        return await self._run(200, **self._start_request(contents, "sync"))

    def stream(self, *contents: Content) -> AbstractAsyncContextManager[Feed]:
        return self._followed(_View(), **self._start_request(contents, "stream"))

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        return await self._run(200, **self._answer_request(paused, paused.task_id, answers, "sync"))

    def stream_answer(self, paused: Feed, *answers: Content) -> AbstractAsyncContextManager[Feed]:
        before = paused.before + len(paused.frames)
        return self._followed(
            paused.view, before, **self._answer_request(paused.task, paused.ids.task, answers, "stream")
        )

    async def cancel(self, task_id: str) -> TaskView:
        return await self._run(202, method="POST", url=f"/acp/runs/{task_id}/cancel")

    async def look(self, task_id: str) -> TaskView:
        return await self._run(200, method="GET", url=f"/acp/runs/{task_id}")

    async def losses(self, task_id: str) -> set[str]:
        response = await self.http.get(f"/acp/runs/{task_id}")
        return named(response.headers.get("babelgate-loss", ""))

    def attach(self, task_id: str) -> AbstractAsyncContextManager[Feed]:
        return self.replay(task_id)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AbstractAsyncContextManager[Feed]:
        url = f"/acp/runs/{task_id}/events"
        headers = {"Accept": "text/event-stream"}
        return self._followed(view or _View(), skip, method="GET", url=url, headers=headers, params={"after": skip})


def named(header: str) -> set[str]:
    """Return the keys of an RFC 8941 dictionary whose string values contain no `", `."""
    return {entry.partition("=")[0].strip() for entry in header.split('", ') if entry}
