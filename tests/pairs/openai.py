"""Callers that speak OpenAI's chat completions and responses APIs.

They store each run, so that it can be read again by its id. Neither API has tasks: a task is the completions or
responses of its runs, one after the other.
"""

import json
from abc import abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from uuid import UUID

import httpx

from tests.pairs.acp import named
from tests.pairs.caller import Caller, Content, Data, Feed, File, Following, Frame, Ids, Question, TaskView, View

Wire = dict[str, Any]

ASK: Final = "ask_caller"
CHAT_ASK: Final = {"type": "function", "function": {"name": ASK}}
PREFIX: Final = "chatcmpl-"


def part_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            return {
                "type": "file",
                "file": {"file_data": data_url("application/json", json.dumps(content.value).encode())},
            }
        case File():
            return {
                "type": "file",
                "file": {"filename": content.name, "file_data": data_url(content.media_type, content.content)},
            }


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def message_of(contents: tuple[Content, ...]) -> Wire:
    plain = len(contents) == 1 and isinstance(contents[0], str)
    return {"role": "user", "content": contents[0] if plain else [part_of(one) for one in contents]}


def question_of(call: Wire) -> Question:
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name == ASK:
        return Question(arguments["question"], arguments.get("schema"), arguments.get("value"), call["id"])
    return Question(
        f"{name}({call['function']['arguments']})", None, {"name": name, "arguments": arguments}, call["id"]
    )


def task_view_of(run_id: str, message: Wire, finish: str | None, error: Wire | None = None) -> TaskView:
    """Return the state of one completion. Data is shown as its JSON."""
    text: str = message.get("content") or ""
    data: tuple[Any, ...] = ()
    if text.startswith("{"):
        text, data = "", (json.loads(text),)
    state = {"tool_calls": "input_required", None: "working"}.get(finish, "completed")
    if error is not None:
        state = "cancelled" if error["code"] == "run_cancelled" else "failed"
    task_id = Ids.task_of(run_id)
    return TaskView(
        state,
        text=text,
        data=data,
        questions=tuple(map(question_of, message.get("tool_calls", ()))),
        fault=error["message"] if error is not None and state == "failed" else "",
        asides=(message["reasoning_content"],) if message.get("reasoning_content") else (),
        task_id=task_id,
        context_id=Ids.thread_of(task_id),
    )


def after(before: TaskView, current: TaskView) -> TaskView:
    """Return the state of a task after its next run."""
    return replace(
        current, text=before.text + current.text, data=before.data + current.data, asides=before.asides + current.asides
    )


def results_of(paused: TaskView, answers: tuple[Content, ...]) -> list[tuple[str, Content]]:
    """Return the id of each answered call, and its result as text."""
    texts = [json.dumps(item.value) if isinstance(item, Data) else item for item in answers]
    return [(question.id, text) for question, text in zip(paused.questions, texts, strict=False)]


class _View(View):
    def __init__(self, before: TaskView | None = None) -> None:
        self.before = before
        self.message: Wire = {}
        self.finish: str | None = None
        self.error: Wire | None = None
        self.run_id = ""
        self.done = False

    def read(self, frame: Frame) -> None:
        assert not self.done and self.error is None, "the stream must end after [DONE]"
        if frame.bare == b"[DONE]":
            assert self.finish is not None
            self.done = True
            return
        chunk = json.loads(frame.bare)
        if "error" in chunk:
            self.error = chunk["error"]
            return
        assert chunk["object"] == "chat.completion.chunk"
        run_id = chunk["id"].removeprefix(PREFIX)
        assert self.run_id in ("", run_id), "one stream is one completion"
        self.run_id = run_id
        (choice,) = chunk["choices"]
        assert self.finish is None, "nothing follows the last choice"
        self.finish = choice["finish_reason"]
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                calls = self.message.setdefault("tool_calls", [])
                assert [call["index"] for call in value] == list(range(len(calls), len(calls) + len(value)))
                calls += value
            elif name == "role":
                assert name not in self.message, "clients add up the deltas"
                self.message[name] = value
            elif isinstance(value, str):
                self.message[name] = self.message.get(name, "") + value

    @property
    def task(self) -> TaskView:
        if not self.run_id:
            return TaskView(state="")
        view = task_view_of(self.run_id, self.message, self.finish, self.error)
        return view if self.before is None else after(self.before, view)


class _OpenAI(Caller):
    """Common part of both APIs: each run is an object that can be read again."""

    @abstractmethod
    def _start_request(self, contents: tuple[Content, ...]) -> dict[str, Any]: ...

    @abstractmethod
    def _answer_request(self, paused: TaskView, answers: tuple[Content, ...]) -> dict[str, Any]: ...

    @abstractmethod
    def _read(self, response: httpx.Response) -> TaskView: ...

    @abstractmethod
    def _url(self, run_id: str) -> str: ...

    def expected_question(self, question: Question) -> Question:
        """Return the question without the agent's id of a tool call, because the API shows the call under an id of the
        gateway."""
        value = question.value
        if isinstance(value, dict) and "call_id" in value:
            return replace(question, value={name: value[name] for name in ("name", "arguments")})  # pyright: ignore[reportUnknownVariableType]
        return question

    async def send(self, *contents: Content) -> TaskView:
        return self._read(await self.http.request(**self._start_request(contents)))

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        self.context_id = paused.context_id
        return after(paused, self._read(await self.http.request(**self._answer_request(paused, answers))))

    async def look(self, task_id: str) -> TaskView:
        """Return the accumulated state of the task's runs."""
        view: TaskView | None = None
        for run_id in Ids.runs_of(task_id):
            run = self._read(await self.http.get(self._url(run_id))).lasting
            view = run if view is None else after(view, run)
        assert view is not None
        return view

    async def losses(self, task_id: str) -> set[str]:
        lost: set[str] = set()
        for run_id in Ids.runs_of(task_id):
            lost |= named((await self.http.get(self._url(run_id))).headers.get("babelgate-loss", ""))
        return lost


class Chat(_OpenAI):
    name: ClassVar = "chat-completions"
    speaks: ClassVar = "openai-chat-completions"
    shows_end: ClassVar[bool] = False

    def _body(self, messages: list[Wire], **more: Any) -> dict[str, Any]:
        body: Wire = {"model": self.agent, "messages": messages, "store": True, "tools": [CHAT_ASK], **more}
        if self.tools:
            body["tools"] = [{"type": "function", "function": each} for each in self.tools]
        thread = {} if self.context_id is None else {"thread_id": self.context_id}
        if about := {**self.metadata, **thread}:
            body["metadata"] = about
        return {"method": "POST", "url": "/v1/chat/completions", "json": body}

    def _read(self, response: httpx.Response) -> TaskView:
        ids, body = Ids.of(response.headers), response.json()
        assert ids.run is not None
        self.context_id = ids.thread
        error = body.get("error")
        if error is None:
            assert response.status_code == 200, response.text
        nothing: Wire = {"choices": [{"message": {}}]}
        completion: Wire = body if error is None else error.get("completion") or nothing
        assert error is not None or body["id"] == PREFIX + ids.run
        (choice,) = completion["choices"]
        return task_view_of(ids.run, choice["message"], choice.get("finish_reason"), error)

    def _url(self, run_id: str) -> str:
        return f"/v1/chat/completions/{PREFIX}{run_id}"

    def _start_request(self, contents: tuple[Content, ...]) -> dict[str, Any]:
        return self._body([message_of(contents)])

    def stream(self, *contents: Content) -> Following:
        return self._followed(_View(), **self._body([message_of(contents)], stream=True))

    def _answer_request(self, paused: TaskView, answers: tuple[Content, ...], **more: Any) -> dict[str, Any]:
        results = results_of(paused, answers)
        messages = [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]
        return self._body(messages, **more)

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        self.context_id = paused.task.context_id
        return self._followed(_View(paused.task), **self._answer_request(paused.task, answers, stream=True))


class _ResponseView(View):
    """State of one response, or of all responses of a task, one after the other."""

    def __init__(self, before: TaskView | None = None) -> None:
        self.before = before
        self.response: Wire = {}
        self.items: dict[int, Wire] = {}
        self.texts: dict[tuple[int, int], str] = {}
        self.number = -1
        self.ended = False

    def read(self, frame: Frame) -> None:
        if frame.data == b"[DONE]":
            assert self.ended and not frame.event
            return
        event = json.loads(frame.data)
        assert event["type"] == frame.event and not frame.id
        if event["type"] == "response.created":
            assert self.ended or not self.response
            if self.ended:
                self.before = self.task
            self.items, self.texts, self.number, self.ended = {}, {}, -1, False
        assert not self.ended, "the stream must not continue after its end"
        assert event["sequence_number"] == self.number + 1
        self.number += 1
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert event["output_index"] == len(self.items)
                self.items[event["output_index"]] = event["item"]
            case "output_item.done":
                self.items[event["output_index"]] = event["item"]
            case "output_text.delta":
                at = (event["output_index"], event["content_index"])
                self.texts[at] = self.texts.get(at, "") + event["delta"]
                item = self.items[at[0]]
                parts = {index: text for (number, index), text in self.texts.items() if number == at[0]}
                content = [{"type": "output_text", "text": parts[index]} for index in sorted(parts)]
                self.items[at[0]] = {**item, "content": content}
            case "reasoning_summary_part.done":
                item = self.items[event["output_index"]]
                self.items[event["output_index"]] = {**item, "summary": [*item["summary"], event["part"]]}
            case _ if "response" in event:
                self.response = event["response"]
                self.ended = self.response["status"] not in ("queued", "in_progress")
            case _:
                pass
        if self.ended:
            assert self.response["output"] == list(self.items.values())

    @property
    def task(self) -> TaskView:
        if not self.response:
            return TaskView(state="")
        view = task_view_of_response({**self.response, "output": list(self.items.values())})
        return view if self.before is None else after(self.before, view)


def call_of(item: Wire) -> Wire:
    """Return a function call in the form of chat completions."""
    return {"id": item["call_id"], "function": {"name": item["name"], "arguments": item["arguments"]}}


def task_view_of_response(response: Wire) -> TaskView:
    """Return the state of a response. Data is shown as its JSON, in a separate part."""
    text, data = "", list[Any]()
    asides: list[str] = []
    calls: list[Wire] = []
    for item in response["output"]:
        match item["type"]:
            case "message":
                texts = [part["refusal"] if part["type"] == "refusal" else part["text"] for part in item["content"]]
                if item.get("phase") == "commentary":
                    asides += texts
                    continue
                text += "".join(part for part in texts if not part.startswith("{"))
                data += [json.loads(part) for part in texts if part.startswith("{") and part.endswith("}")]
            case "reasoning":
                asides += [part["text"] for part in item["summary"]]
            case "function_call":
                calls.append(call_of(item))
            case _:
                pass
    state: str = "working" if response["status"] in ("queued", "in_progress") else response["status"]
    task_id = Ids.task_of(run_of(response["id"]))
    return TaskView(
        "input_required" if calls and state == "completed" else state,
        text=text,
        data=tuple(data),
        questions=tuple(map(question_of, calls)) if state == "completed" else (),
        fault=response["error"]["message"] if state == "failed" else "",
        asides=tuple(asides),
        task_id=task_id,
        context_id=Ids.thread_of(task_id),
    )


def run_of(response_id: str) -> str:
    return str(UUID(response_id.removeprefix("resp_")))


def response_of(run_id: str) -> str:
    return f"resp_{UUID(run_id).hex}"


class Responses(_OpenAI):
    """A caller that speaks the Responses API, in conversations.

    Its streams are background responses, because no other response can be cancelled.
    """

    name: ClassVar = "responses"
    speaks: ClassVar = "openai-responses"

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        super().__init__(http, agent)
        self._previous: str | None = None
        """Response from which a branch starts."""

    def _body(self, items: list[Wire], **more: Any) -> dict[str, Any]:
        body: Wire = {"model": self.agent, "input": items, "tools": [{"type": "function", "name": ASK}], **more}
        if self.tools:
            body["tools"] = [{"type": "function", **each} for each in self.tools]
        if self.metadata:
            body["metadata"] = self.metadata
        if self._previous is not None:
            body["previous_response_id"], self._previous = self._previous, None
        elif self.context_id is not None:
            body["conversation"] = f"conv_{UUID(self.context_id).hex}"
        return {"method": "POST", "url": "/v1/responses", "json": body}

    def _read(self, response: httpx.Response) -> TaskView:
        ids, body = Ids.of(response.headers), response.json()
        self.context_id = ids.thread
        if "error" in body and "status" not in body:
            assert response.status_code >= 500, response.text
            body = body["error"]["response"]
        assert ids.run is not None and body["id"] == response_of(ids.run)
        return task_view_of_response(body)

    def _message(self, contents: tuple[Content, ...]) -> list[Wire]:
        return [{"role": "user", "content": [self._part(one) for one in contents]}]

    def _part(self, content: Content) -> Wire:
        if isinstance(content, str):
            return {"type": "input_text", "text": content}
        return {"type": "input_file", **part_of(content)["file"]}

    def _url(self, run_id: str) -> str:
        return f"/v1/responses/{response_of(run_id)}"

    def _start_request(self, contents: tuple[Content, ...]) -> dict[str, Any]:
        return self._body(self._message(contents))

    @asynccontextmanager
    async def stream(self, *contents: Content) -> AsyncGenerator[Feed]:
        request = self._body(self._message(contents), stream=True, background=True)
        async with self._followed(_ResponseView(), **request) as feed:
            self.context_id = feed.ids.thread
            yield feed

    def _answer_request(self, paused: TaskView, answers: tuple[Content, ...], **more: Any) -> dict[str, Any]:
        results = results_of(paused, answers)
        outputs = [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]
        return self._body(outputs, **more)

    def stream_answer(self, paused: Feed, *answers: Content) -> Following:
        self.context_id = paused.task.context_id
        request = self._answer_request(paused.task, answers, stream=True, background=True)
        return self._followed(_ResponseView(paused.task), **request)

    async def cancel(self, task_id: str) -> TaskView:
        *_, run_id = Ids.runs_of(task_id)
        response = await self.http.post(f"{self._url(run_id)}/cancel")
        assert response.status_code == 200, response.text
        return self._read(response)

    async def branch(self, task: TaskView) -> None:
        *_, run_id = Ids.runs_of(task.task_id)
        self._previous = response_of(run_id)

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    @asynccontextmanager
    async def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AsyncGenerator[Feed]:
        """Yield the task's responses, one after the other."""
        async with aclosing(self._chunks(task_id)) as chunks:
            feed = Feed(view or _ResponseView(), before=skip, skip=skip)
            feed.read_chunks(Ids(Ids.thread_of(task_id), task_id, None), chunks)
            yield feed

    async def _chunks(self, task_id: str) -> AsyncGenerator[bytes]:
        for run_id in Ids.runs_of(task_id):
            async with self.http.stream("GET", f"{self._url(run_id)}?stream=true") as response:
                assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
                async for chunk in response.aiter_raw():
                    yield chunk
