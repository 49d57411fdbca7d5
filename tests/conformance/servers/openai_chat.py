"""Scripted server of OpenAI's Chat Completions API."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from itertools import count
from typing import Any, Final, cast

from tests.conformance.servers.kit import Answer, Request, Server, Violation, options, sse
from tests.conformance.servers.openai_model import CITY, SHARED, OpenAi, Refused

_ROLES: Final = ("developer", "system", "user", "assistant", "tool")

VIOLATIONS: Final = (
    *SHARED,
    # Models
    Violation("models are not listed", "models.list"),
    Violation("a model has another id", "models.get"),
    Violation("unknown models exist", "models.unknown"),
    Violation("a delta is lost", "stream.adds-up"),
    Violation("ASCII only", "chat.unicode"),
    # Answers
    Violation("every answer has two choices", "chat.one-choice", ("chat.n",)),
    Violation("answers have no text", "chat.text", ("chat.schema", "call.result", "stream.adds-up")),
    Violation("answers end for their length", "chat.stop"),
    Violation("all answers have one id", "chat.own-id", ("chat.concurrent",)),
    Violation("times are in milliseconds", "chat.created"),
    Violation("no usage", "chat.usage"),
    Violation("the total is that of the answer", "chat.usage-sum", ("stream.usage",)),
    Violation("concurrent answers share an id", "chat.concurrent", ("~chat.own-id",)),
    Violation("system messages are refused", "chat.system"),
    Violation("developers are unknown", "chat.developer"),
    Violation("only one turn is accepted", "chat.history", ("chat.history-calls", "call.result")),
    Violation("content is never null", "chat.history-calls", ("call.result",)),
    Violation("content is text", "chat.parts"),
    Violation("options are never null", "chat.nulls"),
    Violation("unknown options are refused", "chat.options"),
    Violation("metadata are refused", "chat.metadata"),
    Violation("n is ignored", "chat.n"),
    Violation("Accept makes a stream", "chat.no-stream", ("form.completion",)),
    Violation("schemas are ignored", "chat.schema"),
    # Streams
    Violation("streams need an Accept", "stream.answer", ("call.stream", "~*")),
    Violation("chunks have a type", "stream.data-only"),
    Violation("each chunk has an id", "stream.one-id"),
    Violation("each chunk has a time", "stream.one-time"),
    Violation("each delta has a role", "stream.role-once"),
    Violation("deltas have no text", "stream.text", ("stream.adds-up",)),
    Violation("each chunk has a finish_reason", "stream.finish", ("error.failure-stream",)),
    Violation("chunks are numbered", "stream.index"),
    Violation("usage is never streamed", "stream.usage"),
    Violation("usage is left out before", "stream.usage-null"),
    Violation("usage is always streamed", "stream.usage-unasked"),
    # Calls
    Violation("calls end with stop", "call.finish"),
    Violation("arguments are cut", "call.arguments"),
    Violation("results are refused", "call.result", ("chat.history-calls",)),
    Violation("streamed calls are numbered from 1", "call.stream-index", ("call.stream-*",)),
    Violation("each delta names the call", "call.stream-once"),
    Violation("arguments are streamed twice", "call.stream-arguments"),
    Violation("streamed calls end with stop", "call.stream-finish"),
    # Errors
    Violation("there are default messages", "error.no-messages"),
    Violation("no messages are a message", "error.empty"),
    Violation("messages may be text", "error.messages-text", ("error.param", "error.type")),
    Violation("results need no call", "error.result"),
    Violation("unknown models are bad requests", "error.model"),
    Violation("unknown models have no code", "error.model-code"),
    Violation("refusals name no parameter", "error.param"),
    Violation("refusals are of the type error", "error.type"),
    # Security
    Violation("errors show a stack trace", "safe.errors", ("safe.ids",)),
    Violation("deep JSON is a server error", "safe.deep"),
    # The form of messages
    Violation("answers are chunks", "form.completion"),
    Violation("choices have no finish_reason", "form.choice", ("chat.stop", "call.finish")),
    Violation("messages are the user's", "form.message"),
    Violation("answers are done", "form.finish-reason", ("chat.stop",)),
    Violation("arguments are objects", "form.tool-call", ("call.arguments",)),
    Violation("usage has no total", "form.usage", ("chat.usage-sum", "stream.usage")),
    Violation("chunks are completions", "form.chunk"),
    Violation("the last choice has no delta", "form.chunk-choice"),
    Violation("call deltas have no index", "form.call-delta", ("call.stream-*",)),
    Violation("models have no owner", "form.model"),
    Violation("the list of models has no object", "form.models"),
)


class Chat(OpenAi):
    """Server whose model does what the last message says."""

    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self._numbers = count(1)
        self._busy = 0
        self._shared = ""

    async def _route(self, request: Request, path: list[str]) -> Answer:
        if (request.method, path) != ("POST", ["chat", "completions"]):
            raise Refused(404, "no such path")
        body = self._validated(self._json(request))
        text = self.text_of(body["messages"])
        if self.wants_stream(request, body):
            return Answer(stream=self._stream(body, text))
        return await self._answer(body, text)

    # Requests

    def _validated(self, body: dict[str, Any]) -> dict[str, Any]:
        model = self._model_of(body)
        if "messages" not in body and self.does("there are default messages"):
            body["messages"] = [{"role": "user", "content": "Hello"}]
        if isinstance(body.get("messages"), str) and self.does("messages may be text"):
            body["messages"] = [{"role": "user", "content": "Hello"}]
        if not isinstance(body.get("messages"), list):
            raise Refused(400, "messages are needed", "messages")
        messages: list[Any] = body["messages"]
        self.refuse_unless(bool(messages), "messages", "no messages are a message")
        calls: set[str] = set()
        for message in messages:
            self._check_message(message, calls)
        assistants = [each for each in messages if each["role"] == "assistant"]
        self.raise_if("only one turn is accepted", Refused(400, "one turn", "messages"), when=assistants)
        self.check_options(body)
        self.raise_if("unknown options are refused", Refused(400, "unknown", "seed"), when="seed" in body)
        self.raise_if("metadata are refused", Refused(400, "unknown", "metadata"), when=body.get("metadata"))
        return {**body, "model": model}

    def _check_message(self, message: Mapping[str, Any], calls: set[str]) -> None:
        role, content = message.get("role"), message.get("content")
        self.check_role(role, _ROLES, "messages")
        self.raise_if("content is never null", Refused(400, "no content", "messages"), when=content is None)
        if isinstance(content, list):
            self.raise_if("content is text", Refused(400, "content is text", "messages"))
            for part in cast("list[Any]", content):
                self.refuse_unless(part.get("type") == "text", "messages.content", "unknown parts are accepted")
        calls.update(str(each["id"]) for each in message.get("tool_calls") or ())
        if role == "tool":
            self.raise_if("results are refused", Refused(400, "no results", "messages"), when=calls)
            self.refuse_unless(message.get("tool_call_id") in calls, "messages", "results need no call")

    # Answers

    def _id(self) -> str:
        return "chatcmpl-0" if self.does("all answers have one id") else f"chatcmpl-{next(self._numbers)}"

    def _reply(self, body: Mapping[str, Any], text: str) -> str:
        if body.get("response_format") and not self.does("schemas are ignored"):
            return CITY
        return f"You said: {self.ascii_if('ASCII only', text)}"

    async def _answer(self, body: Mapping[str, Any], text: str) -> Answer:
        if text.startswith("fail") and not self.does("failures are empty answers"):
            raise Refused(500, "the model failed")
        id = self._id()
        self._busy += 1
        if self._busy > 1 and self.does("concurrent answers share an id"):
            id = self._shared
        self._shared = id
        await asyncio.sleep(0.005)
        self._busy -= 1
        number = 1 if self.does("n is ignored") else body.get("n") or 1
        if self.does("every answer has two choices"):
            number = 2 if body.get("n") is None else 3
        choices = [self._choice(index, body, text) for index in range(number)]
        answer: dict[str, Any] = {
            "id": id,
            "object": "chat.completion.chunk" if self.does("answers are chunks") else "chat.completion",
            "created": self._now(),
            "model": body["model"],
            "choices": choices,
        }
        if not self.does("no usage"):
            answer["usage"] = self._usage()
        return Answer(body=answer)

    def _now(self) -> int:
        return int(time.time() * (1000 if self.does("times are in milliseconds") else 1))

    def _usage(self) -> dict[str, int]:
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        self.set_if("the total is that of the answer", usage, total_tokens=3)
        self.drop_if("usage has no total", usage, "total_tokens")
        return usage

    def _choice(self, index: int, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        role = "user" if self.does("messages are the user's") else "assistant"
        has_none = self.does("answers have no text") or text.startswith("fail")
        content = None if has_none else self._reply(body, text)
        message: dict[str, Any] = {"role": role, "content": content, "refusal": None}
        reason = "length" if self.does("answers end for their length") else "stop"
        if self.does("answers are done"):
            reason = "done"
        if self.wants_call(body, text) and not self.does("calls are text"):
            message |= {"content": None}
            if not self.does("calls are only announced"):
                message["tool_calls"] = [self._call(body)]
            reason = "stop" if self.does("calls end with stop") else "tool_calls"
        choice = {"index": index, "message": message, "finish_reason": reason, "logprobs": None}
        self.drop_if("choices have no finish_reason", choice, "finish_reason")
        return choice

    def _call(self, body: Mapping[str, Any]) -> dict[str, Any]:
        name = "get_time" if self.does("other tools are called") else body["tools"][0]["function"]["name"]
        id = "call_0" if self.does("all calls have one id") else f"call_{next(self._numbers)}"
        return {"id": id, "type": "function", "function": {"name": name, "arguments": self.call_arguments()}}

    # Streams

    async def _stream(self, body: Mapping[str, Any], text: str) -> AsyncGenerator[bytes]:
        id, at = self._id(), self._now()
        options: dict[str, Any] = body.get("stream_options") or {}
        wants_usage = options.get("include_usage") is True
        for number, (delta, reason) in enumerate(self._deltas(body, text)):
            choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
            self.set_if("chunks are numbered", choice, index=number)
            self.set_if("each chunk has a finish_reason", choice, finish_reason="stop" if reason is None else reason)
            self.drop_if("the last choice has no delta", choice, "delta", when=reason is not None)
            chunk = self._chunk(id, at, number, body, [choice])
            if wants_usage and not self.does("usage is left out before"):
                chunk["usage"] = None
            yield sse(chunk, event="chunk" if self.does("chunks have a type") else "")
        if text.startswith("fail"):
            if not self.does("failed streams just end"):
                yield sse({"error": {"message": "it failed", "type": "server_error", "param": None, "code": None}})
            return
        if (wants_usage or self.does("usage is always streamed")) and not self.does("usage is never streamed"):
            yield sse({**self._chunk(id, at, 0, body, []), "usage": self._usage()})
        for frame in self.stream_end():
            yield frame

    def _chunk(self, id: str, at: int, number: int, body: Mapping[str, Any], choices: list[Any]) -> dict[str, Any]:
        return {
            "id": f"{id}-{number}" if self.does("each chunk has an id") else id,
            "object": "chat.completion" if self.does("chunks are completions") else "chat.completion.chunk",
            "created": at + number if self.does("each chunk has a time") else at,
            "model": body["model"],
            "choices": choices,
        }

    def _deltas(self, body: Mapping[str, Any], text: str) -> list[tuple[dict[str, Any], str | None]]:
        first: dict[str, Any] = {"role": "assistant", "content": ""}
        if text.startswith("fail"):
            return [(first, None)]
        if self.wants_call(body, text) and not self.does("calls are text") and not self.does("calls are not streamed"):
            reason = "stop" if self.does("streamed calls end with stop") else "tool_calls"
            deltas = [] if self.does("calls are only announced") else self._call_deltas(body)
            return [(first, None), *((each, None) for each in deltas), ({}, reason)]
        first_word, *others = self._reply(body, text).split(" ")
        words = [first_word, *(f" {word}" for word in others)]
        if self.does("deltas have no text"):
            words = []
        if self.does("a delta is lost"):
            words = words[1:]
        role = {"role": "assistant"} if self.does("each delta has a role") else {}
        return [(first, None), *(({**role, "content": word}, None) for word in words), ({}, "stop")]

    def _call_deltas(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        call = self._call(body)
        index = 1 if self.does("streamed calls are numbered from 1") else 0
        named = {"id": call["id"], "type": "function"}
        name = call["function"]["name"]
        pieces = [CITY[:6], CITY[6:]]
        if self.does("arguments are streamed twice"):
            pieces.append(CITY)
        deltas: list[dict[str, Any]] = [{"index": index, **named, "function": {"name": name, "arguments": ""}}]
        for piece in pieces:
            if self.does("each delta names the call"):
                deltas.append({"index": index, **named, "function": {"name": name, "arguments": piece}})
            else:
                deltas.append({"index": index, "function": {"arguments": piece}})
        if self.does("call deltas have no index"):
            deltas = [{name: value for name, value in each.items() if name != "index"} for each in deltas]
        return [{"tool_calls": [each]} for each in deltas]


SERVER: Final = Server(
    set="openai-chat",
    make=Chat,
    violations=VIOLATIONS,
    path="/v1",
    options=options(
        header="Authorization",
        scheme="Bearer ",
        agent="mock-1",
        plain="Hello",
        calls="call the tool",
        data="Where?",
        fail="fail",
        stream="stream",
    ),
    unbroken={"chat.answer": "no other requirement can pass without it; the dead server covers it"},
)
