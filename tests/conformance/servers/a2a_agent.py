"""The agent behind the scripted servers of A2A, in the words of 1.0: tasks, their events, who may see them, and what
can go wrong with them in every binding."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import httpx

from tests.conformance.servers.kit import ScriptedServer

TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED"})
INTERRUPTED: Final = frozenset({"INPUT_REQUIRED", "AUTH_REQUIRED"})
OPEN: Final = INTERRUPTED | {"SUBMITTED", "WORKING"}
AUTH_TEXT: Final = "Sign in, please."
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


def triggers_of_the_agent() -> dict[str, str]:
    """The agent does what the first word of a text says."""
    return {
        "plain": "Hello",
        "stream": "stream one two three",
        "question": "ask",
        "auth": "auth",
        "fail": "fail",
        "reject": "reject",
        "long": "long",
        "files": "files",
        "data": "data",
        "message": "message",
    }


class Refused(Exception):
    """An error of the protocol; its argument is the reason."""


@dataclass(slots=True, eq=False)
class Task:
    id: str
    context: str
    owner: str
    binding: str
    word: str
    state: str = "SUBMITTED"
    said: dict[str, Any] | None = None
    at: datetime = _START
    artifacts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    readers: list["asyncio.Queue[Any]"] = field(default_factory=list["asyncio.Queue[Any]"])
    configs: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    forgotten: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Configs that were deleted, and are pushed to all the same."""
    looked_at: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in TERMINAL


class Agent(ScriptedServer):
    def __init__(self, violation: str = "") -> None:
        super().__init__(violation)
        self.is_bare = violation.startswith("bare")
        """No streams, no push notifications, no extended card."""
        self.tasks: dict[str, Task] = {}
        self.clock = _START
        self.in_flight: dict[str, int] = {}
        self.pushing: set[asyncio.Task[None]] = set()

    # Sending

    async def send(self, params: Mapping[str, Any], owner: str, binding: str) -> dict[str, Any]:
        message = self._taken(params)
        configuration: dict[str, Any] = params.get("configuration") or {}
        if self.word_of(message) == "message":
            return {"message": self._bare_message(message)}
        if self.does("of three messages at once one is lost"):
            await self._alone(message)
        task = self._task_for(message, owner, binding)
        if config := configuration.get("taskPushNotificationConfig"):
            self._configure(task, config)
        self._run(task, message)
        at_once = configuration.get("returnImmediately") is True
        if task.word == "fail" and self.does("a failed task stays at work"):
            at_once = True
        if not at_once or self.does("no answer at once"):
            await self._settled(task)
        length = None if self.does("history is not limited in answers") else configuration.get("historyLength")
        shown = self.view(task, length)
        if self.does("an answer before the end") and task.is_ended and task.word == "Hello":
            shown["status"]["state"] = "TASK_STATE_WORKING"
        if self.does("the context is not inferred") and "taskId" in message and "contextId" not in message:
            shown["contextId"] = str(uuid4())
        if self.does("an answer of two kinds"):
            return {"task": shown, "message": self._said("Both.")}
        return {"task": shown}

    async def _alone(self, message: Mapping[str, Any]) -> None:
        context = str(message.get("contextId", uuid4()))
        self.in_flight[context] = self.in_flight.get(context, 0) + 1
        try:
            await asyncio.sleep(0.1)
            if self.in_flight[context] > 2:
                raise Refused("INTERNAL")
        finally:
            self.in_flight[context] -= 1

    async def _settled(self, task: Task) -> None:
        """Until the task has ended, or waits for its caller."""
        if task.state in ("SUBMITTED", "WORKING"):
            queue = self._reader(task)
            while task.state in ("SUBMITTED", "WORKING"):
                await queue.get()

    def _taken(self, params: Mapping[str, Any]) -> dict[str, Any]:
        message: Any = params.get("message")
        if not isinstance(message, dict):
            raise Refused("INTERNAL" if self.does("no message is a failure") else "INVALID_PARAMS")
        taken: dict[str, Any] = message  # pyright: ignore[reportUnknownVariableType]
        self.raise_unless("messageId is not looked at", Refused("INVALID_PARAMS"), when=not taken.get("messageId"))
        if taken.get("role") != "ROLE_USER" and not self.does("the role is not looked at"):
            raise Refused("INVALID_PARAMS")
        parts: Any = taken.get("parts")
        if not isinstance(parts, list):
            raise Refused("INTERNAL" if self.does("wrong types are a failure") else "INVALID_PARAMS")
        if not parts:
            self.raise_unless("no parts are taken", Refused("INVALID_PARAMS"))
            taken["parts"] = [{"text": "Hello"}]
        for part in taken["parts"]:
            self._take_part(part)
        self.raise_if("unknown members are refused", Refused("INVALID_PARAMS"), when="babelgateFuture" in taken)
        self.raise_if("deep JSON is a failure", Refused("INTERNAL"), when="deep" in (taken.get("metadata") or {}))
        self.raise_if("large texts are refused", Refused("INVALID_PARAMS"), when=len(str(taken["parts"])) > 100_000)
        return taken

    def _take_part(self, part: dict[str, Any]) -> None:
        if len({"text", "raw", "url", "data"} & part.keys()) != 1:
            self.raise_unless("empty parts are taken", Refused("INVALID_PARAMS"))
            part["text"] = "Hello"
        self.raise_if("data parts are a failure", Refused("INTERNAL"), when="data" in part)
        if "unheard-of" in part.get("mediaType", "") and self.does("strange files are a failure"):
            raise Refused("INTERNAL")
        if "octet-stream" in part.get("mediaType", "") and self.does("files are refused"):
            raise Refused("CONTENT_TYPE_NOT_SUPPORTED")
        if "text" in part:
            part["text"] = self.ascii_if("ASCII only", part["text"])

    @staticmethod
    def word_of(message: Mapping[str, Any]) -> str:
        return next((str(part["text"]) for part in message["parts"] if part.get("text")), "").partition(" ")[0]

    def _task_for(self, message: Mapping[str, Any], owner: str, binding: str) -> Task:
        id, context = message.get("taskId"), message.get("contextId")
        if id is not None:
            if id not in self.tasks and self.does("tasks are made under ids of callers"):
                return self._made(id, context, owner, binding, message)
            task = self.found(id, owner, "anybody's task takes messages")
            self.raise_unless("ended tasks take messages", Refused("UNSUPPORTED_OPERATION"), when=task.is_ended)
            if context not in (None, task.context) and not self.does("contexts are not compared"):
                raise Refused("INVALID_PARAMS")
            if self.does("an answer is a new task"):
                return self._made(str(uuid4()), task.context, owner, binding, {"parts": [{"text": "Hello"}]})
            return task
        id = str(uuid4())
        word = self.word_of(message)
        if self.does("one id for all tasks") and word == "Hello":
            id = next((each.id for each in self.tasks.values() if each.word == word and each.owner == owner), id)
        known = {task.context for task in self.tasks.values()}
        if context is not None and context not in known and self.does("contexts of callers are exchanged"):
            context = None
        if context in known and self.does("contexts are never continued"):
            context = None
        return self._made(id, context, owner, binding, message)

    def _made(self, id: str, context: str | None, owner: str, binding: str, message: Mapping[str, Any]) -> Task:
        task = Task(id, context or str(uuid4()), owner, binding, self.word_of(message))
        self.tasks[id] = task
        self._stamp(task)
        return task

    # What the agent does

    def _run(self, task: Task, message: Mapping[str, Any]) -> None:
        answers = task.state in INTERRUPTED
        if not (answers and self.does("answers are not kept")):
            task.history.append({**message, "taskId": task.id, "contextId": task.context})
        if answers:
            self._go_on(task)
            return
        match task.word:
            case "stream":
                self._work(task)
                self._in_pieces(task, ["one", " two", " three"])
                self._end(task, "COMPLETED")
            case "ask":
                self._ask(task)
            case "auth":
                state = "INPUT_REQUIRED" if self.does("authentication is a question") else "AUTH_REQUIRED"
                self._status(task, state, AUTH_TEXT)
            case "fail":
                self._work(task)
                if not self.does("a failed task stays at work"):
                    self._end(task, "FAILED", "" if self.does("failure without a word") else "It went wrong.")
            case "reject":
                self._end(task, "FAILED" if self.does("rejected is failed") else "REJECTED", "Not that.")
            case "long":
                self._work(task)
                self._artifact(task, {"artifactId": "answer", "parts": [{"text": "first"}]}, last=False)
            case "files":
                self._files(task, message)
            case "data":
                self._work(task)
                part: dict[str, Any] = {"text": "{}"} if self.does("data is text") else {"data": {"words": [1, None]}}
                self._artifact(task, {"artifactId": "data", "parts": [part]})
                self._end(task, "COMPLETED")
            case _:
                self._plain(task)

    def _plain(self, task: Task) -> None:
        self._work(task)
        part: dict[str, Any] = {"text": "Hello, you."}
        self.set_if("a part of two kinds", part, data={})
        self.set_if("parts have a kind", part, kind="text")
        artifact: dict[str, Any] = {"artifactId": "answer", "parts": [part]}
        self.set_if("an artifact without parts", artifact, parts=[])
        self.set_if("members in snake case", artifact, media_type="text/plain")
        self._artifact(task, artifact)
        if self.does("artifacts share an id"):
            task.artifacts.append(artifact)
        self._end(task, "COMPLETED")

    def _in_pieces(self, task: Task, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            append = number > 0 or self.does("the first piece is appended")
            last = number == len(texts) - 1 and not self.does("no piece is the last")
            artifact = {"artifactId": "answer", "parts": [{"text": text}]}
            self._artifact(task, artifact, append=append, last=last)

    def _files(self, task: Task, message: Mapping[str, Any]) -> None:
        self._work(task)
        for number, part in enumerate(message["parts"]):
            if "raw" in part:
                given = dict(part)
                if self.does("bytes are encoded twice"):
                    given["raw"] = base64.b64encode(given["raw"].encode()).decode()
                if self.does("files lose their names"):
                    given.pop("filename", None)
                self._artifact(task, {"artifactId": f"file-{number}", "parts": [given]})
        self._end(task, "COMPLETED")

    def _ask(self, task: Task) -> None:
        self._work(task)
        state = "AUTH_REQUIRED" if self.does("questions ask for keys") else "INPUT_REQUIRED"
        self._status(task, state, "" if self.does("a question without words") else "What is your name?")

    def _go_on(self, task: Task) -> None:
        if self.does("an answer leads nowhere"):
            self._status(task, task.state, "What is your name?")
            return
        self._work(task)
        self._artifact(task, {"artifactId": "greeting", "parts": [{"text": "Hello."}]})
        self._end(task, "COMPLETED")

    # What is told of it

    def _stamp(self, task: Task) -> None:
        self.clock += timedelta(milliseconds=7)
        task.at = self.clock

    def _work(self, task: Task) -> None:
        self._status(task, "WORKING")

    def _end(self, task: Task, state: str, text: str = "") -> None:
        self._status(task, state, text)
        if task.word == "stream" and self.does("another state is kept"):
            task.state = "FAILED"

    def _status(self, task: Task, state: str, text: str = "") -> None:
        task.state = state
        task.said = self._said(text) if text else None
        if task.said is not None:
            task.history.append(task.said)
        self._stamp(task)
        self._tell(task, {"statusUpdate": self.status_update(task)})

    def _said(self, text: str) -> dict[str, Any]:
        role = "ROLE_USER" if self.does("the agent speaks as the user") else "ROLE_AGENT"
        return {"messageId": str(uuid4()), "role": role, "parts": [{"text": text}]}

    def _bare_message(self, message: Mapping[str, Any]) -> dict[str, Any]:
        said = self._said("Just so.")
        if not self.does("a bare message without context"):
            said["contextId"] = message.get("contextId") or str(uuid4())
        return said

    def _artifact(self, task: Task, artifact: dict[str, Any], *, append: bool = False, last: bool = True) -> None:
        known = next((each for each in task.artifacts if each["artifactId"] == artifact["artifactId"]), None)
        if append and known is not None:
            known["parts"] = [*known["parts"], *artifact["parts"]]
        else:
            task.artifacts.append(dict(artifact))
        if append and "two" in str(artifact) and self.does("a piece is not streamed"):
            return
        update = {"taskId": task.id, "contextId": task.context, "artifact": artifact, "append": append}
        self.drop_if("artifact updates without context", update, "contextId")
        self._tell(task, {"artifactUpdate": {**update, "lastChunk": last}})

    def status_update(self, task: Task) -> dict[str, Any]:
        id = str(uuid4()) if self.does("updates of another task") and task.word == "stream" else task.id
        update = {"taskId": id, "contextId": task.context, "status": self.status(task)}
        self.drop_if("status updates without context", update, "contextId")
        return update

    def status(self, task: Task) -> dict[str, Any]:
        stamp = task.at.isoformat(timespec="milliseconds").replace("+00:00", "")
        status: dict[str, Any] = {"state": f"TASK_STATE_{task.state}"}
        status["timestamp"] = stamp if self.does("times without a zone") else f"{stamp}Z"
        if task.said is not None:
            status["message"] = {**task.said, "taskId": task.id, "contextId": task.context}
        self.set_if("states as in 0.3", status, state=task.state.lower())
        if task.word == "Hello" and task.state == "WORKING" and self.does("a status without a state"):
            del status["state"]
        return status

    def view(self, task: Task, history_length: int | None = None) -> dict[str, Any]:
        history = [self._remembered(each) for each in task.history]
        if history_length is not None:
            newest = history[-history_length:] if history_length else []
            history = history[:history_length] if self.does("history is cut at the wrong end") else newest
        shown: dict[str, Any] = {"id": task.id, "contextId": task.context, "status": self.status(task)}
        shown["artifacts"] = [dict(each) for each in task.artifacts]
        shown["history"] = history
        self.drop_if("no contextId", shown, "contextId")
        self.set_if("metadata is a list", shown, metadata=[])
        return shown

    def _remembered(self, message: Mapping[str, Any]) -> dict[str, Any]:
        kept = {"role": "ROLE_USER", **message}
        self.set_if("roles as in 0.3", kept, role="user")
        self.set_if("the user speaks as the agent", kept, role="ROLE_AGENT")
        self.drop_if("a message without its id", kept, "messageId")
        return kept

    def _reader(self, task: Task) -> "asyncio.Queue[Any]":
        queue: asyncio.Queue[Any] = asyncio.Queue()
        task.readers.append(queue)
        return queue

    def _tell(self, task: Task, event: dict[str, Any]) -> None:
        for number, queue in enumerate(task.readers):
            is_deaf = number > 0 and task.word == "long" and self.does("the second subscriber hears nothing")
            queue.put_nowait(None if is_deaf else event)
        for config in [*task.configs.values(), *task.forgotten]:
            self._push(task, config, event)

    # Streams

    async def streamed(self, params: Mapping[str, Any], owner: str, binding: str) -> AsyncGenerator[dict[str, Any]]:
        """Raises Refused before the first event."""
        self.raise_unless("bare: streams anyway", Refused("UNSUPPORTED_OPERATION"), when=self.is_bare)
        message = self._taken(params)
        if self.word_of(message) == "message":
            return self._one_message(message)
        self.raise_if("answers cannot be streamed", Refused("UNSUPPORTED_OPERATION"), when="taskId" in message)
        task = self._task_for(message, owner, binding)
        configuration: dict[str, Any] = params.get("configuration") or {}
        if config := configuration.get("taskPushNotificationConfig"):
            self._configure(task, config)
        queue, start = self._reader(task), self.view(task)
        if task.state in INTERRUPTED:
            start["status"]["state"] = "TASK_STATE_WORKING"
        self._run(task, message)
        if task.state in ("SUBMITTED", "WORKING") and task.word == "fail":
            queue.put_nowait(None)
        return self._events(task, queue, start, is_own=True)

    async def _one_message(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        yield {"message": self._bare_message(message)}
        if self.does("a message and more"):
            yield {"message": self._bare_message(message)}

    async def subscribed(self, id: str, owner: str) -> AsyncGenerator[dict[str, Any]]:
        """Raises Refused."""
        if self.is_bare:
            raise Refused("UNSUPPORTED_OPERATION")
        self.raise_if("unknown tasks can be subscribed to", Refused("INVALID_PARAMS"), when=id not in self.tasks)
        task = self.found(id, owner, "anybody's task can be subscribed to")
        if self.does("no subscriptions") or (task.is_ended and not self.does("ended tasks can be subscribed to")):
            raise Refused("UNSUPPORTED_OPERATION")
        return self._events(task, self._reader(task), self.view(task), is_own=False)

    async def _events(
        self, task: Task, queue: "asyncio.Queue[Any]", start: dict[str, Any], *, is_own: bool
    ) -> AsyncGenerator[dict[str, Any]]:
        try:
            if task.word == "long" and is_own and self.does("events come at the end"):
                await self._settled(task)
            if not self.does("a stream without its task" if is_own else "a subscription without its task"):
                yield {"task": start}
            if task.word == "stream" and self.does("a message among the updates"):
                yield {"message": self._bare_message({})}
            async for event in self._live(task, queue):
                for told in self._altered(task, event):
                    yield told
            if self.does("streams stay open" if is_own else "subscriptions stay open") and task.word in (
                "Hello",
                "long",
            ):
                await asyncio.Event().wait()
        finally:
            if queue in task.readers:
                task.readers.remove(queue)
            wrong = "a reader takes the task along" if is_own else "a subscriber takes the task along"
            if not task.is_ended and self.does(wrong):
                task.state = "CANCELED"

    async def _live(self, task: Task, queue: "asyncio.Queue[Any]") -> AsyncGenerator[dict[str, Any]]:
        if task.is_ended and queue.empty():
            return
        while (event := await queue.get()) is not None:
            yield event
            if queue.empty() and task.state not in ("SUBMITTED", "WORKING"):
                return

    def _altered(self, task: Task, event: dict[str, Any]) -> list[dict[str, Any]]:
        state = str(event.get("statusUpdate", {}).get("status", {}).get("state", "")).removeprefix("TASK_STATE_")
        if state == "CANCELED" and self.does("the cancel is not streamed"):
            return []
        if state == "INPUT_REQUIRED" and self.does("the question is not streamed"):
            return []
        if state in TERMINAL and task.word == "Hello" and self.does("a stream without its end"):
            return []
        if state == "FAILED" and self.does("a failure is streamed as success"):
            changed = {**event["statusUpdate"], "status": {"state": "TASK_STATE_COMPLETED"}}
            return [{"statusUpdate": changed}]
        if state == "FAILED" and self.does("a failure is streamed as a rejection"):
            return [{"statusUpdate": {**event["statusUpdate"], "status": {"state": "TASK_STATE_REJECTED"}}}]
        if state in TERMINAL and task.word == "Hello" and self.does("two ends"):
            return [event, event]
        if state in TERMINAL and task.word == "stream" and self.does("the end is told twice"):
            return [event, event]
        if state in TERMINAL and task.word == "stream" and self.does("an artifact after the end"):
            late = {"artifactId": "late", "parts": [{"text": "late"}]}
            task.artifacts.append(late)
            return [event, {"artifactUpdate": {"taskId": task.id, "contextId": task.context, "artifact": late}}]
        if "artifactUpdate" in event and task.word == "Hello" and self.does("an event of two kinds"):
            return [{**event, "statusUpdate": self.status_update(task)}]
        return [event]

    # Tasks by their ids

    def found(self, id: Any, owner: str, everybodys: str = "", unknown: str = "") -> Task:
        """The caller's task. Raises Refused."""
        task = self.tasks.get(id) if isinstance(id, str) else None
        if task is None or (task.owner != owner and not (everybodys and self.does(everybodys))):
            raise Refused("INVALID_PARAMS" if unknown and self.does(unknown) else "TASK_NOT_FOUND")
        return task

    def get(self, params: Mapping[str, Any], owner: str, binding: str) -> dict[str, Any]:
        id = params.get("id")
        if id is None:
            raise Refused("TASK_NOT_FOUND" if self.does("no id is no task") else "INVALID_PARAMS")
        if self.does("ids are paths") and ".." in str(id):
            return {"id": str(id), "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": {"file": "root:x:0:0:root"}}
        task = self.found(id, owner, "anybody's task is shown", "unknown tasks are wrong parameters")
        if task.binding != binding:
            if binding == "HTTP+JSON" and self.does("REST does not know tasks of JSON-RPC"):
                raise Refused("TASK_NOT_FOUND")
            if binding == "JSONRPC" and self.does("JSON-RPC does not know tasks of REST"):
                raise Refused("TASK_NOT_FOUND")
        shown = self.view(task, None if self.does("historyLength is ignored") else params.get("historyLength"))
        self._spoil(task, shown)
        return shown

    def _spoil(self, task: Task, shown: dict[str, Any]) -> None:
        """What goes wrong with a task that is looked at."""
        task.looked_at += 1
        self.set_if("another task is given", shown, id=str(uuid4()))
        self.set_if("artifacts are forgotten", shown, artifacts=[])
        if shown.get("artifacts") and self.does("artifacts stand there twice"):
            shown["artifacts"] = [*shown["artifacts"], *shown["artifacts"]]
        if task.is_ended and task.looked_at > 1 and self.does("ended tasks change"):
            shown["status"]["state"] = "TASK_STATE_REJECTED"
        if task.state == "INPUT_REQUIRED" and self.does("a question gives up"):
            shown["status"]["state"] = "TASK_STATE_FAILED"
        if task.state == "CANCELED" and self.does("cancelled tasks come back"):
            shown["status"]["state"] = "TASK_STATE_COMPLETED"

    def cancel(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        task = self.found(params.get("id"), owner, "anybody cancels", "unknown tasks are wrong parameters of a cancel")
        if task.is_ended:
            if self.does("a refused cancel changes the task"):
                task.state = "CANCELED"
            if self.does("ended tasks are cancelled"):
                return self.view(task)
            raise Refused("TASK_NOT_CANCELABLE")
        if task.state in INTERRUPTED and self.does("waiting tasks cannot be cancelled"):
            raise Refused("TASK_NOT_CANCELABLE")
        if self.does("cancel does nothing"):
            return self.view(task)
        self._end(task, "CANCELED")
        shown = self.view(task)
        self.set_if("cancel gives another task", shown, id=str(uuid4()))
        return shown

    # Push notifications

    def configure(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        id = params.get("taskId")
        if id not in self.tasks and self.does("unknown tasks can be configured"):
            return {**params, "id": str(params.get("id", "1"))}
        task = self.found(id, owner, "anybody's task can be configured")
        config = self._configure(task, params)
        if self.does("webhooks change their address"):
            return {**config, "url": "https://example.com/elsewhere"}
        if self.does("tokens are numbers"):
            return {**config, "token": 1}
        return {name: value for name, value in config.items() if name != "id" or not self.does("configs without an id")}

    def _can_push(self) -> None:
        self.raise_unless("bare: pushes anyway", Refused("PUSH_NOTIFICATION_NOT_SUPPORTED"), when=self.is_bare)

    def _configure(self, task: Task, given: Mapping[str, Any]) -> dict[str, Any]:
        if "169.254." in str(given.get("url")) and not self.does("webhooks may be anywhere"):
            raise Refused("INVALID_PARAMS")
        config = {**given, "taskId": task.id, "id": given.get("id") or str(uuid4())}
        if self.does("one config a task"):
            task.configs.clear()
        if task.state == "SUBMITTED" or not self.does("later configs are not pushed"):
            task.configs[config["id"]] = config
        return config

    def configured(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        task = self.found(params.get("taskId"), owner)
        config = task.configs.get(str(params.get("id")))
        if config is None:
            if task.configs and self.does("unknown configs are others"):
                return next(iter(task.configs.values()))
            raise Refused("TASK_NOT_FOUND")
        return {**config, "url": f"{config['url']}?"} if self.does("webhooks are read otherwise") else config

    def configs(self, params: Mapping[str, Any], owner: str) -> dict[str, Any]:
        self._can_push()
        task = self.found(params.get("taskId"), owner)
        listed = list(task.configs.values())
        return {"configs": [] if self.does("configs are not listed") else listed}

    def unconfigure(self, params: Mapping[str, Any], owner: str) -> None:
        self._can_push()
        task = self.found(params.get("taskId"), owner)
        id = str(params.get("id"))
        self.raise_if("deleting twice is an error", Refused("TASK_NOT_FOUND"), when=id not in task.configs)
        if not self.does("deleted configs stay"):
            gone = task.configs.pop(id, None)
            if gone is not None and self.does("deleted configs are pushed to"):
                task.forgotten.append(gone)

    def _push(self, task: Task, config: Mapping[str, Any], event: dict[str, Any]) -> None:
        state = str(event.get("statusUpdate", {}).get("status", {}).get("state", ""))
        is_end = state.removeprefix("TASK_STATE_") in TERMINAL
        if "example.com" in config["url"] or ":9/" in config["url"] or self.does("nothing is pushed"):
            return
        if is_end and self.does("the end is not pushed"):
            return
        headers = {"content-type": "text/plain" if self.does("pushes are text") else "application/a2a+json"}
        if "token" in config and not self.does("pushes without the token"):
            headers["x-a2a-notification-token"] = config["token"]
        if "authentication" in config and not self.does("pushes without credentials"):
            authentication = config["authentication"]
            headers["authorization"] = f"{authentication['scheme']} {authentication['credentials']}"
        body = self.pushed(task, event)
        before = list(self.pushing)

        async def post() -> None:
            await asyncio.gather(*before, return_exceptions=True)
            async with httpx.AsyncClient(trust_env=False, verify=False) as http:
                await http.post(config["url"], json=body, headers=headers)

        pushing = asyncio.get_running_loop().create_task(post())
        self.pushing.add(pushing)
        pushing.add_done_callback(self._pushed)

    def _pushed(self, pushing: asyncio.Task[None]) -> None:
        self.pushing.discard(pushing)
        if not pushing.cancelled():
            pushing.exception()  # whoever was to be told is gone

    def pushed(self, task: Task, event: dict[str, Any]) -> Any:
        """The body of a delivery."""
        return self.view(task) if self.does("pushes are bare tasks") else event
