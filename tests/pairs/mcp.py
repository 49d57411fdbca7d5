"""A caller that speaks MCP 2026-07-28.

It cannot fill in forms, so it answers questions with a tool. It reads results of runs with the extension for tasks.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Final
from uuid import uuid4

from babelgate.adapters.mcp.codec.run_id import encode_run_id
from tests.adapters.mcp.site import TASKS, Modern, messages_of
from tests.pairs.caller import Caller, Content, Data, Feed, File, Following, Ids, Question, TaskView
from tests.pairs.cast import STEP
from tests.pairs.openai import after

Wire = dict[str, Any]

_STATES: Final = {"working": "working", "input_required": "input_required", "cancelled": "cancelled"}


def arguments_of(contents: tuple[Content, ...], thread_id: str) -> Wire:
    texts = [one for one in contents if isinstance(one, str)]
    arguments: Wire = {"message": "".join(texts), "thread_id": thread_id}
    for one in contents:
        if isinstance(one, Data):
            arguments["data"] = one.value
        elif isinstance(one, File):
            data = b64encode(one.content).decode()
            arguments.setdefault("files", []).append({"name": one.name, "mime_type": one.media_type, "data": data})
    return arguments


def question_of(interrupt: Wire) -> Question:
    value = interrupt.get("value", interrupt.get("call"))
    return Question(interrupt["message"], interrupt.get("schema"), value, interrupt["id"])


def file_of(block: Wire) -> tuple[str, bytes]:
    if block["type"] == "resource":
        resource = block["resource"]
        content = resource["text"].encode() if "text" in resource else b64decode(resource["blob"])
        return resource["_meta"]["babelgate"]["name"], content
    if block["type"] == "resource_link":
        return block["name"], block["uri"].encode()
    return block["_meta"]["babelgate"]["name"], b64decode(block["data"])


def task_view_of(result: Wire, ids: Ids, state: str = "") -> TaskView:
    """Return the state in a tool result. Data is shown as its JSON."""
    content: list[Wire] = result["content"]
    structured: Wire = result.get("structuredContent") or {}
    interrupts: list[Wire] = structured.get("interrupts", []) if structured.get("status") == "input_required" else []
    fault = ""
    if interrupts:
        content, state = content[: -len(interrupts) - 1], "input_required"
    elif result.get("isError"):
        cancelled = content[-1]["text"] == "The run was cancelled."
        fault = "" if cancelled else content[-1]["text"]
        content, state = content[:-1], "cancelled" if cancelled else "failed"
    texts = [block["text"] for block in content if block["type"] == "text"]
    return TaskView(
        state or "completed",
        text="".join(text for text in texts if not text.startswith("{")),
        data=tuple(json.loads(text) for text in texts if text.startswith("{")),
        files=dict(file_of(block) for block in content if block["type"] != "text"),
        questions=tuple(map(question_of, interrupts)),
        fault=fault,
        task_id=ids.task,
        context_id=ids.thread,
    )


def ids_of(meta: Wire) -> Ids:
    ids = meta["babelgate"]
    return Ids.of({f"babelgate-{name}": ids[f"{name}_id"] for name in ("thread", "task", "run")})


class _Polled(Feed):
    """State of a task that a client polls."""

    def __init__(self, caller: "Mcp", ids: Ids) -> None:
        self.ids = ids
        self.frames = []
        self.before = 0
        self._caller = caller
        self._now = TaskView("working", task_id=ids.task, context_id=ids.thread)

    @property
    def task(self) -> TaskView:
        return self._now

    async def next(self) -> bool:
        if self._now.state != "working":
            return False
        self._now = await self._caller.look(self.ids.task)
        return True


class Mcp(Caller):
    name: ClassVar = "mcp"
    speaks: ClassVar = "mcp"

    def _client(self, *, polls: bool = False) -> Modern:
        return Modern(self.http, capabilities={"extensions": {TASKS: {}}} if polls else {})

    async def _arguments(self, contents: tuple[Content, ...]) -> Wire:
        """Return the arguments of the agent's tool.

        If the tool has its agent's own schema, the text is its first argument.
        """
        if self.context_id is None:
            self.context_id = str(uuid4())
        arguments = arguments_of(contents, self.context_id)
        tools = (await self._client().ask("tools/list"))["result"]["tools"]
        wanted: Wire = next(tool for tool in tools if tool["name"] == self.agent)["inputSchema"]["properties"]
        if "message" not in wanted:
            arguments[next(name for name in wanted if name != "thread_id")] = arguments.pop("message")
        return arguments

    async def send(self, *contents: Content) -> TaskView:
        result = await self._client().call(self.agent, await self._arguments(contents), _meta=self._meta())
        return task_view_of(result, ids_of(result["_meta"]))

    async def run_to_end(self, *contents: Content) -> TaskView:
        """Return the result with the progress messages.

        MCP reports steps there too, which are removed: other protocols have no asides for them.
        """
        client = self._client()
        params: Wire = {"name": self.agent, "arguments": await self._arguments(contents), "_meta": {"progressToken": 1}}
        *notes, answer = messages_of(await self.http.request(**client.request("tools/call", params)))
        words = [note["params"]["message"] for note in notes if "_meta" not in note["params"]]
        words += answer["result"]["_meta"]["babelgate"].get("reasoning", ())
        asides = tuple(each for each in words if not each.startswith(STEP) and each != self.agent)
        return replace(task_view_of(answer["result"], ids_of(answer["result"]["_meta"])), asides=asides)

    def _meta(self) -> Wire:
        mark: Wire = {"metadata": dict(self.metadata)} if self.metadata else {}
        if self.tools:
            mark["tools"] = [{"type": "function", "function": each} for each in self.tools]
        return {"babelgate": mark} if mark else {}

    def stream(self, *contents: Content) -> Following:
        return self._started(contents)

    @asynccontextmanager
    async def _started(self, contents: tuple[Content, ...]) -> AsyncGenerator[Feed]:
        task = await self._client(polls=True).call(self.agent, await self._arguments(contents), _meta=self._meta())
        yield _Polled(self, ids_of(task["_meta"]))

    def attach(self, task_id: str) -> Following:
        """Poll the task as a client that has its id. The protocol has no streams to reconnect to."""
        return nullcontext(_Polled(self, Ids(Ids.thread_of(task_id), task_id, None)))

    async def answer(self, paused: TaskView, *answers: Content) -> TaskView:
        values = [item.value if isinstance(item, Data) else item for item in answers]
        values_by_id = {question.id: value for question, value in zip(paused.questions, values, strict=False)}
        arguments: Wire = {"run_id": encode_run_id(paused.task_id), "answers": values_by_id}
        result = await self._client().call("resume_run", arguments, _meta=self._meta())
        return after(paused, task_view_of(result, ids_of(result["_meta"])))

    async def _get(self, task_id: str) -> Wire:
        reply = await self._client(polls=True).ask("tasks/get", {"taskId": task_id})
        assert "result" in reply, reply
        return reply["result"]

    async def cancel(self, task_id: str) -> TaskView:
        reply = await self._client(polls=True).ask("tasks/cancel", {"taskId": task_id})
        assert "result" in reply, reply
        view = await self.look(task_id)
        while view.state == "working":
            view = await self.look(task_id)
        return view

    async def look(self, task_id: str) -> TaskView:
        task = await self._get(task_id)
        if "result" in task:
            return task_view_of(task["result"], ids_of(task["result"]["_meta"]))
        meta = task["_meta"]
        return task_view_of(meta["babelgate"]["result"], ids_of(meta), _STATES.get(task["status"], ""))

    async def losses(self, task_id: str) -> set[str]:
        task = await self._get(task_id)
        return set(task.get("result", task)["_meta"]["babelgate"].get("loss", ()))
