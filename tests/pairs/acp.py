"""A caller that speaks ACP."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final

from tests.pairs.caller import Caller, Data, Feed, File, Frame, Ids, Question, Said, Seen, View
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


def part_of(said: Said) -> dict[str, Any]:
    match said:
        case str():
            return {"content_type": "text/plain", "content": said}
        case Data():
            return {"content_type": "application/json", "content": json.dumps(said.value)}
        case File():
            content = b64encode(said.content).decode()
            encoded = {"content": content, "content_encoding": "base64"}
            return {"name": said.name, "content_type": said.media_type, **encoded}


def message_of(said: tuple[Said, ...]) -> dict[str, Any]:
    return {"role": "user", "parts": [part_of(one) for one in said]}


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


def seen_of(run: Mapping[str, Any], output: list[dict[str, Any]]) -> Seen:
    text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
    for part in (part for message in output for part in message["parts"]):
        content = part["content"]
        about: dict[str, Any] = part["metadata"] or {}
        if about.get("kind") == "trajectory":
            told: str | None = about["message"]
            is_step = told is not None and (told.startswith(STEP) or told == run["agent_name"])
            asides += [] if told is None or is_step else [told]
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
    return Seen(
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
        """What was told of the run last."""

    def read(self, frame: Frame) -> None:
        told = json.loads(frame.bare)
        match told["type"]:
            case "generic":
                pass
            case "message.created":
                assert self.open is None, "one message is open at a time"
                self.open = {**told["message"], "parts": list(told["message"]["parts"])}
            case "message.part":
                assert self.open is not None, "a part belongs to an open message"
                self.open["parts"].append(told["part"])
            case "message.completed":
                assert self.open is not None
                assert told["message"]["parts"] == self.open["parts"], "a complete message is the sum of its parts"
                self.output.append(told["message"])
                self.open = None
            case kind:
                assert kind == ("run." + told["run"]["status"]), told
                assert (kind == "run.created") == (self.run == {}), "a run is created once, and first"
                if kind == "run.in-progress" == self.last:  # it starts over
                    assert len(told["run"]["output"]) < len(self.output)
                    self.output = [message for message in self.output if message in told["run"]["output"]]
                self.last = kind
                assert told["run"]["output"] == self.output, "a run's output is the sum of its messages"
                self.run = told["run"]

    @property
    def seen(self) -> Seen:
        if not self.run:
            return Seen(state="")
        return seen_of(self.run, self.output if self.open is None else [*self.output, self.open])


class Acp(Caller):
    name: ClassVar = "acp"
    speaks: ClassVar = "acp"

    def _asked(self, said: tuple[Said, ...], mode: str) -> dict[str, Any]:
        body: dict[str, Any] = {"agent_name": self.agent, "input": [message_of(said)], "mode": mode}
        if self.context_id is not None:
            body["session_id"] = self.context_id
        if self.metadata:
            body["metadata"] = self.metadata
        return {"method": "POST", "url": "/acp/runs", "json": body}

    def _answered(self, asked: Seen, task_id: str, answers: tuple[Said, ...], mode: str) -> dict[str, Any]:
        told: dict[str, Any] = {"type": "message", "message": message_of(answers)}
        if len(answers) > 1:
            values = [each.value if isinstance(each, Data) else each for each in answers]
            named = zip(asked.questions, values, strict=True)
            told["babelgate"] = {"answers": [{"interrupt_id": each.id, "value": value} for each, value in named]}
        body = {"await_resume": told, "mode": mode}
        return {"method": "POST", "url": f"/acp/runs/{task_id}", "json": body}

    async def _run(self, status: int, /, **request: Any) -> Seen:
        response = await self.http.request(**request)
        assert response.status_code == status, response.text
        run = response.json()
        ids = Ids.of(response.headers)
        assert (ids.task, ids.thread) == (run["run_id"], run["session_id"])
        self.context_id = run["session_id"]
        return seen_of(run, run["output"])

    async def send(self, *said: Said) -> Seen:
        return await self._run(200, **self._asked(said, "sync"))

    def stream(self, *said: Said) -> AbstractAsyncContextManager[Feed]:
        return self._followed(_View(), **self._asked(said, "stream"))

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        return await self._run(200, **self._answered(asked, asked.task_id, answers, "sync"))

    def stream_answer(self, asked: Feed, *answers: Said) -> AbstractAsyncContextManager[Feed]:
        before = asked.before + len(asked.frames)
        return self._followed(asked.view, before, **self._answered(asked.seen, asked.ids.task, answers, "stream"))

    async def cancel(self, task_id: str) -> Seen:
        return await self._run(202, method="POST", url=f"/acp/runs/{task_id}/cancel")

    async def look(self, task_id: str) -> Seen:
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
    """The keys of an RFC 8941 dictionary whose values hold no comma before a key."""
    return {entry.partition("=")[0].strip() for entry in header.split('", ') if entry}
