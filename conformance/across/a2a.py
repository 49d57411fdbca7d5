"""Drivers for A2A 0.3 and 1.0 over JSON-RPC. A run is a task of an agent, in a context."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final
from uuid import uuid4

from babelgate.conformance.across.driver import (
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
    "SUBMITTED": "submitted",
    "WORKING": "working",
    "INPUT_REQUIRED": "asks",
    "AUTH_REQUIRED": "asks",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "REJECTED": "failed",
    "CANCELED": "cancelled",
}
_CONTENT_TYPE: Final = -32005
"""JSON-RPC error code of ContentTypeNotSupported: the agent does not accept or produce a part of this content type."""
_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}


def endpoint_of(card: Any, version: str) -> str | None:
    """Return the URL of the JSON-RPC interface that a card declares for a version (`0.3`, `1.0`), or None."""
    interfaces = as_list(dig(card, "supportedInterfaces"))
    for each in interfaces:
        if dig(each, "protocolBinding") == "JSONRPC" and _is_version(dig(each, "protocolVersion"), version):
            return str(dig(each, "url"))
    if version == "1.0":
        return None
    if not _is_version(dig(card, "protocolVersion"), version):
        return None
    if dig(card, "preferredTransport") in (None, "JSONRPC"):
        return str(dig(card, "url"))
    others = as_list(dig(card, "additionalInterfaces"))
    return next((str(dig(each, "url")) for each in others if dig(each, "transport") == "JSONRPC"), None)


def _is_version(value: Any, version: str) -> bool:
    """Return True if `value`, a version that an agent card declares, belongs to `version`: any 0.x to `0.3`, and any
    version that starts with `1.0` to `1.0`."""
    return isinstance(value, str) and (value.startswith("0.") if version == "0.3" else value.startswith(version))


class _A2A(Driver):
    version: ClassVar[str]
    role: ClassVar[str]
    methods: ClassVar[Mapping[str, str]]
    configuration: ClassVar[Mapping[str, Any]]
    """Member `configuration` of a send request that waits for the end of the run."""

    def _part(self, kind: str, value: Any) -> Any:
        raise NotImplementedError

    def _parts(self, caller_input: CallerInput) -> Iterator[Any]:
        yield (
            self._part("text", caller_input.text)
            if caller_input.data is None
            else self._part("data", caller_input.data)
        )
        for file in caller_input.files:
            yield self._part("file", file)

    def _message(self, parts: list[Any], **ids: str) -> dict[str, Any]:
        return {"messageId": str(uuid4()), "role": self.role, "parts": parts, **{k: v for k, v in ids.items() if v}}

    def _request(self, agent: str, operation: str, params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": self.methods[operation], "params": params}
        headers = {"A2A-Version": self.version}
        about = {"method": "POST", "url": self.place.of(agent), "sends": None, "receives": None}
        return {**about, "body": body, "headers": headers}

    async def _call(self, agent: str, operation: str, params: Any) -> Observation:
        exchange = await self.wire.request(**self._request(agent, operation, params))
        answer = read_success(exchange)
        _check_error(answer, exchange)
        result = dig(answer, "result")
        kind, payload = _unwrap(result)
        if operation != "send" or kind == "task":
            return _read_task(agent, payload or result, exchange)
        return _read_task(agent, _task_of(payload), exchange)

    async def send(self, agent: str, caller_input: CallerInput, after: Handle | None = None) -> Observation:
        message = self._message(list(self._parts(caller_input)), contextId=after.thread if after else "")
        return await self._call(agent, "send", {"message": message, "configuration": {**self.configuration}})

    async def observe(self, handle: Handle) -> Observation:
        return await self._call(handle.agent, "get", {"id": handle.task})

    async def cancel(self, handle: Handle) -> None:
        await self._call(handle.agent, "cancel", {"id": handle.task})

    async def answer_once(self, paused: Observation, answer: Any) -> Observation:
        """Send one answer to all open questions: the value itself for one question, and for several a list that names
        each question by its id."""
        questions = paused.meaning.questions
        if len(questions) > 1:
            answer = {"resume": [{"id": each.id, "value": answer} for each in questions]}
        part = self._part("text", answer) if isinstance(answer, str) else self._part("data", answer)
        message = self._message([part], taskId=paused.handle.task, contextId=paused.handle.thread)
        params = {"message": message, "configuration": {**self.configuration}}
        return await self._call(paused.handle.agent, "send", params)

    @asynccontextmanager
    async def stream(self, agent: str, caller_input: CallerInput) -> AsyncGenerator[Live]:
        params = {"message": self._message(list(self._parts(caller_input)))}
        async with self.wire.stream(**self._request(agent, "stream", params), events="") as stream:
            if not stream.exchange.is_stream:
                _check_error(read_success(stream.exchange), stream.exchange)
            check_stream(stream.exchange)
            yield _Live(stream, agent)


class A2A03(_A2A):
    name: ClassVar = "a2a-0.3"
    title: ClassVar = "A2A 0.3"
    version: ClassVar = "0.3"
    role: ClassVar = "user"
    configuration: ClassVar = {"blocking": True}
    methods: ClassVar = {
        "send": "message/send",
        "stream": "message/stream",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
    }

    def _message(self, parts: list[Any], **ids: str) -> dict[str, Any]:
        return {"kind": "message", **super()._message(parts, **ids)}

    def _part(self, kind: str, value: Any) -> Any:
        if kind != "file":
            return {"kind": kind, kind: value}
        about = {"name": value.name, **({"mimeType": value.media_type} if value.media_type else {})}
        return {"kind": "file", "file": {"bytes": b64encode(value.content).decode(), **about}}


class A2A10(_A2A):
    name: ClassVar = "a2a-1.0"
    title: ClassVar = "A2A 1.0"
    version: ClassVar = "1.0"
    role: ClassVar = "ROLE_USER"
    configuration: ClassVar = {"returnImmediately": False}
    methods: ClassVar = {
        "send": "SendMessage",
        "stream": "SendStreamingMessage",
        "get": "GetTask",
        "cancel": "CancelTask",
    }

    def _part(self, kind: str, value: Any) -> Any:
        if kind != "file":
            return {kind: value}
        about = {"filename": value.name, **({"mediaType": value.media_type} if value.media_type else {})}
        return {"raw": b64encode(value.content).decode(), **about}


class _Live(Live):
    def __init__(self, stream: StreamExchange, agent: str) -> None:
        super().__init__(stream, agent)
        self._task: dict[str, Any] = {}

    def read(self, frame: SseFrame) -> None:
        event = frame.json
        _check_error(event, self.stream.exchange)
        kind, payload = _unwrap(dig(event, "result"))
        match kind:
            case "task":
                self._task = as_object(payload) or {}
            case "message":
                self._task = _task_of(payload)
            case "statusUpdate":
                self._note_ids(payload)
                self._task["status"] = dig(payload, "status")
            case "artifactUpdate":
                self._note_ids(payload)
                self._artifact(payload)
            case _:
                pass
        if dig(self._task, "status") is not None:
            self.at(_state(self._task))

    def _note_ids(self, update: Any) -> None:
        self._task.setdefault("id", dig(update, "taskId"))
        self._task.setdefault("contextId", dig(update, "contextId"))

    def _artifact(self, update: Any) -> None:
        piece = as_object(dig(update, "artifact")) or {}
        artifacts = as_list(self._task.get("artifacts"))
        ids = [dig(each, "artifactId") for each in artifacts]
        at = (
            ids.index(piece["artifactId"])
            if piece.get("artifactId") in ids and all(map(as_object, artifacts))
            else None
        )
        if at is None:
            artifacts = [*artifacts, piece]
        elif dig(update, "append") is True:
            parts = [*as_list(dig(artifacts[at], "parts")), *as_list(piece.get("parts"))]
            artifacts = [*artifacts[:at], {**artifacts[at], "parts": parts}, *artifacts[at + 1 :]]
        else:
            artifacts = [*artifacts[:at], piece, *artifacts[at + 1 :]]
        self._task["artifacts"] = artifacts

    def read_so_far(self) -> Observation:
        return _read_task(self.agent, self._task, self.stream.exchange)


def _check_error(answer: Any, exchange: Exchange) -> None:
    """Raise ScenarioFailed if `answer`, a JSON-RPC response, is an error."""
    error = dig(answer, "error")
    if error is not None:
        why = f"the error {dig(error, 'code')} ({dig(error, 'message')})"
        raise ScenarioFailed(why, exchange, is_declined=dig(error, "code") == _CONTENT_TYPE)


def _unwrap(result: Any) -> tuple[str, Any]:
    """Return the kind of a JSON-RPC result or stream event (`task`, `message`, `statusUpdate` or `artifactUpdate`), and
    its payload. Return an empty kind and None for anything else."""
    if str(dig(result, "kind")) in _KINDS:
        return _KINDS[str(dig(result, "kind"))], result
    for kind in _KINDS.values():
        if dig(result, kind) is not None:
            return kind, dig(result, kind)
    return "", None


def _task_of(message: Any) -> dict[str, Any]:
    """Return a completed task whose only artifact has the parts of a message, for an agent that answers with a message
    and no task."""
    status = {"state": "TASK_STATE_COMPLETED"}
    return {"contextId": dig(message, "contextId"), "status": status, "artifacts": [message]}


def _state(task: Any) -> str:
    state = str(dig(task, "status", "state"))
    return _STATES.get(state.removeprefix("TASK_STATE_").upper().replace("-", "_"), state)


def _read_task(agent: str, task: Any, exchange: Exchange) -> Observation:
    state = _state(task)
    status_parts = as_list(dig(task, "status", "message", "parts"))
    texts, data, files = list[str](), list[Any](), list[File]()
    artifacts = as_list(dig(task, "artifacts"))
    if not artifacts and state == "completed":
        artifacts = [{"parts": status_parts}]
    for artifact in artifacts:
        name = str(dig(artifact, "name") or "")
        values = [_value(part, name, exchange) for part in as_list(dig(artifact, "parts"))]
        texts.append("".join(str(value) for kind, value in values if kind == "text"))
        files += [value for kind, value in values if kind == "file"]
        data_values = [value for kind, value in values if kind == "data"]
        if name:  # Protocols that know only files show a named artifact as a file.
            files += [File(name, json.dumps(value).encode(), "application/json") for value in data_values]
        else:
            data += data_values
    meaning = Meaning(
        state,
        tuple(filter(None, texts)),
        tuple(data),
        tuple(files),
        tuple(_questions(status_parts)) if state == "asks" else (),
        "".join(str(dig(each, "text") or "") for each in status_parts) if state == "failed" else "",
    )
    return Observation(meaning, Handle(agent, str(dig(task, "contextId") or ""), str(dig(task, "id") or "")), exchange)


def _value(part: Any, name: str, exchange: Exchange) -> tuple[str, Any]:
    """Return the kind of a part (`text`, `data`, `file`, or an empty string) and its content, in the form of A2A 0.3 or
    1.0. `name` is the file name if the part has none, and `exchange` is the evidence if the content is not base64."""
    if dig(part, "text") is not None:
        return "text", dig(part, "text")
    if "data" in (as_object(part) or {}):
        data = dig(part, "data")
        # Data of 0.3 is an object. Any other value is wrapped in one, with this mark, as in a2a-sdk 1.3.0.
        is_wrapped = dig(part, "metadata", "data_part_compat") is True and list(as_object(data) or ()) == ["value"]
        return "data", dig(data, "value") if is_wrapped else data
    if dig(part, "file") is not None:
        file = dig(part, "file")
        return _file(
            file, dig(file, "bytes"), dig(file, "uri"), dig(file, "name") or name, dig(file, "mimeType"), exchange
        )
    return _file(
        part, dig(part, "raw"), dig(part, "url"), dig(part, "filename") or name, dig(part, "mediaType"), exchange
    )


def _file(part: Any, content: Any, url: Any, name: Any, kind: Any, exchange: Exchange) -> tuple[str, Any]:
    if content is None and url is None:
        return "", part
    media_type = str(kind) if kind else None
    if content is None:
        return "file", File(str(name), b"", media_type, str(url))
    return "file", File(str(name), decode_base64(content, exchange), media_type)


def _questions(parts: list[Any]) -> Iterator[Question]:
    """Yield the questions in the parts of a status message. Each question consists of its text parts, followed by a
    data part with its id, value and schema. The data part of the last question may be missing."""
    text = ""
    for part in parts:
        data = dig(part, "data")
        if dig(part, "text") is not None:
            text += str(dig(part, "text"))
        elif dig(data, "id") is not None:
            yield Question(text, dig(data, "value"), dig(data, "schema"), str(dig(data, "id")))
            text = ""
    if text:
        yield Question(text)
