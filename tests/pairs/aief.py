"""A caller that speaks AIEF: each call is a step, and is answered when the step is over."""

import json
from typing import Any, ClassVar

from tests.pairs.acp import named
from tests.pairs.caller import Caller, Data, File, Ids, Question, Said, Seen

Wire = dict[str, Any]

PAGE = 100


def state_of(step: Wire) -> str:
    """There is no status of a task: it is over with the last step, and asks with one that is not the last."""
    if step["status"] != "completed":
        return {"created": "submitted", "running": "working"}[step["status"]]
    error = step["additional_output"].get("error")
    if not step["is_last"]:
        assert error is None
        return "input_required" if asked_in(step) else "working"
    if error is None:
        return "completed"
    return "cancelled" if error["code"] == "cancelled" else "failed"


def asked_in(step: Wire) -> tuple[Question, ...]:
    """The one that the output ends with. The others that are open will come in steps of their own."""
    questions = step["additional_output"].get("questions") or [None]
    first = questions[0]
    return () if first is None else (Question(first["message"], first["schema"], first["value"], first["id"]),)


def said_in(step: Wire) -> tuple[str, tuple[Any, ...]]:
    """The text of the answer, and its data. The output is the text, then the question; where nothing was said, it is
    what else there is: JSON of the data, or the words of the error."""
    text: str = step["output"] or ""
    more: Wire = step["additional_output"]
    data: tuple[Any, ...] = tuple(more["data"]) if "data" in more else (more["output"],) if "output" in more else ()
    for question in asked_in(step):
        assert text.endswith(question.text), step
        text = text.removesuffix(question.text).removesuffix("\n")
    if data and json_of(text) in (data[0], list(data)):
        text = ""
    if "error" in more and text == more["error"]["message"]:
        text = ""
    return text, data


def json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


class Aief(Caller):
    name: ClassVar = "aief"
    speaks: ClassVar = "aief"
    names_partial: ClassVar[bool] = False

    def _url(self, path: str = "") -> str:
        return f"/agent/{self.agent}/ap/v1/agent/tasks{path}"

    async def _get(self, path: str) -> Any:
        response = await self.http.get(self._url(path))
        assert response.status_code == 200, response.text
        return response.json()

    async def create(self, *said: Said) -> str:
        """A task to which all is given, and of which nothing runs; returns the gateway's thread."""
        response = await self.http.post(self._url(), json=_body(said))
        assert response.status_code == 200, response.text
        task = response.json()
        assert response.headers["babelgate-thread"] == task["task_id"]
        self.context_id = task["task_id"]
        await self._upload(said)
        return task["task_id"]

    async def _upload(self, said: tuple[Said, ...]) -> None:
        for file in (one for one in said if isinstance(one, File)):
            url = self._url(f"/{self.context_id}/artifacts")
            response = await self.http.post(url, files={"file": (file.name, file.content, file.media_type)})
            assert response.status_code == 200, response.text
            artifact = response.json()
            assert (artifact["file_name"], artifact["agent_created"]) == (file.name, False)

    async def step(self, *said: Said) -> Seen:
        """Whatever the task's next step is, and those after it up to one that asks or is the last. A new task's first
        one takes the input of the task."""
        seen = await self._step(*said)
        while seen.state == "working":
            seen = await self._step()
        return seen

    async def _step(self, *said: Said) -> Seen:
        response = await self.http.post(self._url(f"/{self.context_id}/steps"), json=_body(said) if said else None)
        assert response.status_code == 200, response.text
        step = response.json()
        ids = Ids.of(response.headers)
        assert step["additional_output"]["babelgate"] == {
            **step["additional_output"]["babelgate"],
            "thread_id": ids.thread,
            "task_id": ids.task,
            "run_id": ids.run,
        }
        assert ids.thread == step["task_id"] == self.context_id
        seen = await self.look(ids.task)
        assert (seen.state, seen.questions) == (state_of(step), asked_in(step) if not step["is_last"] else ())
        return seen

    async def begun(self) -> str:
        """The gateway's id of the task that the newest step is of which has been begun."""
        steps = (await self._get(f"/{self.context_id}/steps?page_size={PAGE}"))["steps"]
        newest = [step for step in steps if step["status"] != "created"][-1]
        response = await self.http.get(self._url(f"/{self.context_id}/steps/{newest['step_id']}"))
        return Ids.of(response.headers).task

    async def send(self, *said: Said) -> Seen:
        if self.context_id is None:
            await self.create(*said)
            return await self.step()
        await self._upload(said)
        return await self.step(*said)

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        self.context_id = asked.context_id
        assert len(answers) == len(asked.questions) == 1
        return await self.step(*answers)

    async def _steps(self, task_id: str) -> list[Wire]:
        """Of an AIEF task there may be several of the gateway's."""
        listed = await self._get(f"/{Ids.thread_of(task_id)}/steps?page_size={PAGE}")
        assert listed["pagination"]["total_items"] == len(listed["steps"]) < PAGE
        return [
            step
            for step in listed["steps"]
            if step["additional_output"] and step["additional_output"]["babelgate"]["task_id"] == task_id
        ]

    async def look(self, task_id: str) -> Seen:
        thread_id = Ids.thread_of(task_id)
        text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
        steps = await self._steps(task_id)
        for step in steps:
            said, more = said_in(step)
            text += said
            data += more
            beside: Wire = step["additional_output"]
            asides += [beside[kind] for kind in ("reasoning", "progress") if kind in beside]
            for artifact in step["artifacts"]:
                assert artifact["agent_created"] and artifact["file_name"] not in files
                files[artifact["file_name"]] = await self._download(thread_id, artifact["artifact_id"])
        last = steps[-1]
        state = state_of(last)
        return Seen(
            state=state,
            text=text,
            data=tuple(data),
            files=files,
            questions=asked_in(last) if state == "input_required" else (),
            fault=last["additional_output"]["error"]["message"] if state == "failed" else "",
            asides=tuple(asides),
            task_id=task_id,
            context_id=thread_id,
        )

    async def _download(self, thread_id: str, artifact_id: str) -> bytes:
        response = await self.http.get(self._url(f"/{thread_id}/artifacts/{artifact_id}"))
        assert (response.status_code, response.headers["content-type"]) == (200, "application/octet-stream")
        return response.content

    async def losses(self, task_id: str) -> set[str]:
        lost: set[str] = set()
        for step in await self._steps(task_id):
            response = await self.http.get(self._url(f"/{step['task_id']}/steps/{step['step_id']}"))
            assert response.json() == step
            told = set(step["additional_output"]["babelgate"].get("loss", ()))
            assert told == named(response.headers.get("babelgate-loss", ""))
            lost |= told
        return lost


def _body(said: tuple[Said, ...]) -> Wire:
    texts = [one for one in said if isinstance(one, str)]
    values = [one.value for one in said if isinstance(one, Data)]
    assert len(texts) < 2 and len(values) < 2, "a body has one text, and one object beside it"
    body: Wire = {"input": texts[0]} if texts else {}
    return {**body, "additional_input": values[0]} if values else body
