"""Drivers for OpenAI's APIs: chat completions, and responses as in Open Responses. An agent is a model, which receives
only texts."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote
from uuid import uuid4

from babelgate.conformance.across.driver import Driver, Live, Observation, ScenarioFailed, check_stream, read_success
from babelgate.conformance.across.model import CallerInput, Handle, Meaning, Question
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame, as_list, as_object, dig, parse_json
from babelgate.conformance.wire.http import StreamExchange

_ASK_TOOL: Final = "ask_caller"
_HEADERS: Final[Mapping[str, str]] = {"Babelgate-Questions": "calls"}
"""Header that makes a Babelgate ask by calls of the tool `ask_caller`. Without it, a question looks like a normal
answer. Other servers ignore it."""
_DONE: Final = "[DONE]"
_NO_QUESTIONS: Final = "a question is a normal answer, and the run does not wait"
_LACKS: Final[Mapping[str, str]] = {
    "question": _NO_QUESTIONS,
    "questions": _NO_QUESTIONS,
    "approval": _NO_QUESTIONS,
    "files": "an answer has no files",
    "data": "an answer is text, and data looks like text",
    "shared": "the API has no ids for runs of other protocols",
}


class _OpenAi(Driver):
    path: ClassVar[str]

    def _url(self, *path: str) -> str:
        return "/".join((self.place.of(""), self.path, *(quote(each, safe="") for each in path)))

    def _model(self, agent: str) -> str:
        return agent or self.place.agent

    async def _post(self, body: Mapping[str, Any]) -> Exchange:
        return await self.wire.request("POST", self._url(), sends=None, receives=None, body=body, headers=_HEADERS)

    @asynccontextmanager
    async def _open_stream(self, body: Mapping[str, Any]) -> AsyncGenerator[StreamExchange]:
        streamed = {**body, "stream": True}
        async with self.wire.stream(
            "POST", self._url(), sends=None, receives=None, events="", body=streamed, headers=_HEADERS
        ) as stream:
            if not _failure(stream.exchange):
                check_stream(stream.exchange)
            yield stream

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        raise ScenarioFailed(_NO_QUESTIONS)


class ChatDriver(_OpenAi):
    name: ClassVar = "openai-chat"
    title: ClassVar = "OpenAI chat"
    path: ClassVar = "chat/completions"
    lacks: ClassVar = {
        **_LACKS,
        "look": "an answer is not stored",
        "conversation": "the caller sends the whole conversation again",
        "cancel": "a client can only disconnect, and the answer is not stored",
        "return": "an answer is not stored",
    }

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turns: dict[str, Sequence[Any]] = {}
        """Messages of each conversation so far, by an id that this driver assigns."""

    def _body(self, agent: str, messages: Sequence[Any]) -> dict[str, Any]:
        return {"model": self._model(agent), "messages": list(messages)}

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        before = self._turns[after.thread] if after is not None else ()
        messages = (*before, {"role": "user", "content": _text_of(caller_input)})
        exchange = await self._post(self._body(agent, messages))
        handle = Handle(agent, after.thread if after is not None else uuid4().hex)
        if error := _failure(exchange):
            return Observation(Meaning("failed", error=error), handle, exchange)
        choice = dig(read_success(exchange), "choices", 0)
        if as_object(dig(choice, "message")) is None:
            raise ScenarioFailed("an answer without a message", exchange)
        content = dig(choice, "message", "content")
        texts = (content,) if isinstance(content, str) and content else ()
        self._turns[handle.thread] = (*messages, {"role": "assistant", "content": content})
        calls = [dig(call, "function") for call in as_list(dig(choice, "message", "tool_calls"))]
        meaning = Meaning(_state_of_reason(dig(choice, "finish_reason")), texts, questions=_questions(calls))
        return Observation(meaning, handle, exchange)

    async def observe(self, handle: Handle) -> Observation:
        raise ScenarioFailed(self.lacks["look"])

    @asynccontextmanager
    async def stream(self, agent: str, caller_input: CallerInput) -> AsyncGenerator[Live]:
        async with self._open_stream(
            self._body(agent, [{"role": "user", "content": _text_of(caller_input)}])
        ) as stream:
            yield _LiveChat(stream, agent)


class _LiveChat(Live):
    def __init__(self, stream: StreamExchange, agent: str) -> None:
        super().__init__(stream, agent)
        self._text = ""
        self._calls: dict[Any, dict[str, str]] = {}
        """Name and arguments of each tool call, as streamed so far, by the call's index."""
        self._error = _failure(stream.exchange)
        self._state = "failed" if self._error else "working"

    def read(self, frame: SseFrame) -> None:
        if frame.data == _DONE:
            return
        chunk = frame.json
        if (error := dig(chunk, "error")) is not None:
            self._state, self._error = "failed", _error_message(error)
        for choice in as_list(dig(chunk, "choices")):
            content, reason = dig(choice, "delta", "content"), dig(choice, "finish_reason")
            self._text += content if isinstance(content, str) else ""
            for call in as_list(dig(choice, "delta", "tool_calls")):
                call_parts = self._calls.setdefault(dig(call, "index"), {"name": "", "arguments": ""})
                for name in call_parts:
                    call_parts[name] += str(dig(call, "function", name) or "")
            if reason is not None and self._state == "working":
                self._state = _state_of_reason(reason)

    def read_so_far(self) -> Observation:
        texts = (self._text,) if self._text else ()
        questions = _questions(self._calls.values()) if self._state == "asks" else ()
        return Observation(Meaning(self._state, texts, questions=questions, error=self._error), Handle(self.agent))

    def now(self) -> Observation:
        """Return the result that the stream has shown so far, without states, because chat streams report none."""
        observation = super().now()
        return replace(observation, meaning=replace(observation.meaning, states=None))


class ResponsesDriver(_OpenAi):
    name: ClassVar = "openai-responses"
    title: ClassVar = "Open Responses"
    path: ClassVar = "responses"
    lacks: ClassVar = {
        **_LACKS,
        "cancel": "a response ends with its connection; only OpenAI can cancel background responses",
        "return": "a response ends with its connection",
    }

    def _body(self, agent: str, caller_input: CallerInput, after: Handle | None) -> dict[str, Any]:
        earlier = {"previous_response_id": after.run} if after is not None else {}
        return {"model": self._model(agent), "input": _text_of(caller_input), "store": True, **earlier}

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        exchange = await self._post(self._body(agent, caller_input, after))
        if error := _failure(exchange):
            return Observation(Meaning("failed", error=error), Handle(agent), exchange)
        return _read_response(agent, read_success(exchange), exchange, after)

    async def observe(self, handle: Handle) -> Observation:
        exchange = await self.wire.request("GET", self._url(handle.run), sends=None, receives=None)
        if exchange.status == 404:  # Servers need not store responses.
            raise ScenarioFailed("the response is not stored", exchange, is_declined=True)
        return _read_response(handle.agent, read_success(exchange), exchange)

    @asynccontextmanager
    async def stream(self, agent: str, caller_input: CallerInput) -> AsyncGenerator[Live]:
        async with self._open_stream(self._body(agent, caller_input, None)) as stream:
            yield _LiveResponse(stream, agent)


class _LiveResponse(Live):
    def __init__(self, stream: StreamExchange, agent: str) -> None:
        super().__init__(stream, agent)
        self._response: Any = {}
        self._texts: dict[tuple[str, int], str] = {}
        """Text of each content part, as streamed so far, by item id and part index, in the order in which the parts
        began."""
        self._error = _failure(stream.exchange)

    def read(self, frame: SseFrame) -> None:
        if frame.data == _DONE:
            return
        event = frame.json
        match dig(event, "type"):
            case "response.output_text.delta" | "response.refusal.delta":
                at = (str(dig(event, "item_id")), int(dig(event, "content_index") or 0))
                self._texts[at] = self._texts.get(at, "") + str(dig(event, "delta") or "")
            case "error":
                self._error = _error_message(dig(event, "error") or event)
            case _ if dig(event, "response") is not None:
                self._response = dig(event, "response")
                self.at(_state(self._response))
            case _:
                pass

    def read_so_far(self) -> Observation:
        """Return the response with the texts streamed so far. The output in the last event is ignored, because it
        repeats them."""
        observation = _read_response(self.agent, self._response, self.stream.exchange)
        texts: dict[str, str] = {}
        for (item, _), text in self._texts.items():
            texts[item] = texts.get(item, "") + text
        state = "failed" if self._error else observation.meaning.state
        error = observation.meaning.error or self._error
        return replace(
            observation, meaning=replace(observation.meaning, state=state, error=error, texts=tuple(texts.values()))
        )


def _text_of(caller_input: CallerInput) -> Any:
    """Return the text of an input. Structured data is not sent, because the API has no form for it. Raises
    ScenarioFailed if the input has files."""
    if caller_input.files:
        raise ScenarioFailed(_LACKS["files"])
    return caller_input.text


def _failure(exchange: Exchange) -> str:
    """Return the error message of a response with a 5xx status, or an empty string for any other response. The chat API
    reports a failed run only in this way."""
    if (exchange.status or 0) < 500 or exchange.status == 501:
        return ""
    return _error_message(dig(exchange.json, "error")) or f"status {exchange.status}"


def _error_message(error: Any) -> str:
    return str(dig(error, "message") or "")


def _state_of_reason(reason: Any) -> str:
    return {"stop": "completed", "tool_calls": "asks"}.get(reason, str(reason))


def _questions(calls: Iterable[Any]) -> tuple[Question, ...]:
    """Return the questions among tool calls.

    The API knows only calls of the caller's tools. A gateway like Babelgate asks by calls of the tool `ask_caller`.
    """
    found: list[Question] = []
    for call in calls:
        try:
            arguments = parse_json(str(dig(call, "arguments"))) if dig(call, "name") == _ASK_TOOL else None
        except InvalidJson:
            continue
        if arguments is not None:
            found.append(
                Question(str(dig(arguments, "question") or ""), dig(arguments, "value"), dig(arguments, "schema"))
            )
    return tuple(found)


def _state(response: Any) -> str:
    status = str(dig(response, "status") or "working")
    if status == "completed" and any(dig(item, "type") == "function_call" for item in as_list(dig(response, "output"))):
        return "asks"
    return {"queued": "submitted", "in_progress": "working"}.get(status, status)


def _read_response(agent: str, response: Any, exchange: Exchange, after: Handle | None = None) -> Observation:
    id = str(dig(response, "id") or "")
    texts = [
        "".join(str(dig(part, "text") or dig(part, "refusal") or "") for part in as_list(dig(item, "content")))
        for item in as_list(dig(response, "output"))
        if dig(item, "type") == "message"
    ]
    is_next = after is not None and dig(response, "previous_response_id") == after.run
    thread = after.thread if after is not None and is_next else id
    calls = [item for item in as_list(dig(response, "output")) if dig(item, "type") == "function_call"]
    questions, error = _questions(calls), _error_message(dig(response, "error"))
    meaning = Meaning(_state(response), tuple(filter(None, texts)), questions=questions, error=error)
    return Observation(meaning, Handle(agent, thread, run=id), exchange)
