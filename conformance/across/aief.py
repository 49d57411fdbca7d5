"""The Agent Protocol of the AI Engineer Foundation: tasks that are done step by step."""

from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote
from uuid import uuid4

from babelgate.conformance.across.driver import Broken, Driver, Observation, read_success
from babelgate.conformance.across.model import File, Handle, Input, Meaning, Question
from babelgate.conformance.wire.exchange import Exchange, NotJson, as_list, dig, parse_json

_STEPS: Final = 50
"""That are asked for in one turn."""
_PAGE: Final = 100


class Aief(Driver):
    name: ClassVar = "aief"
    title: ClassVar = "AIEF"
    lacks: ClassVar = {"stream": "AIEF has no streams", "cancel": "AIEF has no cancel"}

    def _url(self, agent: str, *path: str) -> str:
        return "/".join((f"{self.place.of(agent)}/ap/v1/agent/tasks", *(quote(each, safe="") for each in path)))

    async def _ask(self, agent: str, method: str, *path: str, body: Any = None, query: str = "") -> Exchange:
        url = self._url(agent, *path) + query
        return await self.wire.request(method, url, sends=None, receives=None, body=body)

    async def send(self, agent: str, said: Input, after: Handle | None = None) -> Observation:
        if after is None:
            made = read_success(await self._ask(agent, "POST", body=_body(said)))
            thread, body = str(dig(made, "task_id")), {}
        else:
            thread, body = after.thread, _body(said)
        for file in said.files:
            await self._upload(agent, thread, file)
        return await self._work(agent, thread, body)

    async def _upload(self, agent: str, thread: str, file: File) -> None:
        """RFC 7578."""
        mark = f"across-{uuid4().hex}"
        head = f'Content-Disposition: form-data; name="file"; filename="{file.name}"\r\nContent-Type: {file.media_type}'
        content = f"--{mark}\r\n{head}\r\n\r\n".encode() + file.content + f"\r\n--{mark}--\r\n".encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        url = self._url(agent, thread, "artifacts")
        read_success(await self.wire.request("POST", url, sends=None, receives=None, content=content, headers=headers))

    async def _work(self, agent: str, thread: str, body: Any) -> Observation:
        """Steps, up to one that asks or is the last."""
        steps: list[Any] = []
        for _ in range(_STEPS):
            exchange = await self._ask(agent, "POST", thread, "steps", body=body)
            steps.append(read_success(exchange))
            if _state(steps[-1]) != "working":
                return Observation(await self._meaning(agent, thread, steps), Handle(agent, thread), exchange)
            body = {}
        raise Broken(f"no last step among {_STEPS}")

    async def look(self, handle: Handle) -> Observation:
        """A task may be several of the server's, one after the other."""
        exchange = await self._ask(handle.agent, "GET", handle.thread, "steps", query=f"?page_size={_PAGE}")
        listed = read_success(exchange)
        steps = as_list(listed) or as_list(dig(listed, "steps"))
        ours = [
            each
            for each in steps
            if (not handle.task or _task(each) in ("", handle.task)) and dig(each, "status") != "created"
        ]
        if not ours:
            raise Broken("no step of the run", exchange)
        for step in ours[-1:]:  # what is lost is told of a step that is asked for
            await self._ask(handle.agent, "GET", handle.thread, "steps", str(dig(step, "step_id")))
        return Observation(await self._meaning(handle.agent, handle.thread, ours), handle, exchange)

    async def answer_once(self, asked: Observation, answer: Any) -> Observation:
        """One question is answered at a time, and a step tells what is new."""
        body = {"input": answer} if isinstance(answer, str) else {"additional_input": answer}
        told = await self._work(asked.handle.agent, asked.handle.thread, body)
        before, now = asked.meaning, told.meaning
        texts, data, files = (*before.texts, *now.texts), (*before.data, *now.data), (*before.files, *now.files)
        return replace(told, meaning=replace(now, texts=texts, data=data, files=files))

    async def _meaning(self, agent: str, thread: str, steps: list[Any]) -> Meaning:
        texts, data, files = list[str](), list[Any](), list[File]()
        for step in steps:
            said, more = _read_output(step)
            texts += [said] if said else []
            data += more
            for each in as_list(dig(step, "artifacts")):
                if dig(each, "agent_created") is not False:
                    found = await self._ask(agent, "GET", thread, "artifacts", str(dig(each, "artifact_id")))
                    if found.status != 200:
                        raise Broken("a file that cannot be had", found)
                    files.append(File(str(dig(each, "file_name")), found.content))
        last = steps[-1]
        state = _state(last)
        error = str(dig(last, "additional_output", "error", "message") or "") if state == "failed" else ""
        questions = tuple(_questions(last)) if state == "asks" else ()
        return Meaning(state, tuple(texts), tuple(data), tuple(files), questions, error)


def _body(said: Input) -> dict[str, Any]:
    return {"input": said.text} if said.data is None else {"input": said.text, "additional_input": said.data}


def _task(step: Any) -> str:
    return str(dig(step, "additional_output", "babelgate", "task_id") or "")


def _state(step: Any) -> str:
    """A task has no status: it is over with the last step. That a step asks is told beside its output."""
    if dig(step, "status") != "completed":
        return {"created": "submitted", "running": "working"}.get(str(dig(step, "status")), "working")
    if dig(step, "is_last") is not True:
        told = str(dig(step, "additional_output", "status"))
        return "asks" if told in ("input-required", "auth-required") else "working"
    error = dig(step, "additional_output", "error")
    if error is None:
        return "completed"
    return "cancelled" if dig(error, "code") == "cancelled" else "failed"


def _questions(step: Any) -> list[Question]:
    told = as_list(dig(step, "additional_output", "questions"))
    found = [
        Question(str(dig(each, "message")), dig(each, "value"), dig(each, "schema"), str(dig(each, "id")))
        for each in told
    ]
    return found or [Question(str(dig(step, "output") or ""))]


def _read_output(step: Any) -> tuple[str, list[Any]]:
    """The text of a step, and its data. Where nothing was said, the output repeats what stands beside it."""
    text = str(dig(step, "output") or "")
    beside = dig(step, "additional_output")
    one = dig(beside, "output")
    data = as_list(dig(beside, "data")) or ([] if one is None else [one])
    if _state(step) == "asks":
        text = text.removesuffix(_questions(step)[0].text).removesuffix("\n")
    if data and _json(text) in (data[0], data):
        text = ""
    if text == dig(beside, "error", "message"):
        text = ""
    return text, data


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except NotJson:
        return None
