"""Driver for ACP 0.2. A run of an agent is in a session."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final
from urllib.parse import quote

from babelgate.conformance.across.driver import Driver, Live, Observation, check_stream, decode_base64, read_success
from babelgate.conformance.across.model import CallerInput, File, Handle, Meaning, Question
from babelgate.conformance.wire.exchange import Exchange, InvalidJson, SseFrame, as_list, as_object, dig, parse_json
from babelgate.conformance.wire.http import StreamExchange

_STATES: Final = {
    "created": "submitted",
    "in-progress": "working",
    "awaiting": "asks",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
_SCHEMA: Final = "application/schema+json"


class Acp(Driver):
    name: ClassVar = "acp"
    title: ClassVar = "ACP"

    def _url(self, *path: str) -> str:
        return "/".join((self.place.of(""), *(quote(each, safe="") for each in path)))

    def _body(self, agent: str, caller_input: CallerInput, after: Handle | None, mode: str) -> dict[str, Any]:
        session = {"session_id": after.thread} if after is not None and after.thread else {}
        named = agent or self.place.agent
        return {"agent_name": named, "input": [_message(caller_input)], "mode": mode, **session}

    async def _ask(self, method: str, *path: str, body: Any = None) -> Exchange:
        return await self.wire.request(method, self._url(*path), sends=None, receives=None, body=body)

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        return self._read_run(
            agent, await self._ask("POST", "runs", body=self._body(agent, caller_input, after, "sync"))
        )

    async def observe(self, handle: Handle) -> Observation:
        return self._read_run(handle.agent, await self._ask("GET", "runs", handle.task))

    async def cancel(self, handle: Handle) -> None:
        read_success(await self._ask("POST", "runs", handle.task, "cancel"))

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        """Answer the open question of a run. An ACP run asks one question at a time."""
        caller_input = CallerInput(answer) if isinstance(answer, str) else CallerInput("", data=answer)
        resume = {"type": "message", "message": _message(caller_input)}
        body = {"run_id": paused.handle.task, "await_resume": resume, "mode": "sync"}
        return self._read_run(paused.handle.agent, await self._ask("POST", "runs", paused.handle.task, body=body))

    @asynccontextmanager
    async def stream(self, agent: str, caller_input: CallerInput) -> AsyncGenerator[Live]:
        body = self._body(agent, caller_input, None, "stream")
        async with self.wire.stream(
            "POST", self._url("runs"), sends=None, receives=None, events="", body=body
        ) as stream:
            check_stream(stream.exchange)
            yield _Live(stream, agent)

    def _read_run(self, agent: str, exchange: Exchange) -> Observation:
        return _read_run(agent, read_success(exchange), exchange)


class _Live(Live):
    def __init__(self, stream: StreamExchange, agent: str) -> None:
        super().__init__(stream, agent)
        self._run: Any = {}
        self._done: list[Any] = []
        self._open: list[Any] = []

    def read(self, frame: SseFrame) -> None:
        event = frame.json
        match dig(event, "type"):
            case "message.created":
                self._open = []
            case "message.part":
                self._open.append(dig(event, "part"))
            case "message.completed":
                self._done.append(dig(event, "message"))
                self._open = []
            case _ if dig(event, "run") is not None:
                self._run = dig(event, "run")
                self.at(_state(self._run))
            case _:
                pass

    def read_so_far(self) -> Observation:
        """Return the run with the messages streamed so far, complete and open. The output in the run's last event is
        ignored, because it repeats them."""
        output = [*self._done, {"parts": self._open}] if self._open else self._done
        return _read_run(self.agent, {**(as_object(self._run) or {}), "output": output}, self.stream.exchange)


def _state(run: Any) -> str:
    status = str(dig(run, "status"))
    return _STATES.get(status, status)


def _message(caller_input: CallerInput) -> dict[str, Any]:
    return {"role": "user", "parts": list(_parts(caller_input))}


def _parts(caller_input: CallerInput) -> Iterator[Mapping[str, Any]]:
    if caller_input.data is not None:
        yield {"content_type": "application/json", "content": json.dumps(caller_input.data)}
    else:
        yield {"content_type": "text/plain", "content": caller_input.text}
    for file in caller_input.files:
        content = b64encode(file.content).decode()
        kind = file.media_type or "application/octet-stream"
        yield {"name": file.name, "content_type": kind, "content": content, "content_encoding": "base64"}


def _read_run(agent: str, run: Any, exchange: Exchange) -> Observation:
    texts, data, files = list[str](), list[Any](), list[File]()
    for message in as_list(dig(run, "output")):
        parts = [each for each in as_list(dig(message, "parts")) if not _is_aside(each)]
        texts.append("".join(str(dig(each, "content")) for each in parts if _kind(each) == "text"))
        data += [_json(dig(each, "content")) for each in parts if _kind(each) == "data"]
        files += [_file(each, exchange) for each in parts if _kind(each) == "file"]
    state = _state(run)
    meaning = Meaning(
        state,
        tuple(filter(None, texts)),
        tuple(data),
        tuple(files),
        tuple(_questions(dig(run, "await_request"))) if state == "asks" else (),
        str(dig(run, "error", "message") or ""),
    )
    return Observation(
        meaning, Handle(agent, str(dig(run, "session_id") or ""), str(dig(run, "run_id") or "")), exchange
    )


def _is_aside(part: Any) -> bool:
    """Return True if a part is no content of the answer: trajectory metadata (the agent's steps and tool calls), or an
    empty part."""
    is_empty = dig(part, "content") is None and dig(part, "content_url") is None
    return dig(part, "metadata", "kind") == "trajectory" or is_empty


def _kind(part: Any) -> str:
    kind = str(dig(part, "content_type") or "text/plain")
    if dig(part, "name") is not None or dig(part, "content") is None:
        return "file"
    return "data" if kind == "application/json" else "text" if kind.startswith("text/") else "file"


def _file(part: Any, exchange: Exchange) -> File:
    kind, url = str(dig(part, "content_type") or "text/plain"), dig(part, "content_url")
    name = str(dig(part, "name") or "")
    return File(name, b"", kind, str(url)) if url is not None else File(name, _bytes(part, exchange), kind)


def _questions(request: Any) -> Iterator[Question]:
    """Yield the open questions of an `await_request`. ACP has room for one; a gateway like Babelgate lists all of them
    in the member `babelgate`."""
    listed = as_list(dig(request, "babelgate", "questions"))
    yield from map(_question, listed or [request])


def _question(request: Any) -> Question:
    parts = as_list(dig(request, "message", "parts"))
    text = "".join(str(dig(each, "content")) for each in parts if str(dig(each, "content_type")).startswith("text/"))
    found = {str(dig(each, "content_type")): _json(dig(each, "content")) for each in parts}
    return Question(text, found.get("application/json"), found.get(_SCHEMA))


def _bytes(part: Any, exchange: Exchange) -> bytes:
    content = str(dig(part, "content"))
    return decode_base64(content, exchange) if dig(part, "content_encoding") == "base64" else content.encode()


def _json(content: Any) -> Any:
    try:
        return parse_json(content) if isinstance(content, str) else content
    except InvalidJson:
        return content
