"""Reader of UI message streams, for which the gateway has no client. It reads the chunks alone."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Final

import httpx

from babelgate.adapters.kit.data_url import decode_data_url
from babelgate.canonical import (
    AnnotationPart,
    DataPart,
    Event,
    Fault,
    FaultCode,
    FilePart,
    Invocation,
    Message,
    Part,
    ReasoningPart,
    RefusalPart,
    RunReason,
    RunStatus,
    TextPart,
    ToolCallPart,
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import JsonObject
from tests import loopback

_ASK: Final = "ask_caller"


def own(chunk: JsonObject) -> JsonObject:
    """Return the gateway's members of a chunk."""
    return chunk.get("providerMetadata", {}).get("babelgate", {})


class VercelReader:
    """A page that declares `ask_caller`, requests the steps, and downloads files."""

    def __init__(self, url: str, agent: str) -> None:
        self._http: httpx.AsyncClient = loopback.client(base_url=url, timeout=httpx.Timeout(30))
        self._agent = agent
        self._reset()

    def _reset(self) -> None:
        self._message: str | None = None
        """Id of the open message."""
        self._hidden: set[str] = set()
        """Ids of texts that show what another chunk contains."""
        self._tools: dict[str, str] = {}
        self._calls: dict[str, JsonObject] = {}
        self._output: Any = None
        self._usage: JsonObject = {}
        self._fault = FaultCode.AGENT_FAILED

    async def aclose(self) -> None:
        await self._http.aclose()

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        self._reset()
        tools: dict[str, Any] = {_ASK: {}}
        for tool in call.tools:
            tools[tool.name] = {"description": tool.description, "parameters": tool.parameters}
        message = {"id": call.run_id, "role": "user", "parts": [_part(part) for part in call.messages[-1].parts]}
        body = {"id": call.thread_id, "message": message, "tools": tools, "metadata": dict(call.metadata)}
        url = f"/vercel-ui/{self._agent}?steps=true"
        async with self._http.stream("POST", url, json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk: JsonObject = json.loads(line.removeprefix("data: "))
                for event in self._read(chunk):
                    yield await self._with_bytes(event)

    def _read(self, chunk: JsonObject) -> Iterator[Event]:
        kind = chunk["type"]
        if kind.startswith("data-"):
            yield from self._data(kind.removeprefix("data-"), chunk)
            return
        match kind:
            case "text-start" | "reasoning-start":
                if own(chunk).keys() & {"shows", "question"}:
                    self._hidden.add(chunk["id"])
                    return
                part = ReasoningPart(text="") if kind == "reasoning-start" else TextPart(text="")
                part = RefusalPart(text="") if own(chunk).get("refusal") else part
                yield from self._begin(chunk["id"], own(chunk).get("metadata", {}))
                yield PartAdded(message_id=self._message, part=part, open=True)
            case "text-delta" | "reasoning-delta" if chunk["id"] not in self._hidden:
                yield PartDelta(message_id=self._message, text=chunk["delta"])
            case "text-end" | "reasoning-end" if chunk["id"] not in self._hidden:
                yield PartEnded(message_id=self._message)
            case "file" if "artifact" not in own(chunk):
                yield from self._begin(own(chunk)["id"], own(chunk).get("metadata", {}))
                yield PartAdded(message_id=self._message, part=_file(chunk, own(chunk).get("name")))
            case "source-url":
                yield from self._begin(chunk["sourceId"], {})
                place: JsonObject = {name: own(chunk).get(name) for name in ("start", "end", "description")}
                part = AnnotationPart(url=chunk["url"], title=chunk.get("title"), **place)
                yield PartAdded(message_id=self._message, part=part)
            case "message-metadata":
                self._fault = FaultCode(chunk["messageMetadata"]["babelgate"]["fault"]["code"])
            case "error":
                fault = Fault(code=self._fault, message=chunk["errorText"])
                yield from self._end()
                yield RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault)
            case "finish":
                yield from self._end()
                self._usage = chunk.get("messageMetadata", {}).get("usage", {})
                yield RunEnded(output=self._output, usage=_usage(self._usage))
            case _ if kind.startswith("tool-"):
                yield from self._tool(chunk)
            case _:
                pass

    def _begin(self, part_id: str, metadata: JsonObject, phase: Any = "answer") -> Iterator[Event]:
        """Begin the message of a part, unless it is already open, and end the open one. The part's id begins with the
        message's."""
        message_id = part_id.rpartition(".")[0]
        if message_id != self._message:
            yield from self._end()
            self._message = message_id
            yield MessageStarted(message_id=message_id, metadata=metadata, phase=phase)

    def _end(self) -> Iterator[Event]:
        if self._message is not None:
            yield MessageEnded(message_id=self._message)
        self._message = None

    def _tool(self, chunk: JsonObject) -> Iterator[Event]:
        call_id = chunk["toolCallId"]
        match chunk["type"]:
            case "tool-input-available" if chunk.get("providerExecuted"):
                self._tools[call_id] = chunk["toolName"]
                yield ToolStarted(call_id=call_id, name=chunk["toolName"], input=chunk["input"])
            case "tool-input-available" if chunk.get("dynamic"):
                self._calls[call_id] = chunk["input"]
            case "tool-input-available":
                yield _question(chunk)
            case "tool-approval-request":
                question = self._calls[call_id]
                message, schema = Message.of(question["question"]), question.get("schema")
                kind = question.get("kind", "input")
                yield InterruptRaised(interrupt_id=call_id, ask=kind, message=message, answer_schema=schema)
            case "tool-output-available" if call_id in self._tools:
                yield ToolEnded(call_id=call_id, name=self._tools[call_id], output=chunk["output"])
            case "tool-output-error" if call_id in self._tools:
                fault = Fault(code=FaultCode.AGENT_FAILED, message=chunk["errorText"])
                yield ToolEnded(call_id=call_id, name=self._tools[call_id], fault=fault)
            case _:
                pass

    def _data(self, name: str, chunk: JsonObject) -> Iterator[Event]:
        data: Any = chunk["data"]
        match name:
            case "part":
                yield from self._begin(chunk["id"], {})
                yield PartAdded(message_id=self._message, part=DataPart(data=data))
            case "progress":
                yield from self._begin(chunk["id"], {}, "progress")
                yield PartAdded(message_id=self._message, part=TextPart(text=data["text"]))
            case "output":
                self._output = data
            case "artifact":
                yield _artifact(data)
            case "step":
                yield _step(chunk["id"], data)
            case "custom":
                yield Custom(name=data.get("name", ""), value=data["value"])
            case _:
                yield Custom(name=name, value=data)

    async def _with_bytes(self, event: Event) -> Event:
        """Return the event with the bytes of a file that the gateway stores."""
        part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
        base = str(self._http.base_url).rstrip("/")
        if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.url is None:
            return event
        if not part.url.startswith(base):
            return event
        content = (await self._http.get(part.url)).content
        return event.replace(part=part.replace(url=None, inline=content))


def _part(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    assert isinstance(part, FilePart) and part.inline is not None
    url = f"data:{part.media_type};base64,{b64encode(part.inline).decode()}"
    return {"type": "file", "mediaType": part.media_type, "filename": part.name, "url": url}


def _file(members: JsonObject, name: str | None) -> FilePart:
    decoded = decode_data_url(members["url"])
    if decoded is None:
        return FilePart(name=name, media_type=members["mediaType"], url=members["url"])
    return FilePart(name=name, media_type=members["mediaType"], inline=decoded[1])


def _question(chunk: JsonObject) -> InterruptRaised:
    call_id, name, arguments = chunk["toolCallId"], chunk["toolName"], chunk["input"]
    if name != _ASK:
        call = ToolCallPart(call_id=call_id, name=name, arguments=json.dumps(arguments), side="caller")
        return InterruptRaised(interrupt_id=call_id, message=Message(parts=(call,)))
    return InterruptRaised(
        interrupt_id=call_id,
        ask=arguments.get("kind", "input"),
        message=Message.of(arguments["question"]),
        value=arguments.get("value"),
        answer_schema=arguments.get("schema"),
    )


def _artifact(data: JsonObject) -> ArtifactAdded:
    piece: JsonObject = data["part"]
    if "url" in piece:
        part: Part = _file(piece, piece.get("name"))
    else:
        part = TextPart(text=piece["text"]) if "text" in piece else DataPart(data=piece["data"])
    return ArtifactAdded(
        artifact_id=data["artifactId"],
        name=data.get("name"),
        description=data.get("description"),
        part=part,
        append=data.get("append", False),
        last=data["last"],
        metadata=data.get("metadata", {}),
    )


def _step(step_id: str, data: JsonObject) -> StepStarted | StepEnded:
    if data["state"] == "started":
        return StepStarted(step_id=step_id, name=data["name"], input=data.get("input"))
    fault: Any = data.get("fault")
    if fault is not None:
        fault = Fault(code=FaultCode(fault["code"]), message=fault["message"])
    return StepEnded(step_id=step_id, name=data["name"], update=data.get("update"), fault=fault)


def _usage(usage: JsonObject) -> JsonObject:
    names = {"inputTokens": "input_tokens", "outputTokens": "output_tokens", "totalTokens": "total_tokens"}
    return {names[name]: count for name, count in usage.items() if name in names}
