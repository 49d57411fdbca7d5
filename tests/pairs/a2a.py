"""Callers that speak A2A 0.3 and 1.0, each over JSON-RPC and REST, and 1.0 over gRPC."""

import json
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Final
from uuid import uuid4

import grpc.aio
from google.protobuf.json_format import MessageToJson, ParseDict

from babelgate.adapters.a2a.wire.protobuf import POOL, REPLIES, REQUESTS, SERVICE
from tests.pairs.caller import Caller, Content, Data, Feed, File, Frame, Ids, Question, TaskView, View

Wire = dict[str, Any]

_NEW: Final = {
    f"TASK_STATE_{state.upper()}": state
    for state in ("submitted", "working", "input_required", "auth_required", "completed", "failed", "rejected")
}


class Dialect:
    """Names and forms of JSON values in one version and binding of A2A."""

    states: ClassVar[Mapping[str, str]]
    user: ClassVar[str]
    parts: ClassVar[str] = "parts"

    @staticmethod
    def encode(content: Content) -> Wire:
        raise NotImplementedError

    @staticmethod
    def decode(part: Wire) -> Content:
        raise NotImplementedError

    @staticmethod
    def unwrap(event: Wire) -> tuple[str, Wire]:
        """Return the kind of an event (task, statusUpdate or artifactUpdate) and its content."""
        ((kind, payload),) = event.items()
        return kind, payload


class New(Dialect):
    states = {**_NEW, "TASK_STATE_CANCELED": "cancelled"}
    user = "ROLE_USER"

    @staticmethod
    def encode(content: Content) -> Wire:
        match content:
            case str():
                return {"text": content}
            case Data():
                return {"data": content.value}
            case File():
                return {"raw": base64(content), "filename": content.name, "mediaType": content.media_type}

    @staticmethod
    def decode(part: Wire) -> Content:
        if "raw" in part:
            return File(part.get("filename", ""), b64decode(part["raw"]))
        if "url" in part:
            return File(part.get("filename", ""), part["url"].encode())
        return Data(part["data"]) if "data" in part else part["text"]


def _content(file: Wire, content: str, url: str) -> bytes:
    """Return the bytes of a file, or its URL if it has only that."""
    return b64decode(file[content]) if content in file else file[url].encode()


class Old(Dialect):
    states = {
        "submitted": "submitted",
        "working": "working",
        "input-required": "input_required",
        "auth-required": "auth_required",
        "completed": "completed",
        "failed": "failed",
        "rejected": "rejected",
        "canceled": "cancelled",
    }
    user = "user"
    kinds: Final = {"task": "task", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}

    @staticmethod
    def encode(content: Content) -> Wire:
        match content:
            case str():
                return {"kind": "text", "text": content}
            case Data():
                return {"kind": "data", "data": content.value}
            case File():
                return {
                    "kind": "file",
                    "file": {"bytes": base64(content), "name": content.name, "mimeType": content.media_type},
                }

    @staticmethod
    def decode(part: Wire) -> Content:
        match part["kind"]:
            case "file":
                return File(part["file"].get("name", ""), _content(part["file"], "bytes", "uri"))
            case "data":
                return Data(part["data"])
            case kind:
                assert kind == "text"
                return part["text"]

    @staticmethod
    def unwrap(event: Wire) -> tuple[str, Wire]:
        return Old.kinds[event["kind"]], event


class OldBuffer(Dialect):
    """A2A 0.3 over REST, which follows the protocol buffer definition."""

    states = {**_NEW, "TASK_STATE_CANCELLED": "cancelled"}
    user = "ROLE_USER"
    parts = "content"

    @staticmethod
    def encode(content: Content) -> Wire:
        match content:
            case str():
                return {"text": content}
            case Data():
                return {"data": {"data": content.value}}
            case File():
                # The official SDKs of 0.3 put base64 text into a field of bytes, which ProtoJSON encodes again.
                twice = b64encode(base64(content).encode()).decode()
                return {"file": {"fileWithBytes": twice, "name": content.name, "mimeType": content.media_type}}

    @staticmethod
    def decode(part: Wire) -> Content:
        if "file" in part:
            file = part["file"]
            content = b64decode(b64decode(file["fileWithBytes"])) if "fileWithBytes" in file else None
            return File(file.get("name", ""), file["fileWithUri"].encode() if content is None else content)
        return Data(part["data"]["data"]) if "data" in part else part["text"]


def base64(file: File) -> str:
    return b64encode(file.content).decode()


class _View(View):
    def __init__(self, dialect: type[Dialect], *, one_line: bool) -> None:
        self.dialect = dialect
        self.one_line = one_line
        """True if a frame is a JSON-RPC response."""
        self.raw_task: Wire = {}
        self.asides: list[str] = []
        self.growing: dict[str, bool] = {}
        """True for each artifact that may get more parts, by artifact id."""

    def read(self, frame: Frame) -> None:
        event = json.loads(frame.bare)
        if self.one_line:
            assert set(event) == {"jsonrpc", "id", "result"} and event["id"] == CALL_ID, event
            event = event["result"]
        kind, event = self.dialect.unwrap(event)
        if kind == "task":
            self.raw_task = event
            return
        assert (event["taskId"], event["contextId"]) == (self.raw_task["id"], self.raw_task["contextId"])
        if kind == "statusUpdate":
            self.status(event["status"])
        else:
            assert kind == "artifactUpdate"
            self.artifact(event["artifact"], append=event["append"], last=event["lastChunk"])

    def status(self, status: Wire) -> None:
        self.raw_task["status"] = status
        if self.dialect.states[status["state"]] == "working" and "message" in status:
            self.asides += [part for part in self.message(status["message"]) if isinstance(part, str)]

    def artifact(self, piece: Wire, *, append: bool, last: bool) -> None:
        found = [one for one in self.raw_task.get("artifacts", ()) if one["artifactId"] == piece["artifactId"]]
        assert found or not append, "append needs an existing artifact"
        assert not append or self.growing.get(piece["artifactId"], True), "nothing comes after the last chunk"
        assert piece["parts"], "an artifact has a part"
        self.growing[piece["artifactId"]] = not last
        if append:
            found[0]["parts"] = [*found[0]["parts"], *piece["parts"]]
        elif found:  # by a run that starts over
            found[0]["parts"] = piece["parts"]
        else:
            self.raw_task["artifacts"] = [*self.raw_task.get("artifacts", ()), piece]

    def message(self, message: Wire) -> list[Content]:
        return [self.dialect.decode(part) for part in message[self.dialect.parts]]

    @property
    def task(self) -> TaskView:
        if not self.raw_task:
            return TaskView(state="")
        status = self.raw_task["status"]
        state = self.dialect.states[status["state"]]
        status_contents = self.message(status["message"]) if "message" in status else []
        text, data, files = "", list[Any](), dict[str, bytes]()
        for artifact in self.raw_task.get("artifacts", ()):
            for part in map(self.dialect.decode, artifact["parts"]):
                match part:
                    case str():
                        text += part
                    case Data():
                        data.append(part.value)
                    case File():
                        name = part.name or artifact["name"]
                        files[name] = files.get(name, b"") + part.content
        return TaskView(
            state=state,
            text=text,
            data=tuple(data),
            files=files,
            questions=tuple(questions_of(status_contents, status["message"]))
            if state in ("input_required", "auth_required")
            else (),
            fault="".join(part for part in status_contents if isinstance(part, str)) if state == "failed" else "",
            asides=tuple(self.asides),
            task_id=self.raw_task["id"],
            context_id=self.raw_task["contextId"],
        )


def questions_of(contents: list[Content], message: Wire) -> list[Question]:
    """Return the questions in a message. Each is text, followed by data with the question's id if it has one.

    The schema of a single question is in the metadata.
    """
    schema = message.get("metadata", {}).get("babelgate", {}).get("schema")
    text, found = "", list[Question]()
    for part in contents:
        if isinstance(part, Data) and "id" in part.value:
            found.append(Question(text, part.value.get("schema", schema), part.value.get("value"), part.value["id"]))
            text = ""
        elif isinstance(part, Data):  # in the form of another framework
            found.append(Question(text, value=part.value))
            text = ""
        elif isinstance(part, str):
            text += part
    if text:
        assert not found, "a question without its id"
        # A question of another A2A server has no id, and is shown as that server asks it.
        found.append(Question(text, schema))
    return found


CALL_ID: Final = "call"
"""Id of all calls, so that frames of different calls can be compared."""

_METHODS: Final = {
    "send": ("message/send", "SendMessage"),
    "stream": ("message/stream", "SendStreamingMessage"),
    "get": ("tasks/get", "GetTask"),
    "cancel": ("tasks/cancel", "CancelTask"),
    "subscribe": ("tasks/resubscribe", "SubscribeToTask"),
}
_PATHS: Final = {
    "send": ("POST", "message:send"),
    "stream": ("POST", "message:stream"),
    "get": ("GET", "tasks/{id}"),
    "cancel": ("POST", "tasks/{id}:cancel"),
    "subscribe": ("GET", "tasks/{id}:subscribe"),
}


class A2A(Caller):
    version: ClassVar[str]
    dialect: ClassVar[type[Dialect]]
    json_rpc: ClassVar[bool]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.headers = {"A2A-Version": self.version}

    @abstractmethod
    def _request(self, operation: str, params: Wire) -> Wire: ...

    def _view(self) -> _View:
        return _View(self.dialect, one_line=self.json_rpc)

    def _message(self, contents: tuple[Content, ...], **more: Any) -> Wire:
        context = {} if self.context_id is None else {"contextId": self.context_id}
        message: Wire = {"messageId": str(uuid4()), "role": self.dialect.user, **context, **more}
        message[self.dialect.parts] = [self.dialect.encode(one) for one in contents]
        return {"message": message, **({"metadata": self.metadata} if self.metadata else {})}

    async def _call(self, operation: str, params: Wire) -> tuple[Wire, Mapping[str, str]]:
        response = await self.http.request(**self._request(operation, params))
        assert response.status_code == 200, response.text
        result = response.json()
        if self.json_rpc:
            assert set(result) == {"jsonrpc", "id", "result"} and result["id"] == CALL_ID, result
            result = result["result"]
        if operation == "send":
            kind, result = self.dialect.unwrap(result)
            assert kind == "task"
        return result, response.headers

    async def _task(self, operation: str, params: Wire) -> TaskView:
        task, headers = await self._call(operation, params)
        assert Ids.of(headers).task == task["id"]
        view = self._view()
        view.raw_task = task
        self.context_id = task["contextId"]
        return view.task

    async def send(self, *contents: Content) -> TaskView:
        return await self._task("send", self._with_blocking(self._message(contents)))

    def _with_blocking(self, params: Wire) -> Wire:
        return params

    def stream(self, *contents: Content) -> AbstractAsyncContextManager[Feed]:
        return self._followed(self._view(), **self._request("stream", self._message(contents)))

    def _answers(self, paused: TaskView, answers: tuple[Content, ...]) -> Wire:
        """Return a request with the answers.

        A single answer is the message itself; several each name their question.
        """
        contents = answers
        if len(paused.questions) > 1:
            pairs = zip(paused.questions, answers, strict=False)
            values = [
                {"id": paused.id, "value": contents.value if isinstance(contents, Data) else contents}
                for paused, contents in pairs
            ]
            contents = (Data({"resume": values}),)
        return self._message(contents, taskId=paused.task_id, contextId=paused.context_id)

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        return await self._task("send", self._with_blocking(self._answers(paused, answers)))

    def stream_answer(self, paused: Feed, *answers: Content) -> AbstractAsyncContextManager[Feed]:
        return self._followed(paused.view, **self._request("stream", self._answers(paused.task, answers)))

    async def cancel(self, task_id: str) -> TaskView:
        return await self._task("cancel", {"id": task_id})

    async def look(self, task_id: str) -> TaskView:
        return await self._task("get", {"id": task_id})

    async def losses(self, task_id: str) -> set[str]:
        task, _ = await self._call("get", {"id": task_id})
        return set(task["metadata"]["babelgate"].get("loss", ()))

    def attach(self, task_id: str) -> AbstractAsyncContextManager[Feed]:
        return self._followed(self._view(), **self._request("subscribe", {"id": task_id}))

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AbstractAsyncContextManager[Feed]:
        """Request all frames of the task again, and skip the first `skip`, because A2A frames have no number."""
        return self.replay_from(task_id, 0, view=view, skip=skip)

    def replay_from(
        self, task_id: str, seq: int, *, view: View | None = None, skip: int = 0
    ) -> AbstractAsyncContextManager[Feed]:
        """Follow the task from record `seq` on: its state at that record, and then the later updates."""
        request = self._request("subscribe", {"id": task_id})
        request["headers"] = {**request["headers"], "Babelgate-From": str(seq)}
        return self._followed(view or self._view(), skip, skip, **request)

    def repeated(self, live: list[bytes]) -> list[bytes]:
        return live[1:]  # a stream begins with the task as it is


class _JsonRpc(A2A):
    json_rpc = True

    def _request(self, operation: str, params: Wire) -> Wire:
        method = _METHODS[operation][self.version == "1.0"]
        body = {"jsonrpc": "2.0", "id": CALL_ID, "method": method, "params": params}
        return {"method": "POST", "url": f"/a2a/{self.agent}", "json": body, "headers": self.headers}


class _Rest(A2A):
    json_rpc = False
    prefix: ClassVar[str]

    def _request(self, operation: str, params: Wire) -> Wire:
        method, path = _PATHS[operation]
        url = f"/a2a/{self.agent}{self.prefix}/{path.format(**params)}"
        body = {"json": params} if "message" in params else {}
        return {"method": method, "url": url, "headers": self.headers, **body}


class JsonRpc03(_JsonRpc):
    name = "a2a-0.3"
    speaks = "a2a-0.3"
    version = "0.3"
    dialect = Old


class JsonRpc10(_JsonRpc):
    name = "a2a-1.0"
    speaks = "a2a-1.0"
    version = "1.0"
    dialect = New


class Rest03(_Rest):
    name = "a2a-0.3-rest"
    speaks = "a2a-0.3"
    version = "0.3"
    prefix = "/v1"
    dialect = OldBuffer

    def _with_blocking(self, params: Wire) -> Wire:
        return {**params, "configuration": {"blocking": True}}


class Rest10(_Rest):
    name = "a2a-1.0-rest"
    speaks = "a2a-1.0"
    version = "1.0"
    prefix = ""
    dialect = New


class Grpc10(A2A):
    """A2A 1.0 over gRPC. Its frames are the messages as JSON, in which fields without presence are never left out."""

    name = "a2a-1.0-grpc"
    speaks = "a2a-1.0"
    version = "1.0"
    dialect = New
    json_rpc = False

    def _request(self, operation: str, params: Wire) -> Wire:
        return {"method": _METHODS[operation][1], "params": params, "headers": self.headers}

    @asynccontextmanager
    async def _rpc(self, method: str, params: Wire, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
        """Make the call at the address and for the tenant in the agent's card."""
        card = (await self.http.get(f"/a2a/{self.agent}/.well-known/agent-card.json")).json()
        (face,) = (each for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")
        request = ParseDict({**params, "tenant": face["tenant"]}, REQUESTS[method](), descriptor_pool=POOL)
        async with grpc.aio.insecure_channel(face["url"]) as channel:
            opened: Any = channel
            call = opened.unary_stream(f"/{SERVICE}/{method}", response_deserializer=REPLIES[method].FromString)
            yield call(request.SerializeToString(), metadata=[(name.lower(), value) for name, value in headers.items()])

    def _as_json(self, message: Any) -> str:
        encoded = MessageToJson(
            message, always_print_fields_with_no_presence=True, sort_keys=True, indent=None, descriptor_pool=POOL
        )
        if self.transcript is not None:
            self.transcript += encoded.encode()
        return encoded

    async def _call(self, operation: str, params: Wire) -> tuple[Wire, Mapping[str, str]]:
        async with self._rpc(**self._request(operation, params)) as call:
            headers = dict(await call.initial_metadata())
            (reply,) = [json.loads(self._as_json(each)) async for each in call]
        return reply["task"] if operation == "send" else reply, headers

    @asynccontextmanager
    async def _followed(self, view: View, before: int = 0, skip: int = 0, /, **request: Any) -> AsyncGenerator[Feed]:
        async with self._rpc(**request) as call:

            async def chunks() -> AsyncGenerator[bytes]:
                async for each in call:
                    yield b"data: " + self._as_json(each).encode() + b"\n\n"

            feed = Feed(view, before=before, skip=skip)
            feed.read_chunks(Ids.of(dict(await call.initial_metadata())), chunks())
            yield feed
