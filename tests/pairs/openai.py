"""Callers that speak OpenAI's chat completions and responses. They keep them all: who has the id of a run can read it
again.

Neither knows tasks: a task is the completions, or the responses, of its runs, one after the other.
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
from tests.pairs.caller import Caller, Data, Feed, File, Following, Frame, Ids, Question, Said, Seen, View

Wire = dict[str, Any]

ASK: Final = "ask_caller"
CHAT_ASK: Final = {"type": "function", "function": {"name": ASK}}
PREFIX: Final = "chatcmpl-"


def part_of(said: Said) -> Wire:
    match said:
        case str():
            return {"type": "text", "text": said}
        case Data():
            return {
                "type": "file",
                "file": {"file_data": data_url("application/json", json.dumps(said.value).encode())},
            }
        case File():
            return {
                "type": "file",
                "file": {"filename": said.name, "file_data": data_url(said.media_type, said.content)},
            }


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(content).decode()}"


def message_of(said: tuple[Said, ...]) -> Wire:
    plain = len(said) == 1 and isinstance(said[0], str)
    return {"role": "user", "content": said[0] if plain else [part_of(one) for one in said]}


def question_of(call: Wire) -> Question:
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    if name == ASK:
        return Question(arguments["question"], arguments.get("schema"), arguments.get("value"), call["id"])
    return Question(
        f"{name}({call['function']['arguments']})", None, {"name": name, "arguments": arguments}, call["id"]
    )


def seen_of(run_id: str, message: Wire, finish: str | None, error: Wire | None = None) -> Seen:
    """Of one completion. Data is said as its JSON."""
    text: str = message.get("content") or ""
    data: tuple[Any, ...] = ()
    if text.startswith("{"):
        text, data = "", (json.loads(text),)
    state = {"tool_calls": "input_required", None: "working"}.get(finish, "completed")
    if error is not None:
        state = "cancelled" if error["code"] == "run_cancelled" else "failed"
    task_id = Ids.task_of(run_id)
    return Seen(
        state,
        text=text,
        data=data,
        questions=tuple(map(question_of, message.get("tool_calls", ()))),
        fault=error["message"] if error is not None and state == "failed" else "",
        asides=(message["reasoning_content"],) if message.get("reasoning_content") else (),
        task_id=task_id,
        context_id=Ids.thread_of(task_id),
    )


def after(before: Seen, seen: Seen) -> Seen:
    """What was seen of a task, and then of its next run."""
    return replace(seen, text=before.text + seen.text, data=before.data + seen.data, asides=before.asides + seen.asides)


def results_of(asked: Seen, answers: tuple[Said, ...]) -> list[tuple[str, Said]]:
    """Return the id of each call that is answered, and its result as text."""
    texts = [json.dumps(said.value) if isinstance(said, Data) else said for said in answers]
    return [(question.id, text) for question, text in zip(asked.questions, texts, strict=False)]


class _View(View):
    def __init__(self, before: Seen | None = None) -> None:
        self.before = before
        self.message: Wire = {}
        self.finish: str | None = None
        self.error: Wire | None = None
        self.run_id = ""
        self.done = False

    def read(self, frame: Frame) -> None:
        assert not self.done and self.error is None, "something comes after the end"
        if frame.bare == b"[DONE]":
            assert self.finish is not None
            self.done = True
            return
        told = json.loads(frame.bare)
        if "error" in told:
            self.error = told["error"]
            return
        assert told["object"] == "chat.completion.chunk"
        run_id = told["id"].removeprefix(PREFIX)
        assert self.run_id in ("", run_id), "one stream is one completion"
        self.run_id = run_id
        (choice,) = told["choices"]
        assert self.finish is None, "nothing follows the last choice"
        self.finish = choice["finish_reason"]
        for name, value in choice["delta"].items():
            if name == "tool_calls":
                calls = self.message.setdefault("tool_calls", [])
                assert [call["index"] for call in value] == list(range(len(calls), len(calls) + len(value)))
                calls += value
            elif name == "role":
                assert name not in self.message, "clients add up what they are told"
                self.message[name] = value
            elif isinstance(value, str):
                self.message[name] = self.message.get(name, "") + value

    @property
    def seen(self) -> Seen:
        if not self.run_id:
            return Seen(state="")
        seen = seen_of(self.run_id, self.message, self.finish, self.error)
        return seen if self.before is None else after(self.before, seen)


class _OpenAI(Caller):
    """What both APIs have in common: each run is an object that can be read again."""

    @abstractmethod
    def _asked(self, said: tuple[Said, ...]) -> dict[str, Any]: ...

    @abstractmethod
    def _answered(self, asked: Seen, answers: tuple[Said, ...]) -> dict[str, Any]: ...

    @abstractmethod
    def _read(self, response: httpx.Response) -> Seen: ...

    @abstractmethod
    def _url(self, run_id: str) -> str: ...

    def shown(self, question: Question) -> Question:
        """A call of a caller's tool is shown as the call, under an id of the gateway's."""
        value = question.value
        if isinstance(value, dict) and "call_id" in value:
            return replace(question, value={name: value[name] for name in ("name", "arguments")})  # pyright: ignore[reportUnknownVariableType]
        return question

    async def send(self, *said: Said) -> Seen:
        return self._read(await self.http.request(**self._asked(said)))

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        self.context_id = asked.context_id
        return after(asked, self._read(await self.http.request(**self._answered(asked, answers))))

    async def look(self, task_id: str) -> Seen:
        """Return what the runs of a task have said, one after the other."""
        seen: Seen | None = None
        for run_id in Ids.runs_of(task_id):
            told = self._read(await self.http.get(self._url(run_id))).lasting
            seen = told if seen is None else after(seen, told)
        assert seen is not None
        return seen

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

    def _read(self, response: httpx.Response) -> Seen:
        ids, body = Ids.of(response.headers), response.json()
        assert ids.run is not None
        self.context_id = ids.thread
        error = body.get("error")
        if error is None:
            assert response.status_code == 200, response.text
        nothing: Wire = {"choices": [{"message": {}}]}
        told: Wire = body if error is None else error.get("completion") or nothing
        assert error is not None or body["id"] == PREFIX + ids.run
        (choice,) = told["choices"]
        return seen_of(ids.run, choice["message"], choice.get("finish_reason"), error)

    def _url(self, run_id: str) -> str:
        return f"/v1/chat/completions/{PREFIX}{run_id}"

    def _asked(self, said: tuple[Said, ...]) -> dict[str, Any]:
        return self._body([message_of(said)])

    def stream(self, *said: Said) -> Following:
        return self._followed(_View(), **self._body([message_of(said)], stream=True))

    def _answered(self, asked: Seen, answers: tuple[Said, ...], **more: Any) -> dict[str, Any]:
        results = results_of(asked, answers)
        messages = [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in results]
        return self._body(messages, **more)

    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        self.context_id = asked.seen.context_id
        return self._followed(_View(asked.seen), **self._answered(asked.seen, answers, stream=True))


class _ResponseView(View):
    """Of one response, or of all of a task, one after the other."""

    def __init__(self, before: Seen | None = None) -> None:
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
                self.before = self.seen
            self.items, self.texts, self.number, self.ended = {}, {}, -1, False
        assert not self.ended, "nothing comes after the end"
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
    def seen(self) -> Seen:
        if not self.response:
            return Seen(state="")
        seen = seen_of_response({**self.response, "output": list(self.items.values())})
        return seen if self.before is None else after(self.before, seen)


def call_of(item: Wire) -> Wire:
    """As chat completions have it."""
    return {"id": item["call_id"], "function": {"name": item["name"], "arguments": item["arguments"]}}


def seen_of_response(response: Wire) -> Seen:
    """Data is said as its JSON, in a part of its own."""
    text, data = "", list[Any]()
    asides: list[str] = []
    calls: list[Wire] = []
    for item in response["output"]:
        match item["type"]:
            case "message":
                said = [part["refusal"] if part["type"] == "refusal" else part["text"] for part in item["content"]]
                if item.get("phase") == "commentary":
                    asides += said
                    continue
                text += "".join(part for part in said if not part.startswith("{"))
                data += [json.loads(part) for part in said if part.startswith("{") and part.endswith("}")]
            case "reasoning":
                asides += [part["text"] for part in item["summary"]]
            case "function_call":
                calls.append(call_of(item))
            case _:
                pass
    state: str = "working" if response["status"] in ("queued", "in_progress") else response["status"]
    task_id = Ids.task_of(run_of(response["id"]))
    return Seen(
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
    """Whoever speaks the Responses API, in conversations: what it streams it has made in the background, for nothing
    else can be cancelled."""

    name: ClassVar = "responses"
    speaks: ClassVar = "openai-responses"

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        super().__init__(http, agent)
        self._previous: str | None = None
        """The response where a branch begins."""

    def _body(self, given: list[Wire], **more: Any) -> dict[str, Any]:
        body: Wire = {"model": self.agent, "input": given, "tools": [{"type": "function", "name": ASK}], **more}
        if self.tools:
            body["tools"] = [{"type": "function", **each} for each in self.tools]
        if self.metadata:
            body["metadata"] = self.metadata
        if self._previous is not None:
            body["previous_response_id"], self._previous = self._previous, None
        elif self.context_id is not None:
            body["conversation"] = f"conv_{UUID(self.context_id).hex}"
        return {"method": "POST", "url": "/v1/responses", "json": body}

    def _read(self, response: httpx.Response) -> Seen:
        ids, body = Ids.of(response.headers), response.json()
        self.context_id = ids.thread
        if "error" in body and "status" not in body:
            assert response.status_code >= 500, response.text
            body = body["error"]["response"]
        assert ids.run is not None and body["id"] == response_of(ids.run)
        return seen_of_response(body)

    def _message(self, said: tuple[Said, ...]) -> list[Wire]:
        return [{"role": "user", "content": [self._part(one) for one in said]}]

    def _part(self, said: Said) -> Wire:
        if isinstance(said, str):
            return {"type": "input_text", "text": said}
        return {"type": "input_file", **part_of(said)["file"]}

    def _url(self, run_id: str) -> str:
        return f"/v1/responses/{response_of(run_id)}"

    def _asked(self, said: tuple[Said, ...]) -> dict[str, Any]:
        return self._body(self._message(said))

    @asynccontextmanager
    async def stream(self, *said: Said) -> AsyncGenerator[Feed]:
        asked = self._body(self._message(said), stream=True, background=True)
        async with self._followed(_ResponseView(), **asked) as feed:
            self.context_id = feed.ids.thread
            yield feed

    def _answered(self, asked: Seen, answers: tuple[Said, ...], **more: Any) -> dict[str, Any]:
        results = results_of(asked, answers)
        outputs = [{"type": "function_call_output", "call_id": call_id, "output": text} for call_id, text in results]
        return self._body(outputs, **more)

    def stream_answer(self, asked: Feed, *answers: Said) -> Following:
        self.context_id = asked.seen.context_id
        request = self._answered(asked.seen, answers, stream=True, background=True)
        return self._followed(_ResponseView(asked.seen), **request)

    async def cancel(self, task_id: str) -> Seen:
        *_, run_id = Ids.runs_of(task_id)
        response = await self.http.post(f"{self._url(run_id)}/cancel")
        assert response.status_code == 200, response.text
        return self._read(response)

    async def branch(self, told: Seen) -> None:
        *_, run_id = Ids.runs_of(told.task_id)
        self._previous = response_of(run_id)

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    @asynccontextmanager
    async def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AsyncGenerator[Feed]:
        """Of its responses, one after the other."""
        async with aclosing(self._chunks(task_id)) as chunks:
            feed = Feed(view or _ResponseView(), before=skip, skip=skip)
            feed.hear(Ids(Ids.thread_of(task_id), task_id, None), chunks)
            yield feed

    async def _chunks(self, task_id: str) -> AsyncGenerator[bytes]:
        for run_id in Ids.runs_of(task_id):
            async with self.http.stream("GET", f"{self._url(run_id)}?stream=true") as response:
                assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
                async for chunk in response.aiter_raw():
                    yield chunk
