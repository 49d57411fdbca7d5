"""Driver for the Agent Protocol of the AI Engineer Foundation (AIEF). A conversation is a task, and a run consists of
some of its steps."""

from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote
from uuid import uuid4

from babelgate.conformance.across.driver import Driver, Observation, ScenarioFailed, read_success
from babelgate.conformance.across.model import CallerInput, File, Handle, Meaning, Question
from babelgate.conformance.wire.exchange import Exchange, as_list, dig, json_or_none

_MAX_STEPS: Final = 50
"""Maximum number of steps that one turn of a conversation may take. Chosen."""
_PAGE_SIZE: Final = 100


class Aief(Driver):
    name: ClassVar = "aief"
    title: ClassVar = "AIEF"
    lacks: ClassVar = {"stream": "AIEF has no streams", "cancel": "AIEF has no cancel"}

    def _url(self, agent: str, *path: str) -> str:
        return "/".join((f"{self.place.of(agent)}/ap/v1/agent/tasks", *(quote(each, safe="") for each in path)))

    async def _ask(self, agent: str, method: str, *path: str, body: Any = None, query: str = "") -> Exchange:
        url = self._url(agent, *path) + query
        return await self.wire.request(method, url, sends=None, receives=None, body=body)

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        if after is None:
            task = read_success(await self._ask(agent, "POST", body=_body(caller_input)))
            thread, body = str(dig(task, "task_id")), {}
        else:
            thread, body = after.thread, _body(caller_input)
        for file in caller_input.files:
            await self._upload(agent, thread, file)
        return await self._work(agent, thread, body)

    async def _upload(self, agent: str, thread: str, file: File) -> None:
        """Upload a file to the task `thread`, as multipart/form-data (RFC 7578). Raises ScenarioFailed if the server
        refuses the file."""
        mark = f"across-{uuid4().hex}"
        head = f'Content-Disposition: form-data; name="file"; filename="{file.name}"\r\nContent-Type: {file.media_type}'
        content = f"--{mark}\r\n{head}\r\n\r\n".encode() + file.content + f"\r\n--{mark}--\r\n".encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        url = self._url(agent, thread, "artifacts")
        read_success(await self.wire.request("POST", url, sends=None, receives=None, content=content, headers=headers))

    async def _work(self, agent: str, thread: str, body: Any) -> Observation:
        """Execute steps of the task `thread` until a step asks a question or is the last one, and return the result of
        all these steps. `body` is the request of the first step."""
        steps: list[Any] = []
        for _ in range(_MAX_STEPS):
            exchange = await self._ask(agent, "POST", thread, "steps", body=body)
            steps.append(read_success(exchange))
            if _state(steps[-1]) != "working":
                return Observation(await self._meaning(agent, thread, steps), Handle(agent, thread), exchange)
            body = {}
        raise ScenarioFailed(f"no last step among {_MAX_STEPS}")

    async def observe(self, handle: Handle) -> Observation:
        """Return the current state and output of a run. An AIEF task can hold several runs one after the other;
        `handle.task` selects the steps of one."""
        exchange = await self._ask(handle.agent, "GET", handle.thread, "steps", query=f"?page_size={_PAGE_SIZE}")
        listed = read_success(exchange)
        steps = as_list(listed) or as_list(dig(listed, "steps"))
        own_steps = [
            each
            for each in steps
            if (not handle.task or _task(each) in ("", handle.task)) and dig(each, "status") != "created"
        ]
        if not own_steps:
            raise ScenarioFailed("no step of the run", exchange)
        for step in own_steps[-1:]:  # The server declares a loss only when a step is requested by itself.
            await self._ask(handle.agent, "GET", handle.thread, "steps", str(dig(step, "step_id")))
        return Observation(await self._meaning(handle.agent, handle.thread, own_steps), handle, exchange)

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        """Answer one question by another step. A step returns only its own output, so the result is the output of
        `paused` followed by that of the step."""
        body = {"input": answer} if isinstance(answer, str) else {"additional_input": answer}
        observation = await self._work(paused.handle.agent, paused.handle.thread, body)
        before, now = paused.meaning, observation.meaning
        texts, data, files = (*before.texts, *now.texts), (*before.data, *now.data), (*before.files, *now.files)
        return replace(observation, meaning=replace(now, texts=texts, data=data, files=files))

    async def _meaning(self, agent: str, thread: str, steps: list[Any]) -> Meaning:
        texts, data, files = list[str](), list[Any](), list[File]()
        for step in steps:
            text, more = _read_output(step)
            texts += [text] if text else []
            data += more
            for each in as_list(dig(step, "artifacts")):
                if dig(each, "agent_created") is not False:
                    found = await self._ask(agent, "GET", thread, "artifacts", str(dig(each, "artifact_id")))
                    if found.status != 200:
                        raise ScenarioFailed("a file that cannot be downloaded", found)
                    files.append(File(str(dig(each, "file_name")), found.content))
        last = steps[-1]
        state = _state(last)
        error = str(dig(last, "additional_output", "error", "message") or "") if state == "failed" else ""
        questions = tuple(_questions(last)) if state == "asks" else ()
        return Meaning(state, tuple(texts), tuple(data), tuple(files), questions, error)


def _body(caller_input: CallerInput) -> dict[str, Any]:
    return (
        {"input": caller_input.text}
        if caller_input.data is None
        else {"input": caller_input.text, "additional_input": caller_input.data}
    )


def _task(step: Any) -> str:
    return str(dig(step, "additional_output", "babelgate", "task_id") or "")


def _state(step: Any) -> str:
    """Return the state of a run from its newest step. AIEF tasks have no status: a task ends with its last step, and a
    question is marked in the member `additional_output`."""
    if dig(step, "status") != "completed":
        return {"created": "submitted", "running": "working"}.get(str(dig(step, "status")), "working")
    if dig(step, "is_last") is not True:
        status = str(dig(step, "additional_output", "status"))
        return "asks" if status in ("input-required", "auth-required") else "working"
    error = dig(step, "additional_output", "error")
    if error is None:
        return "completed"
    return "cancelled" if dig(error, "code") == "cancelled" else "failed"


def _questions(step: Any) -> list[Question]:
    questions = as_list(dig(step, "additional_output", "questions"))
    found = [
        Question(str(dig(each, "message")), dig(each, "value"), dig(each, "schema"), str(dig(each, "id")))
        for each in questions
    ]
    return found or [Question(str(dig(step, "output") or ""))]


def _read_output(step: Any) -> tuple[str, list[Any]]:
    """Return the text of a step, and its data. A text that repeats the question, the data or the error of the member
    `additional_output` is left out."""
    text = str(dig(step, "output") or "")
    additional = dig(step, "additional_output")
    one = dig(additional, "output")
    data = as_list(dig(additional, "data")) or ([] if one is None else [one])
    if _state(step) == "asks":
        text = text.removesuffix(_questions(step)[0].text).removesuffix("\n")
    if data and json_or_none(text) in (data[0], data):
        text = ""
    if text == dig(additional, "error", "message"):
        text = ""
    return text, data
