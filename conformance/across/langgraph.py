"""Driver for LangGraph Platform. A run of an assistant is on a thread, whose messages are part of its state."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final
from urllib.parse import quote

from babelgate.conformance.across.driver import (
    POLL_INTERVAL,
    Driver,
    Live,
    Observation,
    ScenarioFailed,
    check_stream,
    decode_base64,
    read_success,
)
from babelgate.conformance.across.model import CallerInput, File, Handle, Meaning, Question
from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_list, as_object, dig
from babelgate.conformance.wire.http import StreamExchange

_STATES: Final = {
    "pending": "submitted",
    "running": "working",
    "success": "completed",
    "error": "failed",
    "timeout": "failed",
    "interrupted": "cancelled",
}
"""State of a run in the terms of `Meaning.state`, by LangGraph's status of the run, unless a question is open."""


@dataclass
class MessageContents:
    """Texts, data and files of an agent's messages, collected from whole messages or from the pieces of a stream."""

    by_message: dict[str, str] = field(default_factory=dict[str, str])
    data: list[Any] = field(default_factory=list[Any])
    files: list[File] = field(default_factory=list[File])

    def add(self, message: Any) -> None:
        """Add a message, or the next piece of a streamed message."""
        id, content = str(dig(message, "id") or ""), dig(message, "content")
        if isinstance(content, str):
            self.by_message[id] = self.by_message.get(id, "") + content
        for block in as_list(content):
            match dig(block, "type"):
                case "text":
                    self.by_message[id] = self.by_message.get(id, "") + str(dig(block, "text") or "")
                case "json":
                    self.data.append(dig(block, "json"))
                case _:
                    self.files += _files(block, "")

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(filter(None, self.by_message.values()))

    def with_members(self, values: Any) -> Sequence[Any]:
        """Return the data of the messages, followed by the members of the thread's state other than messages, as one
        object. This object is a structured answer; it is left out if a message already had it."""
        members = {
            k: v for k, v in (as_object(values) or {}).items() if k not in ("messages", "__interrupt__", "__error__")
        }
        return (*self.data, members) if members and members not in self.data else tuple(self.data)


class LangChainDriver(Driver):
    """Base class of the drivers for LangGraph Platform and LangChain's Agent Protocol."""

    agent_key: ClassVar[str]
    speaker: ClassVar[tuple[str, Sequence[str]]]
    """Name of the member of a message that names its author, and the values of this member that mean the agent."""
    modes: ClassVar[Sequence[str]]
    """Stream modes to request (`stream_mode`)."""
    path_of_end: ClassVar[str]
    """Last segment of the path that waits for the end of a run: `join` or `wait`."""

    def _runs(self, handle: Handle, *way: str) -> str:
        """Return the URL at which runs are created. `way` are further path segments, such as `stream` or `wait`."""
        raise NotImplementedError

    def _run(self, handle: Handle, *way: str) -> str:
        raise NotImplementedError

    async def _list_runs(self, thread: str) -> Exchange:
        raise NotImplementedError

    def _body(self, handle: Handle, caller_input: CallerInput) -> dict[str, Any]:
        raise NotImplementedError

    def _values(self, ending: Any) -> tuple[Any, Sequence[Any]]:
        """Return the state and the messages in `ending`, the response after the end of a run."""
        raise NotImplementedError

    def _url(self, *path: str) -> str:
        return "/".join((self.place.of(""), *(quote(each, safe="") for each in path)))

    def _agent_member(self, agent: str) -> dict[str, Any]:
        named = agent or self.place.agent
        return {self.agent_key: named} if named else {}

    async def _ask(self, method: str, url: str, body: Any = None) -> Exchange:
        return await self.wire.request(method, url, sends=None, receives=None, body=body)

    async def _thread(self, agent: str, after: Handle | None) -> Handle:
        if after is not None:
            return Handle(agent, thread=after.thread)
        thread = read_success(await self._ask("POST", self._url("threads"), {}))
        return Handle(agent, thread=str(dig(thread, "thread_id")))

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        handle = await self._thread(agent, after)
        return await self._wait(handle, self._body(handle, caller_input))

    async def _wait(self, handle: Handle, body: Any) -> Observation:
        exchange = await self._ask("POST", self._runs(handle, "wait"), body)
        ending = await self._with_messages(handle, read_success(exchange))
        handle = Handle(handle.agent, handle.thread)
        run = await self._find_run(handle)
        handle = replace(handle, run=str(dig(run, "run_id")))
        # A waiting response sends its headers before the run has ended, so its losses are declared only to a later
        # join.
        await self._ask("GET", self._run(handle, self.path_of_end))
        return Observation(self._meaning(str(dig(run, "status")), ending), handle, exchange)

    async def _find_run(self, handle: Handle) -> Any:
        """Return the run that a handle identifies. Without a run id, return the newest run of the handle's task, or of
        its thread if the server does not report tasks. Raises ScenarioFailed if there is no such run."""
        exchange = await self._list_runs(handle.thread)
        runs = [run for run in as_list(read_success(exchange)) if not handle.task or _task(run) in ("", handle.task)]
        runs = [run for run in runs if handle.run in ("", dig(run, "run_id"))]
        if not runs:
            raise ScenarioFailed("no run on the thread", exchange)
        return max(runs, key=lambda run: str(dig(run, "created_at")))

    async def observe(self, handle: Handle) -> Observation:
        run = await self._find_run(handle)
        handle = replace(handle, run=str(dig(run, "run_id")))
        exchange = await self._ask("GET", self._run(handle, self.path_of_end))
        ending = await self._with_messages(handle, read_success(exchange))
        return Observation(self._meaning(str(dig(run, "status")), ending), handle, exchange)

    async def _with_messages(self, handle: Handle, ending: Any) -> Any:
        """Return `ending`, the response after the end of a run, with the run's output. For a failed run it has only the
        error, so the output is read from the thread's state."""
        if dig(ending, "__error__") is None or dig(ending, "messages") is not None:
            return ending
        state = read_success(await self._ask("GET", self._url("threads", handle.thread, "state")))
        return {**(as_object(dig(state, "values")) or {}), **ending}

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        """Answer the open questions of a run: one question by the bare value, several by an object of values by
        question id."""
        questions = paused.meaning.questions
        resume = {each.id: answer for each in questions} if len(questions) > 1 else answer
        body = {**self._body(paused.handle, CallerInput("")), "command": {"resume": resume}}
        return await self._wait(paused.handle, {k: v for k, v in body.items() if k not in ("input", "messages")})

    async def cancel(self, handle: Handle) -> None:
        read_success(await self._ask("POST", self._run(handle, "cancel") + "?wait=true"))

    @asynccontextmanager
    async def stream(self, agent: str, caller_input: CallerInput) -> AsyncGenerator[Live]:
        handle = await self._thread(agent, None)
        body = {**self._body(handle, caller_input), "stream_mode": list(self.modes)}
        url = self._runs(handle, "stream")
        async with self.wire.stream("POST", url, sends=None, receives=None, events="", body=body) as stream:
            check_stream(stream.exchange)
            yield _Live(stream, self, handle)

    async def send_and_record(self, agent: str, caller_input: CallerInput) -> Observation:
        async with self.stream(agent, caller_input) as live:
            return await self._with_end(await live.rest())

    async def _with_end(self, observation: Observation) -> Observation:
        """Return the observation of a stream with the final state of the run. Streams do not report it, so the run is
        read until it has ended."""
        status = str(dig(await self._find_run(observation.handle), "status"))
        deadline = time.monotonic() + self.wire.timeout
        while status in ("pending", "running") and time.monotonic() < deadline:
            await asyncio.sleep(POLL_INTERVAL)
            status = str(dig(await self._find_run(observation.handle), "status"))
        state = "asks" if observation.meaning.questions else _STATES.get(status, status)
        states = (*(observation.meaning.states or ()), state)
        return Observation(
            replace(observation.meaning, state=state, states=states), observation.handle, observation.exchange
        )

    def _meaning(self, status: str, ending: Any) -> Meaning:
        """Return the result of a run, from its LangGraph status and its current or final output `ending`."""
        members, messages = self._values(ending)
        contents = MessageContents()
        for message in self._answers(messages):
            contents.add(message)
        questions = tuple(map(question_of, as_list(dig(ending, "__interrupt__"))))
        error = dig(ending, "__error__")
        return Meaning(
            "asks" if questions and status in ("success", "interrupted") else _STATES.get(status, status),
            contents.texts,
            contents.with_members(members),
            tuple(contents.files),
            questions,
            str(dig(error, "message") or error or ""),
        )

    def is_answer(self, message: Any) -> bool:
        key, values = self.speaker
        return dig(message, key) in values

    def _answers(self, messages: Sequence[Any]) -> list[Any]:
        """Return the agent's messages that follow the last message of a caller."""
        key, _ = self.speaker
        caller_indices = [at for at, each in enumerate(messages) if dig(each, key) in ("human", "user")]
        newest = messages[caller_indices[-1] + 1 :] if caller_indices else messages
        return [each for each in newest if self.is_answer(each)]


class _Live(Live):
    def __init__(self, stream: StreamExchange, driver: LangChainDriver, handle: Handle) -> None:
        super().__init__(stream, handle.agent)
        self._driver = driver
        self._handle = handle
        self._run = ""
        self._contents = MessageContents()
        self._values: Any = None
        self._error = ""

    def read(self, frame: SseFrame) -> None:
        event = frame.json
        match frame.event.partition("|")[0]:
            case "metadata":
                self._run = str(dig(event, "run_id") or "")
                self.at("working")
            case "messages":
                chunk = dig(event, 0)
                if self._driver.is_answer(chunk):
                    self._contents.add(chunk)
            case "values":
                self._values = event
            case "custom" if dig(event, "artifact") is not None:
                name = str(dig(event, "artifact", "name") or "")
                for block in as_list(dig(event, "artifact", "content")):
                    self._contents.files += _files(block, name)
            case "error":
                self._error = str(dig(event, "message") or event)
            case _:
                pass

    def read_so_far(self) -> Observation:
        questions = tuple(map(question_of, as_list(dig(self._values, "__interrupt__"))))
        meaning = Meaning(
            "working",
            self._contents.texts,
            self._contents.with_members(self._values),
            tuple(self._contents.files),
            questions,
            self._error,
        )
        return Observation(meaning, Handle(self.agent, self._handle.thread, run=self._run))


class LangGraph(LangChainDriver):
    name: ClassVar = "langgraph"
    title: ClassVar = "LangGraph"
    agent_key: ClassVar = "assistant_id"
    speaker: ClassVar = ("type", ("ai", "AIMessageChunk"))
    modes: ClassVar = ("values", "messages-tuple", "custom")
    path_of_end: ClassVar = "join"

    def _runs(self, handle: Handle, *way: str) -> str:
        return self._url("threads", handle.thread, "runs", *way)

    def _run(self, handle: Handle, *way: str) -> str:
        return self._url("threads", handle.thread, "runs", handle.run, *way)

    async def _list_runs(self, thread: str) -> Exchange:
        return await self._ask("GET", self._url("threads", thread, "runs") + "?limit=100")

    def _body(self, handle: Handle, caller_input: CallerInput) -> dict[str, Any]:
        run_input = caller_input.data if caller_input.data is not None else {"messages": [message_of(caller_input)]}
        return {**self._agent_member(handle.agent), "input": run_input}

    def _values(self, ending: Any) -> tuple[Any, Sequence[Any]]:
        return ending, as_list(dig(ending, "messages"))


def message_of(caller_input: CallerInput) -> dict[str, Any]:
    if not caller_input.files:
        return {"role": "user", "content": caller_input.text}
    return {"role": "user", "content": [{"type": "text", "text": caller_input.text}, *map(_block, caller_input.files)]}


_WORDS: Final = ("question", "message", "prompt", "text", "description", "action")
"""Members of an interrupt's value in which agents usually put the text of a question, in order of preference. LangGraph
defines no member for it."""


def _words_in(value: Any) -> Iterator[str]:
    members = as_object(value) or {}
    return (members[name] for name in _WORDS if isinstance(members.get(name), str))


def question_of(interrupt: Any) -> Question:
    value = dig(interrupt, "value")
    text = dig(interrupt, "message")
    if text is None:
        text = value if isinstance(value, str) else next(_words_in(value), "")
    schema = dig(interrupt, "response_schema")
    return Question(str(text), None if value == text else value, schema, str(dig(interrupt, "id") or ""))


def _task(run: Any) -> str:
    return str(dig(run, "metadata", "babelgate", "task_id") or "")


def _block(file: File) -> Mapping[str, Any]:
    about = {"mime_type": file.media_type, "extras": {"filename": file.name}, "metadata": {"filename": file.name}}
    return {"type": "file", "base64": b64encode(file.content).decode(), **about}


def _files(block: Any, name: str) -> list[File]:
    """Return a list of the file that a content block contains, or an empty list. `name` is the name of the artifact,
    used if the block names no file."""
    filename = dig(block, "extras", "filename") or dig(block, "metadata", "filename") or dig(block, "filename") or name
    kind = str(dig(block, "mime_type") or "") or None
    if dig(block, "base64") is not None:
        return [File(str(filename), decode_base64(dig(block, "base64")), kind)]
    if dig(block, "url") is not None:
        return [File(str(filename), b"", kind, str(dig(block, "url")))]
    if dig(block, "file_id") is not None:  # The id is all that the server reports of the file.
        return [File(str(filename), str(dig(block, "file_id")).encode(), kind)]
    if dig(block, "type") == "json":
        return [File(str(filename), json.dumps(dig(block, "json")).encode(), "application/json")]
    if dig(block, "type") == "text":
        return [File(str(filename), str(dig(block, "text")).encode(), "text/plain")]
    return []
