"""Reader of sessions of the Agent Client Protocol, for which the gateway has no client. It reads messages alone."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import unquote

import httpx

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
)
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunEnded,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from babelgate.canonical.value import JsonObject
from tests import loopback
from tests.adapters.agent_client.editor import Editor, RpcError, editing, own


class AgentClientReader:
    """An editor without forms, which dismisses permission requests and downloads files."""

    def __init__(self, url: str, agent: str) -> None:
        self._http: httpx.AsyncClient = loopback.client(base_url=url, timeout=httpx.Timeout(30))
        self._url, self._agent = url, agent
        self._sessions: dict[str, str] = {}
        """Session of each thread of the measurement."""
        self._message: str | None = None
        self._tools: dict[str, str] = {}

    async def aclose(self) -> None:
        await self._http.aclose()

    async def run(self, call: Invocation) -> AsyncGenerator[Event]:
        self._message, self._tools = None, {}
        async with editing(self._url, self._agent) as editor:
            await editor.initialize()
            if call.thread_id not in self._sessions:
                self._sessions[call.thread_id] = await editor.new_session()
            blocks = [_block(part) for part in call.messages[-1].parts]
            number = await editor.start_prompt(self._sessions[call.thread_id], *blocks, **call.metadata)
            async for event in self._follow(editor, number):
                yield event

    async def _follow(self, editor: Editor, number: int) -> AsyncGenerator[Event]:
        while True:
            message = await editor.receive()
            if message.get("method") == "session/update":
                for event in self._read(message["params"]["update"]):
                    yield await self._with_bytes(event)
            elif message.get("id") == number and "method" not in message:
                for event in self._end():
                    yield event
                try:
                    yield _ended(message)
                except RpcError as error:
                    fault = Fault(code=FaultCode(error.data["code"]), message=str(error))
                    yield RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault)
                return

    def _read(self, update: JsonObject) -> Iterator[Event]:
        members = own(update)
        match update["sessionUpdate"]:
            case _ if "question" in members:
                yield _question(members["question"])
            case "agent_message_chunk" if "artifact" in members:
                yield _artifact(update["content"], members["artifact"])
            case "agent_message_chunk" | "agent_thought_chunk" as kind:
                yield from self._chunk(update, members, is_thought=kind == "agent_thought_chunk")
            case "tool_call":
                self._tools[update["toolCallId"]] = update["name"]
                yield ToolStarted(call_id=update["toolCallId"], name=update["name"], input=update.get("rawInput"))
            case "tool_call_update":
                name, fault = self._tools[update["toolCallId"]], members.get("fault")
                output = None if fault else update.get("rawOutput")
                yield ToolEnded(call_id=update["toolCallId"], name=name, output=output, fault=_fault(fault))
            case "plan":
                yield _step(members)
            case _ if "custom" in members:
                yield Custom(name=members["custom"]["name"], value=members["custom"]["value"])
            case _:
                pass

    def _chunk(self, update: JsonObject, members: JsonObject, *, is_thought: bool) -> Iterator[Event]:
        if update["messageId"] != self._message:
            yield from self._end()
            self._message = update["messageId"]
            phase: Any = members.get("phase", "answer")
            yield MessageStarted(message_id=self._message, metadata=members.get("metadata", {}), phase=phase)
        part = _part(update["content"], members)
        if is_thought and "phase" not in members:
            part = ReasoningPart(text=update["content"]["text"])
        yield PartAdded(message_id=self._message, part=part)

    def _end(self) -> Iterator[Event]:
        if self._message is not None:
            yield MessageEnded(message_id=self._message)
        self._message = None

    async def _with_bytes(self, event: Event) -> Event:
        """Return the event with the bytes of a file that the gateway stores."""
        part = event.part if isinstance(event, PartAdded | ArtifactAdded) else None
        if not isinstance(event, PartAdded | ArtifactAdded) or not isinstance(part, FilePart) or part.url is None:
            return event
        if not part.url.startswith(str(self._http.base_url).rstrip("/")):
            return event
        content = (await self._http.get(part.url)).content
        return event.replace(part=part.replace(url=None, inline=content))


def _block(part: Part) -> JsonObject:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    assert isinstance(part, FilePart) and part.inline is not None
    resource = {"uri": f"file:///{part.name}", "mimeType": part.media_type, "blob": b64encode(part.inline).decode()}
    return {"type": "resource", "resource": resource}


def _part(block: JsonObject, members: JsonObject) -> Part:
    """Return the part that a block shows."""
    kind = members.get("kind")
    if kind == "citation":
        return AnnotationPart(**members["citation"])
    if block["type"] != "text":
        return _file(block)
    match kind:
        case "data":
            return DataPart(data=json.loads(block["text"]))
        case "refusal":
            return RefusalPart(text=block["text"])
        case _:
            return TextPart(text=block["text"])


def _file(block: JsonObject) -> FilePart:
    match block["type"]:
        case "resource_link":
            return FilePart(name=block["name"], media_type=block.get("mimeType"), url=block["uri"])
        case "resource":
            resource = block["resource"]
            name = unquote(resource["uri"].rpartition("/")[2])
            return FilePart(name=name, media_type=resource["mimeType"], inline=b64decode(resource["blob"]))
        case _:
            return FilePart(name=own(block)["name"], media_type=block["mimeType"], inline=b64decode(block["data"]))


def _artifact(block: JsonObject, members: JsonObject) -> ArtifactAdded:
    return ArtifactAdded(
        artifact_id=members["id"],
        name=members.get("name"),
        description=members.get("description"),
        part=_part(block, members),
        append=members.get("append", False),
        last=members["last"],
        metadata=members.get("metadata", {}),
    )


def _question(members: JsonObject) -> InterruptRaised:
    return InterruptRaised(
        interrupt_id=members["id"],
        ask=members["kind"],
        message=Message.of(members["message"]),
        value=members.get("value"),
        answer_schema=members.get("schema"),
    )


def _step(members: JsonObject) -> StepStarted | StepEnded:
    if members["state"] == "started":
        return StepStarted(step_id=members["step"], name=members["name"], input=members.get("input"))
    fault = _fault(members.get("fault"))
    return StepEnded(step_id=members["step"], name=members["name"], update=members.get("update"), fault=fault)


def _fault(members: JsonObject | None) -> Fault | None:
    return None if members is None else Fault(code=FaultCode(members["code"]), message=members["message"])


def _ended(message: JsonObject) -> RunEnded:
    """Return the end of a run. Raises RpcError for an error."""
    if "error" in message:
        raise RpcError(message["error"])
    members = own(message["result"])
    return RunEnded(output=members.get("output"), usage=members.get("usage", {}))
