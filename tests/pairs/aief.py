"""A caller that speaks AIEF: each call is a step, and is answered when the step is over."""

import json
from typing import Any, ClassVar

from tests.pairs.acp import named
from tests.pairs.caller import Caller, Content, Data, File, Ids, Question, TaskView

Wire = dict[str, Any]

PAGE = 100


def state_of(step: Wire) -> str:
    """Return the state of a step's task.

    AIEF has none: the last step ends the task, and a step with a question pauses it.
    """
    if step["status"] != "completed":
        return {"created": "submitted", "running": "working"}[step["status"]]
    error = step["additional_output"].get("error")
    if not step["is_last"]:
        assert error is None
        return "input_required" if question_in(step) else "working"
    if error is None:
        return "completed"
    return "cancelled" if error["code"] == "cancelled" else "failed"


def question_in(step: Wire) -> tuple[Question, ...]:
    """Return the question with which the output ends. Other open questions follow in separate steps."""
    questions = step["additional_output"].get("questions") or [None]
    first = questions[0]
    return () if first is None else (Question(first["message"], first["schema"], first["value"], first["id"]),)


def answer_in(step: Wire) -> tuple[str, tuple[Any, ...]]:
    """Return the text and the data of the answer.

    The output is the text, followed by the question. Without a text it is the JSON of the data, or the error message.
    """
    text: str = step["output"] or ""
    more: Wire = step["additional_output"]
    data: tuple[Any, ...] = tuple(more["data"]) if "data" in more else (more["output"],) if "output" in more else ()
    for question in question_in(step):
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

    async def create(self, *contents: Content) -> str:
        """Create a task with its whole input, without a running step, and return the gateway's thread id."""
        response = await self.http.post(self._url(), json=_body(contents))
        assert response.status_code == 200, response.text
        task = response.json()
        assert response.headers["babelgate-thread"] == task["task_id"]
        self.context_id = task["task_id"]
        await self._upload(contents)
        return task["task_id"]

    async def _upload(self, contents: tuple[Content, ...]) -> None:
        for file in (one for one in contents if isinstance(one, File)):
            url = self._url(f"/{self.context_id}/artifacts")
            response = await self.http.post(url, files={"file": (file.name, file.content, file.media_type)})
            assert response.status_code == 200, response.text
            artifact = response.json()
            assert (artifact["file_name"], artifact["agent_created"]) == (file.name, False)

    async def step(self, *contents: Content) -> TaskView:
        """Execute the task's next step, and further ones until one asks a question or is the last.

        The first step of a new task takes the task's input.
        """
        view = await self._step(*contents)
        while view.state == "working":
            view = await self._step()
        return view

    async def _step(self, *contents: Content) -> TaskView:
        response = await self.http.post(
            self._url(f"/{self.context_id}/steps"), json=_body(contents) if contents else None
        )
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
        view = await self.look(ids.task)
        assert (view.state, view.questions) == (state_of(step), question_in(step) if not step["is_last"] else ())
        return view

    async def begun(self) -> str:
        """Return the gateway's id of the task of the newest started step."""
        steps = (await self._get(f"/{self.context_id}/steps?page_size={PAGE}"))["steps"]
        newest = [step for step in steps if step["status"] != "created"][-1]
        response = await self.http.get(self._url(f"/{self.context_id}/steps/{newest['step_id']}"))
        return Ids.of(response.headers).task

    async def send(self, *contents: Content) -> TaskView:
        if self.context_id is None:
            await self.create(*contents)
            return await self.step()
        await self._upload(contents)
        return await self.step(*contents)

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        self.context_id = paused.context_id
        assert len(answers) == len(paused.questions) == 1
        return await self.step(*answers)

    async def _steps(self, task_id: str) -> list[Wire]:
        """Return the steps of one task of the gateway. One AIEF task may hold several."""
        listed = await self._get(f"/{Ids.thread_of(task_id)}/steps?page_size={PAGE}")
        assert listed["pagination"]["total_items"] == len(listed["steps"]) < PAGE
        return [
            step
            for step in listed["steps"]
            if step["additional_output"] and step["additional_output"]["babelgate"]["task_id"] == task_id
        ]

    async def look(self, task_id: str) -> TaskView:
        thread_id = Ids.thread_of(task_id)
        text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
        steps = await self._steps(task_id)
        for step in steps:
            output, more = answer_in(step)
            text += output
            data += more
            details: Wire = step["additional_output"]
            asides += [details[kind] for kind in ("reasoning", "progress") if kind in details]
            for artifact in step["artifacts"]:
                assert artifact["agent_created"] and artifact["file_name"] not in files
                files[artifact["file_name"]] = await self._download(thread_id, artifact["artifact_id"])
        last = steps[-1]
        state = state_of(last)
        return TaskView(
            state=state,
            text=text,
            data=tuple(data),
            files=files,
            questions=question_in(last) if state == "input_required" else (),
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
            names = set(step["additional_output"]["babelgate"].get("loss", ()))
            assert names == named(response.headers.get("babelgate-loss", ""))
            lost |= names
        return lost


def _body(contents: tuple[Content, ...]) -> Wire:
    texts = [one for one in contents if isinstance(one, str)]
    values = [one.value for one in contents if isinstance(one, Data)]
    assert len(texts) < 2 and len(values) < 2, "a body has one text and one object"
    body: Wire = {"input": texts[0]} if texts else {}
    return {**body, "additional_input": values[0]} if values else body
