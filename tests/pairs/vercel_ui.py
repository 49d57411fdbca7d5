"""A caller that speaks the UI message stream, as a page with the tool `ask_caller` does."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from uuid import uuid4

import httpx

from tests.pairs.caller import Caller, Content, Data, Feed, File, Following, Frame, Ids, Question, TaskView, View
from tests.pairs.cast import STEP
from tests.pairs.openai import after

Wire = dict[str, Any]

ASK: Final = "ask_caller"
_ANSWERED: Final = ("output-available", "output-error", "output-denied")


def part_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            return {"type": "data-json", "data": content.value}
        case File():
            url = f"data:{content.media_type};base64,{b64encode(content.content).decode()}"
            return {"type": "file", "mediaType": content.media_type, "filename": content.name, "url": url}


def own(part: Wire) -> Wire:
    """Return the gateway's own members of a part."""
    return part.get("providerMetadata", {}).get("babelgate", {})


def question_of(part: Wire) -> Question | None:
    """Return the question that a part asks."""
    if part["type"] == "text" and "question" in own(part):
        about = own(part)["question"]
        return Question(part["text"], about.get("schema"), about.get("value"), about["id"])
    if part["type"] == f"tool-{ASK}":
        arguments = part["input"]
        return Question(arguments["question"], arguments.get("schema"), arguments.get("value"), part["toolCallId"])
    if part["type"].startswith("tool-"):
        name, arguments = part["type"].removeprefix("tool-"), part["input"]
        value = {"name": name, "arguments": arguments}
        return Question(f"{name}({json.dumps(arguments)})", None, value, part["toolCallId"])
    return None


def task_view_of(messages: Sequence[Wire], agent: str, state: str = "") -> TaskView:
    """Return the state of a task in its messages of the assistant, with the URLs of its files as their content."""
    text, data, files = "", list[Any](), dict[str, bytes]()
    asides, questions = list[str](), dict[str, Question]()
    members: Wire = {}
    for message in messages:
        members |= message.get("metadata", {}).get("babelgate", {})
        for part in message["parts"]:
            question = question_of(part)
            if question is not None:
                questions.setdefault(question.id, question)
                continue
            match part["type"]:
                case "text":
                    text += "" if "shows" in own(part) else part["text"]
                case "reasoning":
                    asides.append(part["text"])
                case "data-progress":
                    asides.append(part["data"]["text"])
                case "data-part":
                    data.append(part["data"])
                case "data-output":
                    data += [] if part["data"] in data else [part["data"]]
                case "data-artifact" if "url" in part["data"]["part"]:
                    files[part["data"]["part"]["name"]] = part["data"]["part"]["url"].encode()
                case "file" if "artifact" not in own(part):
                    files[own(part).get("name", "")] = part["url"].encode()
                case _:
                    pass
    is_open = members.get("questions", [])
    state = state or members.get("status") or ("input_required" if is_open else "completed")
    return TaskView(
        state,
        text=text,
        data=tuple(data),
        files=files,
        questions=tuple(questions[each] for each in is_open if each in questions) if state == "input_required" else (),
        fault=members.get("fault", {}).get("message", "") if state == "failed" else "",
        asides=tuple(each for each in asides if not each.startswith(STEP) and each != agent),
        task_id=members.get("task", ""),
        context_id=members.get("thread", ""),
    )


class _View(View):
    """One message of the page, or all streams of a task, one after the other."""

    def __init__(self, agent: str, before: TaskView | None = None) -> None:
        self.agent = agent
        self.before = before
        self.message: Wire = {"parts": []}
        self.texts: dict[str, Wire] = {}
        self.state = ""
        self.done = False

    def read(self, frame: Frame) -> None:
        if frame.bare == b"[DONE]":
            assert self.state and not self.texts, "a stream ends after its last chunk"
            self.done = True
            return
        chunk: Wire = json.loads(frame.bare)
        assert (chunk["type"] == "start") == (self.done or not self.state), "a stream starts with `start`"
        if chunk["type"] == "start" and self.done:
            self.before, self.message, self.done = self.task, {"parts": []}, False
        self._read(chunk)

    def _read(self, chunk: Wire) -> None:
        parts, kind = self.message["parts"], chunk["type"]
        if kind.startswith("data-"):
            parts += [] if chunk.get("transient") else [chunk]
            return
        match kind:
            case "start":
                self.state, self.message["metadata"] = "working", chunk["messageMetadata"]
            case "text-start" | "reasoning-start":
                part = {"type": kind.removesuffix("-start"), "text": "", **{n: chunk[n] for n in chunk if n != "type"}}
                self.texts[chunk["id"]] = part
                parts.append(part)
            case "text-delta" | "reasoning-delta":
                self.texts[chunk["id"]]["text"] += chunk["delta"]
            case "text-end" | "reasoning-end":
                del self.texts[chunk["id"]]
            case "file" | "source-url":
                parts.append(chunk)
            case "tool-input-available" if not chunk.get("providerExecuted"):
                part = {"type": f"tool-{chunk['toolName']}", "toolCallId": chunk["toolCallId"], "input": chunk["input"]}
                parts.append(part)
            case "message-metadata" | "finish":
                self._merge(chunk.get("messageMetadata", {}))
            case "abort":
                self._merge({"babelgate": {"status": "cancelled"}})
            case "error":
                fault = {"message": chunk["errorText"]}
                self._merge({"babelgate": {"status": "failed", "fault": fault}})
            case _:
                pass
        if kind in ("finish", "error"):
            self.state = "ended"

    def _merge(self, metadata: Wire) -> None:
        members = {**self.message["metadata"]["babelgate"], **metadata.get("babelgate", {})}
        self.message["metadata"] = {**metadata, "babelgate": members}

    @property
    def task(self) -> TaskView:
        if not self.state:
            return TaskView(state="")
        view = task_view_of([self.message], self.agent, "working" if self.state == "working" else "")
        if self.before is None:
            return view
        still_open = [each for each in self.before.questions if view.state == "input_required" and not view.questions]
        joined = after(self.before, replace(view, questions=view.questions or tuple(still_open)))
        return replace(joined, files={**self.before.files, **view.files})


class VercelUi(Caller):
    name: ClassVar = "vercel-ui"
    speaks: ClassVar = "vercel-ui"

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        super().__init__(http, agent)
        self._branch: str | None = None
        """Task after which the next message branches."""

    @property
    def _url(self) -> str:
        return f"/vercel-ui/{self.agent}"

    def expected_question(self, question: Question) -> Question:
        """Return the question without the agent's id of a tool call, because the page shows the call under an id of the
        gateway."""
        value = question.value
        if isinstance(value, dict) and "call_id" in value:
            return replace(question, value={name: value[name] for name in ("name", "arguments")})  # pyright: ignore[reportUnknownVariableType]
        return question

    async def _history(self) -> list[Wire]:
        """Return the messages of the chat."""
        response = await self.http.get(f"{self._url}/{self.context_id}?steps=true")
        return response.json()["messages"] if response.status_code == 200 else []

    def _post(self, messages: Sequence[Wire], **more: Any) -> dict[str, Any]:
        tools: Wire = {each["name"]: {n: each[n] for n in each if n != "name"} for each in self.tools}
        tools[ASK] = {}
        body: Wire = {"id": self.context_id, "messages": messages, "trigger": "submit-message", "tools": tools, **more}
        if self.metadata:
            body["metadata"] = dict(self.metadata)
        return {"method": "POST", "url": f"{self._url}?steps=true", "json": body}

    async def _start_request(self, contents: tuple[Content, ...]) -> dict[str, Any]:
        if self.context_id is None:
            self.context_id = str(uuid4())
        messages = await self._history()
        if self._branch is not None:
            last = max(n for n, each in enumerate(messages) if _task_of(each) == self._branch)
            messages, self._branch = messages[: last + 1], None
        user = {"id": uuid4().hex, "role": "user", "parts": [part_of(one) for one in contents]}
        return self._post([*messages, user])

    async def send(self, *contents: Content) -> TaskView:
        view = await self._run(_View(self.agent), await self._start_request(contents))
        looked = await self.look(view.task_id)
        assert looked.lasting == view.lasting
        return looked

    async def _run(self, view: _View, request: dict[str, Any]) -> TaskView:
        async with self._followed(view, **request) as feed:
            await feed.end()
        return await self._download(feed.task)

    async def _download(self, view: TaskView) -> TaskView:
        """Return the view with the bytes of its files."""
        files: dict[str, bytes] = {}
        for name, url in view.files.items():
            if url.startswith(b"data:"):
                files[name] = b64decode(url.partition(b",")[2])
            elif b"/vercel-ui/" in url:
                files[name] = (await self.http.get(url.decode())).content
            else:
                files[name] = url
        return replace(view, files=files)

    async def run_to_end(self, *contents: Content) -> TaskView:
        return await self._download(await super().run_to_end(*contents))

    @asynccontextmanager
    async def stream(self, *contents: Content) -> AsyncGenerator[Feed]:
        async with self._followed(_View(self.agent), **await self._start_request(contents)) as feed:
            yield feed

    async def _answer_requests(self, paused: TaskView, answers: tuple[Content, ...]) -> AsyncGenerator[dict[str, Any]]:
        """Yield the requests that answer: the completed message, or a message of the user for each text question."""
        self.context_id = paused.context_id
        values = {question.id: answer for question, answer in zip(paused.questions, answers, strict=False)}
        messages = await self._history()
        at = max(n for n, each in enumerate(messages) if _task_of(each) == paused.task_id)
        parts = [_answered(part, values) for part in messages[at]["parts"]]
        if parts != messages[at]["parts"]:
            completed = {**messages[at], "parts": parts}
            yield self._post([*messages[:at], completed], messageId=completed["id"])
            return
        for answer in answers:
            text = json.dumps(answer.value) if isinstance(answer, Data) else answer
            assert isinstance(text, str)
            user = {"id": uuid4().hex, "role": "user", "parts": [part_of(text)]}
            messages = await self._history()
            yield self._post([*messages, user])

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        async with aclosing(self._answer_requests(paused, answers)) as requests:
            async for request in requests:
                await self._run(_View(self.agent), request)
        return await self.look(paused.task_id)

    @asynccontextmanager
    async def stream_answer(self, paused: Feed, *answers: Content) -> AsyncGenerator[Feed]:
        async with aclosing(self._answer_requests(paused.task, answers)) as requests:
            request = await anext(requests)
        async with self._followed(_View(self.agent, paused.task), **request) as feed:
            yield feed

    async def cancel(self, task_id: str) -> TaskView:
        *_, run_id = Ids.runs_of(task_id)
        response = await self.http.post(f"{self._url}/{run_id}/stop")
        assert response.json() == {"success": True}, response.text
        return TaskView("cancelling", task_id=task_id)

    async def look(self, task_id: str) -> TaskView:
        self.context_id = Ids.thread_of(task_id)
        messages = [each for each in await self._history() if _task_of(each) == task_id]
        return (await self._download(task_view_of(messages, self.agent))).lasting

    async def branch(self, task: TaskView) -> None:
        self._branch = task.task_id

    async def losses(self, task_id: str) -> set[str]:
        self.context_id = Ids.thread_of(task_id)
        lost = [each["metadata"]["babelgate"].get("loss", {}) for each in await self._history() if _task_of(each)]
        return {name for each in lost for name in each}

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    @asynccontextmanager
    async def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AsyncGenerator[Feed]:
        """Yield the streams of the task's runs, one after the other."""
        async with aclosing(self._chunks(task_id)) as chunks:
            feed = Feed(view or _View(self.agent), before=skip, skip=skip)
            feed.read_chunks(Ids(Ids.thread_of(task_id), task_id, None), chunks)
            yield feed

    async def _chunks(self, task_id: str) -> AsyncGenerator[bytes]:
        for run_id in list(Ids.runs_of(task_id)):
            async with self.http.stream("GET", f"{self._url}/{run_id}/stream?steps=true") as response:
                assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
                async for chunk in response.aiter_raw():
                    yield chunk


def _task_of(message: Wire) -> str | None:
    return message.get("metadata", {}).get("babelgate", {}).get("task") if message["role"] == "assistant" else None


def _answered(part: Wire, values: Mapping[str, Content]) -> Wire:
    """Return a part of the page's message in which the page has added the caller's answer. `values` has the answers by
    question id."""
    answer = values.get(part.get("toolCallId", ""))
    if answer is None or part["state"] in _ANSWERED:
        return part
    output = answer.value if isinstance(answer, Data) else answer
    return {**part, "state": "output-available", "output": output}
