"""Callers that speak A2A: both generations, each in JSON-RPC and in REST."""

import json
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final
from uuid import uuid4

from tests.pairs.caller import Caller, Data, Feed, File, Frame, Ids, Question, Said, Seen, View

Wire = dict[str, Any]

_NEW: Final = {
    f"TASK_STATE_{state.upper()}": state
    for state in ("submitted", "working", "input_required", "auth_required", "completed", "failed", "rejected")
}


class Dialect:
    """How one generation spells things in one binding."""

    states: ClassVar[Mapping[str, str]]
    user: ClassVar[str]
    parts: ClassVar[str] = "parts"

    @staticmethod
    def encode(said: Said) -> Wire:
        raise NotImplementedError

    @staticmethod
    def decode(part: Wire) -> Said:
        raise NotImplementedError

    @staticmethod
    def unwrap(event: Wire) -> tuple[str, Wire]:
        """One of task, statusUpdate, artifactUpdate, and what is in it."""
        ((kind, told),) = event.items()
        return kind, told


class New(Dialect):
    states = {**_NEW, "TASK_STATE_CANCELED": "cancelled"}
    user = "ROLE_USER"

    @staticmethod
    def encode(said: Said) -> Wire:
        match said:
            case str():
                return {"text": said}
            case Data():
                return {"data": said.value}
            case File():
                return {"raw": base64(said), "filename": said.name, "mediaType": said.media_type}

    @staticmethod
    def decode(part: Wire) -> Said:
        if "raw" in part:
            return File(part.get("filename", ""), b64decode(part["raw"]))
        if "url" in part:
            return File(part.get("filename", ""), part["url"].encode())
        return Data(part["data"]) if "data" in part else part["text"]


def _content(file: Wire, content: str, url: str) -> bytes:
    """Of one by its URL, that."""
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
    def encode(said: Said) -> Wire:
        match said:
            case str():
                return {"kind": "text", "text": said}
            case Data():
                return {"kind": "data", "data": said.value}
            case File():
                return {
                    "kind": "file",
                    "file": {"bytes": base64(said), "name": said.name, "mimeType": said.media_type},
                }

    @staticmethod
    def decode(part: Wire) -> Said:
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
    """0.3 in REST follows its protocol buffer."""

    states = {**_NEW, "TASK_STATE_CANCELLED": "cancelled"}
    user = "ROLE_USER"
    parts = "content"

    @staticmethod
    def encode(said: Said) -> Wire:
        match said:
            case str():
                return {"text": said}
            case Data():
                return {"data": {"data": said.value}}
            case File():
                # The official SDKs of 0.3 put base64 text into a field of bytes, which ProtoJSON encodes again.
                twice = b64encode(base64(said).encode()).decode()
                return {"file": {"fileWithBytes": twice, "name": said.name, "mimeType": said.media_type}}

    @staticmethod
    def decode(part: Wire) -> Said:
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
        """Whether a frame is an answer of JSON-RPC."""
        self.task: Wire = {}
        self.asides: list[str] = []
        self.growing: dict[str, bool] = {}
        """By artifact: whether more of it may come."""

    def read(self, frame: Frame) -> None:
        told = json.loads(frame.bare)
        if self.one_line:
            assert set(told) == {"jsonrpc", "id", "result"} and told["id"] == CALL_ID, told
            told = told["result"]
        kind, told = self.dialect.unwrap(told)
        if kind == "task":
            self.task = told
            return
        assert (told["taskId"], told["contextId"]) == (self.task["id"], self.task["contextId"])
        if kind == "statusUpdate":
            self.status(told["status"])
        else:
            assert kind == "artifactUpdate"
            self.artifact(told["artifact"], append=told["append"], last=told["lastChunk"])

    def status(self, status: Wire) -> None:
        self.task["status"] = status
        if self.dialect.states[status["state"]] == "working" and "message" in status:
            self.asides += [part for part in self.message(status["message"]) if isinstance(part, str)]

    def artifact(self, piece: Wire, *, append: bool, last: bool) -> None:
        found = [one for one in self.task.get("artifacts", ()) if one["artifactId"] == piece["artifactId"]]
        assert found or not append, "append is of an artifact that is there"
        assert not append or self.growing.get(piece["artifactId"], True), "nothing comes after the last chunk"
        assert piece["parts"], "an artifact has a part"
        self.growing[piece["artifactId"]] = not last
        if append:
            found[0]["parts"] = [*found[0]["parts"], *piece["parts"]]
        elif found:  # by a run that starts over
            found[0]["parts"] = piece["parts"]
        else:
            self.task["artifacts"] = [*self.task.get("artifacts", ()), piece]

    def message(self, message: Wire) -> list[Said]:
        return [self.dialect.decode(part) for part in message[self.dialect.parts]]

    @property
    def seen(self) -> Seen:
        if not self.task:
            return Seen(state="")
        status = self.task["status"]
        state = self.dialect.states[status["state"]]
        said = self.message(status["message"]) if "message" in status else []
        text, data, files = "", list[Any](), dict[str, bytes]()
        for artifact in self.task.get("artifacts", ()):
            for part in map(self.dialect.decode, artifact["parts"]):
                match part:
                    case str():
                        text += part
                    case Data():
                        data.append(part.value)
                    case File():
                        name = part.name or artifact["name"]
                        files[name] = files.get(name, b"") + part.content
        return Seen(
            state=state,
            text=text,
            data=tuple(data),
            files=files,
            questions=tuple(questions_of(said, status["message"]))
            if state in ("input_required", "auth_required")
            else (),
            fault="".join(part for part in said if isinstance(part, str)) if state == "failed" else "",
            asides=tuple(self.asides),
            task_id=self.task["id"],
            context_id=self.task["contextId"],
        )


def questions_of(said: list[Said], message: Wire) -> list[Question]:
    """Each is its words, and then data with its id, where it has one. A single one's schema is in the metadata."""
    schema = message.get("metadata", {}).get("babelgate", {}).get("schema")
    text, found = "", list[Question]()
    for part in said:
        if isinstance(part, Data) and "id" in part.value:
            found.append(Question(text, part.value.get("schema", schema), part.value.get("value"), part.value["id"]))
            text = ""
        elif isinstance(part, Data):  # in another framework's form
            found.append(Question(text, value=part.value))
            text = ""
        elif isinstance(part, str):
            text += part
    if text:
        assert not found, "a question without its id"
        # Another A2A server's, which names none, is asked as that asks it.
        found.append(Question(text, schema))
    return found


CALL_ID: Final = "call"
"""Of all calls: frames of different calls can be compared then."""

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

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.headers = {"A2A-Version": self.version}

    @abstractmethod
    def _request(self, operation: str, params: Wire) -> Wire: ...

    def _view(self) -> _View:
        return _View(self.dialect, one_line=self.json_rpc)

    def _message(self, said: tuple[Said, ...], **more: Any) -> Wire:
        context = {} if self.context_id is None else {"contextId": self.context_id}
        message: Wire = {"messageId": str(uuid4()), "role": self.dialect.user, **context, **more}
        message[self.dialect.parts] = [self.dialect.encode(one) for one in said]
        return {"message": message, **({"metadata": self.metadata} if self.metadata else {})}

    async def _told(self, operation: str, params: Wire) -> tuple[Wire, Mapping[str, str]]:
        response = await self.http.request(**self._request(operation, params))
        assert response.status_code == 200, response.text
        told = response.json()
        if self.json_rpc:
            assert set(told) == {"jsonrpc", "id", "result"} and told["id"] == CALL_ID, told
            told = told["result"]
        if operation == "send":
            kind, told = self.dialect.unwrap(told)
            assert kind == "task"
        return told, response.headers

    async def _task(self, operation: str, params: Wire) -> Seen:
        task, headers = await self._told(operation, params)
        assert Ids.of(headers).task == task["id"]
        view = self._view()
        view.task = task
        self.context_id = task["contextId"]
        return view.seen

    async def send(self, *said: Said) -> Seen:
        return await self._task("send", self._sent(self._message(said)))

    def _sent(self, params: Wire) -> Wire:
        return params

    def stream(self, *said: Said) -> AbstractAsyncContextManager[Feed]:
        return self._followed(self._view(), **self._request("stream", self._message(said)))

    def _answers(self, asked: Seen, answers: tuple[Said, ...]) -> Wire:
        """One answer is said as it is; of several, each names its question."""
        said = answers
        if len(asked.questions) > 1:
            pairs = zip(asked.questions, answers, strict=False)
            values = [
                {"id": asked.id, "value": said.value if isinstance(said, Data) else said} for asked, said in pairs
            ]
            said = (Data({"resume": values}),)
        return self._message(said, taskId=asked.task_id, contextId=asked.context_id)

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        return await self._task("send", self._sent(self._answers(asked, answers)))

    def stream_answer(self, asked: Feed, *answers: Said) -> AbstractAsyncContextManager[Feed]:
        return self._followed(asked.view, **self._request("stream", self._answers(asked.seen, answers)))

    async def cancel(self, task_id: str) -> Seen:
        return await self._task("cancel", {"id": task_id})

    async def look(self, task_id: str) -> Seen:
        return await self._task("get", {"id": task_id})

    async def losses(self, task_id: str) -> set[str]:
        task, _ = await self._told("get", {"id": task_id})
        return set(task["metadata"]["babelgate"].get("loss", ()))

    def attach(self, task_id: str) -> AbstractAsyncContextManager[Feed]:
        return self._followed(self._view(), **self._request("subscribe", {"id": task_id}))

    def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AbstractAsyncContextManager[Feed]:
        """Frames have no number here, so whoever has seen some asks for all and passes over those."""
        return self.replay_from(task_id, 0, view=view, skip=skip)

    def replay_from(
        self, task_id: str, seq: int, *, view: View | None = None, skip: int = 0
    ) -> AbstractAsyncContextManager[Feed]:
        """The task as it was at `seq`, and the updates after it."""
        request = self._request("subscribe", {"id": task_id})
        request["headers"] = {**request["headers"], "Babelgate-From": str(seq)}
        return self._followed(view or self._view(), skip, skip, **request)

    def repeated(self, live: list[bytes]) -> list[bytes]:
        return live[1:]  # it begins with the task as it is


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

    def _sent(self, params: Wire) -> Wire:
        return {**params, "configuration": {"blocking": True}}


class Rest10(_Rest):
    name = "a2a-1.0-rest"
    speaks = "a2a-1.0"
    version = "1.0"
    prefix = ""
    dialect = New
