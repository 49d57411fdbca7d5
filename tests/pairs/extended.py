"""Callers that use the Babelgate extension and read only the records of each response.

They use raw JSON against the wire, as docs/extension.md defines it, and share no code with the adapters.
"""

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from uuid import UUID, uuid4

import httpx

from babelgate.adapters.mcp.codec.run_id import encode_run_id
from babelgate.canonical import Carry, Event, Feature
from babelgate.canonical.event import InterruptAnswered, InterruptRaised
from babelgate.canonical.stored import decode_event
from docs.pairing import EXTENDED_SERVERS
from tests.adapters.mcp.site import Modern
from tests.pairs.caller import Frame, Ids
from tests.pairs.mcp import ids_of

Wire = dict[str, Any]

URI: Final = "https://w3id.org/babelgate/events/v1"
MCP_NAME: Final = "org.w3id.babelgate/events-v1"
LABELS: Final = {"ticket": "no-11037"}
"""Metadata of each request."""
TOOL: Final = {"name": "weather", "description": "Of a city.", "parameters": {"type": "object"}}
UPLOAD: Final = ("every byte.bin", "application/x-all", bytes(range(256)))


@dataclass
class Records:
    """Records of a task that a caller has received in envelopes.

    A violation of the extension's rules fails the test.
    """

    by_number: dict[int, Wire] = field(default_factory=dict[int, Wire])
    """Records, by number."""
    after: int | None = None
    """Number of the record before the first one."""
    ids: Ids = field(init=False)
    places: dict[int, str] = field(default_factory=dict[int, str])
    """Id of the frame of each record, by record number, in protocols whose frames have ids."""

    @property
    def last(self) -> int:
        return max(self.by_number, default=self.after or 0)

    def read(self, envelope: Wire, place: str = "") -> None:
        """Add an envelope of a stream. Fail if records between it and the earlier envelopes are missing."""
        assert set(envelope) <= {"after", "events", "next"}, envelope
        if self.after is None:
            self.after = envelope["after"]
        assert envelope["after"] == self.last, "an envelope must follow the received records"
        for record in envelope["events"]:
            assert record["seq"] > self.last
            self.by_number[record["seq"]] = record
            if place:
                self.places[record["seq"]] = place

    def read_whole(self, envelope: Wire) -> None:
        """Add the envelope of a finished object, which may repeat records."""
        assert set(envelope) == {"after", "events"}, "one envelope must contain everything"
        numbers = [record["seq"] for record in envelope["events"]]
        assert numbers == sorted(set(numbers))
        self.after = envelope["after"] if self.after is None else self.after
        for record in envelope["events"]:
            stored = self.by_number.setdefault(record["seq"], record)
            assert stored == record, "a repeated record must be identical"

    def join(self, later: "Records") -> None:
        """Add later records of the same task."""
        for seq, record in later.by_number.items():
            assert self.by_number.setdefault(seq, record) == record, "a repeated record must be identical"
        self.ids = later.ids

    @property
    def events(self) -> Sequence[Event]:
        return [decode_event(json.dumps(self.by_number[seq]["event"]).encode()) for seq in sorted(self.by_number)]

    @property
    def open(self) -> Sequence[InterruptRaised]:
        """Questions that are open after these records, oldest first."""
        questions: dict[str | None, InterruptRaised] = {}
        for event in self.events:
            if isinstance(event, InterruptRaised):
                questions[event.interrupt_id] = event
            elif isinstance(event, InterruptAnswered):
                del questions[event.interrupt_id]
        return list(questions.values())


def saying() -> Wire:
    """Return the members of the extension in a request: a tool, an upload and metadata. They are for protocols without
    fields for them."""
    name, media_type, content = UPLOAD
    upload = {"name": name, "media_type": media_type, "bytes": b64encode(content).decode()}
    return {"tools": [TOOL], "uploads": [upload], "metadata": LABELS}


def answering(values: Mapping[str, Any]) -> Wire:
    return {"answers": [{"interrupt_id": name, "value": value} for name, value in values.items()], "tools": [TOOL]}


class Extended(ABC):
    name: ClassVar[str]
    speaks: ClassVar[str]
    """Protocol of the caller, a key of `docs.pairing.EXTENDED_SERVERS`."""
    header: ClassVar[str] = "Babelgate-Extensions"
    of_run: ClassVar[bool] = False
    """True if the response has only the records of a run. False if it has those of the whole task."""
    looks: ClassVar[bool] = True
    """True if the response to a read of a finished object has records, too."""
    ends: ClassVar[str] = "task_changed"
    """Kind of the event after which no further record of a stopped task is sent."""

    def __init__(self, http: httpx.AsyncClient, agent: str) -> None:
        self.http = http
        self.agent = agent

    @property
    def carries(self) -> Mapping[Feature, Carry]:
        return EXTENDED_SERVERS[self.speaks].carries

    @abstractmethod
    async def send(self, text: str, extension: Wire) -> Records:
        """Start a task with these members of the extension, and follow it to its stop."""

    @abstractmethod
    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        """Answer questions by their ids, and follow the task to its stop. Earlier records need not be repeated."""

    @abstractmethod
    async def look(self, task: Records) -> Records:
        """Read the finished object of a task again, and return the records in the response."""

    async def reconnect(self, task: Records, seq: int) -> Records:
        """Return the records of a task after the record number `seq`."""
        raise NotImplementedError(self.carries[Feature.REATTACH].how)

    @abstractmethod
    def found(self, message: Wire, kind: str) -> Wire | None:
        """Return the envelope of records in a message of a stream, or in a finished object. Return None if it has none.
        `kind` is the name of the frame."""

    async def _fetch(
        self, records: Records, method: str, url: str, headers: Mapping[str, str] | None = None, **request: Any
    ) -> Records:
        """Send a request, and add the envelopes of its response to `records`. The response is a stream or one object.
        The first envelope may have no record."""
        all_headers = {self.header: URI, **(headers or {})}
        async with self.http.stream(method, url, headers=all_headers, **request) as response:
            streams = response.headers["content-type"].startswith("text/event-stream")
            if not streams:
                await response.aread()
            assert response.status_code in (200, 202), response.text
            assert response.headers.get(self.header) == URI, response.text
            records.ids = Ids.of(response.headers)
            if streams:
                async for frame in frames(response):
                    if frame.data != b"[DONE]":
                        envelope = self.found(json.loads(frame.data), frame.event)
                        if envelope is not None:
                            records.read(envelope, frame.id)
            else:
                envelope = self.found(response.json(), "")
                assert envelope is not None
                records.read_whole(envelope)
        return records


async def frames(response: httpx.Response) -> AsyncGenerator[Frame]:
    rest = b""
    async for chunk in response.aiter_raw():
        *whole, rest = (rest + chunk).split(b"\n\n")
        for raw in whole:
            if not raw.startswith(b":"):
                yield Frame.parse(raw)
    assert not rest


class A2A(Extended):
    version: ClassVar[str]
    methods: ClassVar[Mapping[str, str]]

    def _request(self, operation: str, params: Wire, **headers: str) -> Wire:
        body = {"jsonrpc": "2.0", "id": 1, "method": self.methods[operation], "params": params}
        all_headers = {"A2A-Version": self.version, **headers}
        return {"method": "POST", "url": f"/a2a/{self.agent}", "json": body, "headers": all_headers}

    @abstractmethod
    def _message(self, content: str | Wire, **more: str) -> Wire: ...

    async def send(self, text: str, extension: Wire) -> Records:
        members = {name: value for name, value in extension.items() if name != "metadata"}
        params = {"message": self._message(text), "metadata": {**extension.get("metadata", {}), URI: members}}
        return await self._fetch(Records(), **self._request("stream", params))

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        """Answer in the form that A2A itself defines, and not with members of the extension."""
        resume = {"resume": [{"id": name, "value": value} for name, value in values.items()]}
        message = self._message(resume, taskId=paused.ids.task, contextId=paused.ids.thread)
        params = {"message": message, "metadata": {URI: {"tools": [TOOL]}}}
        return await self._fetch(Records(), **self._request("stream", params))

    async def look(self, task: Records) -> Records:
        return await self._fetch(Records(), **self._request("get", {"id": task.ids.task}))

    async def reconnect(self, task: Records, seq: int) -> Records:
        request = self._request("subscribe", {"id": task.ids.task}, **{"Babelgate-From": str(seq)})
        return await self._fetch(Records(), **request)


class A2A03(A2A):
    name = "a2a-0.3"
    speaks = "a2a-0.3"
    header = "X-A2A-Extensions"
    version = "0.3"
    methods: ClassVar = {"stream": "message/stream", "get": "tasks/get", "subscribe": "tasks/resubscribe"}

    def _message(self, content: str | Wire, **more: str) -> Wire:
        kind = "text" if isinstance(content, str) else "data"
        head = {"kind": "message", "messageId": str(uuid4()), "role": "user", **more}
        return {**head, "parts": [{"kind": kind, kind: content}]}

    def found(self, message: Wire, kind: str) -> Wire | None:
        return message["result"].get("metadata", {}).get(URI)


class A2A10(A2A):
    name = "a2a-1.0"
    speaks = "a2a-1.0"
    header = "A2A-Extensions"
    version = "1.0"
    methods: ClassVar = {"stream": "SendStreamingMessage", "get": "GetTask", "subscribe": "SubscribeToTask"}

    def _message(self, content: str | Wire, **more: str) -> Wire:
        part = {"text" if isinstance(content, str) else "data": content}
        return {"messageId": str(uuid4()), "role": "ROLE_USER", **more, "parts": [part]}

    def found(self, message: Wire, kind: str) -> Wire | None:
        result: Wire = message["result"]
        held: Wire = result if "id" in result else next(iter(result.values()))
        return held.get("metadata", {}).get(URI)


class Acp(Extended):
    name = "acp"
    speaks = "acp"

    async def send(self, text: str, extension: Wire) -> Records:
        body = {"agent_name": self.agent, "input": [_acp(text)], "mode": "stream", "babelgate": extension}
        return await self._fetch(Records(), "POST", "/acp/runs", json=body)

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        resume = {"type": "message", "message": _acp("See beside.")}
        body = {"await_resume": resume, "mode": "stream", "babelgate": answering(values)}
        return await self._fetch(Records(), "POST", f"/acp/runs/{paused.ids.task}", json=body)

    async def look(self, task: Records) -> Records:
        return await self._fetch(Records(), "GET", f"/acp/runs/{task.ids.task}")

    async def reconnect(self, task: Records, seq: int) -> Records:
        headers = {"Accept": "text/event-stream", "Babelgate-From": str(seq)}
        return await self._fetch(Records(), "GET", f"/acp/runs/{task.ids.task}/events", headers)

    def found(self, message: Wire, kind: str) -> Wire | None:
        if "type" not in message:
            envelope: Wire = message["babelgate"]
            return {name: envelope[name] for name in ("after", "events", "next") if name in envelope}
        return message["generic"].get(URI) if message["type"] == "generic" else None


def _acp(text: str) -> Wire:
    return {"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}


class Aief(Extended):
    name = "aief"
    speaks = "aief"
    of_run = True
    ends = "run_ended"

    async def send(self, text: str, extension: Wire) -> Records:
        url = f"/agent/{self.agent}/ap/v1/agent/tasks"
        response = await self.http.post(url, json={"input": text}, headers={self.header: URI})
        assert response.status_code == 200, response.text
        return await self._steps(response.json()["task_id"], extension)

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        return await self._steps(paused.ids.thread, answering(values))

    async def _steps(self, thread: str, extension: Wire) -> Records:
        """Execute steps until the run ends. An agent marks several, and each needs a request."""
        records = Records()
        body = (
            {"input": "See beside.", "additional_input": {URI: extension}}
            if "answers" in extension
            else {"additional_input": {URI: extension}}
        )
        while not any(record["event"]["kind"] == "run_ended" for record in records.by_number.values()):
            await self._fetch(records, "POST", f"/agent/{self.agent}/ap/v1/agent/tasks/{thread}/steps", json=body)
            body = {}
        return records

    async def look(self, task: Records) -> Records:
        url = f"/agent/{self.agent}/ap/v1/agent/tasks/{task.ids.thread}/steps"
        listed = (await self.http.get(url, params={"page_size": 100})).json()["steps"]
        of_run = [step["step_id"] for step in listed if step["step_id"].startswith(str(task.ids.run))]
        return await self._fetch(Records(), "GET", f"{url}/{of_run[-1]}")

    def found(self, message: Wire, kind: str) -> Wire | None:
        return message["additional_output"][URI]


class LangGraph(Extended):
    name = "langgraph"
    speaks = "langgraph"
    of_run = True
    ends = "run_ended"
    prefix: ClassVar[str] = ""
    names: ClassVar[str] = "assistant_id"
    modes: ClassVar[Sequence[str]] = ("values", "messages-tuple", "custom")
    joins: ClassVar[str] = "join"

    def _input(self, text: str) -> Wire:
        return {"input": {"messages": [{"role": "user", "content": text}]}}

    async def send(self, text: str, extension: Wire) -> Records:
        thread = await self.http.post(f"{self.prefix}/threads", json={})
        members = {name: value for name, value in extension.items() if name != "metadata"}
        body = {**self._input(text), "metadata": {**extension.get("metadata", {}), URI: members}}
        return await self._run(thread.json()["thread_id"], body)

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        body = {"command": {"resume": dict(values)}, "metadata": {URI: answering(values)}}
        return await self._run(paused.ids.thread, body)

    async def _run(self, thread: str, body: Wire) -> Records:
        body = {self.names: self.agent, "stream_mode": list(self.modes), **body}
        return await self._fetch(Records(), "POST", f"{self.prefix}/threads/{thread}/runs/stream", json=body)

    async def look(self, task: Records) -> Records:
        return await self._fetch(Records(), "GET", f"{self._url(task)}/{self.joins}")

    async def reconnect(self, task: Records, seq: int) -> Records:
        headers = {"Last-Event-ID": task.places[seq]}
        params = {"stream_mode": list(self.modes)}
        return await self._fetch(Records(after=seq), "GET", f"{self._url(task)}/stream", headers, params=params)

    def _url(self, task: Records) -> str:
        return f"{self.prefix}/threads/{task.ids.thread}/runs/{task.ids.run}"

    def found(self, message: Wire, kind: str) -> Wire | None:
        return message[URI] if kind in ("babelgate", "") else None


class AgentProtocol(LangGraph):
    name = "agent-protocol"
    speaks = "agent-protocol"
    prefix = "/agent-protocol"
    names = "agent_id"
    modes = ("values", "messages", "custom")
    joins = "wait"

    def _input(self, text: str) -> Wire:
        return {"messages": [{"role": "user", "content": text}], "on_disconnect": "continue"}


class Responses(Extended):
    name = "responses"
    speaks = "openai-responses"
    of_run = True
    ends = "run_ended"

    async def send(self, text: str, extension: Wire) -> Records:
        return await self._respond({"input": text, "babelgate": extension})

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        outputs = [
            {"type": "function_call_output", "call_id": call_id, "output": "See beside."}
            for call_id, _ in zip(self._calls, values, strict=True)
        ]
        conversation = f"conv_{UUID(paused.ids.thread).hex}"
        return await self._respond({"input": outputs, "conversation": conversation, "babelgate": answering(values)})

    async def _respond(self, body: Wire) -> Records:
        self._calls: list[str] = []
        body = {"model": self.agent, "stream": True, "background": True, **body}
        return await self._fetch(Records(), "POST", "/v1/responses", json=body)

    async def look(self, task: Records) -> Records:
        return await self._fetch(Records(), "GET", self._url(task))

    async def reconnect(self, task: Records, seq: int) -> Records:
        """Replay the run from its start, and drop the earlier records."""
        again = await self._fetch(Records(), "GET", self._url(task), params={"stream": "true"})
        later = Records({number: record for number, record in again.by_number.items() if number > seq}, after=seq)
        later.ids = again.ids
        return later

    def _url(self, task: Records) -> str:
        return f"/v1/responses/resp_{UUID(str(task.ids.run)).hex}"

    def found(self, message: Wire, kind: str) -> Wire | None:
        if kind == "response.output_item.done" and message["item"]["type"] == "function_call":
            self._calls.append(message["item"]["call_id"])
        return message[URI] if kind in ("babelgate.events", "") else None


class Chat(Extended):
    name = "chat-completions"
    speaks = "openai-chat-completions"
    of_run = True
    ends = "run_ended"
    looks = False

    async def send(self, text: str, extension: Wire) -> Records:
        return await self._complete([{"role": "user", "content": text}], extension)

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        results = [
            {"role": "tool", "tool_call_id": call_id, "content": "See beside."}
            for call_id, _ in zip(self._calls, values, strict=True)
        ]
        return await self._complete(results, answering(values), thread=paused.ids.thread)

    async def _complete(self, messages: Sequence[Wire], extension: Wire, thread: str | None = None) -> Records:
        self._calls: list[str] = []
        body: Wire = {"model": self.agent, "messages": messages, "stream": True, "store": True, "babelgate": extension}
        if thread is not None:
            body["metadata"] = {"thread_id": thread}
        return await self._fetch(Records(), "POST", "/v1/chat/completions", json=body)

    async def look(self, task: Records) -> Records:
        raise NotImplementedError

    def found(self, message: Wire, kind: str) -> Wire | None:
        delta: Wire = message["choices"][0]["delta"] if "choices" in message else {}
        assert URI not in message or delta == {}
        self._calls += [call["id"] for call in delta.get("tool_calls", ())]
        return message.get(URI)


class Mcp(Extended):
    name = "mcp"
    speaks = "mcp"
    looks = False
    ends = "run_ended"

    async def _call(self, tool: str, arguments: Wire, extension: Wire) -> Records:
        client = Modern(self.http, capabilities={"extensions": {MCP_NAME: {}}})
        result = await client.call(tool, arguments, _meta={MCP_NAME: extension})
        records = Records()
        records.ids = ids_of(result["_meta"])
        records.read_whole(result["_meta"][MCP_NAME])
        return records

    async def send(self, text: str, extension: Wire) -> Records:
        return await self._call(self.agent, {"message": text, "thread_id": str(uuid4())}, extension)

    async def answer(self, paused: Records, values: Mapping[str, Any]) -> Records:
        arguments = {"run_id": encode_run_id(paused.ids.task), "answers": dict(values)}
        return await self._call("resume_run", arguments, {"tools": [TOOL]})

    async def look(self, task: Records) -> Records:
        raise NotImplementedError

    def found(self, message: Wire, kind: str) -> Wire | None:
        raise NotImplementedError


EXTENDED: Final[Sequence[type[Extended]]] = (
    *(A2A03, A2A10, Acp, Aief, LangGraph, AgentProtocol, Responses, Chat, Mcp),
)
