"""A caller that speaks the Agent Client Protocol, as an editor without forms that dismisses permission requests.

It answers questions with its next prompt.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import httpx
from websockets.exceptions import WebSocketException

from tests.adapters.agent_client.editor import Editor, RpcError, editing, own
from tests.pairs.caller import Caller, Content, Data, Feed, File, Following, Frame, Ids, Question, TaskView, View
from tests.pairs.cast import STEP
from tests.pairs.openai import after

Wire = dict[str, Any]

SENT: Final = frozenset({"authorization", "x-api-key"})
"""Names of the HTTP client's headers that the handshake of the WebSocket sends, too."""
_SHOWN: Final = ("", "refusal")
"""Values of `kind` in `_meta.babelgate` whose text is part of the answer. Plain text has no kind."""


def block_of(content: Content) -> Wire:
    match content:
        case str():
            return {"type": "text", "text": content}
        case Data():
            return {"type": "text", "text": json.dumps(content.value), "_meta": {"babelgate": {"kind": "data"}}}
        case File():
            data = b64encode(content.content).decode()
            resource = {"uri": f"file:///{content.name}", "mimeType": content.media_type, "blob": data}
            return {"type": "resource", "resource": resource}


def file_of(block: Wire) -> tuple[str, bytes]:
    match block["type"]:
        case "resource":
            return unquote(block["resource"]["uri"].rpartition("/")[2]), b64decode(block["resource"]["blob"])
        case "resource_link":
            return block["name"], block["uri"].encode()
        case _:
            return own(block)["name"], b64decode(block["data"])


class _Reader(View):
    """State of a task, built from the updates of its turns."""

    def __init__(self, agent: str, before: TaskView | None = None) -> None:
        self.agent = agent
        self.before = before
        self.state = ""
        self.text = ""
        self.data: list[Any] = []
        self.files: dict[str, bytes] = {}
        self.questions: dict[str, Question] = {}
        self.open: Sequence[str] = ()
        self.asides: dict[str, str] = {}
        self.fault = ""
        self.task_id = self.context_id = ""
        self.losses: set[str] = set()
        self.failure: RpcError | None = None

    def read(self, frame: Frame) -> None:
        self.update(json.loads(frame.bare))

    def update(self, update: Wire) -> None:
        members = own(update)
        if "question" in members:
            fields = members["question"]
            question = Question(fields["message"], fields.get("schema"), fields.get("value"), fields["id"])
            self.questions.setdefault(fields["id"], question)
            return
        match update["sessionUpdate"]:
            case "session_info_update" if "run" in members:
                self.task_id = members["task"]
                self.context_id = members.get("thread", self.context_id)
                self.state, self.open = members.get("state", "working"), members.get("questions", ())
                self._end(members)
            case "agent_message_chunk" if "artifact" in members:
                if update["content"]["type"] != "text":
                    name, content = file_of(update["content"])
                    self.files[name] = content
            case "agent_message_chunk" if members.get("kind", "") != "citation":
                self._block(update["content"], members.get("kind", ""))
            case "agent_thought_chunk" if update["content"]["type"] == "text":
                text = self.asides.get(update["messageId"], "") + update["content"]["text"]
                self.asides[update["messageId"]] = text
            case _:
                pass

    def _block(self, block: Wire, kind: str) -> None:
        if kind == "data":
            self.data.append(json.loads(block["text"]))
        elif block["type"] == "text":
            self.text += block["text"] if kind in _SHOWN else ""
        else:
            name, content = file_of(block)
            self.files[name] = content

    def _end(self, members: Wire) -> None:
        if "output" in members and members["output"] not in self.data:
            self.data.append(members["output"])
        self.fault = members.get("fault", {}).get("message", self.fault if self.state == "failed" else "")

    def result(self, result: Wire) -> None:
        """Read the result of a prompt."""
        members, stop = own(result), result["stopReason"]
        self.losses = set(members.get("loss", ()))
        self.open = members.get("questions", ())
        self.state = "cancelled" if stop == "cancelled" else "input_required" if self.open else "completed"
        self._end(members)

    def error(self, error: RpcError) -> None:
        """Read the error of a prompt."""
        self.state, self.fault, self.open, self.failure = "failed", str(error), (), error

    @property
    def task(self) -> TaskView:
        if not self.state:
            return TaskView(state="")
        view = TaskView(
            self.state,
            text=self.text,
            data=tuple(self.data),
            files=self.files,
            questions=tuple(self.questions[each] for each in self.open if each in self.questions)
            if self.state == "input_required"
            else (),
            fault=self.fault,
            asides=tuple(each for each in self.asides.values() if not each.startswith(STEP) and each != self.agent),
            task_id=self.task_id,
            context_id=self.context_id,
        )
        if self.before is None:
            return view
        still_open = [each for each in self.before.questions if view.state == "input_required" and each.id in self.open]
        joined = after(self.before, replace(view, questions=(*still_open, *view.questions)))
        return replace(joined, files={**self.before.files, **view.files})


class _Feed(Feed):
    """Updates of a turn as they arrive."""

    view: _Reader

    def __init__(self, editor: Editor, request_id: int, view: _Reader, *, before: int = 0) -> None:
        super().__init__(view, before=before)
        self._editor = editor
        self._request_id = request_id
        self._ended = False

    async def open(self, ids: Ids | None = None) -> "_Feed":
        """Read up to the first update, which has the ids of the run."""
        if ids is not None:
            self.ids = ids
            return self
        while not self.view.task_id:
            is_open = await self.next()
            if self.view.failure is not None:
                raise self.view.failure
            assert is_open
        return self

    async def next(self) -> bool:
        if self._ended:
            return False
        message = await self._editor.receive()
        if message.get("method") == "session/update":
            update = message["params"]["update"]
            raw = json.dumps(update).encode()
            self.frames.append(raw)
            self.view.read(Frame(raw))
            if "run" in own(update) and "thread" in own(update):
                ids = own(update)
                self.ids = Ids.of({f"babelgate-{name}": ids[name] for name in ("thread", "task", "run")})
        elif message.get("id") == self._request_id and "method" not in message:
            self._ended = True
            if "error" in message:
                self.view.error(RpcError(message["error"]))
            else:
                self.view.result(message["result"])
            # The result is no frame: a feed that has missed only the result has nothing to read.
            return bool(self.frames)
        return True


class AgentClient(Caller):
    name: ClassVar = "agent-client"
    speaks: ClassVar = "agent-client"

    @asynccontextmanager
    async def _editor(self) -> AsyncGenerator[Editor]:
        """Open a connection, and a session if the conversation has none."""
        headers = {name: value for name, value in self.http.headers.items() if name.lower() in SENT}
        try:
            async with editing(await self._address(), self.agent, additional_headers=headers) as editor:
                editor.transcript = self.transcript
                await editor.initialize()
                if self.context_id is None:
                    self.context_id = await editor.new_session()
                yield editor
        except (WebSocketException, OSError) as error:  # as the other callers report a gateway that was killed
            raise httpx.ReadError(str(error)) from error

    async def _address(self) -> str:
        """Return the WebSocket URL of a gateway. Behind a load balancer, it is the gateway to which the balancer would
        send the next request."""
        url = self.http.base_url
        if url.port is None:
            url = (await self.http.get("/healthz")).request.url
        return f"http://{url.netloc.decode()}"

    @asynccontextmanager
    async def stream(self, *contents: Content) -> AsyncGenerator[Feed]:
        async with self._editor() as editor:
            assert self.context_id is not None
            blocks = [block_of(each) for each in contents]
            number = await editor.start_prompt(self.context_id, *blocks, **self.metadata)
            yield await _Feed(editor, number, _Reader(self.agent)).open()

    async def send(self, *contents: Content) -> TaskView:
        async with self.stream(*contents) as feed:
            view = await self._download(await feed.end())
        looked = await self.look(view.task_id)
        assert looked == view.lasting, (looked, view.lasting)
        return looked

    async def run_to_end(self, *contents: Content) -> TaskView:
        return await self._download(await super().run_to_end(*contents))

    async def _download(self, view: TaskView) -> TaskView:
        """Return the view with the bytes of the files that the gateway stores."""
        files: dict[str, bytes] = {}
        for name, content in view.files.items():
            is_own = content.startswith(b"http") and b"/agent-client/" in content
            files[name] = (await self.http.get(content.decode())).content if is_own else content
        return replace(view, files=files)

    def _prompt(self, paused: TaskView, answers: tuple[Content, ...]) -> tuple[Sequence[Wire], Mapping[str, Any]]:
        """Return the blocks and the `_meta` of a prompt that answers."""
        blocks = [block_of(each) for each in answers]
        if len(answers) == 1 and isinstance(answers[0], str) and paused.questions[0].schema is None:
            return blocks, {}
        values = [each.value if isinstance(each, Data) else each for each in answers]
        by_id = {question.id: value for question, value in zip(paused.questions, values, strict=False)}
        return blocks, {"babelgate": {"answers": by_id}}

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        self.context_id = Ids.thread_of(paused.task_id)
        blocks, meta = self._prompt(paused, answers)
        async with self._editor() as editor:
            number = await editor.start_prompt(self.context_id, *blocks, **meta)
            await (await _Feed(editor, number, _Reader(self.agent)).open()).end()
        return await self.look(paused.task_id)

    @asynccontextmanager
    async def stream_answer(self, paused: Feed, *answers: Content) -> AsyncGenerator[Feed]:
        blocks, meta = self._prompt(paused.task, answers)
        async with self._editor() as editor:
            assert self.context_id is not None
            number = await editor.start_prompt(self.context_id, *blocks, **meta)
            reader = _Reader(self.agent, paused.task)
            yield await _Feed(editor, number, reader, before=paused.before + len(paused.frames)).open()

    async def cancel(self, task_id: str) -> TaskView:
        self.context_id = Ids.thread_of(task_id)
        async with self._editor() as editor:
            await editor.call("session/close", sessionId=self.context_id)
        return TaskView("cancelling", task_id=task_id)

    async def look(self, task_id: str) -> TaskView:
        """Load the session, and return what it shows of the task."""
        self.context_id = Ids.thread_of(task_id)
        async with self._editor() as editor:
            await editor.call("session/load", sessionId=self.context_id, cwd="/", mcpServers=[])
        reader, current = _Reader(self.agent), ""
        reader.context_id = self.context_id
        for update in editor.updates:
            current = own(update).get("task", current)
            if current == task_id:
                reader.update(update)
        return (await self._download(reader.task)).lasting

    async def losses(self, task_id: str) -> set[str]:
        async with self.attach(task_id) as feed:
            await feed.end()
        assert isinstance(feed.view, _Reader)
        return feed.view.losses

    def attach(self, task_id: str) -> Following:
        return self.replay(task_id)

    @asynccontextmanager
    async def replay(self, task_id: str, *, view: View | None = None, skip: int = 0) -> AsyncGenerator[Feed]:
        self.context_id = Ids.thread_of(task_id)
        reader = view or _Reader(self.agent)
        assert isinstance(reader, _Reader)
        async with self._editor() as editor:
            params: Wire = {"sessionId": self.context_id, "task": task_id, "skip": skip}
            number = await editor.start("_babelgate/attach", **params)
            ids = Ids(self.context_id, task_id, None)
            yield await _Feed(editor, number, reader, before=skip).open(ids)
