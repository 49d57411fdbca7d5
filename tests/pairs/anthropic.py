"""A caller that speaks Anthropic's Messages API, and reads the gateway's marks.

It names a thread with each request. The API has no tasks: a task is the messages of its runs, one after the other.
"""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final, Self
from uuid import UUID, uuid4

import httpx

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
from tests.pairs.openai import after

Wire = dict[str, Any]

_DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


def block_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            return {"type": "text", "text": json.dumps(content.value), "babelgate": {"data": content.value}}
        case File():
            data = b64encode(content.content).decode()
            source = {"type": "base64", "media_type": content.media_type, "data": data}
            return {"type": "document", "source": source, "title": content.name}


def message_of(contents: Sequence[Content]) -> Wire:
    plain = len(contents) == 1 and isinstance(contents[0], str)
    return {"role": "user", "content": contents[0] if plain else [block_of(one) for one in contents]}


def marks_of(value: Wire) -> Wire:
    """Return the gateway's own members of a block, a message or an event (`babelgate`)."""
    return value.get("babelgate", {})


def question_of(block: Wire) -> Question | None:
    """Return the question that a block shows."""
    mark = marks_of(block).get("question")
    if mark is None:
        return None
    event: Wire = mark["event"]
    message: Wire = event["message"]
    text = "".join(part.get("text", "") for part in message.get("parts", ()) if part.get("kind", "text") == "text")
    return Question(text, event.get("answer_schema"), event.get("value"), mark["id"])


def url_of(part: Wire) -> bytes:
    return part["url"].encode()


def task_view_of(run_id: str, message: Wire, error: Wire | None = None) -> TaskView:
    """Return the state of one message, with the URLs of its files as their content."""
    text, data, files, asides = "", list[Any](), dict[str, bytes](), list[str]()
    questions: list[Question] = []
    for block in message.get("content", ()):
        mark = marks_of(block)
        event: Wire = mark.get("event", {})
        question = question_of(block)
        if question is not None:
            questions.append(question)
        elif block["type"] == "thinking":
            asides.append(block["thinking"])
        elif event and not event.get("open"):
            part: Wire = event.get("part", {})
            if part.get("kind") == "data":
                data.append(part["data"])
            elif part.get("kind") == "file":
                files[event.get("name") or part["name"]] = url_of(part)
            elif event["kind"] == "artifact_added":
                name = event["name"]
                files[name] = files.get(name, b"") + part["text"].encode()
        elif block["type"] == "text" and "shows" not in mark:
            text += block["text"]
    output = marks_of(message).get("output")
    if output is not None and output not in data:
        data.append(output)
    state = "working" if message.get("stop_reason") is None else "input_required" if questions else "completed"
    if error is not None:
        state = "cancelled" if marks_of(error).get("code") == "run_cancelled" else "failed"
    task_id = Ids.task_of(run_id)
    return TaskView(
        state,
        text=text,
        data=tuple(data),
        files=files,
        questions=tuple(questions) if state == "input_required" else (),
        fault=error["message"] if error is not None and state == "failed" else "",
        asides=tuple(asides),
        task_id=task_id,
        context_id=Ids.thread_of(task_id),
    )


class AnthropicView(View):
    """State that a client builds of a message's stream, or of all messages of a task, one after the other."""

    def __init__(self, before: TaskView | None = None) -> None:
        self.before = before
        self.message: Wire = {}
        self.run_id = ""
        self.error: Wire | None = None
        self.is_over = False
        self.open: int | None = None
        """Index of the open block."""

    def read(self, frame: Frame) -> None:
        event: Wire = json.loads(frame.data)
        assert frame.event == event["type"] and not frame.id, "clients skip frames without their type"
        if event["type"] == "message_start" and self.is_over:
            self.before, self.message, self.is_over, self.open = self.task, {}, False, None
        assert not self.is_over, "nothing follows the end"
        assert self.message or event["type"] == "message_start", "a stream starts with its message"
        self._read(event["type"], event)

    def _read(self, kind: str, event: Wire) -> None:
        match kind:
            case "message_start":
                self.message, self.open = event["message"], None  # again after a restart
                self.run_id = str(UUID(self.message["id"].removeprefix("msg_")))
            case "content_block_start":
                assert self.open is None and event["index"] == len(self.message["content"])
                self.open = event["index"]
                self.message["content"].append({**event["content_block"], "partial": ""})
            case "content_block_delta":
                assert self.open == event["index"]
                self._grow(self.message["content"][-1], event["delta"])
            case "content_block_stop":
                assert self.open == event["index"]
                self.open = None
                block = self.message["content"][-1]
                if partial := block.pop("partial"):
                    block["input"] = json.loads(partial)
            case "message_delta":
                assert self.open is None
                self.message |= event["delta"]
                self.message["babelgate"] = {**marks_of(self.message), **marks_of(event)}
            case "message_stop":
                self.is_over = True
            case "error":
                self.error, self.is_over = event["error"], True
            case _:
                assert kind == "ping"

    def _grow(self, block: Wire, delta: Wire) -> None:
        match delta["type"]:
            case "input_json_delta":
                block["partial"] += delta["partial_json"]
            case "citations_delta":
                block["citations"] = [*block["citations"], delta["citation"]]
            case kind:
                assert delta[_DELTAS[kind]]
                block[_DELTAS[kind]] += delta[_DELTAS[kind]]

    @property
    def task(self) -> TaskView:
        if not self.run_id:
            return TaskView(state="")
        view = task_view_of(self.run_id, self.message, self.error)
        return view if self.before is None else with_files(self.before, after(self.before, view))


def with_files(before: TaskView, view: TaskView) -> TaskView:
    """Return the state of a task after its next run, with the files of both."""
    return replace(view, files={**before.files, **view.files})


class _Feed(RunFeed):
    view: AnthropicView

    async def join(self, run_id: str) -> Self:
        return await self.open(method="GET", url=f"{url_of_run(run_id)}?stream=true")

    async def join_next(self) -> bool:
        runs = Ids.runs_of(self.ids.task)
        at = runs.index(self.ids.run or "")
        if not self._onward or at == len(runs) - 1:
            return False
        await self.join(runs[at + 1])
        return True


def url_of_run(run_id: str) -> str:
    return f"/v1/messages/msg_{UUID(run_id).hex}"


class Anthropic(Caller):
    name: ClassVar = "anthropic"
    speaks: ClassVar = "anthropic"

    def _request(self, message: Wire, **more: Any) -> Wire:
        if self.context_id is None:
            self.context_id = str(uuid4())
        body: Wire = {"model": self.agent, "max_tokens": 1024, "messages": [message], **more}
        if self.tools:
            body["tools"] = [_tool(each) for each in self.tools]
        if self.metadata:
            body["metadata"] = dict(self.metadata)
        headers = {"Babelgate-Thread": self.context_id, "anthropic-version": "2023-06-01"}
        return {"method": "POST", "url": "/v1/messages", "json": body, "headers": headers}

    def _read(self, response: httpx.Response) -> TaskView:
        ids, body = Ids.of(response.headers), response.json()
        assert ids.run is not None
        if body["type"] == "error":
            assert response.status_code >= 400
            return task_view_of(ids.run, marks_of(body).get("message", {}), body["error"])
        assert response.status_code == 200, response.text
        assert response.headers["request-id"]
        return task_view_of(ids.run, body)

    async def _ask(self, request: Wire) -> TaskView:
        return await self._download(self._read(await self.http.request(**request)))

    async def _download(self, view: TaskView) -> TaskView:
        """Return the state with the bytes of the files that the gateway serves."""
        files = dict(view.files)
        for name, url in view.files.items():
            if b"/v1/messages/files/" in url:
                files[name] = (await self.http.get(url.decode())).content
        return replace(view, files=files)

    async def send(self, *contents: Content) -> TaskView:
        return (await self._ask(self._request(message_of(contents)))).lasting

    async def run_to_end(self, *contents: Content) -> TaskView:
        return await self._download(await super().run_to_end(*contents))

    def stream(self, *contents: Content) -> Following:
        return self._opened(AnthropicView(), 0, self._request(message_of(contents), stream=True))

    @asynccontextmanager
    async def _opened(self, view: AnthropicView, before: int, request: Wire) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            yield await _Feed(self.http, stack, view, onward=False, before=before).open(**request)

    def _answers(self, paused: TaskView, answers: tuple[Content, ...], **more: Any) -> Wire:
        self.context_id = paused.context_id
        texts = [json.dumps(item.value) if isinstance(item, Data) else item for item in answers]
        results = [
            {"type": "tool_result", "tool_use_id": question.id, "content": text}
            for question, text in zip(paused.questions, texts, strict=False)
        ]
        return self._request({"role": "user", "content": results}, **more)

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        view = await self._ask(self._answers(paused, answers))
        return with_files(paused, after(paused, view)).lasting

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        before = paused.before + len(paused.frames)
        return self._opened(AnthropicView(paused.task), before, self._answers(paused.task, answers, stream=True))

    async def cancel(self, task_id: str) -> TaskView:
        response = await self.http.post(f"{url_of_run(Ids.runs_of(task_id)[-1])}/cancel")
        assert response.status_code == 200, response.text
        return TaskView("cancelling")

    async def look(self, task_id: str) -> TaskView:
        """Return the accumulated state of the task's runs."""
        view: TaskView | None = None
        for run_id in Ids.runs_of(task_id):
            run = (await self._ask({"method": "GET", "url": url_of_run(run_id)})).lasting
            view = run if view is None else with_files(view, after(view, run))
        assert view is not None
        return view

    async def losses(self, task_id: str) -> set[str]:
        lost: set[str] = set()
        for run_id in Ids.runs_of(task_id):
            lost |= named((await self.http.get(url_of_run(run_id))).headers.get("babelgate-loss", ""))
        return lost

    @asynccontextmanager
    async def _joined(self, task_id: str, view: AnthropicView, skip: int) -> AsyncGenerator[Feed]:
        async with AsyncExitStack() as stack:
            feed = _Feed(self.http, stack, view, onward=True, before=skip, skip=skip)
            yield await feed.join(Ids.runs_of(task_id)[0])

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> Following:
        view = view or AnthropicView()
        assert isinstance(view, AnthropicView)
        return self._joined(task_id, view, skip)


def _tool(function: Mapping[str, Any]) -> Wire:
    tool = {name: value for name, value in function.items() if name != "parameters"}
    return {**tool, "input_schema": function.get("parameters", {"type": "object"})}
