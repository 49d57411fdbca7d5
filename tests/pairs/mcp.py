"""A caller that speaks MCP as of 2026-07-28. It has nobody to fill in forms: questions are answered by a tool, and what
becomes of a run is looked at by the extension for tasks."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import unquote
from uuid import uuid4

from babelgate.adapters.mcp.codec.run_id import encode_run_id
from tests.adapters.mcp.site import TASKS, Modern, messages_of
from tests.pairs.caller import Caller, Data, Feed, File, Following, Ids, Question, Said, Seen
from tests.pairs.cast import STEP
from tests.pairs.openai import after

Wire = dict[str, Any]

_STATES: Final = {"working": "working", "input_required": "input_required", "cancelled": "cancelled"}


def arguments_of(said: tuple[Said, ...], thread_id: str) -> Wire:
    texts = [one for one in said if isinstance(one, str)]
    made: Wire = {"message": "".join(texts), "thread_id": thread_id}
    for one in said:
        if isinstance(one, Data):
            made["data"] = one.value
        elif isinstance(one, File):
            data = b64encode(one.content).decode()
            made.setdefault("files", []).append({"name": one.name, "mime_type": one.media_type, "data": data})
    return made


def question_of(told: Wire) -> Question:
    return Question(told["message"], told.get("schema"), told.get("value"), told["id"])


def file_of(block: Wire) -> tuple[str, bytes]:
    if block["type"] == "resource":
        return unquote(block["resource"]["uri"].rpartition("/")[2]), b64decode(block["resource"]["blob"])
    if block["type"] == "resource_link":
        return block["name"], block["uri"].encode()
    return block["_meta"]["babelgate"]["name"], b64decode(block["data"])


def seen_of(result: Wire, ids: Ids, state: str = "") -> Seen:
    """Data is told as its JSON."""
    content: list[Wire] = result["content"]
    structured: Wire = result.get("structuredContent") or {}
    asked: list[Wire] = structured.get("interrupts", []) if structured.get("status") == "input_required" else []
    fault = ""
    if asked:
        content, state = content[: -len(asked) - 1], "input_required"
    elif result.get("isError"):
        cancelled = content[-1]["text"] == "The run was cancelled."
        fault = "" if cancelled else content[-1]["text"]
        content, state = content[:-1], "cancelled" if cancelled else "failed"
    texts = [block["text"] for block in content if block["type"] == "text"]
    return Seen(
        state or "completed",
        text="".join(text for text in texts if not text.startswith("{")),
        data=tuple(json.loads(text) for text in texts if text.startswith("{")),
        files=dict(file_of(block) for block in content if block["type"] != "text"),
        questions=tuple(map(question_of, asked)),
        fault=fault,
        task_id=ids.task,
        context_id=ids.thread,
    )


def ids_of(meta: Wire) -> Ids:
    told = meta["babelgate"]
    return Ids.of({f"babelgate-{name}": told[f"{name}_id"] for name in ("thread", "task", "run")})


class _Polled(Feed):
    """What a client is told of a task that it asks for again and again."""

    def __init__(self, caller: "Mcp", ids: Ids) -> None:
        self.ids = ids
        self.frames = []
        self.before = 0
        self._caller = caller
        self._now = Seen("working", task_id=ids.task, context_id=ids.thread)

    @property
    def seen(self) -> Seen:
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

    async def _arguments(self, said: tuple[Said, ...]) -> Wire:
        """Of a tool with a schema of its agent's own, the text is its first argument."""
        if self.context_id is None:
            self.context_id = str(uuid4())
        made = arguments_of(said, self.context_id)
        tools = (await self._client().ask("tools/list"))["result"]["tools"]
        wanted: Wire = next(tool for tool in tools if tool["name"] == self.agent)["inputSchema"]["properties"]
        if "message" not in wanted:
            made[next(name for name in wanted if name != "thread_id")] = made.pop("message")
        return made

    async def send(self, *said: Said) -> Seen:
        result = await self._client().call(self.agent, await self._arguments(said))
        return seen_of(result, ids_of(result["_meta"]))

    async def told(self, *said: Said) -> Seen:
        """Progress as well. Steps are told there, too, where other protocols tell no asides."""
        client = self._client()
        params: Wire = {"name": self.agent, "arguments": await self._arguments(said), "_meta": {"progressToken": 1}}
        *notes, answer = messages_of(await self.http.request(**client.request("tools/call", params)))
        words = [note["params"]["message"] for note in notes if "_meta" not in note["params"]]
        asides = tuple(each for each in words if not each.startswith(STEP) and each != self.agent)
        return replace(seen_of(answer["result"], ids_of(answer["result"]["_meta"])), asides=asides)

    def stream(self, *said: Said) -> Following:
        return self._begun(said)

    @asynccontextmanager
    async def _begun(self, said: tuple[Said, ...]) -> AsyncGenerator[Feed]:
        task = await self._client(polls=True).call(self.agent, await self._arguments(said))
        yield _Polled(self, ids_of(task["_meta"]))

    def attach(self, task_id: str) -> Following:
        """As a client would that has the task's id: the protocol has no streams to come back to."""
        return nullcontext(_Polled(self, Ids(Ids.thread_of(task_id), task_id, None)))

    async def answer(self, asked: Seen, *answers: Said) -> Seen:
        values = [said.value if isinstance(said, Data) else said for said in answers]
        given = {question.id: value for question, value in zip(asked.questions, values, strict=False)}
        arguments: Wire = {"run_id": encode_run_id(asked.task_id), "answers": given}
        result = await self._client().call("resume_run", arguments)
        return after(asked, seen_of(result, ids_of(result["_meta"])))

    async def _get(self, task_id: str) -> Wire:
        told = await self._client(polls=True).ask("tasks/get", {"taskId": task_id})
        assert "result" in told, told
        return told["result"]

    async def cancel(self, task_id: str) -> Seen:
        told = await self._client(polls=True).ask("tasks/cancel", {"taskId": task_id})
        assert "result" in told, told
        seen = await self.look(task_id)
        while seen.state == "working":
            seen = await self.look(task_id)
        return seen

    async def look(self, task_id: str) -> Seen:
        task = await self._get(task_id)
        if "result" in task:
            return seen_of(task["result"], ids_of(task["result"]["_meta"]))
        meta = task["_meta"]
        return seen_of(meta["babelgate"]["result"], ids_of(meta), _STATES.get(task["status"], ""))

    async def losses(self, task_id: str) -> set[str]:
        task = await self._get(task_id)
        return set(task.get("result", task)["_meta"]["babelgate"].get("loss", ()))
